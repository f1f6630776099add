package listing

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

// introduced is a host with everything that an introduction shows.
func introduced() *routestest.HostBuilder {
	return routestest.Host("acme").Tool("x", "a", "x").Edit(func(vh *routes.VirtualHost) {
		vh.Capabilities = []byte(`{"tools":{"listChanged":true},"resources":{"subscribe":true},"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
		vh.ServerInfo = []byte(`{"name":"weir/acme","version":"1"}`)
		vh.Instructions = "Be \"kind\"."
	})
}

func TestIntroductions(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.publish([]*catalog.Catalog{toolCatalog("a", def("x", `{"name":"x"}`))}, introduced())
		discover := `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],` +
			`"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"extensions":{"io.modelcontextprotocol/tasks":{}}},` +
			`"instructions":"Be \"kind\".","ttlMs":60000,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"weir/acme","version":"1"}}}`
		if diff := cmp.Diff(discover, string(b.modern("acme+mcp:prompts", "server/discover", "{}").result)); diff != "" {
			t.Errorf("server/discover (-want +got):\n%s", diff)
		}
		for asked, want := range map[string]string{
			`{"protocolVersion":"2025-11-25"}`: "2025-11-25",
			`{"protocolVersion":"2025-06-18"}`: "2025-06-18",
			`{"protocolVersion":"2025-03-26"}`: "2025-03-26",
			`{"protocolVersion":"2024-11-05"}`: "2025-11-25",
			`{"protocolVersion":"2026-07-28"}`: "2025-11-25",
			`{"protocolVersion":"nonsense"}`:   "2025-11-25",
		} {
			// An initialize comes before a version is agreed on: without the header.
			a := b.post("acme", "", "initialize", asked, http.Header{"Mcp-Protocol-Version": nil})
			result := `{"protocolVersion":"` + want + `","capabilities":{"resources":{},"tools":{}},"serverInfo":{"name":"weir/acme","version":"1"},"instructions":"Be \"kind\"."}`
			if diff := cmp.Diff(result, string(a.result)); diff != "" {
				t.Errorf("initialize %s (-want +got):\n%s\n%s", asked, diff, a.body)
			}
			if a.header.Get("Mcp-Session-Id") != "" {
				t.Error("a session was minted")
			}
		}
		if a := b.post("acme", "", "initialize", `{}`, http.Header{"Mcp-Protocol-Version": nil}); a.code != -32602 {
			t.Errorf("initialize without a version: %d %s, want -32602", a.code, a.text)
		}
		if a := b.legacy("acme", "ping", "{}"); string(a.result) != "{}" {
			t.Errorf("ping: %s", a.body)
		}
	})
}

// Tasks are offered to a legacy client of the one version that has them, and only where a backend serves them in its way.
func TestTasksAreOfferedInTheClientsWay(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const offered = `"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`
		for name, tt := range map[string]struct {
			protocol string
			tasks    bool
			asked    string
			want     bool
		}{
			"a backend of the version":               {"2025-11-25", true, "2025-11-25", true},
			"an unknown version gets this one":       {"2025-11-25", true, "2024-11-05", true},
			"an older client":                        {"2025-11-25", true, "2025-06-18", false},
			"a backend that declares nothing":        {"2025-11-25", false, "2025-11-25", false},
			"a modern backend with the extension":    {"2026-07-28", true, "2025-11-25", false},
			"a backend of a version without any way": {"2025-06-18", true, "2025-11-25", false},
		} {
			b.publish([]*catalog.Catalog{toolCatalog("a", def("x", `{"name":"x"}`))}, introduced().Edit(func(vh *routes.VirtualHost) {
				a := vh.Backends["a"]
				a.Protocol, a.Capabilities.Tasks = tt.protocol, tt.tasks
				vh.Backends["a"] = a
			}))
			a := b.post("acme", "", "initialize", `{"protocolVersion":"`+tt.asked+`"}`, http.Header{"Mcp-Protocol-Version": nil})
			if got := strings.Contains(string(a.result), offered); got != tt.want || !tt.want && strings.Contains(string(a.result), "tasks") {
				t.Errorf("%s: %s", name, a.result)
			}
		}
	})
}

func TestMethods(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.publish([]*catalog.Catalog{toolCatalog("a", def("x", `{"name":"x"}`))}, introduced())
		name := func(n string) http.Header { return http.Header{"Mcp-Name": {n}} }
		for what, tt := range map[string]struct {
			version, method, params string
			header                  http.Header
			status, code            int
			text                    string
		}{
			"tools/call":                {"2026-07-28", "tools/call", `"name":"x"`, name("x"), 400, -32600, "served by the dataplane"},
			"prompts/get":               {"2026-07-28", "prompts/get", `"name":"x"`, name("x"), 400, -32600, "served by the dataplane"},
			"resources/read":            {"2026-07-28", "resources/read", `"uri":"x:y"`, name("x:y"), 400, -32600, "served by the dataplane"},
			"tools/call, legacy":        {"2025-11-25", "tools/call", `"name":"x"`, nil, 400, -32600, "served by the dataplane"},
			"completion":                {"2026-07-28", "completion/complete", ``, nil, 404, -32601, "no completions capability"},
			"completion, legacy":        {"2025-11-25", "completion/complete", ``, nil, 200, -32601, "no completions capability"},
			"listen":                    {"2026-07-28", "subscriptions/listen", ``, nil, 400, -32602, "notifications"},
			"modern subscribe":          {"2026-07-28", "resources/subscribe", `"uri":"x:y"`, nil, 404, -32601, "method not found"},
			"modern unsubscribe":        {"2026-07-28", "resources/unsubscribe", `"uri":"x:y"`, nil, 404, -32601, "method not found"},
			"modern logging":            {"2026-07-28", "logging/setLevel", `"level":"info"`, nil, 404, -32601, "method not found"},
			"logging":                   {"2025-11-25", "logging/setLevel", `"level":"info"`, nil, 200, -32601, "no logging capability"},
			"tasks/get":                 {"2026-07-28", "tasks/get", `"taskId":"t"`, name("t"), 400, -32600, "served by the dataplane"},
			"tasks/update":              {"2026-07-28", "tasks/update", `"taskId":"t"`, name("t"), 400, -32600, "served by the dataplane"},
			"tasks/cancel":              {"2026-07-28", "tasks/cancel", `"taskId":"t"`, name("t"), 400, -32600, "served by the dataplane"},
			"modern tasks/list":         {"2026-07-28", "tasks/list", ``, nil, 404, -32601, "method not found"},
			"modern tasks/result":       {"2026-07-28", "tasks/result", `"taskId":"t"`, name("t"), 404, -32601, "method not found"},
			"tasks/get, legacy":         {"2025-11-25", "tasks/get", `"taskId":"t"`, nil, 400, -32600, "served by the dataplane"},
			"tasks/result, legacy":      {"2025-11-25", "tasks/result", `"taskId":"t"`, nil, 400, -32600, "served by the dataplane"},
			"tasks/cancel, legacy":      {"2025-11-25", "tasks/cancel", `"taskId":"t"`, nil, 400, -32600, "served by the dataplane"},
			"tasks/update, legacy":      {"2025-11-25", "tasks/update", `"taskId":"t"`, nil, 200, -32601, "method not found"},
			"tasks/list, older":         {"2025-06-18", "tasks/list", ``, nil, 200, -32601, "method not found"},
			"tasks/get, older":          {"2025-06-18", "tasks/get", `"taskId":"t"`, nil, 200, -32601, "method not found"},
			"tasks/list without tasks":  {"2025-11-25", "tasks/list", ``, nil, 200, -32601, "no tasks capability"},
			"unknown":                   {"2026-07-28", "weather/get", ``, nil, 404, -32601, "method not found"},
			"modern ping":               {"2026-07-28", "ping", ``, nil, 404, -32601, "method not found"},
			"modern initialize":         {"2026-07-28", "initialize", `"protocolVersion":"2026-07-28"`, nil, 404, -32601, "method not found"},
			"discover of an older time": {"2025-11-25", "server/discover", ``, nil, 200, -32601, "method not found"},
		} {
			params := tt.params
			if tt.version == "2026-07-28" {
				params = strings.Trim(params+`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`, ",")
			}
			a := b.post("acme", tt.version, tt.method, "{"+params+"}", tt.header)
			if a.status != tt.status || a.code != tt.code || !strings.Contains(a.text, tt.text) {
				t.Errorf("%s: %d, %d %q; want %d, %d %q", what, a.status, a.code, a.text, tt.status, tt.code, tt.text)
			}
		}
	})
}

// A legacy client may set levels and subscribe: what it asks for is checked, and has no effect (decision 40).
func TestLegacyMethodsThatNeedASession(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		host := introduced().Template("doc:///{id}", "a").Edit(func(vh *routes.VirtualHost) {
			a := vh.Backends["a"]
			a.Capabilities.Logging = true
			vh.Backends["a"] = a
		})
		b.publish([]*catalog.Catalog{toolCatalog("a")}, host)
		for name, tt := range map[string]struct {
			token, method, params string
			status, code          int
		}{
			"a level":                     {"acme", "logging/setLevel", `{"level":"emergency"}`, 200, 0},
			"no level":                    {"acme", "logging/setLevel", `{}`, 200, -32602},
			"a level that is none":        {"acme", "logging/setLevel", `{"level":"loud"}`, 200, -32602},
			"a level that is a number":    {"acme", "logging/setLevel", `{"level":3}`, 200, -32602},
			"a level in another case":     {"acme", "logging/setLevel", `{"level":"INFO"}`, 200, -32602},
			"a URI":                       {"acme", "resources/subscribe", `{"uri":"doc:///1"}`, 200, 0},
			"a URI, undone":               {"acme", "resources/unsubscribe", `{"uri":"doc:///1"}`, 200, 0},
			"a URI that leads nowhere":    {"acme", "resources/subscribe", `{"uri":"x:///1"}`, 200, -32002},
			"the same, undone":            {"acme", "resources/unsubscribe", `{"uri":"x:///1"}`, 200, -32002},
			"no URI":                      {"acme", "resources/subscribe", `{}`, 200, -32602},
			"resources without the scope": {"acme+mcp:tools", "resources/subscribe", `{"uri":"doc:///1"}`, 403, -32600},
		} {
			a := b.legacy(tt.token, tt.method, tt.params)
			if a.status != tt.status || a.code != tt.code || tt.code == 0 && string(a.result) != "{}" {
				t.Errorf("%s: %d %s; want %d, %d", name, a.status, a.body, tt.status, tt.code)
			}
		}
	})
}

func TestNotificationsAreTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.publish([]*catalog.Catalog{toolCatalog("a")}, introduced())
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp",
			strings.NewReader(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		r.Header = http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			"Authorization": {"Bearer acme"}, "Mcp-Protocol-Version": {"2025-11-25"},
		}
		w := httptest.NewRecorder()
		b.endpoint.ServeHTTP(w, r)
		if w.Code != http.StatusAccepted || w.Body.Len() != 0 {
			t.Errorf("%d %q, want 202 and nothing", w.Code, w.Body)
		}
	})
}

func TestWithoutAuthResultsArePublic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, true)
		b.publish([]*catalog.Catalog{toolCatalog("a", def("x", `{"name":"x"}`))}, introduced())
		if got := b.modern("acme", "tools/list", "{}").page(t); got.CacheScope != "public" {
			t.Errorf("cacheScope %q, want public", got.CacheScope)
		}
	})
}
