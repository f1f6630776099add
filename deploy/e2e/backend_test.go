package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sdkBackend is an MCP server built on the official SDK whose tools all answer with its name.
type sdkBackend struct {
	name string
	srv  *mcp.Server
	url  string
}

func newSDKBackend(t *testing.T, name string, versions []string, stateless bool) *sdkBackend {
	t.Helper()
	b := &sdkBackend{name: name, srv: mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ServerOptions{SupportedProtocolVersions: versions})}
	b.addTool("whoami")
	b.srv.AddPrompt(&mcp.Prompt{Name: "hello"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: name}}}}, nil
	})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: name + " " + r.Params.URI}}}, nil
	}
	b.srv.AddResource(&mcp.Resource{Name: "about", URI: name + "://about"}, read)
	b.srv.AddResourceTemplate(&mcp.ResourceTemplate{Name: "item", URITemplate: name + "://items/{id}"}, read)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return b.srv }, &mcp.StreamableHTTPOptions{Stateless: stateless})
	hs := httptest.NewServer(handler)
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
		for session := range b.srv.Sessions() { // of a gateway that was killed before it could end them
			_ = session.Close() // it is gone either way
		}
	})
	b.url = hs.URL
	return b
}

func newModernBackend(t *testing.T, name string) *sdkBackend {
	return newSDKBackend(t, name, []string{"2026-07-28"}, true)
}

func newLegacyBackend(t *testing.T, name string) *sdkBackend {
	return newSDKBackend(t, name, []string{"2025-11-25", "2025-06-18", "2025-03-26"}, false)
}

func (b *sdkBackend) addTool(name string) {
	b.srv.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: b.name}}}, nil
		})
}

func (b *sdkBackend) removeTool(name string) { b.srv.RemoveTools(name) }

// rawBackend is a modern server made by hand, to say things that no SDK of today says. It keeps what it was sent.
type rawBackend struct {
	url string

	mu       sync.Mutex // guards the rest
	results  map[string]string
	requests []rawRequest
}

type rawRequest struct {
	header http.Header
	body   string
	method string
}

// newRawBackend answers each method with the result that results holds for it.
func newRawBackend(t *testing.T, results map[string]string) *rawBackend {
	t.Helper()
	b := &rawBackend{results: results}
	hs := httptest.NewServer(b)
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	b.url = hs.URL
	return b
}

func (b *rawBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var req struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.Unmarshal(body, &req) // what is broken has no method, and gets the error below
	b.mu.Lock()
	b.requests = append(b.requests, rawRequest{header: r.Header.Clone(), body: string(body), method: req.Method})
	result, ok := b.results[req.Method]
	b.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(req.ID)+`,"error":{"code":-32601,"message":"no such method"}}`)
		return
	}
	io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(req.ID)+`,"result":`+result+`}`)
}

// last is the newest request of a method.
func (b *rawBackend) last(t *testing.T, method string) rawRequest {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.requests) - 1; i >= 0; i-- {
		if b.requests[i].method == method {
			return b.requests[i]
		}
	}
	t.Fatalf("the backend saw no %s", method)
	return rawRequest{}
}

// discoverResult is what a modern raw backend says of itself.
func discoverResult(name string, capabilities ...string) string {
	caps := make([]string, len(capabilities))
	for i, c := range capabilities {
		caps[i] = `"` + c + `":{}`
	}
	return `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{` + strings.Join(caps, ",") + `},` +
		`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"` + name + `","version":"1"}},"ttlMs":60000,"cacheScope":"public"}`
}
