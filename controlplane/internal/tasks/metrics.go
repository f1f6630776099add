package tasks

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-mcp/weir/routes"
)

// metrics of a Locator.
type metrics struct {
	locates *prometheus.CounterVec
	probes  *prometheus.CounterVec
}

// newMetrics registers on reg; nil: nothing is counted.
func newMetrics(reg prometheus.Registerer, l *Locator) (*metrics, error) {
	m := &metrics{
		locates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_task_locates_total",
			Help: "Looks for the backend of a task that the record does not tell, by what became of them.",
		}, []string{"outcome"}),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_task_probes_total",
			Help: "Backends that such a look asked, by the answer; decoy: for an id that nobody has.",
		}, []string{"backend", "outcome"}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.locates), reg.Register(m.probes),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_task_misses_remembered",
			Help: "Unknown ids of which it is remembered that nobody knows them.",
		}, func() float64 { return float64(l.misses.len()) })),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_task_budgets_short",
			Help: "Principals whose budget for unknown ids is not whole.",
		}, func() float64 { return float64(l.budget.len()) })),
	)
}

// count counts a look: by why it found nothing, or owner, or claimed.
func (m *metrics) count(out *Outcome) {
	outcome := out.Cause
	switch {
	case out.Claimed:
		outcome = "claimed"
	case out.Kind == routes.LocateOwner:
		outcome = string(routes.LocateOwner)
	}
	m.locates.WithLabelValues(outcome).Inc()
}

func (m *metrics) probed(id routes.BackendID, outcome string) {
	m.probes.WithLabelValues(string(id), outcome).Inc()
}
