package access

import (
	"testing"

	"github.com/weir-mcp/weir/routes"
)

func TestMayFollow(t *testing.T) {
	vh := &routes.VirtualHost{Backends: map[routes.BackendID]routes.Backend{"b": {}}} // without a tool: it was removed
	for name, tt := range map[string]struct {
		scopes string
		owner  routes.TaskOwner
		want   bool
	}{
		"no scopes at all allow everything":               {"", routes.TaskOwner{Backend: "b", Tool: "b__run"}, true},
		"a tool's own scope, though the tool is gone":     {"mcp:tasks mcp:tools:b__*", routes.TaskOwner{Backend: "b", Tool: "b__run"}, true},
		"another tool's scope":                            {"mcp:tasks mcp:tools:c__*", routes.TaskOwner{Backend: "b", Tool: "b__run"}, false},
		"task methods without any tool":                   {"mcp:tasks", routes.TaskOwner{Backend: "b", Tool: "b__run"}, false},
		"a backend that left the host":                    {"", routes.TaskOwner{Backend: "gone", Tool: "b__run"}, false},
		"an unknown tool needs all tools":                 {"mcp:tasks mcp:tools", routes.TaskOwner{Backend: "b"}, true},
		"an unknown tool, and all tools by a glob":        {"mcp:tasks mcp:tools:*", routes.TaskOwner{Backend: "b"}, true},
		"an unknown tool, and some tools":                 {"mcp:tasks mcp:tools:b__*", routes.TaskOwner{Backend: "b"}, false},
		"an unknown tool, and names of at least one":      {"mcp:tasks mcp:tools:?*", routes.TaskOwner{Backend: "b"}, false},
		"an unknown tool, and other kinds than tools":     {"mcp:tasks mcp:prompts", routes.TaskOwner{Backend: "b"}, false},
		"an unknown tool at a backend that left the host": {"", routes.TaskOwner{Backend: "gone"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			scopes, err := ParseScopes(tt.scopes, false)
			if err != nil {
				t.Fatal(err)
			}
			if got := MayFollow(&Identity{Scopes: scopes}, vh, &tt.owner); got != tt.want {
				t.Errorf("MayFollow: %v, want %v", got, tt.want)
			}
		})
	}
}
