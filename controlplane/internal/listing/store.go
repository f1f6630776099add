package listing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-mcp/weir/routes"
)

// Changes tells what changed; *redisstore.Reader does.
type Changes interface {
	Follow(ctx context.Context, apply func([]routes.Event), state func(reachable bool, err error)) error
	Index(ctx context.Context) (map[routes.HostID]routes.HostEntry, routes.Meta, error)
}

// Hosts reads what stands published of hosts; *redisstore.Reader does.
type Hosts interface {
	Hosts(ctx context.Context, ids []routes.HostID) (map[routes.HostID]routes.HostRecord, error)
	List(ctx context.Context, id routes.HostID) ([]byte, error)
}

// Catalogs reads what stands published of backends; *redisstore.Reader does.
type Catalogs interface {
	Catalogs(ctx context.Context) (map[routes.BackendID]string, error)
	Catalog(ctx context.Context, id routes.BackendID) (doc []byte, digest string, err error)
}

// StoreOptions of a Store.
type StoreOptions struct {
	Changes  Changes
	Hosts    Hosts
	Catalogs Catalogs
	Log      *zap.Logger
	Registry prometheus.Registerer // nil: nothing is counted
	// Poll is how often catalogs are compared besides, since a backend that went stale changes no host. Zero means 2s.
	Poll time.Duration
}

// Store keeps a view of every host that stands published. Safe for concurrent use.
type Store struct {
	o    StoreOptions
	log  *zap.Logger
	wake chan struct{} // capacity 1: there is something to read

	mu        sync.RWMutex // guards what follows
	views     map[routes.HostID]*view
	dirty     map[routes.HostID]uint64 // changed since they were read; see touch
	changes   uint64
	reset     bool // anything may have changed
	synced    bool // the index was read once
	complete  bool // everything was published, in the incarnation last seen
	reachable bool

	cats map[routes.BackendID]*backendItems // the reading goroutine's alone

	// observer is told of each view that took another one's place, from the reading goroutine, without the lock; nil: nobody is.
	observer atomic.Pointer[func(id routes.HostID, before, after *view)]
}

func (s *Store) swapped(id routes.HostID, before, after *view) {
	if f := s.observer.Load(); f != nil {
		(*f)(id, before, after)
	}
}

// NewStore checks the options; it starts nothing.
func NewStore(o StoreOptions) (*Store, error) {
	if o.Changes == nil || o.Hosts == nil || o.Catalogs == nil {
		return nil, errors.New("listing: Changes, Hosts and Catalogs are required")
	}
	o.Poll = cmp.Or(o.Poll, 2*time.Second)
	s := &Store{
		o: o, log: cmp.Or(o.Log, zap.NewNop()), wake: make(chan struct{}, 1),
		views: make(map[routes.HostID]*view), dirty: make(map[routes.HostID]uint64),
		cats: make(map[routes.BackendID]*backendItems),
	}
	if err := s.register(o.Registry); err != nil {
		return nil, fmt.Errorf("listing: %w", err)
	}
	return s, nil
}

// Run follows what is published until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.o.Changes.Follow(ctx, s.apply, s.state) })
	g.Go(func() error { s.read(ctx); return nil })
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// view returns a host's view, or why there is none: routes.ErrUnknownHost, ErrNotPublished or ErrUnavailable.
func (s *Store) view(id routes.HostID) (*view, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch v := s.views[id]; {
	case v != nil:
		return v, nil
	case !s.synced, !s.reachable, s.reset:
		return nil, fmt.Errorf("host %q: %w", id, routes.ErrUnavailable)
	case !s.complete, s.dirty[id] != 0:
		return nil, fmt.Errorf("host %q: %w", id, routes.ErrNotPublished)
	}
	return nil, fmt.Errorf("host %q: %w", id, routes.ErrUnknownHost)
}

// Documents returns the documents of all views.
func (s *Store) Documents() map[routes.HostID]*routes.VirtualHost {
	s.mu.RLock()
	defer s.mu.RUnlock()
	docs := make(map[routes.HostID]*routes.VirtualHost, len(s.views))
	for id, v := range s.views {
		docs[id] = v.doc
	}
	return docs
}

// Host returns what stands published of one host; false: nothing is known of it.
func (s *Store) Host(id routes.HostID) (*routes.VirtualHost, *routes.HostList, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v := s.views[id]
	if v == nil {
		return nil, nil, false
	}
	return v.doc, v.list, true
}

// Index returns a host's table; nil: nothing is known of it.
func (s *Store) Index(id routes.HostID) *routes.Index {
	v, err := s.view(id)
	if err != nil {
		return nil
	}
	ix, err := v.index()
	if err != nil {
		return nil
	}
	return ix
}

// Complete reports whether everything that stands published was read, and a leader said that it was everything.
func (s *Store) Complete() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.synced && s.complete && !s.reset && len(s.dirty) == 0
}

// Reachable reports whether the store could be reached last.
func (s *Store) Reachable() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.reachable
}

// apply notes what a batch of events says.
func (s *Store) apply(events []routes.Event) {
	s.mu.Lock()
	for _, e := range events {
		switch {
		case e.Reset:
			s.reset = true
		case e.Host != "":
			if v := s.views[e.Host]; v == nil || e.Version.Supersedes(v.version) {
				s.touch(e.Host)
			}
		}
	}
	s.mu.Unlock()
	s.signal()
}

// touch notes that a host changed. Each change has a number, so that one that arrives while the host is read is not taken for
// the one that was read. s.mu is held.
func (s *Store) touch(id routes.HostID) {
	s.changes++
	s.dirty[id] = s.changes
}

func (s *Store) state(reachable bool, err error) {
	s.mu.Lock()
	news := reachable != s.reachable
	s.reachable = reachable
	s.mu.Unlock()
	if !news {
		return
	}
	if reachable {
		s.log.Info("store is reachable")
		s.signal()
		return
	}
	s.log.Warn("store is unreachable: what was read is served", zap.Error(err))
}

func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
