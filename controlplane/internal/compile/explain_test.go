package compile

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

func TestExplain(t *testing.T) {
	cfg, _, err := config.Parse([]byte(base + `backends:
  a: {url: "http://a.example/mcp", pin: block}
  b: {url: "http://b.example/mcp"}
  silent: {url: "http://c.example/mcp"}
virtual_hosts:
  acme:
    backends:
      - {name: a, tools: {deny: ["delete_*"], alias: {create: open}}}
      - {name: b, prefix: "b_", prompts: {allow: ["p*"]}, tools: {alias: {ping: ping}}}
      - {name: silent}
`))
	if err != nil {
		t.Fatal(err)
	}
	decode := func(doc string) *catalog.Catalog {
		var c catalogJSON
		unmarshal(t, []byte(doc), &c)
		return c.catalog(t, "x")
	}
	in := Input{Config: cfg, Catalogs: map[routes.BackendID]*catalog.Catalog{
		"a": decode(`{"tools": ["ping", "create", "delete_all", {"name": "evil", "description": "new"}], "reject": {"create": ""},
			"resources": ["doc:///1"], "templates": ["{x}", "doc:///{id}"]}`),
		"b": decode(`{"tools": ["ping", "broken"], "reject": {"broken": "no schema"}, "prompts": ["p", "q"], "resources": ["doc:///1"],
			"stale": {"resources": "timeout"}}`),
	}, Pins: map[routes.BackendID]*catalog.Pins{"a": (*catalog.Pins)(nil).See(decode(`{"tools": [{"name": "evil", "description": "old"}, "ping"]}`))}}
	const unheard = "silent: backend stops"
	tests := map[string]struct {
		kind routes.Kind
		name string
		want []string
	}{
		"an alias": {routes.KindTool, "open", []string{unheard, "a/create: filter passes", "a/create: name passes", "a/create: pin passes",
			"b: list stops"}},
		"by its upstream name": {routes.KindTool, "create", []string{unheard, "a/create: filter passes", "a/create: name passes",
			"a/create: name stops", "b: list stops"}},
		"denied":   {routes.KindTool, "delete_all", []string{unheard, "a/delete_all: filter stops", "b: list stops"}},
		"withheld": {routes.KindTool, "evil", []string{unheard, "a/evil: filter passes", "a/evil: name passes", "a/evil: pin stops", "b: list stops"}},
		"rejected": {routes.KindTool, "b_broken", []string{unheard, "a: list stops", "b/broken: definition stops"}},
		"a collision": {routes.KindTool, "ping", []string{unheard, "a/ping: filter passes", "a/ping: name passes", "a/ping: pin passes",
			"b/ping: name passes", "a/ping: collision passes", "b/ping: collision stops"}},
		"not allowed": {routes.KindPrompt, "b_q", []string{unheard, "a: list stops", "b/q: filter stops"}},
		"prefixed":    {routes.KindPrompt, "b_p", []string{unheard, "a: list stops", "b/p: filter passes", "b/p: name passes"}},
		"a resource of two, one list stale": {routes.KindResource, "doc:///1", []string{unheard, "a/doc:///1: name passes", "b: list notes",
			"b/doc:///1: name passes", "a/doc:///1: collision passes", "b/doc:///1: collision stops"}},
		"a template that can't be served": {routes.KindResourceTemplate, "{x}", []string{unheard, "a/{x}: name passes", "a/{x}: template stops",
			"b: list stops"}},
		"a template": {routes.KindResourceTemplate, "doc:///{id}", []string{unheard, "a/doc:///{id}: name passes", "b: list stops"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range For(in).Explain(&cfg.VirtualHosts[0], tt.kind, tt.name) {
				at := string(s.Backend)
				if s.Upstream != "" {
					at += "/" + s.Upstream
				}
				if s.Text == "" {
					t.Errorf("step %+v has no text", s)
				}
				got = append(got, at+": "+s.Step+" "+s.Outcome)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}
