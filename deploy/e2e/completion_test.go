package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A completion asked of a dataplane reaches the owner behind the control plane, in both eras of clients and backends, under the
// owner's own names.
func TestCompletionsReachTheOwner(t *testing.T) {
	t.Parallel()
	modern, legacy := newCompletingBackend(t, []string{"2026-07-28"}, true), newCompletingBackend(t, []string{"2025-11-25"}, false)
	p := newPair(t,
		fmt.Sprintf("  modern: {url: %q}\n  legacy: {url: %q}\n", modern, legacy),
		"  acme: {backends: [{name: modern, prefix: \"m__\"}, {name: legacy, prefix: \"l__\", resources: {deny: [\"doc://*\"]}}]}\n")
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		c := p.client(t, 0, "acme", version)
		for ref, want := range map[string]string{
			`{"type":"ref/prompt","name":"m__ask"}`:      "2026-07-28 ref/prompt ask",
			`{"type":"ref/prompt","name":"l__ask"}`:      "2025-11-25 ref/prompt ask",
			`{"type":"ref/resource","uri":"doc://{id}"}`: "2026-07-28 ref/resource doc://{id}",
		} {
			var got struct{ Completion struct{ Values []string } }
			result := c.must(t, "completion/complete", `{"ref":`+ref+`,"argument":{"name":"a","value":"v"}}`)
			if err := json.Unmarshal(result, &got); err != nil || len(got.Completion.Values) != 1 || got.Completion.Values[0] != want {
				t.Errorf("%s client, %s: %s, want %q", version, ref, result, want)
			}
		}
		a, err := c.call("1", "completion/complete", `{"ref":{"type":"ref/prompt","name":"ask"},"argument":{"name":"a","value":""}}`)
		if err != nil || a.rpc.Error == nil || a.rpc.Error.Code != -32602 {
			t.Errorf("%s client, an unknown prompt: %+v, %v", version, a, err)
		}
	}
}

// newCompletingBackend offers the prompt "ask" and the template doc://{id}, and completes both to what it was asked. It returns its
// URL.
func newCompletingBackend(t *testing.T, versions []string, stateless bool) string {
	t.Helper()
	srv := mcp.NewServer(&mcp.Implementation{Name: "completing", Version: "1"}, &mcp.ServerOptions{
		SupportedProtocolVersions: versions,
		CompletionHandler: func(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			ref := req.Params.Ref
			said := versions[0] + " " + ref.Type + " " + ref.Name + ref.URI
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{said}}}, nil
		},
	})
	srv.AddPrompt(&mcp.Prompt{Name: "ask"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{}, nil
	})
	srv.AddResourceTemplate(&mcp.ResourceTemplate{Name: "doc", URITemplate: "doc://{id}"},
		func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{}, nil
		})
	hs := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv },
		&mcp.StreamableHTTPOptions{Stateless: stateless}))
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
		for session := range srv.Sessions() {
			_ = session.Close() // it is gone either way
		}
	})
	return hs.URL
}
