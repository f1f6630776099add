package dataplane

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// metrics of what surrounds the calls.
type metrics struct {
	requests *prometheus.CounterVec
	redis    *prometheus.HistogramVec
	circuit  *prometheus.GaugeVec
}

// newMetrics registers the metrics; own says that the process is this dataplane's alone.
func newMetrics(reg prometheus.Registerer, own bool) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_dataplane_requests_total",
			Help: "HTTP requests to the MCP endpoint, by status and era.",
		}, []string{"status", "era"}),
		redis: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "weir_dataplane_redis_seconds",
			Help:    "Operations on Redis with their one retry, by result: ok, unavailable or error.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .2, .4, 1},
		}, []string{"operation", "result"}),
	}
	m.circuit = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_dataplane_circuit_open",
		Help: "1 while a failing backend is not called; absent until it failed for the first time.",
	}, []string{"backend"})
	errs := []error{reg.Register(m.requests), reg.Register(m.redis), reg.Register(m.circuit)}
	if own {
		errs = append(errs, reg.Register(collectors.NewGoCollector()),
			reg.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
	}
	return m, errors.Join(errs...)
}

// onCircuit notes the state of a backend's circuit breaker.
func (m *metrics) onCircuit(log *zap.Logger) func(routes.BackendID, string) {
	return func(id routes.BackendID, state string) {
		value := 0.0
		if state == "open" {
			value = 1
		}
		m.circuit.WithLabelValues(string(id)).Set(value)
		log.Warn("circuit changed", zap.String("backend", string(id)), zap.String("state", state))
	}
}

func (m *metrics) observeRedis(operation string, took time.Duration, err error) {
	result := "ok"
	switch {
	case errors.Is(err, routes.ErrUnavailable):
		result = "unavailable"
	case err != nil:
		result = "error"
	}
	m.redis.WithLabelValues(operation, result).Observe(took.Seconds())
}

// onDone counts every request and logs those that were refused before dispatch: what was dispatched has its line already, and
// where it failed a reason.
func (m *metrics) onDone(log *zap.Logger) func(wire.Summary) {
	return func(s wire.Summary) {
		era := ""
		if s.Method != "" {
			era = s.Era.String()
		}
		m.requests.WithLabelValues(strconv.Itoa(s.Status), era).Inc()
		if s.Method != "" && (s.Code == 0 || s.Reason != "") || s.Status < 400 {
			return
		}
		if ce := log.Check(zap.InfoLevel, "refused"); ce != nil {
			ce.Write(zap.String("host", string(s.Host)), zap.Int("status", s.Status), zap.Int("code", s.Code),
				zap.String("reason", s.Reason), zap.Duration("duration", s.Duration), zap.Error(s.Err))
		}
	}
}
