package call

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

// Tasks are offered to whoever can follow them: the extension, as published, to modern clients; the tasks of 2025-11-25 to clients of that
// version, where a backend of that version has them.
func TestWhoIsOfferedTasks(t *testing.T) {
	const published = `{"tools":{"listChanged":true},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	const offer = `{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`
	for name, tt := range map[string]struct {
		backend routes.Backend
		client  string
		want    string
	}{
		"2025-11-25, a backend of it":         {routes.Backend{Protocol: legacy, Capabilities: routes.BackendCapabilities{Tasks: true}}, legacy, offer},
		"2025-11-25, a backend without tasks": {routes.Backend{Protocol: legacy}, legacy, `{"tools":{}}`},
		"2025-11-25, a modern backend":        {routes.Backend{Protocol: modern, Capabilities: routes.BackendCapabilities{Tasks: true}}, legacy, `{"tools":{}}`},
		"2025-11-25, an older backend":        {routes.Backend{Protocol: "2025-06-18", Capabilities: routes.BackendCapabilities{Tasks: true}}, legacy, `{"tools":{}}`},
		"2025-06-18, a backend of 2025-11-25": {routes.Backend{Protocol: legacy, Capabilities: routes.BackendCapabilities{Tasks: true}}, "2025-06-18", `{"tools":{}}`},
		"an unknown version gets the newest":  {routes.Backend{Protocol: legacy, Capabilities: routes.BackendCapabilities{Tasks: true}}, "1999-01-01", offer},
		"modern, the extension as published":  {routes.Backend{Protocol: legacy, Capabilities: routes.BackendCapabilities{Tasks: true}}, modern, published},
	} {
		t.Run(name, func(t *testing.T) {
			tt.backend.URL = "http://b.invalid/mcp"
			g := newGateway(t, routestest.Host("acme").Backend("b", tt.backend).Tool("b__run", "b", "run").
				Edit(func(vh *routes.VirtualHost) { vh.Capabilities = json.RawMessage(published) }), nil)
			var result string
			if tt.client == modern {
				result = g.must(t, request{method: "server/discover"})
			} else {
				result = g.must(t, request{version: legacy, method: "initialize",
					params: `{"protocolVersion":"` + tt.client + `","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`})
			}
			var got struct{ Capabilities json.RawMessage }
			if err := json.Unmarshal([]byte(result), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got.Capabilities)); diff != "" {
				t.Errorf("capabilities (-want +got):\n%s", diff)
			}
		})
	}
}
