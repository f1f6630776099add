package discovery

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is what a hand-made backend is asked.
type request struct {
	Method  string
	ID      json.RawMessage
	Cursor  *string // nil: the first page
	Session string  // the Mcp-Session-Id header
}

// reply is what it answers: one of the fields.
type reply struct {
	result string                    // JSON
	error  string                    // JSON
	status int                       // without a body
	write  func(http.ResponseWriter) // anything else
}

// handmade starts a backend that answers as h says. Requests other than POST get 405, notifications 202.
func handmade(t *testing.T, h func(request) reply) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		body, _ := io.ReadAll(r.Body)
		var m struct {
			Method string
			ID     json.RawMessage
			Params struct{ Cursor *string }
		}
		if err := json.Unmarshal(body, &m); err != nil {
			t.Errorf("request %s: %v", body, err)
		}
		if m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		out := h(request{m.Method, m.ID, m.Params.Cursor, r.Header.Get("Mcp-Session-Id")})
		switch {
		case out.write != nil:
			out.write(w)
		case out.status != 0:
			w.WriteHeader(out.status)
		case out.error != "":
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, out.error)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, out.result)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// endSessions ends what sessions a server of the SDK still has when the test is over: of probes that were given up, and of
// streams whose connection was cut before the goodbye. Call it before the cleanup that stops serving is registered.
func endSessions(t *testing.T, srv *mcp.Server) {
	t.Helper()
	t.Cleanup(func() {
		for session := range srv.Sessions() {
			_ = session.Close() // it may have ended by itself
		}
	})
}

const methodNotFound = `{"code":-32601,"message":"no such method"}`

// modern answers server/discover with the capabilities, and leaves the rest to h.
func modern(capabilities string, h func(request) reply) func(request) reply {
	return func(r request) reply {
		if r.Method == "server/discover" {
			return reply{result: `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` + capabilities +
				`,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"hand","version":"1"}},"instructions":"mind the gap","ttlMs":1,"cacheScope":"public"}`}
		}
		return h(r)
	}
}

// legacy answers initialize, knows nothing of server/discover, and leaves the rest to h.
func legacy(capabilities string, h func(request) reply) func(request) reply {
	return func(r request) reply {
		switch r.Method {
		case "server/discover":
			return reply{status: http.StatusBadRequest}
		case "initialize":
			return reply{write: func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Mcp-Session-Id", "s1")
				_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":%s,"serverInfo":{"name":"old","version":"1"}}}`,
					r.ID, capabilities)
			}}
		}
		return h(r)
	}
}

// tools is a complete tools/list result of modern servers.
func tools(items ...string) string {
	return `{"resultType":"complete","tools":[` + strings.Join(items, ",") + `],"ttlMs":1000,"cacheScope":"public"}`
}

func tool(name string) string { return `{"name":"` + name + `","inputSchema":{"type":"object"}}` }

// running is a Discoverer that runs until the test ends.
type running struct {
	*Discoverer
	t       *testing.T
	mu      sync.Mutex
	changed chan struct{} // closed at the next change
}

// run starts a Discoverer on the backends, which are named by their keys.
func run(t *testing.T, o Options, conf config.Discovery, backends map[string]string) *running {
	t.Helper()
	r := &running{t: t, changed: make(chan struct{})}
	client, err := egress.New(egress.Options{ResponseLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	o.Client = client
	o.Changed = func(routes.BackendID) {
		r.mu.Lock()
		defer r.mu.Unlock()
		close(r.changed)
		r.changed = make(chan struct{})
	}
	if r.Discoverer, err = New(o); err != nil {
		t.Fatal(err)
	}
	r.configure(conf, backends)
	stop := start(t, r.Discoverer)
	t.Cleanup(func() { stop(); client.Close() })
	return r
}

// start runs d and returns a function that ends it and waits.
func start(t *testing.T, d *Discoverer) (stop func()) {
	t.Helper()
	ctx, cancel := newContext()
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func (r *running) configure(conf config.Discovery, backends map[string]string) {
	list := make([]config.Backend, 0, len(backends))
	for id, url := range backends {
		list = append(list, config.Backend{ID: routes.BackendID(id), Route: routes.Backend{URL: url}})
	}
	r.Configure(conf, list)
}

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// await returns the backend's catalog and health once they are as wanted.
func (r *running) await(id routes.BackendID, what string, ok func(*catalog.Catalog, catalog.Health) bool) *catalog.Catalog {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		catalogs, healths := r.Snapshot()
		if ok(catalogs[id], healths[id]) {
			return catalogs[id]
		}
		select {
		case <-changed:
		case <-deadline:
			r.t.Fatalf("%s: not %s within %v: %+v, %+v", id, what, patience, catalogs[id], healths[id])
		}
	}
}

func (r *running) awaitUp(id routes.BackendID) *catalog.Catalog {
	r.t.Helper()
	return r.await(id, "up", func(c *catalog.Catalog, h catalog.Health) bool { return h.Up && c != nil })
}

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
		panic("unreachable")
	}
}

func names(l *catalog.List) []string {
	out := []string{}
	for i := range l.Items {
		if l.Items[i].Reject == "" {
			out = append(out, l.Items[i].Name)
		}
	}
	return out
}

// seldom is a config whose rounds come once, and again when they are asked for.
var seldom = config.Discovery{Interval: time.Hour, Timeout: patience, Parallel: 4}

// often is one for what must happen in a later round.
var often = config.Discovery{Interval: 20 * time.Millisecond, Timeout: patience, Parallel: 4}
