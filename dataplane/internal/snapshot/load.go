package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-mcp/weir/routes"
)

const (
	// loadTimeout bounds one cold read with its wait for a slot; the reader bounds each of its operations itself.
	loadTimeout = 2 * time.Second
	// loadsAtOnce keeps a cold start with many hosts from queueing in the store's client until its operations time out.
	loadsAtOnce = 16
	// loadRounds is how often a read is repeated when the host changed while it ran.
	loadRounds = 3
	// absenceTTL is how long "unknown" is remembered without hearing anything of the host.
	absenceTTL = 2 * time.Second
	// maxAbsent bounds how many are remembered; beyond it every request for an unknown host asks the store.
	maxAbsent = 10_000
)

// load is one read of a cold host. index and err are set before done is closed.
type load struct {
	done  chan struct{}
	index *routes.Index
	err   error
}

// load waits for a cold host. The read has a context of its own: it outlives a caller who leaves, for those who stay.
func (s *Store) load(ctx context.Context, id routes.HostID) (*routes.Index, error) {
	l, err := s.join(id)
	if err != nil {
		return nil, err
	}
	select {
	case <-l.done:
		return l.index, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// join finds the read under way for a host, or starts one.
func (s *Store) join(id routes.HostID) (*load, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hosts[id]
	if h != nil {
		if ix := h.current.Load(); ix != nil {
			l := &load{done: make(chan struct{}), index: ix}
			close(l.done)
			return l, nil
		}
		if h.loading != nil {
			return h.loading, nil
		}
	}
	if a, ok := s.absent[id]; ok {
		if time.Now().Before(a.until) {
			return nil, a.err
		}
		delete(s.absent, id)
	}
	if h == nil {
		h = &host{}
		s.hosts[id] = h
	}
	h.loading = &load{done: make(chan struct{})}
	l := h.loading
	s.loads.Go(func() { s.read(id, h, l) })
	return l, nil
}

// read answers l.
func (s *Store) read(id routes.HostID, h *host, l *load) {
	defer close(l.done)
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		s.settle(id, h, l, fmt.Errorf("read host %q: %w", id, routes.ErrUnavailable), ticket{}, true)
		return
	}
	for round := 1; ; round++ {
		s.mu.RLock()
		t := s.ticket(h)
		s.mu.RUnlock()
		rec, err := s.reader.Host(ctx, id)
		if err == nil && rec.Removed {
			err = routes.ErrUnknownHost
			s.put(id, h, rec, t)
		} else if err == nil {
			s.put(id, h, rec, t)
		}
		if s.settle(id, h, l, err, t, round == loadRounds) {
			s.metrics.loaded(l.err)
			return
		}
	}
}

// settle ends a load: with the index, or with the reason why there is none. It returns false when the host changed since the
// read began, so that the reason may be outdated and must not be told to those who asked after the change.
func (s *Store) settle(id routes.HostID, h *host, l *load, err error, t ticket, last bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := t == s.ticket(h)
	ix := h.current.Load()
	final := errors.Is(err, routes.ErrUnknownHost)
	switch {
	case ix != nil:
		err = nil
	case err == nil && h.refused != nil:
		err, final = fmt.Errorf("host %q: document refused: %w", id, routes.ErrUnavailable), true
	case err == nil:
		err = fmt.Errorf("host %q: %w", id, routes.ErrUnknownHost) // a newer tombstone stands
	default:
		err = fmt.Errorf("read host %q: %w", id, err)
	}
	if err != nil && !fresh && !last {
		return false
	}
	if final && fresh {
		s.remember(id, err)
	}
	l.index, l.err = ix, err
	h.loading = nil
	if ix == nil && !h.known && h.refused == nil {
		delete(s.hosts, id)
	}
	return true
}

// remember must be called with mu held.
func (s *Store) remember(id routes.HostID, err error) {
	now := time.Now()
	if len(s.absent) >= maxAbsent {
		for id, a := range s.absent {
			if !now.Before(a.until) {
				delete(s.absent, id)
			}
		}
		if len(s.absent) >= maxAbsent {
			return
		}
	}
	s.absent[id] = absence{err, now.Add(absenceTTL)}
}
