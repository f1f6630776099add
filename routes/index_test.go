package routes_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/weir-mcp/weir/routes"
)

func index(t testing.TB, vh *routes.VirtualHost) *routes.Index {
	t.Helper()
	ix, err := routes.NewIndex(vh)
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

func TestLookupExact(t *testing.T) {
	vh := host()
	vh.Tools = map[string]routes.ServiceRoute{"gh__ping": {Backend: "a", Upstream: "ping"}}
	vh.Prompts = map[string]routes.ServiceRoute{"gh__ping": {Backend: "b", Upstream: "ask"}}
	vh.Resources = map[string]routes.ServiceRoute{"file:///x/../y": {Backend: "b", Upstream: "file:///x/../y"}}
	vh.ResourceTemplates = map[string]routes.ServiceRoute{"x://{a}": {Backend: "a", Upstream: "x://{a}"}}
	ix := index(t, vh)
	type want struct {
		id       routes.BackendID
		upstream string
	}
	for name, tt := range map[string]struct {
		kind routes.Kind
		name string
		want want
	}{
		"a tool":                    {routes.KindTool, "gh__ping", want{"a", "ping"}},
		"a prompt of the same name": {routes.KindPrompt, "gh__ping", want{"b", "ask"}},
		"a listed resource, whatever it is called": {routes.KindResource, "file:///x/../y", want{"b", "file:///x/../y"}},
		"a template by its text":                   {routes.KindResourceTemplate, "x://{a}", want{"a", "x://{a}"}},
		"an upstream name is no route":             {routes.KindTool, "ping", want{}},
		"case matters":                             {routes.KindTool, "GH__PING", want{}},
		"the empty name":                           {routes.KindTool, "", want{}},
		"a URI is no template":                     {routes.KindResourceTemplate, "x://1", want{}},
		"a kind that does not exist":               {routes.Kind(9), "gh__ping", want{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := ix.Lookup(tt.kind, tt.name)
			if ok != (tt.want != want{}) || got.ID != tt.want.id || got.Upstream != tt.want.upstream {
				t.Fatalf("Lookup(%v, %q) = %+v, %v; want %+v", tt.kind, tt.name, got, ok, tt.want)
			}
			if ok && got.Backend.URL != vh.Backends[got.ID].URL {
				t.Errorf("backend %q comes with the URL %s", got.ID, got.Backend.URL)
			}
			if e := ix.Explain(tt.kind, tt.name); e.Target != got || (e.Step == "exact") != ok || (e.Reason == "") != ok {
				t.Errorf("Explain(%v, %q) = %+v", tt.kind, tt.name, e)
			}
		})
	}
	if ix.Host() != vh {
		t.Error("Host is another document")
	}
}

func TestLookupAllocatesNothing(t *testing.T) {
	ix := index(t, manyTools(1000))
	for name, lookup := range map[string]func(){
		"a hit":              func() { ix.Lookup(routes.KindTool, "tool-00000500") },
		"a miss":             func() { ix.Lookup(routes.KindTool, "tool-x") },
		"a resource":         func() { ix.Lookup(routes.KindResource, "x://listed") },
		"an unknown URI":     func() { ix.Lookup(routes.KindResource, "nothing://like/it") },
		"a template's text":  func() { ix.Lookup(routes.KindResourceTemplate, "x://{a}") },
		"a prompt not there": func() { ix.Lookup(routes.KindPrompt, "p") },
	} {
		if n := testing.AllocsPerRun(100, lookup); n != 0 {
			t.Errorf("%s: %v allocs, want 0", name, n)
		}
	}
}

// manyTools returns a document with n tools, one listed resource and one template.
func manyTools(n int) *routes.VirtualHost {
	vh := host()
	vh.Tools = make(map[string]routes.ServiceRoute, n)
	for i := range n {
		name := fmt.Sprintf("tool-%08d", i)
		vh.Tools[name] = routes.ServiceRoute{Backend: "a", Upstream: name}
	}
	vh.Resources = map[string]routes.ServiceRoute{"x://listed": {Backend: "b", Upstream: "x://listed"}}
	vh.ResourceTemplates = map[string]routes.ServiceRoute{"x://{a}": {Backend: "a", Upstream: "x://{a}"}}
	return vh
}

func TestLookupIsSafeForConcurrentUse(t *testing.T) {
	vh := host()
	vh.ResourceTemplates = map[string]routes.ServiceRoute{}
	for i := range 20 {
		s := fmt.Sprintf("x://%d/{a}{?q}", i)
		vh.ResourceTemplates[s] = routes.ServiceRoute{Backend: "a", Upstream: s}
	}
	ix := index(t, vh)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 20 {
				if _, ok := ix.Lookup(routes.KindResource, fmt.Sprintf("x://%d/y?q=1", i)); !ok {
					t.Errorf("template %d does not match", i)
				}
			}
		})
	}
	wg.Wait()
}

// TestMemoryOfManyHosts holds DESIGN § 11, a tenth of it: 1,000 virtual hosts with 200 tools each, warm, in less than 512 MiB.
// Here every tool has a schema, which is more than a document has.
func TestMemoryOfManyHosts(t *testing.T) {
	doc, err := routes.EncodeHost(withSchemas(manyTools(200)))
	if err != nil {
		t.Fatal(err)
	}
	hosts := make([]*routes.Index, 100)
	before := heap()
	for i := range hosts {
		decoded, err := routes.DecodeHost(doc)
		if err != nil {
			t.Fatal(err)
		}
		hosts[i] = index(t, decoded)
	}
	used := heap() - before
	t.Logf("%d KiB for %d hosts", used>>10, len(hosts))
	if used > 512<<20/10 {
		t.Errorf("%d MiB, want less than a tenth of 512", used>>20)
	}
	runtime.KeepAlive(hosts)
}

// withSchemas gives every tool of backend a an input schema of 0.6 KB.
func withSchemas(vh *routes.VirtualHost) *routes.VirtualHost {
	b := vh.Backends["a"]
	b.ToolSchemas = make(map[string]json.RawMessage, len(vh.Tools))
	for name := range vh.Tools {
		b.ToolSchemas[name] = json.RawMessage(`{"type":"object","description":"` + strings.Repeat("x", 560) + `"}`)
	}
	vh.Backends["a"] = b
	return vh
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkLookup must be flat: DESIGN § 11.
func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{1, 1_000, 1_000_000} {
		ix := index(b, manyTools(n))
		names := make([]string, 256) // enough to be no branch prediction, few enough to stay in cache
		for i := range names {
			names[i] = fmt.Sprintf("tool-%08d", i*7919%n)
		}
		b.Run(fmt.Sprintf("routes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, ok := ix.Lookup(routes.KindTool, names[i%len(names)]); !ok {
					b.Fatal("missing")
				}
			}
		})
	}
}

func BenchmarkDecodeAndIndex(b *testing.B) {
	for _, n := range []int{200, 10_000} {
		doc, err := routes.EncodeHost(manyTools(n))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("tools=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				vh, err := routes.DecodeHost(doc)
				if err != nil {
					b.Fatal(err)
				}
				index(b, vh)
			}
		})
	}
}
