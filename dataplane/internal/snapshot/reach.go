package snapshot

import (
	"errors"
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes"
)

const (
	// maxFailures is after how many failed reads in a row requests stop waiting for the store.
	maxFailures = 3
	// probeEvery is how often one of them tries all the same.
	probeEvery = time.Second
)

// reach knows whether the store can be reached. The zero value has not heard yet.
type reach struct {
	mu       sync.Mutex
	heard    bool // ever reachable
	up       bool
	since    time.Time // up became false, or the first look
	failures int       // reads in a row that did not reach the store
	probe    time.Time // when the next read may try, once failures is at its bound
}

// set notes what the follower found and reports whether that is news.
func (r *reach) set(up bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	news := up != r.up || !up && r.since.IsZero()
	if up {
		r.heard, r.failures = true, 0
	} else if r.up || r.since.IsZero() {
		r.since = time.Now()
	}
	r.up = up
	return news
}

// try reports whether a read should be tried: always, until too many in a row failed; then one a second.
func (r *reach) try(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures < maxFailures {
		return true
	}
	if now.Before(r.probe) {
		return false
	}
	r.probe = now.Add(probeEvery)
	return true
}

// tried notes how a read ended.
func (r *reach) tried(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !errors.Is(err, routes.ErrUnavailable) {
		r.failures = 0
		return
	}
	if r.failures++; r.failures == maxFailures {
		r.probe = time.Now().Add(probeEvery)
	}
}

func (r *reach) ever() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard
}

func (r *reach) age() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.up || r.since.IsZero() {
		return 0
	}
	return time.Since(r.since)
}
