package controlplane

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/routes"
)

func TestBackendMetrics(t *testing.T) {
	healths := map[routes.BackendID]catalog.Health{"a": {Up: true, Duration: 1500 * time.Millisecond}, "b": {}}
	reg := prometheus.NewRegistry()
	err := reg.Register(newBackendMetrics(
		func() (map[routes.BackendID]*catalog.Catalog, map[routes.BackendID]catalog.Health) {
			return map[routes.BackendID]*catalog.Catalog{"a": {Taken: time.Now().Add(-time.Hour)}, "b": {}}, healths
		},
		func() []compile.Problem {
			return []compile.Problem{{Code: "x", Backend: "a"}, {Code: "y", Backend: "a", Host: "h"}, {Code: "z"}, {Code: "w", Backend: "nobody"}}
		}))
	if err != nil {
		t.Fatal(err)
	}
	read := func() map[string]float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				v := m.GetGauge().GetValue()
				if f.GetName() == "weir_discovery_age_seconds" {
					v = float64(int(v / 3600)) // hours: the clock runs
				}
				got[f.GetName()+" "+m.GetLabel()[0].GetValue()] = v
			}
		}
		return got
	}
	want := map[string]float64{
		"weir_discovery_backend_seconds a": 1.5, "weir_discovery_backend_seconds b": 0, "weir_discovery_age_seconds a": 1,
		"weir_backend_problems a": 2, "weir_backend_problems b": 0,
	}
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	delete(healths, "a")
	if _, still := read()["weir_backend_problems a"]; still {
		t.Error("a backend that is gone has metrics")
	}
}
