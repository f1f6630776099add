package snapshot

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
)

// Reader is where documents are published; *redisstore.Reader is one. Its methods bound themselves, and say
// routes.ErrUnavailable when the store could not be reached: at once, while it is known to be away.
type Reader interface {
	// Host reads one document: routes.ErrUnknownHost and routes.ErrNotPublished are final answers.
	Host(ctx context.Context, id routes.HostID) (routes.HostRecord, error)
	// Hosts reads several, tombstones included; absent ones are left out.
	Hosts(ctx context.Context, ids []routes.HostID) (map[routes.HostID]routes.HostRecord, error)
	// Follow calls apply with changes, in order, until ctx ends; state is told whether the store can be reached.
	Follow(ctx context.Context, apply func([]routes.Event), state func(reachable bool, err error)) error
}

// Options of a Store.
type Options struct {
	Reader     Reader
	Log        *zap.Logger           // nil: nothing is logged
	Registerer prometheus.Registerer // nil: the metrics are not exposed
	// Jitter spreads the reads of many dataplanes after one change. Zero means 50ms.
	Jitter time.Duration
}

// Store holds the index of every warm host. Safe for concurrent use.
type Store struct {
	reader  Reader
	log     *zap.Logger
	jitter  time.Duration
	metrics *metrics

	reach *reach
	loads sync.WaitGroup
	slots chan struct{} // bounds how many cold hosts are read at once
	wake  chan struct{} // capacity 1: dirty is not empty
	news  chan struct{} // capacity 1: Status would say something new

	mu     sync.RWMutex // guards what follows, and every field of a host but current
	hosts  map[routes.HostID]*host
	absent map[routes.HostID]absence
	resets uint64                      // how many Reset events were seen
	dirty  map[routes.HostID]time.Time // hosts to read again, and since when
}

// host is one virtual host that is warm, being loaded, or was either.
type host struct {
	current atomic.Pointer[routes.Index] // nil: cold

	known   bool           // applied is set
	applied routes.Version // of the document or tombstone that was applied last
	refused *Refusal       // why the newest document is not the current one
	events  uint64         // how many events named this host
	loading *load          // the read that cold requests wait for; nil: none
}

// Refusal says why a published document is not served.
type Refusal = routes.HostRefusal

// absence is a cached refusal to serve a cold host.
type absence struct {
	err   error
	until time.Time
}

// ticket is what had been heard of a host when a read began.
type ticket struct{ events, resets uint64 }

// New checks the options; it starts nothing.
func New(o Options) (*Store, error) {
	if o.Reader == nil {
		return nil, errors.New("snapshot: Reader is required")
	}
	s := &Store{
		reader: o.Reader,
		log:    o.Log,
		jitter: o.Jitter,
		reach:  &reach{first: make(chan struct{})},
		slots:  make(chan struct{}, loadsAtOnce),
		wake:   make(chan struct{}, 1),
		news:   make(chan struct{}, 1),
		hosts:  map[routes.HostID]*host{},
		absent: map[routes.HostID]absence{},
		dirty:  map[routes.HostID]time.Time{},
	}
	if s.log == nil {
		s.log = zap.NewNop()
	}
	if s.jitter == 0 {
		s.jitter = 50 * time.Millisecond
	}
	var err error
	s.metrics, err = newMetrics(o.Registerer, s)
	return s, err
}

// Get returns the index of a host. A warm one costs a map look-up; a cold one is read once for all who wait. Errors wrap
// routes.ErrUnknownHost, routes.ErrNotPublished or routes.ErrUnavailable, or are ctx's.
func (s *Store) Get(ctx context.Context, id routes.HostID) (*routes.Index, error) {
	s.mu.RLock()
	h := s.hosts[id]
	s.mu.RUnlock()
	if h != nil {
		if ix := h.current.Load(); ix != nil {
			return ix, nil
		}
	}
	return s.load(ctx, id)
}

// Reached is closed once the store was reached for the first time.
func (s *Store) Reached() <-chan struct{} { return s.reach.first }

// Age is how long the store has been out of reach: what is served may be as old. Zero means that it is being followed.
func (s *Store) Age() time.Duration { return s.reach.age() }

// Changed has a value when Status may say something new.
func (s *Store) Changed() <-chan struct{} { return s.news }

// Status is what is served for each host, and what was refused.
func (s *Store) Status() map[routes.HostID]routes.HostStatus {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[routes.HostID]routes.HostStatus, len(s.hosts))
	for id, h := range s.hosts {
		warm := h.current.Load() != nil
		if !warm && h.refused == nil {
			continue
		}
		var st routes.HostStatus
		if warm {
			applied := h.applied
			st.Applied = &applied
		}
		st.Refused = h.refused // never changed once made
		out[id] = st
	}
	return out
}

// ticket must be called with mu held.
func (s *Store) ticket(h *host) ticket { return ticket{h.events, s.resets} }

// takes reports whether a document of version v may replace what h has. fresh says that nothing was heard of the host since
// the read began: without it a read that was under way while the store lost its data could bring the old incarnation back.
func (h *host) takes(v routes.Version, fresh bool) bool {
	if !h.known {
		return true
	}
	if v.Incarnation != h.applied.Incarnation {
		return fresh
	}
	return v.Supersedes(h.applied)
}

// decode builds the index of a record.
func decode(id routes.HostID, rec routes.HostRecord) (*routes.Index, error) {
	vh, err := routes.DecodeHost(rec.Document)
	if err != nil {
		return nil, err
	}
	if vh.ID != id {
		return nil, errors.New("the document is another host's")
	}
	return routes.NewIndex(vh)
}

// put applies one record that was read with ticket t. Refusals are recorded; what is served stays as it was.
func (s *Store) put(id routes.HostID, h *host, rec routes.HostRecord, t ticket) {
	var ix *routes.Index
	var err error
	if !rec.Removed {
		s.mu.RLock()
		skip := !h.takes(rec.Version, true) // only to save the decoding
		s.mu.RUnlock()
		if skip {
			return
		}
		ix, err = decode(id, rec)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.takes(rec.Version, t == s.ticket(h)) {
		return
	}
	if err != nil {
		s.refuse(id, h, rec.Version, err)
		return
	}
	if h.refused != nil {
		h.refused = nil
		s.log.Info("published document is accepted again", zap.String("host", string(id)))
	}
	h.known, h.applied = true, rec.Version
	signal(s.news)
	h.current.Store(ix) // nil for a tombstone: cold again, and the next request asks the store
	delete(s.absent, id)
	if ce := s.log.Check(zap.DebugLevel, "snapshot applied"); ce != nil {
		ce.Write(zap.String("host", string(id)), zap.Uint64("epoch", rec.Version.Epoch),
			zap.Uint64("revision", rec.Version.Revision), zap.Bool("removed", rec.Removed))
	}
}

// refuse must be called with mu held.
func (s *Store) refuse(id routes.HostID, h *host, v routes.Version, err error) {
	if h.refused != nil && h.refused.Version == v {
		return // told already
	}
	h.refused = &Refusal{Version: v, Reason: err.Error(), Time: time.Now()}
	s.metrics.refusals.Inc()
	signal(s.news)
	s.log.Warn("published document refused", zap.String("host", string(id)), zap.Uint64("epoch", v.Epoch),
		zap.Uint64("revision", v.Revision), zap.Bool("last_good_kept", h.current.Load() != nil), zap.Error(err))
}
