package tasks

import (
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes/access"
)

// A principal may have burst unknown ids looked for at once, and then one each interval. Source: DESIGN § 8.
const (
	burst    = 10
	interval = time.Second
	// maxSpenders is how many principals may be short of budget at once; beyond it nobody else is looked for.
	maxSpenders = 65_536
)

// budget counts what principals spend. A principal is remembered until its budget is whole again: ten seconds at most.
type budget struct {
	mu     sync.Mutex                     // guards what follows
	whole  map[access.Principal]time.Time // when a principal's budget is whole again
	tidyAt int                            // size of whole at which to look for what can be forgotten
	tidied time.Time                      // when that was done
}

func newBudget() *budget {
	return &budget{whole: make(map[access.Principal]time.Time), tidyAt: minTidy}
}

const minTidy = 1024

// take spends one, if there is one.
func (b *budget) take(p access.Principal) bool {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	whole := b.whole[p]
	if whole.Before(now) {
		whole = now
	}
	if whole.Sub(now) > (burst-1)*interval {
		return false
	}
	if _, known := b.whole[p]; !known && !b.room(now) {
		return false
	}
	b.whole[p] = whole.Add(interval)
	return true
}

// room forgets those whose budget is whole, where there are many, and reports whether one more can be remembered; b.mu is held.
func (b *budget) room(now time.Time) bool {
	if len(b.whole) < b.tidyAt || len(b.whole) >= maxSpenders && now.Sub(b.tidied) < interval {
		return len(b.whole) < maxSpenders
	}
	for other, whole := range b.whole {
		if !whole.After(now) {
			delete(b.whole, other)
		}
	}
	b.tidied, b.tidyAt = now, min(max(2*len(b.whole), minTidy), maxSpenders)
	return len(b.whole) < maxSpenders
}

func (b *budget) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.whole)
}
