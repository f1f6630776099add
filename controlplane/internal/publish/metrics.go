package publish

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a Controller.
type metrics struct {
	leading   prometheus.Gauge
	problems  prometheus.Gauge
	rounds    *prometheus.CounterVec
	published prometheus.Counter
	compile   prometheus.Histogram
	duration  prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	m := &metrics{
		leading: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_publish_leading",
			Help: "1 while this control plane holds the leader's lease.",
		}),
		problems: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_publish_problems",
			Help: "Problems of the latest compilation, as the admin API lists them.",
		}),
		rounds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_publish_rounds_total",
			Help: "Rounds of compiling and publishing, by result: ok, fenced, failed.",
		}, []string{"result"}),
		published: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_publish_hosts_total",
			Help: "Documents of virtual hosts written to the store, tombstones included.",
		}),
		compile: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_publish_compile_seconds", Buckets: buckets,
			Help: "Time to compile the hosts whose inputs changed.",
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_publish_write_seconds", Buckets: buckets,
			Help: "Time to bring the store in step, of rounds that succeeded.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.leading), reg.Register(m.problems), reg.Register(m.rounds),
		reg.Register(m.published), reg.Register(m.compile), reg.Register(m.duration))
}
