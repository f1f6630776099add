package access

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

func TestScopes(t *testing.T) {
	type may struct {
		Tools, Resources, Templates, Prompts, Tasks bool   // AllowsKind, AllowsTasks
		Echo, Delete                                bool   // the tools gh__echo and gh__delete
		Readme                                      bool   // the resource file:///readme
		Hello                                       string // the prompts hello, as text, so that a wrong one is seen
	}
	all := may{true, true, true, true, true, true, true, true, "yes"}
	nothing := may{Hello: "no"}
	onlyEcho := may{Tools: true, Echo: true, Hello: "no"}
	tests := map[string]struct {
		claim   string
		require bool
		want    may
	}{
		"no scope":                                 {"", false, all},
		"foreign scopes only":                      {"openid profile MCP:tools mcp", false, all},
		"no scope, required":                       {"", true, nothing},
		"foreign scopes only, required":            {"openid profile", true, nothing},
		"all tools":                                {"mcp:tools", false, may{Tools: true, Echo: true, Delete: true, Hello: "no"}},
		"all tools, required":                      {"openid mcp:tools", true, may{Tools: true, Echo: true, Delete: true, Hello: "no"}},
		"resources are templates too":              {"mcp:resources", false, may{Resources: true, Templates: true, Readme: true, Hello: "no"}},
		"prompts":                                  {"mcp:prompts", false, may{Prompts: true, Hello: "yes"}},
		"tasks":                                    {"mcp:tasks", false, may{Tasks: true, Hello: "no"}},
		"a union":                                  {"mcp:tools mcp:prompts", false, may{Tools: true, Echo: true, Delete: true, Prompts: true, Hello: "yes"}},
		"one tool":                                 {"mcp:tools:gh__echo", false, onlyEcho},
		"tools by glob":                            {"mcp:tools:*echo", false, onlyEcho},
		"two globs":                                {"mcp:tools:nothing mcp:tools:gh__e?ho", false, onlyEcho},
		"a wide scope beside a narrow one":         {"mcp:tools:gh__echo mcp:tools", false, may{Tools: true, Echo: true, Delete: true, Hello: "no"}},
		"a glob with a colon":                      {"mcp:tools:a:b", false, may{Tools: true, Hello: "no"}},
		"a glob in other case":                     {"mcp:tools:GH__ECHO", false, may{Tools: true, Hello: "no"}},
		"an invalid glob grants nothing":           {"mcp:tools:", false, nothing},
		"an endless glob grants nothing":           {"mcp:tools:" + strings.Repeat("*", 257), false, nothing},
		"an invalid glob beside a good one":        {"mcp:tools: mcp:tools:gh__echo", false, onlyEcho},
		"an unknown mcp scope grants nothing":      {"mcp:admin", false, nothing},
		"the bare prefix grants nothing":           {"mcp:", false, nothing},
		"only tools are narrowed by name":          {"mcp:prompts:hello mcp:resources:* mcp:tasks:*", false, nothing},
		"case matters":                             {"mcp:Tools", false, nothing},
		"runs of spaces":                           {"  mcp:prompts   openid ", false, may{Prompts: true, Hello: "yes"}},
		"a tab is part of a name":                  {"mcp:prompts\tmcp:tools", false, nothing},
		"64 scopes":                                {strings.Repeat("a ", 63) + "mcp:prompts", false, may{Prompts: true, Hello: "yes"}},
		"the glob for all is all tools, no prompt": {"mcp:tools:*", false, may{Tools: true, Echo: true, Delete: true, Hello: "no"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := ParseScopes(tt.claim, tt.require)
			if err != nil {
				t.Fatal(err)
			}
			got := may{
				Tools: s.AllowsKind(routes.KindTool), Resources: s.AllowsKind(routes.KindResource),
				Templates: s.AllowsKind(routes.KindResourceTemplate), Prompts: s.AllowsKind(routes.KindPrompt), Tasks: s.AllowsTasks(),
				Echo: s.Allows(routes.KindTool, "gh__echo"), Delete: s.Allows(routes.KindTool, "gh__delete"),
				Readme: s.Allows(routes.KindResource, "file:///readme"), Hello: "no",
			}
			if s.Allows(routes.KindPrompt, "hello") {
				got.Hello = "yes"
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%q allows (-want +got):\n%s", tt.claim, diff)
			}
			if s.Allows(routes.Kind(200), "gh__echo") || s.AllowsKind(routes.Kind(200)) {
				t.Error("allows a kind that does not exist")
			}
		})
	}
}

func TestScopesAtMost64(t *testing.T) {
	if _, err := ParseScopes(strings.Repeat("a ", 65), false); err == nil {
		t.Error("65 scopes were taken")
	}
}

func TestZeroScopesAllowNothing(t *testing.T) {
	var s Scopes
	if s.AllowsKind(routes.KindTool) || s.Allows(routes.KindPrompt, "a") || s.AllowsTasks() {
		t.Error("the zero Scopes allow something")
	}
}

// FuzzScopes: whatever the claim, a narrow token is never wider than its parts.
func FuzzScopes(f *testing.F) {
	for _, claim := range []string{"", "mcp:tools", "mcp:tools:*", "openid mcp:tools:gh__? mcp:", "mcp:tools:\xff", "mcp:tools::"} {
		f.Add(claim, "gh__a", true)
	}
	f.Fuzz(func(t *testing.T, claim, tool string, require bool) {
		s, err := ParseScopes(claim, require)
		if err != nil {
			if !s.Equal(Scopes{}) {
				t.Fatal("an error and scopes")
			}
			return
		}
		if s.Allows(routes.KindTool, tool) && !s.AllowsKind(routes.KindTool) {
			t.Errorf("%q allows the tool %q and no tools", claim, tool)
		}
		hasMCP, wide := false, false
		for name := range strings.SplitSeq(claim, " ") {
			hasMCP = hasMCP || strings.HasPrefix(name, "mcp:")
			wide = wide || name == "mcp:tools" || strings.HasPrefix(name, "mcp:tools:")
		}
		if s.AllowsKind(routes.KindTool) && (hasMCP || require) && !wide {
			t.Errorf("%q (require %v) allows tools", claim, require)
		}
		again, err := ParseScopes(claim, require)
		if err != nil || !again.Equal(s) {
			t.Errorf("%q compiles to %v, then to %v", claim, fmt.Sprint(s), fmt.Sprint(again))
		}
	})
}
