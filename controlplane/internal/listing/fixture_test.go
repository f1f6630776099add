package listing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/routestest"
	"github.com/weir-mcp/weir/routes/wire"
)

// bench is a listing over a store in memory, with the leader's side in the test's hand.
type bench struct {
	*routestest.Memory
	t        *testing.T
	lease    routes.Lease
	revision uint64
	store    *Store
	server   *Server
	endpoint http.Handler
}

// inBubble runs f in a bubble of fake time.
func inBubble(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newBench(t, false)) })
}

func newBench(t *testing.T, public bool) *bench {
	t.Helper()
	b := &bench{Memory: routestest.NewMemory(), t: t}
	var err error
	if b.lease, err = b.Acquire(t.Context(), "leader", time.Hour, 0); err != nil {
		t.Fatal(err)
	}
	log := zaptest.NewLogger(t)
	b.store, err = NewStore(StoreOptions{Changes: b, Hosts: b, Catalogs: b, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(ServerOptions{Store: b.store, Public: public, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	b.server = s
	b.endpoint, err = wire.NewEndpoint(wire.Options{Auth: tokens{}, Resolve: s.Resolve, Dispatch: s.Dispatch, PublicURL: "https://mcp.example"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.store.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return b
}

// tokens takes "HOST SCOPES" for a token.
type tokens struct{}

func (tokens) Verify(_ context.Context, token, _ string) (*access.Identity, error) {
	host, scope, _ := strings.Cut(token, "+")
	scopes, err := access.ParseScopes(strings.ReplaceAll(scope, "+", " "), false)
	if err != nil {
		return nil, errors.Join(access.ErrUnauthorized, err)
	}
	return &access.Identity{Principal: "p", Hosts: []routes.HostID{routes.HostID(host)}, HostClaim: true, Scopes: scopes}, nil
}

// publish publishes catalogs and hosts, and waits until the listing has them.
func (b *bench) publish(cats []*catalog.Catalog, hosts ...*routestest.HostBuilder) {
	b.t.Helper()
	b.revision++
	var batch routes.Batch
	for _, c := range cats {
		doc, err := catalog.Encode(c)
		if err != nil {
			b.t.Fatal(err)
		}
		batch.Catalogs = append(batch.Catalogs, routes.CatalogChange{Backend: c.Backend, Digest: routes.Digest(doc), Document: doc})
	}
	for _, h := range hosts {
		batch.Hosts = append(batch.Hosts, h.Change(b.t, b.lease, b.revision))
	}
	if err := b.Publish(b.t.Context(), b.lease, batch); err != nil {
		b.t.Fatal(err)
	}
	b.settle()
}

func (b *bench) complete() {
	b.t.Helper()
	if err := b.MarkComplete(b.t.Context(), b.lease); err != nil {
		b.t.Fatal(err)
	}
	b.settle()
}

// settle lets a poll of the store pass.
func (b *bench) settle() {
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

// def is one definition under the name that builders give its digest for.
func def(name, raw string) catalog.Item {
	return catalog.Item{Name: name, Digest: routes.Digest([]byte(name)), Raw: json.RawMessage(raw)}
}

func toolCatalog(id routes.BackendID, items ...catalog.Item) *catalog.Catalog {
	return &catalog.Catalog{Backend: id, Protocol: "2026-07-28", Tools: catalog.List{Items: items}}
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	result json.RawMessage
	code   int
	text   string // of the error
}

// modern and legacy post one request; params is an object without _meta.
func (b *bench) modern(token, method, params string) answer {
	b.t.Helper()
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	params = strings.TrimSuffix(strings.TrimPrefix(params, "{"), "}")
	if params != "" {
		meta += ","
	}
	return b.post(token, "2026-07-28", method, "{"+meta+params+"}", nil)
}

func (b *bench) legacy(token, method, params string) answer {
	b.t.Helper()
	return b.post(token, "2025-11-25", method, params, nil)
}

func (b *bench) post(token, version, method, params string, header http.Header) answer {
	b.t.Helper()
	if params == "" {
		params = "{}"
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
	r := httptest.NewRequestWithContext(b.t.Context(), http.MethodPost, "/mcp", strings.NewReader(body))
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Authorization": {"Bearer " + token}, "Mcp-Protocol-Version": {version},
	}
	if version == "2026-07-28" {
		r.Header.Set("Mcp-Method", method)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	w := httptest.NewRecorder()
	b.endpoint.ServeHTTP(w, r)
	a := answer{status: w.Code, header: w.Header(), body: w.Body.String()}
	var doc struct {
		Result json.RawMessage
		Error  struct {
			Code    int
			Message string
		}
	}
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
			b.t.Fatalf("%s: %v in %s", method, err, w.Body)
		}
	}
	a.result, a.code, a.text = doc.Result, doc.Error.Code, doc.Error.Message
	return a
}

// page is a list result as far as tests look into it.
type page struct {
	ResultType string
	Tools      []struct{ Name string }
	NextCursor *string
	TTLMs      *int64
	CacheScope string
	Meta       struct {
		Partial *struct{ Backends []string } `json:"weir/partialFailure"`
	} `json:"_meta"`
}

func (a answer) page(t *testing.T) page {
	t.Helper()
	var p page
	if a.status != 200 || a.code != 0 {
		t.Fatalf("status %d, error %d: %s", a.status, a.code, a.body)
	}
	if err := json.Unmarshal(a.result, &p); err != nil {
		t.Fatalf("%v in %s", err, a.result)
	}
	return p
}

func (p page) names() []string {
	var out []string
	for _, tool := range p.Tools {
		out = append(out, tool.Name)
	}
	return out
}
