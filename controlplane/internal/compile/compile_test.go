package compile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// Few names for many backends, so that they collide.
var (
	backendIDs = []routes.BackendID{"a", "b", "c", "d"}
	itemNames  = []string{"ping", "pong", "x_ping", "é", strings.Repeat("long-", 14)}
	prefixes   = []string{"", "", "x_", "p__"}
)

// genCatalogs draws catalogs for some of the backends.
func genCatalogs(t *rapid.T, label string) map[routes.BackendID]*catalog.Catalog {
	cats := map[routes.BackendID]*catalog.Catalog{}
	for _, id := range backendIDs {
		if rapid.Bool().Draw(t, label+string(id)+" known") {
			cats[id] = genCatalog(t, label, id)
		}
	}
	return cats
}

func genCatalog(t *rapid.T, label string, id routes.BackendID) *catalog.Catalog {
	cat := &catalog.Catalog{Backend: id, Protocol: "2026-07-28"}
	for _, name := range rapid.SliceOfN(rapid.SampledFrom(itemNames), 0, 4).Draw(t, label+string(id)+" tools") {
		raw := json.RawMessage(fmt.Sprintf(`{"name":%q,"of":%q}`, name, id))
		cat.Tools.Items = append(cat.Tools.Items, catalog.Item{Name: name, Raw: raw, Digest: routes.Digest(raw)})
	}
	for _, n := range rapid.SliceOfN(rapid.IntRange(1, 3), 0, 2).Draw(t, label+string(id)+" resources") {
		uri := fmt.Sprintf("doc:///%d", n)
		raw := json.RawMessage(fmt.Sprintf(`{"uri":%q}`, uri))
		cat.Resources.Items = append(cat.Resources.Items, catalog.Item{Name: uri, Raw: raw, Digest: routes.Digest(raw)})
	}
	return cat
}

// genConfig draws one host over some of the backends, in some order.
func genConfig(t *rapid.T) *config.Config {
	cfg := &config.Config{}
	for _, id := range backendIDs {
		cfg.Backends = append(cfg.Backends, config.Backend{ID: id, Route: routes.Backend{URL: "http://" + string(id) + ".example/mcp"}})
	}
	vh := config.VirtualHost{ID: "acme"}
	for _, id := range rapid.Permutation(backendIDs).Draw(t, "order")[:rapid.IntRange(1, len(backendIDs)).Draw(t, "used")] {
		hb := config.HostBackend{Name: id, Prefix: rapid.SampledFrom(prefixes).Draw(t, string(id)+" prefix")}
		if rapid.Bool().Draw(t, string(id)+" alias") {
			hb.Tools.Alias = map[string]string{"ping": "pong"}
		}
		vh.Backends = append(vh.Backends, hb)
	}
	cfg.VirtualHosts = []config.VirtualHost{vh}
	return cfg
}

func encoded(t interface{ Fatal(...any) }, out Output) string {
	doc, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

func TestSameInputSameBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{Config: genConfig(t), Catalogs: genCatalogs(t, "")}
		first := Compile(in)
		in.Previous = first.Hosts
		for range 3 {
			if diff := cmp.Diff(encoded(t, first), encoded(t, Compile(in))); diff != "" {
				t.Fatalf("compiled again, upon its own output (-first +again):\n%s", diff)
			}
		}
	})
}

func TestEveryPublishedNameLeadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{Config: genConfig(t), Catalogs: genCatalogs(t, "before ")}
		in.Previous = Compile(in).Hosts
		in.Catalogs = genCatalogs(t, "after ")
		out := Compile(in)
		doc, list := out.Hosts["acme"], out.Lists["acme"]
		ix, err := routes.NewIndex(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []struct {
			kind    routes.Kind
			entries []routes.ListEntry
			routes  int
		}{{routes.KindTool, list.Tools, len(doc.Tools)}, {routes.KindResource, list.Resources, len(doc.Resources)}} {
			if len(kind.entries) > kind.routes {
				t.Errorf("%v: %d entries, %d routes", kind.kind, len(kind.entries), kind.routes)
			}
			for _, e := range kind.entries {
				target, ok := ix.Lookup(kind.kind, e.Name)
				if !ok || target.ID != e.Backend || target.Upstream != e.Upstream {
					t.Errorf("%v %q leads to %v %q, listed as of %s %q", kind.kind, e.Name, target.ID, target.Upstream, e.Backend, e.Upstream)
				}
				offered := func(it catalog.Item) bool { return it.Name == e.Upstream && it.Digest == e.Digest }
				cat := in.Catalogs[e.Backend]
				if cat == nil || !slices.ContainsFunc(slices.Concat(cat.Tools.Items, cat.Resources.Items), offered) {
					t.Errorf("%v %q is listed, and backend %s does not offer it", kind.kind, e.Name, e.Backend)
				}
			}
		}
		for name := range doc.Tools {
			if utf8.RuneCountInString(name) > maxName || !utf8.ValidString(name) {
				t.Errorf("tool name %q is too long or torn", name)
			}
		}
	})
}

// A name is a function of the backend's own item and the host's config for that backend: whether others are there decides
// whether it is published, never what it is called.
func TestNoNameDependsOnAnotherBackend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{Config: genConfig(t), Catalogs: genCatalogs(t, "")}
		together := Compile(in).Hosts["acme"]
		for _, hb := range in.Config.VirtualHosts[0].Backends {
			one := *in.Config
			one.VirtualHosts = []config.VirtualHost{{ID: "acme", Backends: []config.HostBackend{hb}}}
			alone := Compile(Input{Config: &one, Catalogs: in.Catalogs}).Hosts["acme"]
			for name, r := range together.Tools {
				if r.Backend == hb.Name && alone.Tools[name] != r {
					t.Errorf("%q leads to %v in company, to %v alone", name, r, alone.Tools[name])
				}
			}
		}
	})
}

// Whatever others begin to offer, and wherever they stand in the list, a name stays with its holder while it offers the item.
func TestNobodyTakesAHeldName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{Config: genConfig(t), Catalogs: genCatalogs(t, "before ")}
		before := Compile(in)
		in.Previous = before.Hosts
		hosts := slices.Clone(in.Config.VirtualHosts)
		hosts[0].Backends = rapid.Permutation(hosts[0].Backends).Draw(t, "new order")
		conf := *in.Config
		conf.VirtualHosts = hosts
		in.Config = &conf
		for id, cat := range genCatalogs(t, "after ") {
			more := *cat // everything of before, and more, in another place
			if old := in.Catalogs[id]; old != nil {
				more.Tools.Items = slices.Concat(cat.Tools.Items, old.Tools.Items)
				more.Resources.Items = slices.Concat(cat.Resources.Items, old.Resources.Items)
			}
			in.Catalogs[id] = &more
		}
		after := Compile(in)
		for name, r := range before.Hosts["acme"].Tools {
			if got := after.Hosts["acme"].Tools[name]; got != r {
				t.Errorf("tool %q went from %v to %v", name, r, got)
			}
		}
		for uri, r := range before.Hosts["acme"].Resources {
			if got := after.Hosts["acme"].Resources[uri]; got != r {
				t.Errorf("resource %q went from %v to %v", uri, r, got)
			}
		}
	})
}

func TestShorten(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"short names stay":            {"gh__create_pr", "gh__create_pr"},
		"64 characters stay":          {strings.Repeat("a", 64), strings.Repeat("a", 64)},
		"64 characters of two bytes":  {strings.Repeat("é", 64), strings.Repeat("é", 64)},
		"65 are cut":                  {strings.Repeat("a", 65), strings.Repeat("a", 53) + "_635361c48b"},
		"no character is torn":        {strings.Repeat("a", 52) + strings.Repeat("é", 20), strings.Repeat("a", 52) + "_f5c732fcff"},
		"one that begins at the edge": {strings.Repeat("a", 53) + strings.Repeat("é", 20), strings.Repeat("a", 53) + "_0d768412c5"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shorten(tt.in); got != tt.want {
				t.Errorf("shorten(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func TestTooManyTemplates(t *testing.T) {
	cfg := &config.Config{
		Backends: []config.Backend{
			{ID: "big", Route: routes.Backend{URL: "http://big.example/mcp"}}, {ID: "small", Route: routes.Backend{URL: "http://small.example/mcp"}},
		},
		VirtualHosts: []config.VirtualHost{{ID: "acme", Backends: []config.HostBackend{{Name: "small"}}}},
	}
	templates := func(id routes.BackendID, n int) *catalog.Catalog {
		cat := &catalog.Catalog{Backend: id, Protocol: "2026-07-28"}
		for i := range n {
			uri := fmt.Sprintf("%s://%d/{x}", id, i)
			cat.ResourceTemplates.Items = append(cat.ResourceTemplates.Items, catalog.Item{Name: uri, Digest: uri})
		}
		return cat
	}
	in := Input{Config: cfg, Catalogs: map[routes.BackendID]*catalog.Catalog{"big": templates("big", 1500), "small": templates("small", 2)}}
	in.Previous = Compile(in).Hosts

	cfg.VirtualHosts[0].Backends = []config.HostBackend{{Name: "big"}, {Name: "small"}} // big joins, in front
	out := Compile(in)
	doc := out.Hosts["acme"]
	if err := doc.Validate(); err != nil {
		t.Error(err)
	}
	if n := len(doc.ResourceTemplates); n != routes.MaxTemplates {
		t.Errorf("%d templates, want %d", n, routes.MaxTemplates)
	}
	for i := range 2 {
		if _, ok := doc.ResourceTemplates[fmt.Sprintf("small://%d/{x}", i)]; !ok {
			t.Errorf("small://%d/{x} was pushed out by a backend that joined", i)
		}
	}
	want := []Problem{{Code: CodeTooManyTemplates, Host: "acme", Text: "502 resource templates are not published: a host has at most 1000"}}
	if diff := cmp.Diff(want, out.Problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestBoundsOfInstructionsAndProblems(t *testing.T) {
	cfg := &config.Config{VirtualHosts: []config.VirtualHost{{ID: "acme"}}}
	cats := map[routes.BackendID]*catalog.Catalog{}
	for i := range 8 {
		id := routes.BackendID(fmt.Sprintf("b%d", i))
		cfg.Backends = append(cfg.Backends, config.Backend{ID: id, Route: routes.Backend{URL: "http://x.example/mcp"}})
		cfg.VirtualHosts[0].Backends = append(cfg.VirtualHosts[0].Backends, config.HostBackend{Name: id})
		cats[id] = &catalog.Catalog{Backend: id, Protocol: "2026-07-28", Instructions: fmt.Sprint(i) + strings.Repeat("é", 10_000)}
	}
	for i := range 3000 {
		cats["b0"].Tools.Items = append(cats["b0"].Tools.Items, catalog.Item{Name: fmt.Sprint(i), Reject: "no"})
	}
	out := Compile(Input{Config: cfg, Catalogs: cats})
	text := out.Hosts["acme"].Instructions
	if len(text) > maxInstructions || !utf8.ValidString(text) || len(text) < maxInstructions-100 {
		t.Errorf("%d bytes of instructions, valid %v", len(text), utf8.ValidString(text))
	}
	if n := len(out.Problems); n != maxProblems+1+8 {
		t.Errorf("%d problems, want %d of b0, one that says there are more, and a cut of each backend", n, maxProblems)
	}
}

// 1,000 hosts of 200 tools are compiled when a backend that all of them use changes.
func BenchmarkCompile(b *testing.B) {
	cfg := &config.Config{Backends: []config.Backend{{ID: "a", Route: routes.Backend{URL: "http://a.example/mcp"}}}}
	for i := range 1000 {
		cfg.VirtualHosts = append(cfg.VirtualHosts, config.VirtualHost{
			ID: routes.HostID(fmt.Sprintf("host-%d", i)), Backends: []config.HostBackend{{Name: "a", Prefix: "a__"}},
		})
	}
	cat := &catalog.Catalog{Backend: "a", Protocol: "2026-07-28"}
	for i := range 200 {
		name := fmt.Sprintf("tool_%d", i)
		cat.Tools.Items = append(cat.Tools.Items, catalog.Item{Name: name, Digest: name})
	}
	in := Input{Config: cfg, Catalogs: map[routes.BackendID]*catalog.Catalog{"a": cat}}
	in.Previous = Compile(in).Hosts
	b.ReportAllocs()
	for b.Loop() {
		Compile(in)
	}
}
