package call

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

// host is a virtual host with everything on one backend.
func host(b *backend, version string) *routestest.HostBuilder {
	return routestest.Host("acme").Backend("b", b.route(version)).
		Tool("b__echo", "b", "echo").Prompt("b__hello", "b", "hello").
		Resource("file:///a", "b").Template("note://{id}", "b").Prefix("data:///x/", "b").
		Edit(func(vh *routes.VirtualHost) {
			vh.Capabilities = json.RawMessage(`{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},` +
				`"completions":{},"logging":{},"extensions":{"com.example/x":{}},"experimental":{"y":{}}}`)
			vh.ServerInfo = json.RawMessage(`{"name":"acme","version":"7"}`)
			vh.Instructions = "Be kind."
		})
}

// Every row of the table of methods, for each era.
func TestMethods(t *testing.T) {
	const none = 0
	type want struct {
		status, code int
		upstream     string // the method and name that the backend saw; empty: it saw nothing
		message      string // part of an error's text
	}
	notFound := func(version string) want {
		if version == modern {
			return want{status: 404, code: -32601}
		}
		return want{status: 200, code: -32601}
	}
	delegated := want{status: 400, code: -32600, message: "served by the control plane"}
	for name, tt := range map[string]struct {
		method, params string
		modern, legacy want
	}{
		"a tool":                        {"tools/call", `{"name":"b__echo","arguments":{}}`, want{200, none, "tools/call echo", ""}, want{200, none, "tools/call echo", ""}},
		"a tool by its upstream name":   {"tools/call", `{"name":"echo"}`, want{400, -32602, "", "unknown tool"}, want{200, -32602, "", "unknown tool"}},
		"a prompt":                      {"prompts/get", `{"name":"b__hello"}`, want{200, none, "prompts/get hello", ""}, want{200, none, "prompts/get hello", ""}},
		"an unknown prompt":             {"prompts/get", `{"name":"nope"}`, want{400, -32602, "", "unknown prompt"}, want{200, -32602, "", "unknown prompt"}},
		"a resource":                    {"resources/read", `{"uri":"file:///a"}`, want{200, none, "resources/read file:///a", ""}, want{200, none, "resources/read file:///a", ""}},
		"a resource of a template":      {"resources/read", `{"uri":"note://7"}`, want{200, none, "resources/read note://7", ""}, want{200, none, "resources/read note://7", ""}},
		"a resource below a prefix":     {"resources/read", `{"uri":"data:///x/y"}`, want{200, none, "resources/read data:///x/y", ""}, want{200, none, "resources/read data:///x/y", ""}},
		"an unknown resource":           {"resources/read", `{"uri":"file:///b"}`, want{400, -32602, "", ""}, want{200, -32002, "", ""}},
		"discover":                      {"server/discover", `{}`, want{200, none, "", ""}, notFound(legacy)},
		"initialize":                    {"initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`, want{400, -32600, "", "2025-11-25"}, want{200, none, "", ""}},
		"initialize without a version":  {"initialize", `{"capabilities":{}}`, want{400, -32600, "", ""}, want{200, -32602, "", "protocolVersion"}},
		"ping":                          {"ping", `{}`, notFound(modern), want{200, none, "", ""}},
		"tools/list":                    {"tools/list", `{}`, delegated, delegated},
		"prompts/list":                  {"prompts/list", `{}`, delegated, delegated},
		"resources/list":                {"resources/list", `{}`, delegated, delegated},
		"resources/templates/list":      {"resources/templates/list", `{}`, delegated, delegated},
		"completion/complete":           {"completion/complete", `{}`, delegated, delegated},
		"subscriptions/listen":          {"subscriptions/listen", `{}`, delegated, notFound(legacy)},
		"logging/setLevel":              {"logging/setLevel", `{"level":"info"}`, notFound(modern), delegated},
		"resources/subscribe":           {"resources/subscribe", `{"uri":"file:///a"}`, notFound(modern), delegated},
		"resources/unsubscribe":         {"resources/unsubscribe", `{"uri":"file:///a"}`, notFound(modern), delegated},
		"tasks/list":                    {"tasks/list", `{}`, notFound(modern), delegated},
		"tasks/result":                  {"tasks/result", `{"taskId":"1"}`, notFound(modern), notFound(legacy)},
		"a method that nobody has":      {"tools/destroy", `{}`, notFound(modern), notFound(legacy)},
		"a method of a client, not our": {"sampling/createMessage", `{}`, notFound(modern), notFound(legacy)},
	} {
		t.Run(name, func(t *testing.T) {
			bothVersions(t, func(t *testing.T, version string) {
				b := result(t, `{"resultType":"complete","content":[],"messages":[],"contents":[],"ttlMs":0,"cacheScope":"private"}`)
				g := newGateway(t, host(b, modern), nil)
				want := tt.modern
				if version == legacy {
					want = tt.legacy
				}
				header := http.Header{}
				if strings.Contains(tt.params, "taskId") {
					header["Mcp-Name"] = []string{"1"}
				}
				a := g.ask(t, request{version: version, method: tt.method, params: tt.params, header: header})
				if a.status != want.status || a.code() != want.code {
					t.Errorf("status %d, code %d; want %d, %d: %s", a.status, a.code(), want.status, want.code, a.body)
				}
				if a.rpc.Error != nil && !strings.Contains(a.rpc.Error.Message, want.message) {
					t.Errorf("message %q, want it to say %q", a.rpc.Error.Message, want.message)
				}
				upstream := ""
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, s := range b.seen {
					var p struct{ Name, URI string }
					if err := json.Unmarshal(s.params, &p); err != nil {
						t.Fatal(err)
					}
					upstream += s.method + " " + p.Name + p.URI
				}
				if upstream != want.upstream {
					t.Errorf("the backend saw %q, want %q", upstream, want.upstream)
				}
			})
		})
	}
}

func TestUnknownResourceNamesTheURI(t *testing.T) {
	g := newGateway(t, host(result(t, `{}`), modern), nil)
	for version, code := range map[string]int{modern: -32602, legacy: -32002} {
		a := g.ask(t, request{version: version, method: "resources/read", params: `{"uri":"file:///b"}`})
		if a.code() != code || string(a.rpc.Error.Data) != `{"uri":"file:///b"}` {
			t.Errorf("%s: %s", version, a.body)
		}
	}
}

// tasks/list came with 2025-11-25.
func TestMethodsOfOlderVersions(t *testing.T) {
	g := newGateway(t, host(result(t, `{}`), modern), nil)
	for _, version := range []string{"2025-03-26", "2025-06-18"} {
		if a := g.ask(t, request{version: version, method: "tasks/list"}); a.code() != -32601 {
			t.Errorf("%s: %s", version, a.body)
		}
	}
}

func TestDiscover(t *testing.T) {
	got := func(public bool) string {
		g := newGateway(t, host(result(t, `{}`), modern), func(o *Options) { o.Public = public })
		return g.must(t, request{method: "server/discover"})
	}
	want := `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],` +
		`"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},` +
		`"completions":{},"logging":{},"extensions":{"com.example/x":{}},"experimental":{"y":{}}},` +
		`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"acme","version":"7"}},"instructions":"Be kind.","ttlMs":60000,"cacheScope":"private"}`
	if diff := cmp.Diff(want, got(false)); diff != "" {
		t.Errorf("discover (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(strings.Replace(want, "private", "public", 1), got(true)); diff != "" {
		t.Errorf("discover without auth (-want +got):\n%s", diff)
	}
}

func TestInitialize(t *testing.T) {
	g := newGateway(t, host(result(t, `{}`), modern), nil)
	for asked, version := range map[string]string{
		"2025-11-25": "2025-11-25", "2025-06-18": "2025-06-18", "2025-03-26": "2025-03-26",
		"2024-11-05": "2025-11-25", "2026-07-28": "2025-11-25", "1900-01-01": "2025-11-25",
	} {
		a := g.ask(t, request{version: "2025-03-26", method: "initialize",
			params: `{"protocolVersion":"` + asked + `","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`})
		want := `{"protocolVersion":"` + version + `","capabilities":{"tools":{},"prompts":{},"resources":{},"completions":{},"logging":{},"experimental":{"y":{}}},` +
			`"serverInfo":{"name":"acme","version":"7"},"instructions":"Be kind."}`
		if diff := cmp.Diff(want, string(a.rpc.Result)); diff != "" {
			t.Errorf("asked for %s (-want +got):\n%s", asked, diff)
		}
		if id := a.header.Get("Mcp-Session-Id"); id != "" {
			t.Errorf("a session %q was minted", id)
		}
	}
}

// A document without capabilities still says what its routes can do.
func TestImpliedCapabilities(t *testing.T) {
	b := result(t, `{}`)
	g := newGateway(t, host(b, modern).Edit(func(vh *routes.VirtualHost) { vh.Capabilities, vh.ServerInfo, vh.Instructions = nil, nil, "" }), nil)
	got := g.must(t, request{method: "server/discover"})
	if !strings.Contains(got, `"capabilities":{"tools":{},"prompts":{},"resources":{}}`) || !strings.Contains(got, `{"name":"weir","version":"1"}`) {
		t.Errorf("discover: %s", got)
	}
}

func TestNotificationsAreAcceptedAndForwardedNowhere(t *testing.T) {
	b := result(t, `{}`)
	g := newGateway(t, host(b, modern), nil)
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"b__echo"}}`,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}, "Authorization": {"Bearer alice"}}
		resp, err := httpClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 202 || resp.ContentLength > 0 {
			t.Errorf("%s: status %d, %d bytes", body, resp.StatusCode, resp.ContentLength)
		}
	}
	if len(b.seen) != 0 {
		t.Errorf("the backend saw %d requests", len(b.seen))
	}
}

func TestScopes(t *testing.T) {
	b := result(t, `{"resultType":"complete","content":[],"messages":[],"contents":[]}`)
	g := newGateway(t, host(b, modern), nil)
	const tool, prompt, resource = `{"name":"b__echo"}`, `{"name":"b__hello"}`, `{"uri":"file:///a"}`
	for name, tt := range map[string]struct {
		scope, method, params string
		status                int
		needs                 string
	}{
		"none at all":                         {"", "tools/call", tool, 200, ""},
		"of another meaning":                  {"openid", "tools/call", tool, 200, ""},
		"tools":                               {"mcp:tools", "tools/call", tool, 200, ""},
		"one tool":                            {"mcp:tools:b__*", "tools/call", tool, 200, ""},
		"another tool":                        {"mcp:tools:a__*", "tools/call", tool, 403, "mcp:tools"},
		"prompts for a tool":                  {"mcp:prompts", "tools/call", tool, 403, "mcp:tools"},
		"prompts":                             {"mcp:prompts", "prompts/get", prompt, 200, ""},
		"tools for a prompt":                  {"mcp:tools", "prompts/get", prompt, 403, "mcp:prompts"},
		"resources":                           {"mcp:resources", "resources/read", resource, 200, ""},
		"tools for a resource":                {"mcp:tools", "resources/read", resource, 403, "mcp:resources"},
		"discover needs none":                 {"mcp:prompts", "server/discover", `{}`, 200, ""},
		"scope comes before look-up":          {"mcp:tools:a__*", "tools/call", `{"name":"nope"}`, 403, "mcp:tools"},
		"a scope does not make a tool appear": {"mcp:tools:*", "tools/call", `{"name":"nope"}`, 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := g.ask(t, request{token: "alice:" + tt.scope, method: tt.method, params: tt.params})
			if a.status != tt.status {
				t.Errorf("status %d, want %d: %s", a.status, tt.status, a.body)
			}
			challenge := a.header.Get("WWW-Authenticate")
			if tt.needs != "" && (!strings.Contains(challenge, `error="insufficient_scope"`) || !strings.Contains(challenge, `scope="`+tt.needs+`"`)) {
				t.Errorf("WWW-Authenticate %q, want insufficient_scope and %s", challenge, tt.needs)
			}
		})
	}
}
