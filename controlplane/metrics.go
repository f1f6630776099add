package controlplane

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-mcp/weir/routes"
)

// storeMetrics counts operations on Redis.
func storeMetrics(reg prometheus.Registerer) (func(operation string, took time.Duration, err error), error) {
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "weir_controlplane_redis_seconds",
		Help:    "Operations of the control plane on Redis, with their retry, by operation and result (ok, unavailable, error).",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
	}, []string{"operation", "result"})
	if err := reg.Register(duration); err != nil {
		return nil, err
	}
	return func(operation string, took time.Duration, err error) {
		result := "ok"
		switch {
		case errors.Is(err, routes.ErrUnavailable):
			result = "unavailable"
		case err != nil:
			result = "error"
		}
		duration.WithLabelValues(operation, result).Observe(took.Seconds())
	}, nil
}
