package call

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Outcomes that are not a reason of a failure. All of them are constants of this package or of package wire.
const (
	outcomeOK           = "ok"
	outcomeBackendError = "backend_error" // the backend's own JSON-RPC error
	outcomeCanceled     = "canceled"      // the client left
	outcomeInternal     = "internal"
)

// metrics of a Handler. Labels come from published tables and from this code, never from a client.
type metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	minted   *prometheus.CounterVec
	lookups  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_calls_total",
			Help: "Requests that were dispatched, by backend (empty: none was chosen), method and outcome.",
		}, []string{"backend", "method", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "weir_call_duration_seconds",
			Help:    "Calls to a backend, from the request's dispatch to the last byte of its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600},
		}, []string{"backend", "method"}),
		minted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_tasks_minted_total",
			Help: "Tasks that backends' answers told of and that were recorded, by backend and source: the result itself, or an advertisement in it.",
		}, []string{"backend", "source"}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_task_lookups_total",
			Help: "Requests of task methods that looked for the task's owner, by outcome.",
		}, []string{"outcome"}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.calls), reg.Register(m.duration), reg.Register(m.minted), reg.Register(m.lookups))
}

// report counts a request and writes its one line of log.
func (h *Handler) report(c *call, method string, took time.Duration) {
	backend := string(c.target.ID)
	h.metrics.calls.WithLabelValues(backend, method, c.outcome).Inc()
	if backend != "" {
		h.metrics.duration.WithLabelValues(backend, method).Observe(took.Seconds())
	}
	ce := h.log.Check(zap.InfoLevel, "call")
	if ce == nil {
		return
	}
	fields := make([]zap.Field, 0, 12)
	fields = append(fields,
		zap.String("host", string(c.r.Host)), zap.String("principal", string(c.r.Identity.Principal)),
		zap.Stringer("era", c.r.Era), zap.String("method", method), zap.String("outcome", c.outcome),
		zap.Duration("duration", took))
	if backend != "" {
		fields = append(fields, zap.String("backend", backend))
	}
	switch {
	case c.task != "": // never the id, which may be all that protects the task
		fields = append(fields, zap.String("task", c.task))
	case backend != "":
		fields = append(fields, zap.String("name", c.target.Upstream))
	}
	if c.events > 0 {
		fields = append(fields, zap.Int("events", c.events))
	}
	if c.code != 0 {
		fields = append(fields, zap.Int("code", c.code), zap.String("reason", c.reason))
	}
	if c.err != nil {
		fields = append(fields, zap.Error(c.err))
	}
	ce.Write(fields...)
}
