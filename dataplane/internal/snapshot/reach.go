package snapshot

import (
	"sync"
	"time"
)

// reach knows whether the store can be reached.
type reach struct {
	first chan struct{} // closed when the store was reached for the first time

	mu    sync.Mutex // guards what follows
	heard bool       // first is closed
	up    bool
	since time.Time // when up became false; zero: nothing was heard yet
}

// set notes what the follower found and reports whether that is news.
func (r *reach) set(up bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	news := up != r.up || !up && r.since.IsZero()
	if !up && news {
		r.since = time.Now()
	}
	if up && !r.heard {
		r.heard = true
		close(r.first)
	}
	r.up = up
	return news
}

func (r *reach) age() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.up || r.since.IsZero() {
		return 0
	}
	return time.Since(r.since)
}
