package call

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/routestest"
	"github.com/weir-mcp/weir/routes/secret"
	"github.com/weir-mcp/weir/routes/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	modern = "2026-07-28"
	legacy = "2025-11-25"
)

// bothVersions runs f for a client of each era.
func bothVersions(t *testing.T, f func(t *testing.T, version string)) {
	for _, version := range []string{modern, legacy} {
		t.Run("client "+version, func(t *testing.T) { f(t, version) })
	}
}

// gateway is a dataplane without its store: the real ingress and egress around a Handler, and one virtual host.
type gateway struct {
	url     string
	index   atomic.Pointer[routes.Index]
	reg     *prometheus.Registry
	log     *observer.ObservedLogs
	handler *Handler
}

// tokens is an Authenticator: a token is "NAME" or "NAME:SCOPES", and NAME is who calls.
type tokens struct{}

func (tokens) Verify(_ context.Context, token, _ string) (*access.Identity, error) {
	name, claim, _ := strings.Cut(token, ":")
	if name == "" {
		return nil, access.ErrUnauthorized
	}
	scopes, err := access.ParseScopes(claim, false)
	return &access.Identity{
		Principal: access.Principal(name), Subject: name, Hosts: []routes.HostID{"acme"}, HostClaim: true, Scopes: scopes,
	}, err
}

// newGateway serves a host. edit may change the handler's options.
func newGateway(t *testing.T, host *routestest.HostBuilder, edit func(*Options)) *gateway {
	t.Helper()
	client, err := egress.New(egress.Options{})
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := secret.NewResolver(secret.Policy{Env: []string{"WEIR_BACKEND_*"}})
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.DebugLevel)
	g := &gateway{reg: prometheus.NewRegistry(), log: logs}
	o := Options{
		Backends: client, Log: zap.New(core), Registerer: g.reg, Expand: secrets.Expand, HasReference: secret.HasReference,
		Name: "weir", Version: "1",
	}
	if edit != nil {
		edit(&o)
	}
	if g.handler, err = New(o); err != nil {
		t.Fatal(err)
	}
	g.publish(t, host)
	endpoint, err := wire.NewEndpoint(wire.Options{
		Auth:     tokens{},
		Resolve:  func(context.Context, routes.HostID) (*routes.Index, error) { return g.index.Load(), nil },
		Dispatch: g.handler.Dispatch,
		OnPanic:  func(v any, stack []byte) { t.Errorf("panic: %v\n%s", v, stack) },
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(endpoint)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		client.Close()
	})
	g.url = srv.URL + "/mcp"
	return g
}

func (g *gateway) publish(t *testing.T, host *routestest.HostBuilder) { g.index.Store(host.Index(t)) }

// request is one request of a hand-made client; zero fields have a good default.
type request struct {
	version string // default modern
	token   string // default alice
	id      string // default 1
	method  string
	params  string // default {}; a modern client's _meta is put in
	tasks   bool   // a modern client declares the tasks extension
	header  http.Header
}

func (r request) withDefaults() request {
	if r.version == "" {
		r.version = modern
	}
	if r.token == "" {
		r.token = "alice"
	}
	if r.id == "" {
		r.id = "1"
	}
	if r.params == "" {
		r.params = "{}"
	}
	return r
}

const metaTriple = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"tester","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}`

func (r request) body() string {
	if r.version == modern {
		switch {
		case strings.Contains(r.params, `"_meta":{`):
			r.params = strings.Replace(r.params, `"_meta":{`, `"_meta":{`+metaTriple+`,`, 1)
		case r.params == "{}":
			r.params = `{"_meta":{` + metaTriple + `}}`
		default:
			r.params = strings.TrimSuffix(r.params, "}") + `,"_meta":{` + metaTriple + `}}`
		}
	}
	if r.tasks {
		r.params = strings.Replace(r.params, `clientCapabilities":{}`, `clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, 1)
	}
	return `{"jsonrpc":"2.0","id":` + r.id + `,"method":"` + r.method + `","params":` + r.params + `}`
}

// open sends a request and returns the answer with its body unread.
func (g *gateway) open(ctx context.Context, r request) (*http.Response, error) {
	r = r.withDefaults()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url, strings.NewReader(r.body()))
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Authorization": {"Bearer " + r.token}, "Mcp-Protocol-Version": {r.version}, "Cookie": {"session=1"},
	}
	if r.version == modern {
		req.Header.Set("Mcp-Method", r.method)
		var p struct{ Name, URI, TaskID string }
		_ = json.Unmarshal([]byte(r.params), &p) // without a name there is no header
		if name := p.Name + p.URI + p.TaskID; name != "" {
			req.Header.Set("Mcp-Name", name)
		}
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	return httpClient.Do(req)
}

var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// answer is what a client got, whole.
type answer struct {
	status int
	header http.Header
	body   string
	events []string // of a stream, the response last
	rpc    struct {
		ID     json.RawMessage
		Result json.RawMessage
		Error  *struct {
			Code    int
			Message string
			Data    json.RawMessage
		}
	}
}

// reason is data.reason of an error.
func (a *answer) reason() string {
	var data struct{ Reason string }
	if a.rpc.Error != nil {
		_ = json.Unmarshal(a.rpc.Error.Data, &data) // no data, no reason
	}
	return data.Reason
}

func (a *answer) code() int {
	if a.rpc.Error == nil {
		return 0
	}
	return a.rpc.Error.Code
}

func (g *gateway) ask(t *testing.T, r request) *answer {
	t.Helper()
	resp, err := g.open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	a := &answer{status: resp.StatusCode, header: resp.Header, body: string(body)}
	doc := body
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		sc := newEvents(strings.NewReader(a.body))
		for event, err := sc(); err == nil; event, err = sc() {
			a.events = append(a.events, event)
		}
		if len(a.events) == 0 {
			t.Fatalf("an empty stream: %q", body)
		}
		doc = []byte(a.events[len(a.events)-1])
	}
	if err := json.Unmarshal(doc, &a.rpc); err != nil && len(doc) > 0 {
		t.Fatalf("answer %q: %v", doc, err)
	}
	return a
}

// must is ask where anything but a result is a failure.
func (g *gateway) must(t *testing.T, r request) string {
	t.Helper()
	a := g.ask(t, r)
	if a.rpc.Result == nil || a.status != 200 {
		t.Fatalf("%s %s: status %d: %s", r.method, r.params, a.status, a.body)
	}
	return string(a.rpc.Result)
}

// newEvents returns a function that yields the data of the next event.
func newEvents(r io.Reader) func() (string, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 16<<20)
	return func() (string, error) {
		var data []string
		for sc.Scan() {
			line := sc.Text()
			switch d, ok := strings.CutPrefix(line, "data: "); {
			case ok:
				data = append(data, d)
			case line == "" && data != nil:
				return strings.Join(data, "\n"), nil
			case line != "" && !strings.HasPrefix(line, ":"):
				return "", fmt.Errorf("unexpected line %q", line)
			}
		}
		if err := sc.Err(); err != nil {
			return "", err
		}
		return "", io.EOF
	}
}

// backend is an MCP server made by hand: modern, or legacy with the handshake that a legacy client makes.
type backend struct {
	url     string
	session string // given to legacy clients at their handshake; empty: none

	mu   sync.Mutex // guards seen
	seen []seen
}

// seen is one request that a backend got.
type seen struct {
	method string
	id     string
	params json.RawMessage
	body   string
	header http.Header
	ctx    context.Context
	verb   string // of HTTP
}

// newBackend starts a server that answers by f, except for a legacy client's handshake.
func newBackend(t *testing.T, f func(w http.ResponseWriter, r seen)) *backend {
	t.Helper()
	b := &backend{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		_ = json.Unmarshal(body, &m) // a DELETE has none
		s := seen{method: m.Method, id: string(m.ID), params: m.Params, body: string(body), header: r.Header.Clone(), ctx: r.Context(), verb: r.Method}
		b.mu.Lock()
		b.seen = append(b.seen, s)
		b.mu.Unlock()
		switch {
		case m.Method == "initialize":
			if b.session != "" {
				w.Header().Set("Mcp-Session-Id", b.session)
			}
			answerJSON(w, 200, s.id, `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}`)
		case r.Method == http.MethodDelete, m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		default:
			f(w, s)
		}
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	b.url = srv.URL
	return b
}

// route is how the gateway reaches b, which speaks version.
func (b *backend) route(version string) routes.Backend {
	return routes.Backend{URL: b.url, Protocol: version}
}

// calls are the requests of a method.
func (b *backend) calls(method string) []seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []seen
	for _, s := range b.seen {
		if s.method == method {
			out = append(out, s)
		}
	}
	return out
}

// deletes are the ends of sessions.
func (b *backend) deletes() []seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.seen), func(s seen) bool { return s.verb != http.MethodDelete })
}

func (b *backend) last(t *testing.T, method string) seen {
	t.Helper()
	calls := b.calls(method)
	if len(calls) == 0 {
		t.Fatalf("the backend saw no %s", method)
	}
	return calls[len(calls)-1]
}

// answerJSON answers with one document; member is "result":… or "error":….
func answerJSON(w http.ResponseWriter, status int, id, member string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,`+member+`}`)
}

// result is a backend that gives every call the same result.
func result(t *testing.T, doc string) *backend {
	return newBackend(t, func(w http.ResponseWriter, r seen) { answerJSON(w, 200, r.id, `"result":`+doc) })
}

// stream answers with an event stream that f writes; each send is flushed.
func stream(w http.ResponseWriter, f func(send func(doc string))) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	f(func(doc string) {
		fmt.Fprintf(w, "event: message\ndata: %s\n\n", doc)
		_ = rc.Flush() // a gateway that left is noticed by what the test waits for
	})
}
