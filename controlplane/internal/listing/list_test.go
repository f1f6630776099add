package listing

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
	"github.com/weir-mcp/weir/routes/wire"
)

// A definition is the backend's bytes: order, numbers, escapes and fields that nobody knows yet. Only the name's value changes.
func TestDefinitionsAreTheBackendsBytes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ttl := int64(60_000)
		cat := toolCatalog("a",
			def("sql", `{"future":{"name":"inner","n":1.0e2},"name":"sql","inputSchema":{"$defs":{"name":{"type":"string"}},"maximum":9007199254740993},"_meta":{"x/y":"é"}}`),
			def(`we"ird`, `{"name":"we\"ird"}`),
		)
		cat.Tools.TTL = &ttl
		cat.Prompts.Items = []catalog.Item{def("greet", `{"title":"Hi","name":"greet"}`)}
		cat.Resources.Items = []catalog.Item{def("doc:///1", `{"uri":"doc:///1","name":"sql"}`)}
		cat.ResourceTemplates.Items = []catalog.Item{def("doc:///{id}", `{"uriTemplate":"doc:///{id}","name":"sql"}`)}
		b.publish([]*catalog.Catalog{cat}, routestest.Host("acme").
			Tool("gh__sql", "a", "sql").Tool(`we"ird`, "a", `we"ird`).Prompt("hello", "a", "greet").Resource("doc:///1", "a").Template("doc:///{id}", "a"))

		for name, tt := range map[string]struct{ method, modern, legacy string }{
			"tools": {"tools/list",
				`{"resultType":"complete","tools":[{"future":{"name":"inner","n":1.0e2},"name":"gh__sql","inputSchema":{"$defs":{"name":{"type":"string"}},"maximum":9007199254740993},"_meta":{"x/y":"é"}},{"name":"we\"ird"}],"ttlMs":60000,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"0"}}}`,
				`{"tools":[{"future":{"name":"inner","n":1.0e2},"name":"gh__sql","inputSchema":{"$defs":{"name":{"type":"string"}},"maximum":9007199254740993},"_meta":{"x/y":"é"}},{"name":"we\"ird"}]}`},
			"prompts": {"prompts/list",
				`{"resultType":"complete","prompts":[{"title":"Hi","name":"hello"}],"ttlMs":1000,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"0"}}}`,
				`{"prompts":[{"title":"Hi","name":"hello"}]}`},
			"resources keep name and URI": {"resources/list",
				`{"resultType":"complete","resources":[{"uri":"doc:///1","name":"sql"}],"ttlMs":1000,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"0"}}}`,
				`{"resources":[{"uri":"doc:///1","name":"sql"}]}`},
			"templates": {"resources/templates/list",
				`{"resultType":"complete","resourceTemplates":[{"uriTemplate":"doc:///{id}","name":"sql"}],"ttlMs":1000,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"0"}}}`,
				`{"resourceTemplates":[{"uriTemplate":"doc:///{id}","name":"sql"}]}`},
		} {
			if diff := cmp.Diff(tt.modern, string(b.modern("acme", tt.method, "{}").result)); diff != "" {
				t.Errorf("%s, modern (-want +got):\n%s", name, diff)
			}
			if diff := cmp.Diff(tt.legacy, string(b.legacy("acme", tt.method, "{}").result)); diff != "" {
				t.Errorf("%s, legacy (-want +got):\n%s", name, diff)
			}
		}
	})
}

// many is a host of n tools, t0 to t<n-1>, each definition padded to size bytes.
func many(n, size int) (*catalog.Catalog, *routestest.HostBuilder) {
	cat, host := toolCatalog("a"), routestest.Host("acme")
	for i := range n {
		name := fmt.Sprintf("t%d", i)
		cat.Tools.Items = append(cat.Tools.Items, def(name, fmt.Sprintf(`{"name":%q,"description":%q}`, name, strings.Repeat("x", size))))
		host.Tool(name, "a", name)
	}
	return cat, host
}

// walk reads every page and returns the names and the sizes of the pages.
func (b *bench) walk(token string) (names []string, pages []int) {
	b.t.Helper()
	params := "{}"
	for {
		p := b.modern(token, "tools/list", params).page(b.t)
		names, pages = append(names, p.names()...), append(pages, len(p.Tools))
		if p.NextCursor == nil {
			return names, pages
		}
		params = fmt.Sprintf(`{"cursor":%q}`, *p.NextCursor)
	}
}

func TestPages(t *testing.T) {
	for name, tt := range map[string]struct {
		tools, size int
		token       string
		want        []int
	}{
		"a full page and no more":      {1000, 0, "acme", []int{1000}},
		"one over":                     {1001, 0, "acme", []int{1000, 1}},
		"three pages":                  {2345, 0, "acme", []int{1000, 1000, 345}},
		"only what the token may call": {2345, 0, "acme+mcp:tools:t*5", []int{234}},
		"large definitions":            {5, 1 << 20, "acme", []int{3, 2}},
		"none":                         {0, 0, "acme", []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				cat, host := many(tt.tools, tt.size)
				b.publish([]*catalog.Catalog{cat}, host)
				names, pages := b.walk(tt.token)
				if diff := cmp.Diff(tt.want, pages); diff != "" {
					t.Errorf("pages (-want +got):\n%s", diff)
				}
				slices.Sort(names)
				if n := len(slices.Compact(names)); n != sum(tt.want) {
					t.Errorf("%d different names, want %d", n, sum(tt.want))
				}
			})
		})
	}
}

func sum(all []int) (n int) {
	for _, i := range all {
		n += i
	}
	return n
}

func TestCursorsBelongToOneListOfOneHost(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		cat, acme := many(1500, 0)
		_, globex := many(1500, 0)
		globex.Edit(func(vh *routes.VirtualHost) { vh.ID = "globex" })
		for i := range 1500 {
			acme.Prompt(fmt.Sprintf("t%d", i), "a", fmt.Sprintf("t%d", i))
		}
		b.publish([]*catalog.Catalog{cat}, acme, globex)
		cursor := *b.modern("acme", "tools/list", "{}").page(t).NextCursor
		if got := b.modern("acme", "tools/list", fmt.Sprintf(`{"cursor":%q}`, cursor)).page(t); len(got.Tools) != 500 {
			t.Fatalf("own cursor: %d tools", len(got.Tools))
		}
		for name, tt := range map[string]struct{ token, method, cursor string }{
			"another host's": {"globex", "tools/list", fmt.Sprintf("%q", cursor)},
			"another list's": {"acme", "prompts/list", fmt.Sprintf("%q", cursor)},
			"cut":            {"acme", "tools/list", fmt.Sprintf("%q", cursor[:len(cursor)-1])},
			"longer":         {"acme", "tools/list", fmt.Sprintf("%q", cursor+"A")},
			"empty":          {"acme", "tools/list", `""`},
			"not base64":     {"acme", "tools/list", `"?"`},
			"a number":       {"acme", "tools/list", `7`},
			"null":           {"acme", "tools/list", `null`},
			"huge":           {"acme", "tools/list", fmt.Sprintf("%q", strings.Repeat("A", 10_000))},
			"first byte off": {"acme", "tools/list", fmt.Sprintf("%q", flip(cursor, 0))},
			"last byte off":  {"acme", "tools/list", fmt.Sprintf("%q", flip(cursor, len(cursor)-2))},
		} {
			a := b.modern(tt.token, tt.method, `{"cursor":`+tt.cursor+`}`)
			if a.status != 400 || a.code != -32602 {
				t.Errorf("%s: status %d, %d %s; want 400, -32602", name, a.status, a.code, a.text)
			}
			if a := b.legacy(tt.token, tt.method, `{"cursor":`+tt.cursor+`}`); a.status != 200 || a.code != -32602 {
				t.Errorf("%s, legacy: status %d, %d %s; want 200, -32602", name, a.status, a.code, a.text)
			}
		}
	})
}

func flip(s string, at int) string {
	c := byte('A')
	if s[at] == c {
		c = 'B'
	}
	return s[:at] + string(c) + s[at+1:]
}

// A walk that began before a publish ends as it began; after a minute its cursor is refused, and never answered from another list.
func TestACursorOutlivesItsRevisionForAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		cat, host := many(1500, 0)
		b.publish([]*catalog.Catalog{cat}, host)
		first := b.modern("acme", "tools/list", "{}").page(t)
		next := fmt.Sprintf(`{"cursor":%q}`, *first.NextCursor)

		few, fewHost := many(3, 0)
		b.publish([]*catalog.Catalog{few}, fewHost)
		if got := b.modern("acme", "tools/list", "{}").page(t); len(got.Tools) != 3 {
			t.Errorf("a new walk shows %d tools, want 3", len(got.Tools))
		}
		if got := b.modern("acme", "tools/list", next).page(t); len(got.Tools) != 500 || got.Tools[0].Name != "t1000" {
			t.Errorf("the old walk goes on with %d tools", len(got.Tools))
		}
		time.Sleep(time.Minute)
		b.settle()
		if a := b.modern("acme", "tools/list", next); a.code != -32602 {
			t.Errorf("after a minute: %d %s, want -32602", a.code, a.text)
		}
		b.store.mu.RLock()
		defer b.store.mu.RUnlock()
		if b.store.views["acme"].older != nil {
			t.Error("the old revision is still held in memory")
		}
	})
}

func TestScopes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		cat, host := many(3, 0)
		host.Prompt("t0", "a", "t0")
		cat.Prompts.Items = cat.Tools.Items
		b.publish([]*catalog.Catalog{cat}, host)
		for name, tt := range map[string]struct {
			token, method string
			tools         []string // nil: refused
			scope         string
		}{
			"no scopes: everything":       {"acme", "tools/list", []string{"t0", "t1", "t2"}, ""},
			"the kind's":                  {"acme+mcp:tools", "tools/list", []string{"t0", "t1", "t2"}, ""},
			"one tool":                    {"acme+mcp:tools:t1", "tools/list", []string{"t1"}, ""},
			"a glob that matches nothing": {"acme+mcp:tools:x*", "tools/list", []string{}, ""},
			"another kind's":              {"acme+mcp:prompts", "tools/list", nil, "mcp:tools"},
			"tools only":                  {"acme+mcp:tools:t1", "prompts/list", nil, "mcp:prompts"},
			"no resources":                {"acme+mcp:tools", "resources/list", nil, "mcp:resources"},
			"no templates":                {"acme+mcp:tools", "resources/templates/list", nil, "mcp:resources"},
		} {
			a := b.modern(tt.token, tt.method, "{}")
			if tt.tools != nil {
				if got := a.page(t).names(); !slices.Equal(got, tt.tools) {
					t.Errorf("%s: %v, want %v", name, got, tt.tools)
				}
				continue
			}
			challenge := a.header.Get("WWW-Authenticate")
			if a.status != http.StatusForbidden || !strings.Contains(challenge, `error="insufficient_scope"`) ||
				!strings.Contains(challenge, `scope="`+tt.scope+`"`) || !strings.Contains(challenge, "resource_metadata=") {
				t.Errorf("%s: status %d, %q; want 403 that names %s", name, a.status, challenge, tt.scope)
			}
		}
	})
}

func TestPartialFailures(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a, c := toolCatalog("a", def("x", `{"name":"x"}`)), toolCatalog("c", def("y", `{"name":"y"}`))
		host := routestest.Host("acme").Tool("x", "a", "x").Tool("y", "c", "y")
		b.publish([]*catalog.Catalog{a, c}, host)
		partial := func(method string) []string {
			t.Helper()
			if p := b.modern("acme", method, "{}").page(t).Meta.Partial; p != nil {
				return p.Backends
			}
			return nil
		}
		if got := partial("tools/list"); got != nil {
			t.Errorf("all is well: partial %v", got)
		}

		stale := *a
		stale.Tools.Stale, stale.Tools.Reason = true, "timeout"
		b.publish([]*catalog.Catalog{&stale}) // no host changes: no event tells
		if got := partial("tools/list"); !slices.Equal(got, []string{"a"}) {
			t.Errorf("a is stale: partial %v", got)
		}
		if got := b.modern("acme", "tools/list", "{}").page(t).names(); !slices.Equal(got, []string{"x", "y"}) {
			t.Errorf("a is stale: tools %v, want the last good ones", got)
		}
		if got := partial("prompts/list"); got != nil {
			t.Errorf("only a's tools are stale: prompts partial %v", got)
		}
		if got := b.legacy("acme", "tools/list", "{}").page(t); got.Meta.Partial == nil {
			t.Error("a legacy client is not told")
		}

		b.publish([]*catalog.Catalog{a})
		if got := partial("tools/list"); got != nil {
			t.Errorf("a is well again: partial %v", got)
		}
	})
}

func TestMissingBackendsArePartialFailures(t *testing.T) {
	v := newView(routes.Version{}, routestest.Host("acme").Tool("x", "a", "x").Document(),
		&routes.HostList{
			Tools:   []routes.ListEntry{{Name: "x", Backend: "a", Upstream: "x", Digest: "gone"}},
			Missing: []routes.BackendID{"z", "never"},
		}, map[routes.BackendID]*backendItems{}, nil, time.Time{})
	if diff := cmp.Diff([]routes.BackendID{"a", "never", "z"}, v.kinds[routes.KindTool].partial); diff != "" {
		t.Errorf("partial (-want +got):\n%s", diff)
	}
	if n := len(v.kinds[routes.KindTool].entries); n != 0 {
		t.Errorf("%d entries without a definition", n)
	}
}

func TestCachingHints(t *testing.T) {
	ms := func(n int64) *int64 { return &n }
	for name, tt := range map[string]struct {
		ttls []*int64
		want int64
	}{
		"nobody says anything": {[]*int64{nil, nil}, 1000},
		"the shortest":         {[]*int64{ms(60_000), ms(5_000), nil}, 5_000},
		"zero is shorter":      {[]*int64{ms(60_000), ms(0)}, 0},
		"never negative":       {[]*int64{ms(-1)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				host := routestest.Host("acme")
				var cats []*catalog.Catalog
				for i, ttl := range tt.ttls {
					id := routes.BackendID(fmt.Sprintf("b%d", i))
					cat := toolCatalog(id, def(string(id), fmt.Sprintf(`{"name":%q}`, id)))
					cat.Tools.TTL = ttl
					cats = append(cats, cat)
					host.Tool(string(id), id, string(id))
				}
				b.publish(cats, host)
				if got := b.modern("acme", "tools/list", "{}").page(t); got.TTLMs == nil || *got.TTLMs != tt.want || got.CacheScope != "private" {
					t.Errorf("ttlMs %v, cacheScope %q; want %d, private", got.TTLMs, got.CacheScope, tt.want)
				}
			})
		})
	}
}

func FuzzNameOf(f *testing.F) {
	for _, s := range []string{
		`{"name":"x"}`, `{"a":{"name":"y"},"name": "x" }`, `{"NAME":"y","name":"x"}`, `{"n\u0061me":"x"}`, `{}`, `[]`, `{"name"`, `{"name":1}`, ``,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		from, to, err := nameOf([]byte(raw))
		if err != nil {
			return
		}
		var members map[string]json.RawMessage
		if json.Unmarshal([]byte(raw), &members) != nil {
			return // std is stricter about what follows the name; discovery decoded it whole
		}
		e := entry{name: "renamed", renamed: true, item: &item{raw: json.RawMessage(raw), from: from, to: to}}
		var after map[string]json.RawMessage
		if err := json.Unmarshal(e.append(nil, wire.Modern), &after); err != nil {
			t.Fatalf("%q became %q: %v", raw, e.append(nil, wire.Modern), err)
		}
		if string(after["name"]) != `"renamed"` {
			t.Fatalf("%q became %q", raw, e.append(nil, wire.Modern))
		}
		delete(members, "name")
		delete(after, "name")
		if diff := cmp.Diff(members, after); diff != "" {
			t.Errorf("%q: other members changed:\n%s", raw, diff)
		}
	})
}

func FuzzCursor(f *testing.F) {
	v := &view{version: routes.Version{Incarnation: "i", Epoch: 1764460800000, Revision: 7}, doc: routestest.Host("acme").Document()}
	v.kinds[routes.KindTool].entries = make([]entry, 10)
	f.Add(cursorFor("acme", routes.KindTool, v.version, 5))
	f.Add(cursorFor("acme", routes.KindTool, v.version, 11))
	f.Add("AAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, cursor string) {
		of, offset, ok := openCursor(v, routes.KindTool, cursor)
		if !ok {
			return
		}
		if of != v || offset < 0 || offset > 10 || cursorFor("acme", routes.KindTool, v.version, offset) != cursor {
			t.Errorf("%q opened at %d", cursor, offset)
		}
	})
}
