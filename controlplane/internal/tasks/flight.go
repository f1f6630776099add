package tasks

import (
	"context"
	"sync"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

// flights lets questions for one task by one principal that come at once share one look.
type flights struct {
	mu      sync.Mutex // guards what follows
	running map[flightKey]*flight
}

type flightKey struct {
	host      routes.HostID
	principal access.Principal
	task      string
	era       wire.Era
}

type flight struct {
	scopes access.Scopes
	host   *routes.VirtualHost
	done   chan struct{} // closed when out is there
	out    Outcome
}

// join runs look, or waits for the one that runs already. A question with other scopes, or by a newer table, is one of its own.
func (f *flights) join(ctx context.Context, q *Query, look func() Outcome) Outcome {
	key := flightKey{q.Host.ID, q.Identity.Principal, q.TaskID, q.Era}
	f.mu.Lock()
	if other := f.running[key]; other != nil {
		f.mu.Unlock()
		if !other.scopes.Equal(q.Identity.Scopes) || other.host != q.Host {
			return look()
		}
		select {
		case <-other.done:
			out := other.out
			out.Claimed = false // told once
			return out
		case <-ctx.Done():
			return Outcome{Kind: routes.LocateUnavailable, Cause: routes.CauseCanceled}
		}
	}
	own := &flight{scopes: q.Identity.Scopes, host: q.Host, done: make(chan struct{}),
		out: Outcome{Kind: routes.LocateUnavailable, Cause: routes.CauseBackend}}
	if f.running == nil {
		f.running = make(map[flightKey]*flight)
	}
	f.running[key] = own
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.running, key)
		f.mu.Unlock()
		close(own.done)
	}()
	own.out = look()
	return own.out
}
