package source

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a Watcher. The label source has as many values as the config has sources.
type metrics struct {
	up       *prometheus.GaugeVec
	backends *prometheus.GaugeVec
	refused  *prometheus.GaugeVec
	heard    *prometheus.GaugeVec
	looks    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	labels := []string{"source"}
	m := &metrics{
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_source_up",
			Help: "1 if the latest look at the source succeeded; 0: its last good backends stay in force.",
		}, labels),
		backends: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_source_backends",
			Help: "Backends that the source names, as of its last good answer.",
		}, labels),
		refused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_source_refused",
			Help: "Entries of the source's last good answer that were not taken.",
		}, labels),
		heard: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_source_last_success_timestamp_seconds",
			Help: "When the source last answered well, in seconds since 1970; absent until it did.",
		}, labels),
		looks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_source_looks_total",
			Help: "Looks at the source, by result: ok, unchanged, failed.",
		}, []string{"source", "result"}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.up), reg.Register(m.backends), reg.Register(m.refused), reg.Register(m.heard), reg.Register(m.looks))
}

func (m *metrics) look(source string, r Report) {
	result, up := "ok", 1.0
	switch {
	case r.Err != nil:
		result, up = "failed", 0
	case r.Unchanged:
		result = "unchanged"
	}
	m.looks.WithLabelValues(source, result).Inc()
	m.up.WithLabelValues(source).Set(up)
}

func (m *metrics) set(s *Set) {
	m.backends.WithLabelValues(s.Source).Set(float64(len(s.Backends)))
	m.refused.WithLabelValues(s.Source).Set(float64(len(s.Refused)))
	if !s.Heard.IsZero() {
		m.heard.WithLabelValues(s.Source).Set(float64(s.Heard.UnixMilli()) / 1000)
	}
}

// drop forgets a source that is configured no more.
func (m *metrics) drop(source string) {
	label := prometheus.Labels{"source": source}
	for _, v := range []*prometheus.GaugeVec{m.up, m.backends, m.refused, m.heard} {
		v.DeletePartialMatch(label)
	}
	m.looks.DeletePartialMatch(label)
}
