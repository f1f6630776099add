package tasks

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Why a record was lost.
const (
	lostFull    = "queue_full" // the store was away, and too many records waited for it
	lostTooMany = "too_many"   // the principal holds as many tasks as it may
	lostRefused = "refused"    // the store will never take it
	lostDrain   = "drain"      // the process ended before the store was back
)

// metrics of a Book.
type metrics struct {
	lost *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, unwritten func() int) (*metrics, error) {
	m := &metrics{lost: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_task_records_lost_total",
		Help: "Tasks whose owner could not be recorded, by the reason.",
	}, []string{"reason"})}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.lost), reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_tasks_unwritten",
		Help: "Owner records that wait in memory until Redis takes them.",
	}, func() float64 { return float64(unwritten()) })))
}
