package main

import (
	"fmt"
	"io"
	"strconv"
	"testing"

	"github.com/weir-mcp/weir/routes"
)

// reportLookups measures an exact hit in tables of growing size; what grows is the memory that is touched, not the work.
func reportLookups(out io.Writer) error {
	fmt.Fprintf(out, "### Look-ups, exact hit\n\n| routes | ns | allocations |\n|---:|---:|---:|\n")
	for _, n := range []int{1, 1_000, 1_000_000} {
		vh := &routes.VirtualHost{
			Schema: routes.SchemaVersion, ID: "bench", Incarnation: "i", Epoch: 1, Revision: 1, Order: []routes.BackendID{"b"},
			Backends: map[routes.BackendID]routes.Backend{"b": {URL: "http://127.0.0.1:1/mcp", Protocol: "2026-07-28"}},
			Tools:    make(map[string]routes.ServiceRoute, n),
		}
		names := make([]string, n)
		for i := range n {
			names[i] = "prefix__tool_" + strconv.Itoa(i)
			vh.Tools[names[i]] = routes.ServiceRoute{Backend: "b", Upstream: "tool"}
		}
		ix, err := routes.NewIndex(vh)
		if err != nil {
			return err
		}
		missed := 0
		res := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, ok := ix.Lookup(routes.KindTool, names[i%min(n, 1000)]); !ok {
					missed++
				}
			}
		})
		if missed > 0 {
			return fmt.Errorf("%d look-ups of %d missed", missed, res.N)
		}
		fmt.Fprintf(out, "| %d | %d | %d |\n", n, res.NsPerOp(), res.AllocsPerOp())
	}
	return nil
}
