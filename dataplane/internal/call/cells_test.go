package call

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

// odd is a result as a later specification might define it: everything must reach the client.
const odd = `{"resultType":"complete","content":[{"type":"hologram","frames":[1,2.50,1e400,-0],"é":"\u00e9"},{"type":"text","text":"a\u0000b"}],` +
	`"structuredContent":{"big":9007199254740993,"exp":1E+2,"$defs":{"x":{"$ref":"#"}}},"isError":false,"_meta":{"com.example/trace":"x"},"future":{"k":null}}`

var ids = []string{`1`, `"1"`, `9007199254740993`, `1e3`, `1.50`, `-0`, `""`, `"ü\u0000\""`}

// The four cells: a client of each era before a backend of each era, made by hand, so that each byte is known.
func TestFourCellsKeepEveryByte(t *testing.T) {
	arguments := `{"n":9007199254740993,"f":1.0,"nested":{"u":[null,1e2],"z":"\u0041"}}`
	for _, backendVersion := range []string{modern, legacy} {
		for _, streaming := range []bool{false, true} {
			name := "backend " + backendVersion
			if streaming {
				name += " streaming"
			}
			t.Run(name, func(t *testing.T) {
				sent := odd
				if backendVersion == legacy {
					sent = strings.Replace(odd, `"resultType":"complete",`, "", 1)
				}
				b := newBackend(t, func(w http.ResponseWriter, r seen) {
					if streaming {
						stream(w, func(send func(string)) { send(`{"jsonrpc":"2.0","id":` + r.id + `,"result":` + sent + `}`) })
						return
					}
					answerJSON(w, 200, r.id, `"result":`+sent)
				})
				g := newGateway(t, host(b, backendVersion), nil)
				bothVersions(t, func(t *testing.T, version string) {
					for _, id := range ids {
						a := g.ask(t, request{version: version, id: id, method: "tools/call",
							params: `{"name":"b__echo","arguments":` + arguments + `,"future":[1e2],"_meta":{"com.example/y":"z","progressToken":7}}`})
						if got := string(a.rpc.ID); got != id {
							t.Errorf("id %s came back as %s", id, got)
						}
						want := sent
						if version == modern && backendVersion == legacy {
							want = strings.TrimSuffix(sent, "}") + `,"resultType":"complete"}`
						}
						if diff := cmp.Diff(want, string(a.rpc.Result)); diff != "" {
							t.Errorf("result (-want +got):\n%s", diff)
						}
						if got := len(a.events) > 0; got != streaming {
							t.Errorf("the client got a stream: %v, the backend sent one: %v", got, streaming)
						}
					}
					got := b.last(t, "tools/call")
					for _, part := range []string{`"arguments":` + arguments, `"future":[1e2]`, `"com.example/y":"z"`, `"progressToken":7`, `"name":"echo"`} {
						if !strings.Contains(got.body, part) {
							t.Errorf("the backend did not get %s: %s", part, got.body)
						}
					}
					hasTriple := strings.Contains(got.body, `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`)
					if hasTriple != (backendVersion == modern) {
						t.Errorf("a backend of %s got %s", backendVersion, got.body)
					}
					if v := got.header.Get("Mcp-Protocol-Version"); v != backendVersion {
						t.Errorf("MCP-Protocol-Version %q, want the one that the backend negotiated", v)
					}
				})
			})
		}
	}
}

func TestResourcesOfALegacyBackendGetCachingHints(t *testing.T) {
	b := result(t, `{"contents":[{"uri":"file:///a","text":"x"}]}`)
	g := newGateway(t, host(b, legacy), nil)
	want := `{"contents":[{"uri":"file:///a","text":"x"}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`
	if diff := cmp.Diff(want, g.must(t, request{method: "resources/read", params: `{"uri":"file:///a"}`})); diff != "" {
		t.Errorf("modern client (-want +got):\n%s", diff)
	}
	want = `{"contents":[{"uri":"file:///a","text":"x"}]}`
	if diff := cmp.Diff(want, g.must(t, request{version: legacy, method: "resources/read", params: `{"uri":"file:///a"}`})); diff != "" {
		t.Errorf("legacy client (-want +got):\n%s", diff)
	}
}

// A legacy backend is told who calls, and not what the caller could do: it may not ask.
func TestTheHandshakeNamesTheClient(t *testing.T) {
	b := result(t, `{"content":[]}`)
	g := newGateway(t, host(b, legacy), nil)
	g.must(t, request{method: "tools/call", params: `{"name":"b__echo"}`})
	var got struct {
		ProtocolVersion string
		Capabilities    map[string]any
		ClientInfo      map[string]any
	}
	if err := json.Unmarshal(b.last(t, "initialize").params, &got); err != nil {
		t.Fatal(err)
	}
	if got.ProtocolVersion != legacy || len(got.Capabilities) != 0 || got.ClientInfo["name"] != "tester" {
		t.Errorf("initialize: %+v", got)
	}
}

func TestBackendErrorsAreRelayed(t *testing.T) {
	for name, tt := range map[string]struct {
		status         int
		sent           string
		modern, legacy string // the error that the client gets
		statusModern   int
	}{
		"its own code, verbatim": {200, `{"code":-31999,"message":"no","data":{"big":9007199254740993},"more":1}`,
			`{"code":-31999,"message":"no","data":{"big":9007199254740993},"more":1}`, `{"code":-31999,"message":"no","data":{"big":9007199254740993},"more":1}`, 200},
		"a missing capability keeps status and data": {400, `{"code":-32021,"message":"need","data":{"requiredCapabilities":{"sampling":{}}}}`,
			`{"code":-32021,"message":"need","data":{"requiredCapabilities":{"sampling":{}}}}`, `{"code":-32021,"message":"need","data":{"requiredCapabilities":{"sampling":{}}}}`, 400},
		"method not found keeps its 404": {404, `{"code":-32601,"message":"what?"}`, `{"code":-32601,"message":"what?"}`, `{"code":-32601,"message":"what?"}`, 404},
		"codes that a modern client must not see": {200, `{"code":-32002,"message":"gone","data":{"uri":"x"}}`,
			`{"code":-32602,"message":"gone","data":{"uri":"x"}}`, `{"code":-32002,"message":"gone","data":{"uri":"x"}}`, 200},
		"the version is between the gateway and the backend": {400, `{"code":-32022,"message":"version","data":{"supported":["2030-01-01"],"requested":"2026-07-28"}}`,
			`{"code":-32603,"message":"backend sent an answer that is no MCP response","data":{"reason":"bad_response"}}`,
			`{"code":-32603,"message":"backend sent an answer that is no MCP response","data":{"reason":"bad_response"}}`, 200},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, func(w http.ResponseWriter, r seen) { answerJSON(w, tt.status, r.id, `"error":`+tt.sent) })
			g := newGateway(t, host(b, modern), nil)
			bothVersions(t, func(t *testing.T, version string) {
				want, status := tt.modern, tt.statusModern
				if version == legacy {
					want, status = tt.legacy, 200
				}
				a := g.ask(t, request{version: version, id: `"x"`, method: "tools/call", params: `{"name":"b__echo"}`})
				if diff := cmp.Diff(`{"jsonrpc":"2.0","id":"x","error":`+want+`}`, a.body); diff != "" || a.status != status {
					t.Errorf("status %d, want %d; body (-want +got):\n%s", a.status, status, diff)
				}
			})
		})
	}
}

// What a client's era can't carry is a clear error; so is a task where nobody remembers tasks.
func TestAnswersThatCantBeCarried(t *testing.T) {
	const task = `{"resultType":"task","task":{"taskId":"t-1","status":"working"}}`
	const legacyTask = `{"task":{"taskId":"t-1","status":"working","createdAt":"x","ttl":null}}`
	const input = `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create"}}}`
	for name, tt := range map[string]struct {
		backend, client, result, reason string
	}{
		"input required, modern to modern":   {modern, modern, input, ""},
		"input required, to a legacy client": {modern, legacy, input, "needs_modern_client"},
		"a task, modern to modern":           {modern, modern, task, "bad_response"},
		"a task, to a legacy client":         {modern, legacy, task, "bad_response"},
		"a task in escapes":                  {modern, modern, `{"resultType":"\u0074ask","taskId":"t-1"}`, "bad_response"},
		"the word task in a text":            {modern, modern, `{"resultType":"complete","content":[{"type":"text","text":"\"task\""}]}`, ""},
		"a legacy task, to a modern client":  {legacy, modern, legacyTask, "bad_response"},
		"a legacy task, to a legacy client":  {legacy, legacy, legacyTask, "bad_response"},
	} {
		t.Run(name, func(t *testing.T) {
			b := result(t, tt.result)
			// The backend never said that it makes tasks.
			g := newGateway(t, routestest.Host("acme").Backend("b", b.route(tt.backend)).Tool("b__echo", "b", "echo"), nil)
			a := g.ask(t, request{version: tt.client, method: "tools/call", params: `{"name":"b__echo"}`})
			if tt.reason == "" {
				if string(a.rpc.Result) != tt.result {
					t.Errorf("result %s, want it as sent", a.rpc.Result)
				}
				return
			}
			if a.code() != -32603 || a.reason() != tt.reason || a.status != 200 {
				t.Errorf("%d %s, want -32603 and %s", a.status, a.body, tt.reason)
			}
		})
	}
}

// A legacy client that asks for a task gets a plain call: tasks were not offered to it.
func TestALegacyClientsTaskIsNotAskedFor(t *testing.T) {
	for _, backendVersion := range []string{modern, legacy} {
		b := result(t, `{"content":[]}`)
		g := newGateway(t, host(b, backendVersion), nil)
		g.must(t, request{version: legacy, method: "tools/call", params: `{"name":"b__echo","task":{"ttl":60000},"arguments":{"task":1}}`})
		if got := b.last(t, "tools/call").body; strings.Contains(got, "ttl") || !strings.Contains(got, `"arguments":{"task":1}`) {
			t.Errorf("a backend of %s got %s", backendVersion, got)
		}
	}
}

// sdkBackend is a server on the official SDK.
func sdkBackend(t *testing.T, versions ...string) routes.Backend {
	t.Helper()
	srv := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{SupportedProtocolVersions: versions})
	type in struct {
		Text string `json:"text"`
	}
	mcp.AddTool(srv, &mcp.Tool{Name: "echo"}, func(ctx context.Context, r *mcp.CallToolRequest, a in) (*mcp.CallToolResult, map[string]string, error) {
		if token := r.Params.GetProgressToken(); token != nil {
			for i := range 3 {
				if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i + 1)}); err != nil {
					return nil, nil, err
				}
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Text}}}, map[string]string{"text": a.Text}, nil
	})
	srv.AddPrompt(&mcp.Prompt{Name: "hello"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hi"}}}}, nil
	})
	srv.AddResource(&mcp.Resource{Name: "a", URI: "file:///a"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "a"}}}, nil
	})
	hs := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv },
		&mcp.StreamableHTTPOptions{Stateless: versions[0] == modern}))
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	return routes.Backend{URL: hs.URL, Protocol: versions[0]}
}

// sdkHost puts a backend of each era behind one host.
func sdkHost(t *testing.T) *routestest.HostBuilder {
	h := routestest.Host("acme").Backend("new", sdkBackend(t, modern)).Backend("old", sdkBackend(t, legacy))
	for _, id := range []routes.BackendID{"new", "old"} {
		h.Tool(string(id)+"__echo", id, "echo").Prompt(string(id)+"__hello", id, "hello")
	}
	return h.Resource("file:///a", "old")
}

func TestFourCellsWithTheSDKsServers(t *testing.T) {
	g := newGateway(t, sdkHost(t), nil)
	bothVersions(t, func(t *testing.T, version string) {
		for _, backend := range []string{"new", "old"} {
			a := g.ask(t, request{version: version, id: `"id-1"`, method: "tools/call",
				params: `{"name":"` + backend + `__echo","arguments":{"text":"héllo"},"_meta":{"progressToken":"tok"}}`})
			var r struct {
				ResultType        string
				Content           []struct{ Text string }
				StructuredContent struct{ Text string }
			}
			if err := json.Unmarshal(a.rpc.Result, &r); err != nil {
				t.Fatalf("%s: %v: %s", backend, err, a.body)
			}
			if len(r.Content) != 1 || r.StructuredContent.Text != "héllo" || string(a.rpc.ID) != `"id-1"` {
				t.Errorf("%s: %s", backend, a.body)
			}
			if version == modern && r.ResultType != "complete" {
				t.Errorf("%s: resultType %q", backend, r.ResultType)
			}
			if n := len(a.events); n != 4 {
				t.Errorf("%s: %d events, want three of progress and the response: %q", backend, n, a.events)
			}
			for _, e := range a.events[:len(a.events)-1] {
				if !strings.Contains(e, `"progressToken":"tok"`) {
					t.Errorf("%s: event %s", backend, e)
				}
			}
			got := g.must(t, request{version: version, method: "prompts/get", params: `{"name":"` + backend + `__hello"}`})
			if !strings.Contains(got, `"hi"`) {
				t.Errorf("%s: prompt %s", backend, got)
			}
		}
		if got := g.must(t, request{version: version, method: "resources/read", params: `{"uri":"file:///a"}`}); !strings.Contains(got, `"text":"a"`) {
			t.Errorf("resource %s", got)
		}
	})
}

// A client of the SDK, of either era, calls through the gateway; its lists would come from the control plane.
func TestTheSDKsClientCalls(t *testing.T) {
	g := newGateway(t, sdkHost(t), nil)
	client := mcp.NewClient(&mcp.Implementation{Name: "sdk-client", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: g.url, HTTPClient: &http.Client{Transport: bearer{}}, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for _, tool := range []string{"new__echo", "old__echo"} {
		r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"text": "hi"}})
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		if text, ok := r.Content[0].(*mcp.TextContent); !ok || !strings.Contains(text.Text, "hi") {
			t.Errorf("%s: %+v", tool, r)
		}
	}
}

// bearer puts a token on each request.
type bearer struct{}

func (bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer alice")
	return httpClient.Transport.RoundTrip(r)
}
