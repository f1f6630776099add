package standalone

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-mcp/weir/routes"
)

// Without auth both planes serve the same host.
func TestWithoutAuthBothPlanesServeOneHost(t *testing.T) {
	const backends = "backends:\n  b: {url: \"http://127.0.0.1:1/mcp\"}\n"
	for name, tt := range map[string]struct {
		hosts string
		want  routes.HostID
	}{
		"the first one":               {"virtual_hosts:\n  acme:\n    backends: [{name: b}]\n  beta:\n    backends: [{name: b}]\n", "acme"},
		"default, where there is one": {"virtual_hosts:\n  acme:\n    backends: [{name: b}]\n  default:\n    backends: [{name: b}]\n", "default"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, keys := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "pub")
			if _, err := newSigner(keys); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(backends+tt.hosts), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := loadConfigs(t.Context(), path, setting{
				redisURL: "redis://127.0.0.1:1", listen: "127.0.0.1:8080", baseURL: "http://127.0.0.1:8080", keyFile: keys, noAuth: true,
			}, func(string) {})
			if err != nil {
				t.Fatal(err)
			}
			if cfg.data.NoAuthHost != tt.want {
				t.Errorf("the dataplane serves %q, want %q", cfg.data.NoAuthHost, tt.want)
			}
		})
	}
}

func TestVersionIsPrinted(t *testing.T) {
	var out, errs bytes.Buffer
	if err := Main(t.Context(), []string{"--version"}, &out, &errs); err != nil || !strings.HasPrefix(out.String(), "weir-standalone ") {
		t.Errorf("%q, %v", out.String(), err)
	}
}
