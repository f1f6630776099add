package call

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/routestest"
	"github.com/weir-mcp/weir/routes/wire"
)

// BenchmarkCall is one modern tools/call from decoded HTTP to the last byte, with a backend on loopback. The backend's own work is
// in the same process and counted.
func BenchmarkCall(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header()["Content-Type"] = []string{"application/json"}
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`)
	}))
	defer srv.Close()
	client, err := egress.New(egress.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	h, err := New(Options{Backends: client})
	if err != nil {
		b.Fatal(err)
	}
	index := routestest.Host("acme").Backend("b", routes.Backend{URL: srv.URL, Protocol: modern}).Tool("b__echo", "b", "echo").Index(b)
	endpoint, err := wire.NewEndpoint(wire.Options{
		Anonymous: access.Anonymous("acme"),
		Resolve:   func(context.Context, routes.HostID) (*routes.Index, error) { return index, nil },
		Dispatch:  h.Dispatch,
	})
	if err != nil {
		b.Fatal(err)
	}
	body := request{method: "tools/call", params: `{"name":"b__echo","arguments":{"message":"hi"}}`}.withDefaults().body()
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {modern}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"b__echo"}}
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/mcp", strings.NewReader(body))
		r.Header = header
		w := httptest.NewRecorder()
		endpoint.ServeHTTP(w, r)
		if w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
}
