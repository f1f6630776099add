package discovery

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
)

// metrics of a Discoverer. The label backend has as many values as the config has backends.
type metrics struct {
	up      *prometheus.GaugeVec
	items   *prometheus.GaugeVec
	stale   *prometheus.GaugeVec
	seconds *prometheus.HistogramVec

	listening *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_discovery_backend_up",
			Help: "1 if the backend answered the last time that it was discovered.",
		}, []string{"backend"}),
		items: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_discovery_items",
			Help: "Items that the backend lists and that can be published, by kind: tools, prompts, resources, resourceTemplates.",
		}, []string{"backend", "kind"}),
		stale: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_discovery_stale",
			Help: "1 if the list could not be read the last time, so that the last good one is served.",
		}, []string{"backend", "kind"}),
		listening: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_discovery_listening",
			Help: "1 while a stream is open on which the backend announces changes of its lists; without a value otherwise.",
		}, []string{"backend"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "weir_discovery_round_seconds",
			Help:    "Time to discover one backend, by result: ok, partial (some list failed), failed.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"result"}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.up), reg.Register(m.items), reg.Register(m.stale), reg.Register(m.seconds), reg.Register(m.listening))
}

func (m *metrics) round(id routes.BackendID, up bool, err error, took time.Duration) {
	result, gauge := "ok", 1.0
	switch {
	case !up:
		result, gauge = "failed", 0
	case err != nil:
		result = "partial"
	}
	m.up.WithLabelValues(string(id)).Set(gauge)
	m.seconds.WithLabelValues(result).Observe(took.Seconds())
}

func (m *metrics) lists(id routes.BackendID, c *catalog.Catalog) {
	for _, l := range lists {
		list, items, stale := c.List(l.kind), 0, 0.0
		for i := range list.Items {
			if list.Items[i].Reject == "" {
				items++
			}
		}
		if list.Stale {
			stale = 1
		}
		m.items.WithLabelValues(string(id), l.kind.String()).Set(float64(items))
		m.stale.WithLabelValues(string(id), l.kind.String()).Set(stale)
	}
}

// drop forgets a backend that is configured no more.
func (m *metrics) drop(id routes.BackendID) {
	label := prometheus.Labels{"backend": string(id)}
	m.up.DeletePartialMatch(label)
	m.items.DeletePartialMatch(label)
	m.stale.DeletePartialMatch(label)
	m.listening.DeletePartialMatch(label)
}
