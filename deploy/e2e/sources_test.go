package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// registry serves a document of backends, with an ETag.
type registry struct {
	url string

	mu        sync.Mutex // guards the rest
	status    int
	doc       string
	full      int // answers with the document
	unchanged int // answers 304
}

func newRegistry(t *testing.T, doc string) *registry {
	t.Helper()
	g := &registry{status: http.StatusOK, doc: doc}
	hs := httptest.NewServer(g)
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	g.url = hs.URL + "/backends.json"
	return g
}

func (g *registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	tag := fmt.Sprintf(`"%x"`, g.doc)
	switch {
	case r.URL.Path != "/backends.json" || r.Header.Get("Authorization") != "Bearer "+adminToken:
		http.Error(w, "not yours", http.StatusForbidden)
	case g.status != http.StatusOK:
		w.WriteHeader(g.status)
	case r.Header.Get("If-None-Match") == tag:
		g.unchanged++
		w.WriteHeader(http.StatusNotModified)
	default:
		g.full++
		w.Header().Set("ETag", tag)
		fmt.Fprint(w, g.doc)
	}
}

func (g *registry) serve(status int, doc string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status, g.doc = status, doc
}

func (g *registry) counts() (full, unchanged int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.full, g.unchanged
}

// hasProblem checks that the control plane lists a problem with this code and these words.
func (p *pair) hasProblem(code, words string) error {
	var got struct {
		Problems []struct{ Code, Text string }
	}
	if err := p.admin(http.MethodGet, "/api/v1/problems", &got); err != nil {
		return err
	}
	for _, problem := range got.Problems {
		if problem.Code == code && strings.Contains(problem.Text, words) {
			return nil
		}
	}
	return fmt.Errorf("no problem %s with %q in %+v", code, words, got.Problems)
}

// lists checks which tools a host's list has.
func lists(c client, want ...string) error {
	got, err := c.tools()
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("tools = %v, want %v", got, want)
	}
	return err
}

func TestABackendOfADocument(t *testing.T) {
	t.Parallel()
	own, late := newModernBackend(t, "own"), newModernBackend(t, "late")
	g := newRegistry(t, "[]")
	p := newPair(t, fmt.Sprintf("  own: {url: %q}\n", own.url)+fmt.Sprintf(`sources:
  registry:
    allow_private: true
    http: {url: %q, interval: 200ms, headers: {Authorization: "Bearer ${env:WEIR_ADMIN_TOKEN}"}}
`, g.url), `  acme:
    backends: [{name: own, prefix: o__}, {source: registry, prefix: "{name}__"}]
  globex:
    backends: [{name: late}]
`)
	acme, globex := p.client(t, 0, "acme", "2026-07-28"), p.client(t, 1, "globex", "2025-11-25")
	both := func() error {
		for _, err := range []error{
			serves(acme, "late__whoami", "late"), serves(acme, "o__whoami", "own"), serves(globex, "whoami", "late"),
			lists(acme, "o__whoami", "late__whoami"),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := misses(acme, "late__whoami"); err != nil {
		t.Error(err)
	}
	eventually(t, "a name that nobody delivered is a problem", func() error { return p.hasProblem("backend_undefined", "") })

	entry := fmt.Sprintf(`{"name":"late","url":%q}`, late.url)
	g.serve(200, "["+entry+"]")
	eventually(t, "the backend's tool is callable", both)
	full, unchanged := g.counts()
	eventually(t, "the document is asked for with its ETag", func() error {
		if f, u := g.counts(); f != full {
			t.Fatalf("served %d times, want the unchanged document once", f-full+1)
		} else if u < unchanged+3 {
			return errNotYet
		}
		return nil
	})

	for what, broken := range map[string]func(){
		"cut short":         func() { g.serve(200, "["+entry) },
		"an unknown member": func() { g.serve(200, `[{"name":"late","uri":"x"}]`) },
		"a dead server":     func() { g.serve(500, "") },
	} {
		g.serve(200, "["+entry+"]")
		eventually(t, "the source is well", func() error {
			if p.hasProblem("source_stale", "") == nil {
				return errNotYet
			}
			return nil
		})
		broken()
		eventually(t, what+" is a problem", func() error { return p.hasProblem("source_stale", "stays in force (1 backend)") })
		if err := both(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}

	// A control plane that starts while the source is down takes nothing away either.
	p.control.kill()
	g.serve(500, "")
	p.restartControl(t)
	eventually(t, "the source is reported", func() error { return p.hasProblem("source_stale", "has not answered since") })
	if err := both(); err != nil {
		t.Errorf("after the restart: %v", err)
	}

	g.serve(200, `[{"name":"own","url":"https://evil.example/mcp"},{"name":"bad","url":"https://${env:WEIR_ADMIN_TOKEN}.example/mcp"}]`)
	eventually(t, "the backend is gone", func() error { return misses(acme, "late__whoami") })
	eventually(t, "also by name", func() error { return misses(globex, "whoami") })
	eventually(t, "the file's own is not replaced", func() error { return p.hasProblem("source_refused", "the config file has one of this name") })
	eventually(t, "references are refused", func() error { return p.hasProblem("source_refused", "secret reference") })
	if err := serves(acme, "o__whoami", "own"); err != nil {
		t.Error(err)
	}
}

// Without allow_private, a document can't point Weir at what is local to it.
func TestADocumentCantNamePrivateAddresses(t *testing.T) {
	t.Parallel()
	own, local := newModernBackend(t, "own"), newModernBackend(t, "local")
	g := newRegistry(t, fmt.Sprintf(`[{"name":"local","url":%q}]`, local.url))
	p := newPair(t, fmt.Sprintf("  own: {url: %q}\n", own.url)+fmt.Sprintf(`sources:
  registry: {http: {url: %q, interval: 200ms, headers: {Authorization: "Bearer ${env:WEIR_ADMIN_TOKEN}"}}}
`, g.url), "  acme: {backends: [{name: own}, {source: registry, prefix: \"{name}__\"}]}\n")
	eventually(t, "the address is refused", func() error { return p.hasProblem("backend_down", "") })
	c := p.client(t, 0, "acme", "2026-07-28")
	if err := serves(c, "whoami", "own"); err != nil {
		t.Error(err)
	}
	if err := misses(c, "local__whoami"); err != nil {
		t.Error(err)
	}
	if n := len(slices.Collect(local.srv.Sessions())); n != 0 {
		t.Errorf("%d sessions at the local backend", n)
	}
}
