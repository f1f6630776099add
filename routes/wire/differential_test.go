package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-mcp/weir/routes"
)

// sample is one HTTP exchange of the corpus.
type sample struct {
	method string // of HTTP
	header http.Header
	body   string
}

// TestDifferential plays a corpus at the endpoint and at the SDK's handler, the oracle: what a client can tell apart (status,
// code, id, kind of answer) must be the same, but for the differences that are listed with their reason in
// knownDifferences. A difference that is new, or no longer there, fails.
func TestDifferential(t *testing.T) {
	ours, theirs := newServer(t, Options{Dispatch: plainDispatch}), newOracle(t)
	corpus := corpus()
	if len(corpus) < 200 {
		t.Errorf("the corpus has %d exchanges only", len(corpus))
	}
	known, same := knownDifferences(), 0
	used := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(corpus)) {
		a, b := observe(t, ours, corpus[name]), observe(t, theirs, corpus[name])
		if a == b {
			same++
			continue
		}
		i := slices.IndexFunc(known, func(d difference) bool { return d.covers(name, a, b) })
		if i < 0 {
			t.Errorf("%s: %s; the SDK: %s", name, a, b)
			continue
		}
		used[fmt.Sprint(i, name)], used[fmt.Sprint(i)] = true, true
	}
	for i, d := range known {
		if !used[fmt.Sprint(i)] {
			t.Errorf("no exchange differs like this any more: %s", d.why)
		}
		for _, name := range d.names {
			if !used[fmt.Sprint(i, name)] {
				t.Errorf("%s: listed (%s), but does not differ like this", name, d.why)
			}
		}
	}
	t.Logf("%d exchanges, %d the same", len(corpus), same)
}

// plainDispatch is a server with the tools echo and mirror, as the oracle has them.
func plainDispatch(w *Response, r *Request) {
	switch r.Method {
	case "notifications/initialized", "notifications/cancelled":
		w.Accepted()
	case "ping":
		if r.Era == Modern {
			w.Fail(MethodNotFound())
			return
		}
		w.Result([]byte("{}"))
	case "initialize", "server/discover":
		if (r.Method == "initialize") != (r.Era == Legacy) {
			w.Fail(MethodNotFound())
			return
		}
		w.Result([]byte("{}"))
	case "tools/list":
		w.Result([]byte("{}"))
	case "tools/call":
		switch {
		case r.Name == "mirror" && r.Era == Modern:
			if err := CheckParams([]byte(oracleSchema()), r.Arguments(), r.HTTP.Header); err != nil {
				w.Fail(err)
				return
			}
			w.Result([]byte(`{"content":[]}`))
		case r.Name == "echo" || r.Name == "mirror" || r.Name == "foo" || r.Name == "日本語" || r.Name == "=?BASE64?Zm9v?=":
			w.Result([]byte(`{"content":[]}`))
		default:
			w.Fail(UnknownName(routes.KindTool, r.Era, r.Name))
		}
	case "prompts/get":
		w.Fail(UnknownName(routes.KindPrompt, r.Era, r.Name))
	case "resources/read":
		w.Fail(UnknownName(routes.KindResource, r.Era, r.Name))
	default:
		if r.ID == nil {
			w.Accepted()
			return
		}
		w.Fail(MethodNotFound())
	}
}

// oracleSchema is paramSchema without the type ["string","null"], where the SDK sees no annotations at all.
func oracleSchema() string { return strings.Replace(paramSchema, `["string","null"]`, `"string"`, 1) }

func newOracle(t *testing.T) *httptest.Server {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "oracle", Version: "1"}, nil)
	ok := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	}
	for _, name := range []string{"echo", "foo", "日本語", "=?BASE64?Zm9v?="} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, ok)
	}
	server.AddTool(&mcp.Tool{Name: "mirror", InputSchema: json.RawMessage(oracleSchema())}, ok)
	server.AddPrompt(&mcp.Prompt{Name: "p"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{}, nil
	})
	server.AddResource(&mcp.Resource{Name: "r", URI: "file:///r"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{}, nil
	})
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: 4 << 20,
	})
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// observe plays a sample and returns what a client can tell: status, and of a JSON-RPC answer its kind, code and id.
func observe(t *testing.T, server *httptest.Server, s sample) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), s.method, server.URL+"/mcp", strings.NewReader(s.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = s.header.Clone()
	resp, err := server.Client().Do(r)
	if err != nil {
		return "no answer: " + err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "cut off: " + err.Error()
	}
	var doc struct {
		JSONRPC string
		ID      json.RawMessage
		Result  json.RawMessage
		Error   *struct{ Code int }
	}
	answer := fmt.Sprint(resp.StatusCode)
	if json.Unmarshal(bytes.TrimSpace(body), &doc) != nil || doc.JSONRPC != "2.0" {
		return answer
	}
	if doc.Error != nil {
		answer += fmt.Sprint(" ", doc.Error.Code)
	}
	if doc.Result != nil {
		answer += " result"
	}
	if id := string(doc.ID); id != "" && id != "null" {
		answer += " id " + id
	}
	return answer
}

// corpus gathers the exchanges: those of the package's tables, and plain ones over HTTP's and MCP's own dimensions.
func corpus() map[string]sample {
	out := map[string]sample{}
	plain := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	with := func(more http.Header) http.Header {
		h := plain.Clone()
		maps.Copy(h, more)
		return h
	}
	modern := func(method, name string) http.Header {
		h := with(http.Header{"Mcp-Protocol-Version": {LatestModern}, "Mcp-Method": {method}})
		if name != "" {
			h["Mcp-Name"] = []string{name}
		}
		return h
	}
	for name, c := range refusedBodies() {
		out["body: "+name] = sample{"POST", plain, c.body}
	}
	for name, c := range statedVersions() {
		id, method := `"id":1,`, "tools/list"
		if c.notification {
			id, method = "", "notifications/initialized"
		}
		meta := ""
		if c.meta != "" {
			meta = `"io.modelcontextprotocol/protocolVersion":` + c.meta + `,`
		}
		h := with(http.Header{"Mcp-Method": {method}})
		if c.header != nil {
			h["Mcp-Protocol-Version"] = c.header
		}
		out["version: "+name] = sample{"POST", h, `{"jsonrpc":"2.0",` + id + `"method":"` + method +
			`","params":{"_meta":{` + meta + `"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`}
	}
	for name, c := range mirroredRequests() {
		h := with(c.header)
		h["Mcp-Protocol-Version"] = []string{LatestModern}
		out["header: "+name] = sample{"POST", h, modernBody(c.method, c.params)}
	}
	for name, c := range mirroredCalls() {
		arguments := c.arguments
		if arguments == "" {
			arguments = "{}"
		}
		h := modern("tools/call", "mirror")
		maps.Copy(h, c.header)
		out["param: "+name] = sample{"POST", h, modernBody("tools/call", `{"name":"mirror","arguments":`+arguments+`}`)}
	}
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for _, m := range []string{"GET", "PUT", "PATCH", "DELETE"} {
		out["method: "+m] = sample{m, with(http.Header{"Mcp-Protocol-Version": {LatestModern}}), ""}
	}
	for _, c := range []string{"", "text/plain", "application/json; charset=utf-8", "APPLICATION/JSON", "application/jsonx", "application/json,text/plain", "application/vnd.api+json"} {
		out["content type: "+c] = sample{"POST", with(http.Header{"Content-Type": {c}}), list}
	}
	for _, a := range []string{
		"", "application/json", "text/event-stream", "*/*", "application/*", "application/*, text/*", "text/html, */*;q=0.5",
		"application/json;q=0, text/event-stream", "application/json;q=0.5,text/event-stream;q=0.1", "Application/JSON, Text/Event-Stream",
		"application/jsonx, text/event-stream", "application/json, text/event-stream, */*;q=0", "application/json;text/event-stream",
	} {
		out["accept: "+a] = sample{"POST", with(http.Header{"Accept": {a}}), list}
	}
	for _, id := range []string{"1", "0", "-1", `"a"`, `""`, `"1"`, "9007199254740991", "9007199254740993", "123456789012345678901234567890", "1.0", "1e3", "1.5", `"\u0061"`} {
		out["id: "+id] = sample{"POST", plain, `{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`}
		out["modern id: "+id] = sample{"POST", modern("tools/list", ""), strings.Replace(modernBody("tools/list", "{}"), `"id":1`, `"id":`+id, 1)}
	}
	for _, m := range []string{"ping", "tools/list", "server/discover", "initialize", "nonsense", "tools/call", "prompts/get", "resources/read", "Tools/List"} {
		params := `{"name":"x","uri":"x","protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`
		name := ""
		if nameField(m) != "" {
			name = "x"
		}
		out["legacy: "+m] = sample{"POST", with(http.Header{"Mcp-Protocol-Version": {LatestLegacy}}), `{"jsonrpc":"2.0","id":1,"method":"` + m + `","params":` + params + `}`}
		out["modern: "+m] = sample{"POST", modern(m, name), modernBody(m, params)}
	}
	for _, m := range []string{"notifications/initialized", "notifications/cancelled", "notifications/nonsense"} {
		out["legacy: "+m] = sample{"POST", with(http.Header{"Mcp-Protocol-Version": {LatestLegacy}}), `{"jsonrpc":"2.0","method":"` + m + `","params":{"requestId":1}}`}
		out["modern: "+m] = sample{"POST", modern(m, ""), `{"jsonrpc":"2.0","method":"` + m + `","params":{"requestId":1}}`}
	}
	for _, meta := range []string{
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28"`,
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`,
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":null`,
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}`,
		triple + `,"progressToken":1`, triple + `,"progressToken":"t"`, triple + `,"com.example/x":[]`,
	} {
		out["meta: "+meta] = sample{"POST", modern("tools/list", ""), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` + meta + `}}}`}
	}
	return out
}

// modernBody puts what every modern request must have into params.
func modernBody(method, params string) string {
	separator := ","
	if params == "{}" {
		separator = ""
	}
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params[:len(params)-1] + separator + `"_meta":{` + triple + `}}}`
}
