package listing

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

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap/zaptest"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/routestest"
	"github.com/weir-mcp/weir/routes/wire"
)

// completer is a backend that answers completions as it is told, and remembers what it was asked.
type completer struct {
	*httptest.Server
	answer string // result or error member
	status int    // 0: 200
	block  chan struct{}

	mu     sync.Mutex
	params []string
	header http.Header
}

func newCompleter(t *testing.T, answer string) *completer {
	t.Helper()
	c := &completer{answer: answer}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *completer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
	}
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodPost || json.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch m.Method {
	case "completion/complete":
		c.mu.Lock()
		c.params, c.header = append(c.params, string(m.Params)), r.Header
		c.mu.Unlock()
		if c.block != nil {
			select {
			case <-c.block:
			case <-r.Context().Done():
				return
			}
		}
		if c.status != 0 {
			w.WriteHeader(c.status)
		}
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, c.answer)
	case "initialize":
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"completions":{}},"serverInfo":{"name":"b","version":"1"}}}`, m.ID)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// asked returns the params of the completions so far.
func (c *completer) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.params...)
}

// still is a listing over one view that does not change, with real time and a real network.
func still(t *testing.T, host *routestest.HostBuilder, edit ...func(*ServerOptions)) (*bench, *Server) {
	t.Helper()
	client, err := egress.New(egress.Options{Expand: func(s string) (string, error) { return strings.ReplaceAll(s, "${env:KEY}", "sesame"), nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	mem := routestest.NewMemory()
	b := &bench{Memory: mem, t: t}
	log := zaptest.NewLogger(t)
	if b.store, err = NewStore(StoreOptions{Changes: mem, Hosts: mem, Catalogs: mem, Log: log}); err != nil {
		t.Fatal(err)
	}
	doc := host.Document()
	b.store.views[doc.ID] = newView(routes.Version{}, doc, host.List(), nil, nil, time.Time{})
	o := ServerOptions{Store: b.store, Backends: client, Log: log, Tasks: TaskOptions{Owners: mem}}
	for _, f := range edit {
		f(&o)
	}
	s, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	b.endpoint, err = wire.NewEndpoint(wire.Options{Auth: tokens{}, Resolve: s.Resolve, Dispatch: s.Dispatch, PublicURL: "https://mcp.example"})
	if err != nil {
		t.Fatal(err)
	}
	return b, s
}

// completing is a host whose backend c completes.
func completing(c *completer, protocol string) *routestest.HostBuilder {
	return routestest.Host("acme").
		Backend("c", routes.Backend{
			URL: c.URL, Protocol: protocol, Capabilities: routes.BackendCapabilities{Completions: true},
			AddHeaders: map[string]routes.SecretRef{"X-Key": "${env:KEY}"}, PassthroughHeaders: []string{"X-Caller"},
		}).
		Prompt("up__ask", "c", "ask").Template("doc:///{id}", "c").Resource("doc:///1", "c").
		Prompt("mute", "silent", "mute")
}

const (
	askPrompt   = `{"ref":{"type":"ref/prompt","name":"up__ask"},"argument":{"name":"a","value":"v"}}`
	askTemplate = `{"ref":{"type":"ref/resource","uri":"doc:///{id}"},"argument":{"name":"id","value":""},"context":{"arguments":{"x":"1"}}}`
)

// Two eras of clients, two of backends: the owner is asked in its own words, and answers in the client's.
func TestCompletionInFourCells(t *testing.T) {
	const legacyResult, modernResult = `{"completion":{"values":["a"],"total":1}}`, `{"completion":{"values":["a"],"total":1},"resultType":"complete"}`
	for backend, sent := range map[string]string{"2025-11-25": legacyResult, "2026-07-28": modernResult} {
		for client, want := range map[string]string{"2025-11-25": legacyResult, "2026-07-28": modernResult} {
			t.Run(client+" to "+backend, func(t *testing.T) {
				c := newCompleter(t, `"result":`+sent)
				b, s := still(t, completing(c, backend))
				ask := b.legacy
				if client == "2026-07-28" {
					ask = b.modern
				} else if backend == "2026-07-28" {
					want = modernResult // what a legacy client does not know does not harm it
				}
				for _, params := range []string{askPrompt, askTemplate} {
					a := ask("acme", "completion/complete", params)
					if a.status != http.StatusOK || string(a.result) != want {
						t.Fatalf("%s: %d %s, want %s", params, a.status, a.body, want)
					}
				}
				asked := c.asked()
				if len(asked) != 2 {
					t.Fatalf("the backend was asked %d times", len(asked))
				}
				for i, part := range []string{
					`"ref":{"type":"ref/prompt","name":"ask"},"argument":{"name":"a","value":"v"}`,
					`"ref":{"type":"ref/resource","uri":"doc:///{id}"},"argument":{"name":"id","value":""},"context":{"arguments":{"x":"1"}}`,
				} {
					if !strings.Contains(asked[i], part) {
						t.Errorf("the backend got %s, want %s in it", asked[i], part)
					}
					if modern := strings.Contains(asked[i], wire.MetaProtocolVersion); modern != (backend == "2026-07-28") {
						t.Errorf("the backend got %s", asked[i])
					}
				}
				if got := testutil.ToFloat64(s.completions.WithLabelValues("c", "ok")); got != 2 {
					t.Errorf("%v completions counted", got)
				}
			})
		}
	}
}

func TestCompletionSendsTheOperatorsCredentialsOnly(t *testing.T) {
	c := newCompleter(t, `"result":{"completion":{"values":[]}}`)
	b, _ := still(t, completing(c, "2025-11-25"))
	a := b.post("acme", "2025-11-25", "completion/complete", askPrompt, http.Header{"X-Caller": {"me"}, "Cookie": {"c=1"}})
	if a.status != http.StatusOK {
		t.Fatal(a.body)
	}
	want := http.Header{"X-Key": {"sesame"}}
	got := http.Header{}
	for _, name := range []string{"X-Key", "X-Caller", "Authorization", "Cookie"} {
		if v := c.header[name]; v != nil {
			got[name] = v
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestCompletionsThatAreRefused(t *testing.T) {
	c := newCompleter(t, `"result":{"completion":{"values":[]}}`)
	b, _ := still(t, completing(c, "2026-07-28"))
	argument := `,"argument":{"name":"a","value":""}}`
	for name, tt := range map[string]struct {
		token, params          string
		modern, code           int // status and code
		legacyStatus, legacyOf int
	}{
		"unknown prompt":            {"acme", `{"ref":{"type":"ref/prompt","name":"nobody"}` + argument, 400, -32602, 200, -32602},
		"the name of the owner":     {"acme", `{"ref":{"type":"ref/prompt","name":"ask"}` + argument, 400, -32602, 200, -32602},
		"unknown template":          {"acme", `{"ref":{"type":"ref/resource","uri":"other:{id}"}` + argument, 400, -32602, 200, -32602},
		"unknown kind":              {"acme", `{"ref":{"type":"ref/tool","name":"x"}` + argument, 400, -32602, 200, -32602},
		"a name in two cases":       {"acme", `{"ref":{"type":"ref/prompt","name":"up__ask","Name":"x"}` + argument, 400, -32600, 400, -32600},
		"prompts without the scope": {"acme+mcp:resources", askPrompt, 403, -32600, 403, -32600},
		"templates without it":      {"acme+mcp:prompts", askTemplate, 403, -32600, 403, -32600},
	} {
		if a := b.modern(tt.token, "completion/complete", tt.params); a.status != tt.modern || a.code != tt.code {
			t.Errorf("%s: %d, %d %s", name, a.status, a.code, a.text)
		}
		if a := b.legacy(tt.token, "completion/complete", tt.params); a.status != tt.legacyStatus || a.code != tt.legacyOf {
			t.Errorf("%s, legacy: %d, %d %s", name, a.status, a.code, a.text)
		}
	}
	if n := len(c.asked()); n != 0 {
		t.Errorf("the backend was asked %d times", n)
	}
}

// A ref/resource may name a URI instead of a template (2026-07-28, CompleteRequest).
func TestCompletionOfURIs(t *testing.T) {
	c := newCompleter(t, `"result":{"completion":{"values":["x"]}}`)
	b, _ := still(t, completing(c, "2026-07-28"))
	for uri, code := range map[string]int{"doc:///1": 0, "doc:///other": 0, "doc:///../1": -32602, "x:///1": -32602} {
		if a := b.modern("acme", "completion/complete", `{"ref":{"type":"ref/resource","uri":"`+uri+`"},"argument":{"name":"a","value":""}}`); a.code != code {
			t.Errorf("%s: %d %s, want %d", uri, a.code, a.text, code)
		}
	}
}

func TestCompletionsWithoutAnybodyWhoCompletes(t *testing.T) {
	c := newCompleter(t, `"result":{"completion":{"values":["x"]}}`)
	const mute = `{"ref":{"type":"ref/prompt","name":"mute"},"argument":{"name":"a","value":""}}`
	b, s := still(t, completing(c, "2026-07-28"))
	if a := b.modern("acme", "completion/complete", mute); string(a.result) != `{"completion":{"values":[],"total":0,"hasMore":false},"resultType":"complete"}` {
		t.Errorf("the owner does not complete, others do: %s", a.body)
	}
	if a := b.legacy("acme", "completion/complete", mute); string(a.result) != noSuggestions {
		t.Errorf("the same, legacy: %s", a.body)
	}
	if got := testutil.ToFloat64(s.completions.WithLabelValues("silent", "none")); got != 2 {
		t.Errorf("%v counted", got)
	}
	b, _ = still(t, routestest.Host("acme").Prompt("mute", "silent", "mute"))
	if a := b.modern("acme", "completion/complete", mute); a.status != 404 || a.code != -32601 {
		t.Errorf("nobody completes: %d %s", a.status, a.body)
	}
	if a := b.legacy("acme", "completion/complete", mute); a.status != 200 || a.code != -32601 {
		t.Errorf("nobody completes, legacy: %d %s", a.status, a.body)
	}
}

func TestCompletionsThatFail(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string
		status int // of the backend
		code   int
		want   string // part of the modern answer
		http   int
		label  string
	}{
		"the backend's own error": {`"error":{"code":-32602,"message":"no such argument","data":{"x":1.0}}`, 400, -32602, `{"code":-32602,"message":"no such argument","data":{"x":1.0}}`, 400, "backend_error"},
		"an error of another era": {`"error":{"code":-32002,"message":"gone"}`, 0, -32602, `"gone"`, 200, "backend_error"},
		"a version that is gone":  {`"error":{"code":-32022,"message":"v","data":{}}`, 400, -32603, `"reason":"bad_response"`, 200, "bad_response"},
		"an HTTP error":           {`"x":1`, 503, -32603, `"reason":"overloaded","sent":true`, 200, "overloaded"},
		"no answer":               {`"x":1`, 0, -32603, `"reason":"bad_response"`, 200, "bad_response"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCompleter(t, tt.answer)
			c.status = tt.status
			b, s := still(t, completing(c, "2026-07-28"))
			a := b.modern("acme", "completion/complete", askPrompt)
			if a.code != tt.code || a.status != tt.http || !strings.Contains(a.body, tt.want) {
				t.Errorf("%d %s; want %d, %s", a.status, a.body, tt.http, tt.want)
			}
			if a := b.legacy("acme", "completion/complete", askPrompt); a.status != 200 {
				t.Errorf("legacy: %d %s", a.status, a.body)
			}
			if got := testutil.ToFloat64(s.completions.WithLabelValues("c", tt.label)); got != 2 {
				t.Errorf("%v counted as %s", got, tt.label)
			}
		})
	}
}

// A backend that hangs takes no more than its share.
func TestCompletionsAreBounded(t *testing.T) {
	c := newCompleter(t, `"result":{"completion":{"values":[]}}`)
	c.block = make(chan struct{})
	b, s := still(t, completing(c, "2026-07-28"))
	var running sync.WaitGroup
	for range completionsPerPrincipal {
		running.Go(func() {
			if a := b.modern("acme", "completion/complete", askPrompt); a.status != http.StatusOK {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	for held := 0; held < completionsPerPrincipal; {
		s.slots.mu.Lock()
		held = s.slots.principals["p"]
		s.slots.mu.Unlock()
	}
	a := b.modern("acme", "completion/complete", askPrompt)
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, `"reason":"overloaded","retryAfterMs":1000`) {
		t.Errorf("one too many: %d %s", a.status, a.body)
	}
	close(c.block)
	running.Wait()
	for name, n := range map[string]int{"principals": len(s.slots.principals), "backends": len(s.slots.backends)} {
		if n != 0 {
			t.Errorf("%d %s still hold a slot", n, name)
		}
	}
	for range completionsPerBackend {
		if _, err := s.slots.enter("somebody", "c"); err != nil {
			break
		}
	}
	for range completionsPerBackend - completionsPerPrincipal {
		if _, err := s.slots.enter("else", "c"); err != nil {
			t.Fatal(err.Message)
		}
	}
	if _, err := s.slots.enter("third", "c"); err == nil || err.Status != 0 {
		t.Errorf("a full backend: %v", err)
	}
}
