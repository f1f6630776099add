package snapshot

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-mcp/weir/routes"
)

// metrics of a Store.
type metrics struct {
	loads    *prometheus.CounterVec
	refusals prometheus.Counter
	lag      prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, s *Store) (*metrics, error) {
	m := &metrics{
		loads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_snapshot_loads_total",
			Help: "Reads of cold virtual hosts, by result.",
		}, []string{"result"}),
		refusals: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_snapshot_refusals_total",
			Help: "Published documents that could not be used; the last good one was kept.",
		}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "weir_snapshot_refresh_seconds",
			Help:    "From a change event to the host being served anew.",
			Buckets: []float64{.005, .01, .025, .05, .075, .1, .15, .25, .5, 1, 5},
		}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(
		reg.Register(m.loads), reg.Register(m.refusals), reg.Register(m.lag),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_snapshot_age_seconds",
			Help: "How long the store has been out of reach; 0 while changes are followed.",
		}, func() float64 { return s.Age().Seconds() })),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_snapshot_hosts",
			Help: "Virtual hosts that are warm.",
		}, func() float64 { warm, _ := s.count(); return float64(warm) })),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_snapshot_refused_hosts",
			Help: "Virtual hosts whose newest document is refused.",
		}, func() float64 { _, refused := s.count(); return float64(refused) })),
	)
}

func (s *Store) count() (warm, refused int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, h := range s.hosts {
		if h.current.Load() != nil {
			warm++
		}
		if h.refused != nil {
			refused++
		}
	}
	return warm, refused
}

// loaded counts one cold read.
func (m *metrics) loaded(err error) {
	result := "ok"
	switch {
	case err == nil:
	case errors.Is(err, routes.ErrUnknownHost):
		result = "unknown"
	case errors.Is(err, routes.ErrNotPublished):
		result = "not_published"
	default:
		result = "unavailable"
	}
	m.loads.WithLabelValues(result).Inc()
}
