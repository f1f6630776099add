package snapshot

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-mcp/weir/routes"
)

const (
	// batch is how many hosts one read asks for: large enough to save round trips, small enough for the reader's time-out.
	batch = 32
	// minRetry and maxRetry bound the pause after a refresh that failed.
	minRetry = 100 * time.Millisecond
	maxRetry = 2 * time.Second
)

// Run follows the published changes until ctx ends, and waits for the reads it started.
func (s *Store) Run(ctx context.Context) error {
	defer s.loads.Wait()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.reader.Follow(ctx, s.apply, s.state) })
	g.Go(func() error { s.refreshLoop(ctx); return nil })
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// state is told by the reader whether the store can be reached.
func (s *Store) state(reachable bool, err error) {
	if !s.reach.set(reachable) {
		return
	}
	if reachable {
		s.log.Info("store is reachable")
		signal(s.wake)
		return
	}
	s.log.Warn("store is unreachable: warm hosts keep serving", zap.Error(err))
}

// apply notes what a batch of events says: nothing remembered of a host outlives an event that names it.
func (s *Store) apply(events []routes.Event) {
	now := time.Now()
	s.mu.Lock()
	for _, e := range events {
		switch {
		case e.Reset:
			s.resets++
			clear(s.absent)
			for id, h := range s.hosts {
				s.touch(id, h, now)
			}
		case e.Host != "":
			delete(s.absent, e.Host)
			h := s.hosts[e.Host]
			if h == nil {
				continue // cold: nobody asked yet
			}
			h.events++
			if !h.known || e.Version.Supersedes(h.applied) {
				s.touch(e.Host, h, now)
			}
		}
	}
	s.mu.Unlock()
	signal(s.wake)
}

// touch must be called with mu held. A cold host is read again only while somebody waits for it.
func (s *Store) touch(id routes.HostID, h *host, now time.Time) {
	if h.current.Load() == nil && h.loading == nil {
		return
	}
	if _, ok := s.dirty[id]; !ok {
		s.dirty[id] = now
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// refreshLoop reads again what changed: all that came within the jitter at once, and what failed until it succeeds.
func (s *Store) refreshLoop(ctx context.Context) {
	pause := time.Duration(0)
	for {
		var again <-chan time.Time
		if pause > 0 {
			again = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-s.wake:
			select {
			case <-ctx.Done():
				return
			case <-time.After(rand.N(s.jitter)):
			}
		}
		if err := s.refresh(ctx); err != nil {
			pause = min(max(minRetry, 2*pause), maxRetry)
			s.log.Warn("refresh failed, will be repeated", zap.Duration("pause", pause), zap.Error(err))
		} else {
			pause = 0
		}
	}
}

// refresh reads every dirty host once. What could not be read stays dirty.
func (s *Store) refresh(ctx context.Context) error {
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = map[routes.HostID]time.Time{}
	s.mu.Unlock()
	if len(dirty) == 0 {
		return nil
	}
	ids := make([]routes.HostID, 0, len(dirty))
	for id := range dirty {
		ids = append(ids, id)
	}
	var (
		g     errgroup.Group
		mu    sync.Mutex
		first error
	)
	g.SetLimit(max(2, runtime.GOMAXPROCS(0))) // decoding is most of the work
	for part := range slices.Chunk(ids, batch) {
		g.Go(func() error {
			if err := s.refreshBatch(ctx, part, dirty); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			}
			return nil
		})
	}
	_ = g.Wait() // its functions return nil: one batch's failure must not stop the others
	return first
}

func (s *Store) refreshBatch(ctx context.Context, ids []routes.HostID, since map[routes.HostID]time.Time) error {
	hosts := make([]*host, len(ids))
	tickets := make([]ticket, len(ids))
	s.mu.RLock()
	for i, id := range ids {
		if hosts[i] = s.hosts[id]; hosts[i] != nil {
			tickets[i] = s.ticket(hosts[i])
		}
	}
	s.mu.RUnlock()
	records, err := s.reader.Hosts(ctx, ids)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, id := range ids {
			if _, ok := s.dirty[id]; !ok {
				s.dirty[id] = since[id]
			}
		}
		return err
	}
	for i, id := range ids {
		rec, ok := records[id]
		if !ok || hosts[i] == nil {
			continue // an absent key never removes a host
		}
		s.put(id, hosts[i], rec, tickets[i])
		s.metrics.lag.Observe(time.Since(since[id]).Seconds())
	}
	return nil
}
