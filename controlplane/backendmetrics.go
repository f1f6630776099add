package controlplane

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/routes"
)

// backendMetrics tells, at each scrape, how each backend is. Safe for concurrent use.
type backendMetrics struct {
	snapshot func() (map[routes.BackendID]*catalog.Catalog, map[routes.BackendID]catalog.Health)
	problems func() []compile.Problem

	mu      sync.Mutex // held while the gauges are filled and read
	seconds *prometheus.GaugeVec
	age     *prometheus.GaugeVec
	faults  *prometheus.GaugeVec
}

var _ prometheus.Collector = (*backendMetrics)(nil)

func newBackendMetrics(
	snapshot func() (map[routes.BackendID]*catalog.Catalog, map[routes.BackendID]catalog.Health), problems func() []compile.Problem,
) *backendMetrics {
	label := []string{"backend"}
	return &backendMetrics{
		snapshot: snapshot, problems: problems,
		seconds: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_discovery_backend_seconds",
			Help: "Time that the latest round of discovery of the backend took.",
		}, label),
		age: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_discovery_age_seconds",
			Help: "How long ago the last complete round of the backend ended; absent: there was none.",
		}, label),
		faults: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_backend_problems",
			Help: "Problems that name the backend, as the admin API lists them.",
		}, label),
	}
}

// Describe is prometheus.Collector's.
func (m *backendMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.seconds.Describe(ch)
	m.age.Describe(ch)
	m.faults.Describe(ch)
}

// Collect is prometheus.Collector's.
func (m *backendMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seconds.Reset()
	m.age.Reset()
	m.faults.Reset()
	catalogs, healths := m.snapshot()
	for id, h := range healths {
		m.seconds.WithLabelValues(string(id)).Set(h.Duration.Seconds())
		m.faults.WithLabelValues(string(id)).Set(0)
	}
	for id, c := range catalogs {
		if !c.Taken.IsZero() {
			// What another replica found bears the time of its clock, which may be ahead.
			m.age.WithLabelValues(string(id)).Set(max(0, time.Since(c.Taken).Seconds()))
		}
	}
	for _, p := range m.problems() {
		if _, known := healths[p.Backend]; known { // a name that no backend has is no label
			m.faults.WithLabelValues(string(p.Backend)).Inc()
		}
	}
	m.seconds.Collect(ch)
	m.age.Collect(ch)
	m.faults.Collect(ch)
}
