package redisstore

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

func TestABatchIsSplitIntoBoundedCalls(t *testing.T) {
	catalogs := func(n, size int) []routes.CatalogChange {
		all := make([]routes.CatalogChange, n)
		for i := range all {
			all[i] = routes.CatalogChange{Backend: routes.BackendID(fmt.Sprint(i)), Document: make([]byte, size)}
		}
		return all
	}
	hosts := func(n, size int) []routes.HostChange {
		all := make([]routes.HostChange, n)
		for i := range all {
			all[i] = routes.HostChange{ID: routes.HostID(fmt.Sprint(i)), Document: make([]byte, size/2), List: make([]byte, size-size/2)}
		}
		return all
	}
	for name, tt := range map[string]struct {
		batch routes.Batch
		want  [][2]int // catalogs and hosts of each call
	}{
		"nothing":                         {routes.Batch{}, nil},
		"few":                             {routes.Batch{Catalogs: catalogs(1, 10), Hosts: hosts(2, 10)}, [][2]int{{1, 2}}},
		"many: catalogs come first":       {routes.Batch{Catalogs: catalogs(70, 10), Hosts: hosts(70, 10)}, [][2]int{{64, 0}, {6, 58}, {0, 12}}},
		"large ones":                      {routes.Batch{Hosts: hosts(5, maxBytes/2)}, [][2]int{{0, 2}, {0, 2}, {0, 1}}},
		"one beyond the bound, by itself": {routes.Batch{Catalogs: catalogs(1, 1), Hosts: hosts(2, 2*maxBytes)}, [][2]int{{1, 0}, {0, 1}, {0, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got [][2]int
			for _, call := range split(tt.batch) {
				got = append(got, [2]int{len(call.Catalogs), len(call.Hosts)})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}
