package listing

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-mcp/weir/routes/wire"
)

func (s *Store) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	return errors.Join(
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_listing_hosts",
			Help: "Virtual hosts whose lists are served.",
		}, func() float64 {
			s.mu.RLock()
			defer s.mu.RUnlock()
			return float64(len(s.views))
		})),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_listing_following",
			Help: "1 while changes in the store are followed; 0 while it is out of reach.",
		}, func() float64 {
			if s.Reachable() {
				return 1
			}
			return 0
		})),
	)
}

// register makes the server's metrics.
func (s *Server) register(reg prometheus.Registerer) error {
	s.completions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_listing_completions_total",
		Help: "Completions by the backend that owns the prompt or template, and by what became of them.",
	}, []string{"backend", "outcome"})
	if reg == nil {
		return nil
	}
	errs := []error{reg.Register(s.completions)}
	for _, c := range s.listeners.m.collectors() {
		errs = append(errs, reg.Register(c))
	}
	return errors.Join(errs...)
}

// Requests counts the requests that clients send to the control plane.
type Requests struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewRequests registers on reg; nil: nothing is counted.
func NewRequests(reg prometheus.Registerer) (*Requests, error) {
	q := &Requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_listing_requests_total",
			Help: "Requests of clients to the control plane, by method (other: none that it answers) and HTTP status.",
		}, []string{"method", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "weir_listing_request_seconds",
			Help:    "Request read to last byte sent, by method.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}, []string{"method"}),
	}
	if reg == nil {
		return q, nil
	}
	return q, errors.Join(reg.Register(q.total), reg.Register(q.duration))
}

// Observe counts one request.
func (q *Requests) Observe(s wire.Summary) {
	method := "other"
	switch s.Method {
	case "initialize", "ping", "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list",
		"completion/complete", "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		method = s.Method
	}
	if s.Method == "subscriptions/listen" { // how long a stream lasts says nothing
		q.total.WithLabelValues(s.Method, strconv.Itoa(s.Status)).Inc()
		return
	}
	q.total.WithLabelValues(method, strconv.Itoa(s.Status)).Inc()
	q.duration.WithLabelValues(method).Observe(s.Duration.Seconds())
}
