package redisstore

import (
	"sync/atomic"
	"time"
)

// Outages tells when Redis was last away, as everything sees it that has it in its Options: an operation that failed in both of its
// tries, or a follower that lost its connection, begins an outage, and whoever next reaches Redis ends it. The zero value is ready.
// Safe for concurrent use.
type Outages struct {
	away  atomic.Bool
	ended atomic.Pointer[time.Time]
}

// Last tells when the last outage ended (zero: there was none), and whether one lasts.
func (o *Outages) Last() (ended time.Time, away bool) {
	away = o.away.Load() // first: the end is stored before an outage is over
	if t := o.ended.Load(); t != nil {
		ended = *t
	}
	return ended, away
}

func (o *Outages) begin() { o.away.Store(true) }

func (o *Outages) end() {
	if !o.away.Load() {
		return
	}
	now := time.Now()
	o.ended.Store(&now)
	o.away.Store(false)
}
