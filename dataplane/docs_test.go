package dataplane

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/redisstore"
)

// docs/metrics.md lists every metric that a dataplane registers, with its labels' metric type left to the reader.
func TestMetricsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Dataplane\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)` \\|").FindAllStringSubmatch(section, -1) {
		documented = append(documented, m[1])
	}
	cfg := DefaultConfig()
	cfg.Redis = redisstore.Config{URL: "redis://127.0.0.1:1"}
	cfg.Auth = access.Config{Issuers: []access.Issuer{{Issuer: "i", Audiences: []string{"a"}, Algorithms: []string{"HS256"}, HMACSecret: hmac}}}
	reg := &names{Registry: prometheus.NewRegistry()}
	s, err := newServer(cfg, Options{NoListeners: true}, reg)
	if err != nil {
		t.Fatal(err)
	}
	s.close()
	slices.Sort(documented)
	slices.Sort(reg.found)
	if diff := cmp.Diff(reg.found, documented); diff != "" {
		t.Errorf("metrics of the code (-) and of docs/metrics.md (+):\n%s", diff)
	}
}

// names is a registry that keeps the names of what is registered, used or not.
type names struct {
	*prometheus.Registry
	found []string
}

func (n *names) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		if m := regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String()); m != nil {
			n.found = append(n.found, m[1])
		}
	}
	return n.Registry.Register(c)
}
