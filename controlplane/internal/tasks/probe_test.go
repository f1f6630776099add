package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/routestest"
	"github.com/weir-mcp/weir/routes/wire"
)

// upstream is a backend over HTTP that answers as a test says, and remembers what it was sent.
type upstream struct {
	*httptest.Server
	// answers is called for each request but those of a handshake; it returns a status and a body, with "ID" for the request's id.
	answers func(taskID string) (int, string)

	mu      sync.Mutex // guards what follows
	methods []string
	headers []http.Header // of tasks/get
	params  []json.RawMessage
}

func newUpstream(t *testing.T, answers func(taskID string) (int, string)) *upstream {
	u := &upstream{answers: answers}
	u.Server = httptest.NewServer(u)
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
	}
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodPost && json.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if r.Method != http.MethodPost {
		m.Method = r.Method
	}
	u.mu.Lock()
	u.methods = append(u.methods, m.Method)
	if m.Method == "tasks/get" {
		u.headers = append(u.headers, r.Header.Clone())
		u.params = append(u.params, m.Params)
	}
	u.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch m.Method {
	case "initialize":
		w.Header().Set("Mcp-Session-Id", "s1")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tasks":{}},"serverInfo":{"name":"u","version":"1"}}}`, m.ID)
	case "notifications/initialized":
		w.WriteHeader(http.StatusAccepted)
	case http.MethodDelete:
	default:
		var p struct{ TaskID string }
		_ = json.Unmarshal(m.Params, &p)
		status, answer := u.answers(p.TaskID)
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, answer)
	}
}

func (u *upstream) sent() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.methods)
}

func newProber(t *testing.T, o egress.Options) (*prober, *egress.Client) {
	t.Helper()
	c, err := egress.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l, err := New(Options{Owners: routestest.NewMemory(), Backends: c, Version: "1.2"})
	if err != nil {
		t.Fatal(err)
	}
	return &prober{backends: c, info: clientInfo("1.2"), log: l.log}, c
}

func (u *upstream) backend(protocol string) *routes.Backend {
	b := backendOf(protocol)
	b.URL = u.URL
	b.AddHeaders = map[string]routes.SecretRef{"X-Team": "platform", "X-Drop": "1"}
	b.RemoveHeaders = []string{"x-drop"}
	return &b
}

func TestWhatABackendSays(t *testing.T) {
	day, month := routes.MinTaskLife, routes.MaxTaskLife
	for sentence, tt := range map[string]struct {
		status int
		answer string
		want   reply
	}{
		"it knows it":                     {200, `"result":{"resultType":"complete","taskId":"t1","status":"working","ttlMs":1000}`, reply{known, day}},
		"for ever":                        {200, `"result":{"taskId":"t1","status":"completed","ttlMs":null,"result":{"content":[]}}`, reply{known, month}},
		"it knows another":                {200, `"result":{"taskId":"t2","status":"working"}`, reply{}},
		"a result that is no task":        {200, `"result":{}`, reply{}},
		"a task without an id":            {200, `"result":{"status":"working"}`, reply{}},
		"a task with two ids":             {200, `"result":{"taskId":"t1","taskId":"t1","status":"working"}`, reply{}},
		"invalid params":                  {400, `"error":{"code":-32602,"message":"no such task"}`, reply{}},
		"not found, in the older way":     {200, `"error":{"code":-32002,"message":"no such task"}`, reply{}},
		"it has no such method":           {404, `"error":{"code":-32601,"message":"method not found"}`, reply{}},
		"a code of its own":               {200, `"error":{"code":7,"message":"?"}`, reply{}},
		"a fault of its own":              {200, `"error":{"code":-32603,"message":"database"}`, reply{verdict: failed}},
		"it misses a capability":          {400, `"error":{"code":-32021,"message":"?"}`, reply{verdict: failed}},
		"it does not speak this version":  {400, `"error":{"code":-32022,"message":"?"}`, reply{verdict: failed}},
		"it refuses the plane":            {401, `"error":{"code":-32600,"message":"?"}`, reply{}},
		"it forbids":                      {403, `"error":{"code":-32600,"message":"?"}`, reply{}},
		"it limits the rate":              {429, `"error":{"code":-32600,"message":"?"}`, reply{verdict: failed}},
		"it is overloaded":                {503, `"error":{"code":-32600,"message":"?"}`, reply{verdict: failed}},
		"it breaks":                       {500, `"error":{"code":-32600,"message":"?"}`, reply{verdict: failed}},
		"an answer that is no message":    {200, `"result":`, reply{verdict: failed}},
		"an error that is not an object":  {200, `"error":7`, reply{verdict: failed}},
		"a status that is no answer, 202": {202, `"result":{"taskId":"t1"}`, reply{verdict: failed}},
	} {
		t.Run(sentence, func(t *testing.T) {
			u := newUpstream(t, func(string) (int, string) { return tt.status, tt.answer })
			p, _ := newProber(t, egress.Options{})
			if got := p.ask(t.Context(), "u", u.backend("2026-07-28"), "t1"); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			if got := u.sent(); !slices.Equal(got, []string{"tasks/get"}) {
				t.Errorf("sent %v", got)
			}
		})
	}
}

// One question and nothing else, with the operator's headers and none of a caller's.
func TestWhatABackendIsSent(t *testing.T) {
	u := newUpstream(t, func(string) (int, string) { return 200, `"result":{"taskId":"t é","status":"working","ttlMs":1}` })
	p, _ := newProber(t, egress.Options{})
	if got := p.ask(t.Context(), "u", u.backend("2026-07-28"), "t é"); got.verdict != known {
		t.Fatalf("%+v", got)
	}
	want := `{"taskId":"t é","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"weir","version":"1.2"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}`
	if diff := cmp.Diff(want, string(u.params[0])); diff != "" {
		t.Errorf("params (-want +got):\n%s", diff)
	}
	h := u.headers[0]
	for name, want := range map[string]string{
		"Mcp-Method": "tasks/get", "Mcp-Name": wire.EncodeHeaderValue("t é"), "Mcp-Protocol-Version": "2026-07-28", "X-Team": "platform",
		"X-Drop": "", "Authorization": "", "Cookie": "",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestALegacyBackendIsAskedInASessionOfItsOwn(t *testing.T) {
	u := newUpstream(t, func(id string) (int, string) {
		if id == "t1" {
			return 200, `"result":{"taskId":"t1","status":"working","createdAt":"2026-01-01T00:00:00Z","ttl":null}`
		}
		return 200, `"error":{"code":-32602,"message":"no such task"}`
	})
	p, c := newProber(t, egress.Options{})
	for id, want := range map[string]reply{"t1": {known, routes.MaxTaskLife}, "t2": {}} {
		if got := p.ask(t.Context(), "u", u.backend("2025-11-25"), id); got != want {
			t.Errorf("%s: %+v, want %+v", id, got, want)
		}
	}
	c.Close() // the sessions are ended in the background
	for _, method := range u.sent() {
		if !slices.Contains([]string{"initialize", "notifications/initialized", "tasks/get", http.MethodDelete}, method) {
			t.Errorf("sent %s", method)
		}
	}
	if string(u.params[0]) == "" || u.headers[0].Get("Mcp-Session-Id") != "s1" || u.headers[0].Get("X-Team") != "platform" {
		t.Errorf("params %s, headers %v", u.params[0], u.headers[0])
	}
	bare := u.backend("2025-11-25")
	bare.Handshake = routes.HandshakeNone
	p, _ = newProber(t, egress.Options{})
	if got := p.ask(t.Context(), "u", bare, "t1"); got.verdict != known {
		t.Errorf("without a handshake: %+v", got)
	}
}

// Looks neither trip the breaker nor are they stopped by it.
func TestLooksGoPastTheBreaker(t *testing.T) {
	broken := true
	u := newUpstream(t, func(string) (int, string) {
		if broken {
			return 500, `"error":{"code":-32603,"message":"?"}`
		}
		return 200, `"result":{"taskId":"t1","status":"working"}`
	})
	p, c := newProber(t, egress.Options{Breaker: &egress.BreakerOptions{MinCalls: 2, Open: time.Hour}})
	b := u.backend("2026-07-28")
	call := func(principal string) error {
		a, err := c.Do(t.Context(), egress.Call{ID: "u", Backend: b, RPCID: json.RawMessage("1"), Method: "tools/call", Name: "x", Principal: principal})
		if err != nil {
			return err
		}
		defer a.Close()
		_, err = a.Next()
		return err
	}
	for range 50 {
		if got := p.ask(t.Context(), "u", b, "t1"); got.verdict != failed {
			t.Fatalf("%+v", got)
		}
	}
	broken = false
	if err := call("p"); err != nil {
		t.Errorf("after 50 looks that failed: %v", err)
	}
	broken = true
	for i := range 10 {
		_ = call(fmt.Sprint("p", i))
	}
	broken = false
	if err := call("p"); err == nil {
		t.Fatal("the breaker is closed")
	}
	if got := p.ask(t.Context(), "u", b, "t1"); got.verdict != known {
		t.Errorf("with the breaker open: %+v", got)
	}
}

// A backend that takes the question and never answers.
func TestAHungBackendEndsWithTheDeadline(t *testing.T) {
	asked, end := make(chan struct{}), make(chan struct{})
	u := newUpstream(t, func(string) (int, string) { close(asked); <-end; return 200, `"result":{}` })
	defer close(end)
	p, _ := newProber(t, egress.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got := p.ask(ctx, "u", u.backend("2026-07-28"), "t1"); got.verdict != failed {
		t.Errorf("%+v, want failed", got)
	}
	<-asked
}

func TestABackendThatIsNotThere(t *testing.T) {
	u := newUpstream(t, nil)
	u.Close()
	p, _ := newProber(t, egress.Options{})
	if got := p.ask(t.Context(), "u", u.backend("2026-07-28"), "t1"); got.verdict != failed {
		t.Errorf("%+v, want failed", got)
	}
	secret := u.backend("2026-07-28")
	secret.AddHeaders["X-Key"] = "${env:KEY}" // nobody resolves it here
	if got := p.ask(t.Context(), "u", secret, "t1"); got.verdict != failed {
		t.Errorf("without its credentials: %+v, want failed", got)
	}
}

// The whole way, over HTTP: found, claimed, and asked for no more.
func TestLocateOverHTTP(t *testing.T) {
	var ups []*upstream
	host := routestest.Host("acme")
	for _, has := range []string{"t1", "t2"} {
		u := newUpstream(t, func(id string) (int, string) {
			if id == has {
				return 200, fmt.Sprintf(`"result":{"taskId":%q,"status":"working","ttlMs":60000}`, id)
			}
			return 400, `"error":{"code":-32602,"message":"no such task"}`
		})
		ups = append(ups, u)
		host.Backend(routes.BackendID("has-"+has), *u.backend("2026-07-28"))
	}
	c, err := egress.New(egress.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l, err := New(Options{Owners: routestest.NewMemory(), Backends: c})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for id, at := range map[string]string{"t1": "has-t1", "t2": "has-t2"} {
			want(t, l.Locate(t.Context(), caller("me"), host.Document(), id, wire.Modern), owner, at)
		}
	}
	want(t, l.Locate(t.Context(), caller("me"), host.Document(), "t3", wire.Modern), missed, routes.CauseUnknown)
	for i, u := range ups {
		if got := u.sent(); !slices.Equal(got, []string{"tasks/get", "tasks/get", "tasks/get"}) {
			t.Errorf("backend %d was sent %v", i, got)
		}
	}
}
