package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

// source is discovery as tests steer it.
type source struct {
	mu     sync.Mutex
	cats   map[routes.BackendID]*catalog.Catalog
	health map[routes.BackendID]catalog.Health
	seeded []routes.BackendID
	first  chan struct{}
}

func newSource() *source {
	return &source{
		cats: map[routes.BackendID]*catalog.Catalog{}, health: map[routes.BackendID]catalog.Health{},
		first: make(chan struct{}),
	}
}

func (s *source) Seed(cats map[routes.BackendID]*catalog.Catalog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range cats {
		s.cats[id] = c
		s.seeded = append(s.seeded, id)
	}
}

func (s *source) Snapshot() (map[routes.BackendID]*catalog.Catalog, map[routes.BackendID]catalog.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.cats), maps.Clone(s.health)
}

func (s *source) FirstRound() <-chan struct{} { return s.first }

// settled ends the first round.
func (s *source) settled() *source { close(s.first); return s }

// learn is a discovery of tools.
func (s *source) learn(id routes.BackendID, tools ...string) *source {
	c := &catalog.Catalog{
		Backend: id, Protocol: "2026-07-28", Capabilities: json.RawMessage(`{"tools":{}}`), Taken: time.Now(),
		Tools: catalog.List{Since: time.Now()},
	}
	for _, name := range tools {
		raw := json.RawMessage(fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name))
		c.Tools.Items = append(c.Tools.Items, catalog.Item{Name: name, Raw: raw, Digest: routes.Digest(raw)})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cats[id] = c
	return s
}

// parse makes a config of its backends (each http://ID/mcp) and hosts ("acme: a b").
func parse(t *testing.T, version int, backends string, hosts ...string) *config.Config {
	t.Helper()
	var y strings.Builder
	fmt.Fprintf(&y, `redis: redis://127.0.0.1:6379/0
config_version: %d
auth: {issuers: [{issuer: https://idp.example, audiences: [weir], algorithms: [RS256], public_key_file: idp.pub}]}
backends:
`, version)
	for b := range strings.FieldsSeq(backends) {
		fmt.Fprintf(&y, "  %s: {url: \"http://%s.example/mcp\"}\n", b, b)
	}
	y.WriteString("virtual_hosts:\n")
	for _, h := range hosts {
		id, used, _ := strings.Cut(h, ":")
		fmt.Fprintf(&y, "  %s: {backends: [", id)
		for b := range strings.FieldsSeq(used) {
			fmt.Fprintf(&y, "{name: %s},", b)
		}
		y.WriteString("]}\n")
	}
	cfg, _, err := config.Parse([]byte(y.String()))
	if err != nil {
		t.Fatalf("config: %v\n%s", err, y.String())
	}
	return cfg
}

// replica is one running controller.
type replica struct {
	*Controller
	source *source
	stop   func()
}

// store is what a controller writes to: the whole of a store.
type store interface {
	routestest.Writer
	routestest.Reader
}

func (r *replica) learn(id routes.BackendID, tools ...string) {
	r.source.learn(id, tools...)
	r.Notify()
}

// start runs a controller until the test ends.
func start(t *testing.T, st store, owner string, cfg *config.Config, src *source, edit ...func(*Options)) *replica {
	t.Helper()
	o := Options{
		Leases: st, Documents: st, Hosts: st, Keys: st, Catalogs: st, Decisions: st, Decider: st, Source: src, Owner: owner,
		Log: zaptest.NewLogger(t).Named(owner),
	}
	for _, e := range edit {
		e(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c.Configure(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return &replica{c, src, stop}
}

// inBubble runs a test in a bubble of fake time.
func inBubble(t *testing.T, f func(t *testing.T, m *routestest.Memory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, routestest.NewMemory()) })
}

// after lets fake time pass and everything come to rest.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// tools are the published tool routes of a host as name=backend/upstream; "absent" or "removed" where there is no document.
func tools(t *testing.T, st store, id routes.HostID) map[string]string {
	t.Helper()
	doc := document(t, st, id)
	if doc == nil {
		return nil
	}
	out := map[string]string{}
	for name, r := range doc.Tools {
		out[name] = string(r.Backend) + "/" + r.Upstream
	}
	return out
}

// document is what stands of a host; nil: nothing.
func document(t *testing.T, st store, id routes.HostID) *routes.VirtualHost {
	t.Helper()
	recs, err := st.Hosts(t.Context(), []routes.HostID{id})
	if err != nil {
		t.Fatalf("Hosts: %v", err)
	}
	rec, ok := recs[id]
	if !ok || rec.Removed {
		return nil
	}
	doc, err := routes.DecodeHost(rec.Document)
	if err != nil {
		t.Fatalf("decode %s: %v", id, err)
	}
	return doc
}

func codes(s *State) []string {
	var out []string
	for _, p := range s.Problems {
		out = append(out, p.Code)
	}
	return out
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
