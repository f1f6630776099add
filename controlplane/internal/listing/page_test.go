package listing

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

func TestThePageSizeIsTheConfigs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		size := 0
		b := newBench(t, false)
		b.server.pageSize = pageSize(func() int { return size })
		cat, host := many(1500, 0)
		b.publish([]*catalog.Catalog{cat}, host)
		for n, want := range map[int][]int{
			0: {1000, 500}, -1: {1000, 500}, 400: {400, 400, 400, 300}, 1499: {1499, 1}, 1500: {1500}, 10_000: {1500},
		} {
			size = n
			names, pages := b.walk("acme")
			if diff := cmp.Diff(want, pages); diff != "" {
				t.Errorf("page size %d: pages (-want +got):\n%s", n, diff)
			}
			if slices.Sort(names); len(slices.Compact(names)) != 1500 {
				t.Errorf("page size %d: %d different names", n, len(names))
			}
		}

		// A cursor holds where the page begins, not its number: another size in between loses nothing and doubles nothing.
		size = 400
		first := b.modern("acme", "tools/list", "{}").page(t)
		size = 700
		second := b.modern("acme", "tools/list", fmt.Sprintf(`{"cursor":%q}`, *first.NextCursor)).page(t)
		if len(second.Tools) != 700 || second.Tools[0].Name != "t400" {
			t.Errorf("after another size: %d tools from %s on", len(second.Tools), second.Tools[0].Name)
		}
	})
}

// The same list, whenever it is asked for and on whichever replica: the order is the published one.
func TestTheOrderIsThePublishedOne(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		cat, host := many(50, 0)
		list := host.List()
		slices.Reverse(list.Tools) // shared with the builder
		b.publish([]*catalog.Catalog{cat}, host)
		first := string(b.modern("acme", "tools/list", "{}").result)
		if !strings.HasPrefix(first, `{"resultType":"complete","tools":[{"name":"t49"`) {
			t.Fatalf("%.80s", first)
		}
		for range 20 {
			other := newView(routes.Version{}, host.Document(), list, map[routes.BackendID]*backendItems{"a": newBackendItems("", cat)}, nil, time.Time{})
			got := string(b.server.page(other, mustList(t, "tools/list"), 0, access.AllScopes(), wire.Modern))
			if got != first {
				t.Fatalf("another replica says %.200s", got)
			}
		}
	})
}

func mustList(t testing.TB, method string) listMethod {
	t.Helper()
	m, ok := listMethodOf(method)
	if !ok {
		t.Fatal(method)
	}
	return m
}

// sized is a view of n tools of about 500 bytes each.
func sized(n int) *view {
	cat, host := many(n, 460)
	return newView(routes.Version{}, host.Document(), host.List(), map[routes.BackendID]*backendItems{"a": newBackendItems("", cat)}, nil, time.Time{})
}

func quietServer(t testing.TB) *Server {
	t.Helper()
	s, err := NewServer(ServerOptions{Store: &Store{}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A page costs what is on it, and not what the list has: as much for the first of 10,000 tools as for the only one of 1,000, and as
// much for the last page.
func TestAPageCostsWhatIsOnIt(t *testing.T) {
	s, tools := quietServer(t), mustList(t, "tools/list")
	narrow, err := access.ParseScopes("mcp:tools:t99*", false)
	if err != nil {
		t.Fatal(err)
	}
	small, large := sized(1000), sized(10_000)
	cost := func(v *view, offset int, scopes access.Scopes) (allocs float64, bytes uint64) {
		page := func() { s.page(v, tools, offset, scopes, wire.Modern) }
		allocs = testing.AllocsPerRun(10, page)
		const runs = 10
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			page()
		}
		runtime.ReadMemStats(&after)
		return allocs, (after.TotalAlloc - before.TotalAlloc) / runs
	}
	_, want := cost(small, 0, access.AllScopes())
	for name, tt := range map[string]struct {
		offset int
		scopes access.Scopes
	}{
		"the first page":               {0, access.AllScopes()},
		"one in the middle":            {5000, access.AllScopes()},
		"the last":                     {9000, access.AllScopes()},
		"few tools that the token may": {0, narrow},
	} {
		allocs, bytes := cost(large, tt.offset, tt.scopes)
		if bytes > want+want/4 || allocs > 20 {
			t.Errorf("%s of 10,000 tools: %d bytes in %v pieces; the only page of 1,000 tools: %d bytes", name, bytes, allocs, want)
		}
	}
}

func BenchmarkPageOf10000Tools(b *testing.B) {
	s, tools, v := quietServer(b), mustList(b, "tools/list"), sized(10_000)
	b.ReportAllocs()
	for b.Loop() {
		s.page(v, tools, 5000, access.AllScopes(), wire.Modern)
	}
}
