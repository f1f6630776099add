package discovery

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
)

// Options of a Discoverer.
type Options struct {
	Client *egress.Client
	Log    *zap.Logger // nil: nothing is logged
	// Changed is told each time a catalog changed in content, or a health in whether the backend is up or why not; it must not
	// block. nil: nobody is told.
	Changed func(routes.BackendID)
	Jitter  func(time.Duration) time.Duration // nil: ±10 %
	// Registry gets the metrics; nil: none are kept.
	Registry prometheus.Registerer
	Limits   Limits
}

// Limits bound what one backend may list. Zero fields mean the defaults that they name. A list that is over one has failed.
type Limits struct {
	Pages int   // of one list; 1,000
	Items int   // of one list; 100,000
	Bytes int64 // of all answers of one round; 32 MiB
}

func (l Limits) withDefaults() Limits {
	return Limits{Pages: cmp.Or(l.Pages, 1000), Items: cmp.Or(l.Items, 100_000), Bytes: cmp.Or(l.Bytes, 32<<20)}
}

// Discoverer walks every backend on an interval. Safe for concurrent use.
type Discoverer struct {
	o       Options
	log     *zap.Logger
	metrics *metrics
	first   chan struct{} // closed after the first round
	wake    chan struct{} // capacity 1: Run looks for watchers to start

	mu       sync.Mutex // guards what follows, and the fields of watchers below theirs
	conf     config.Discovery
	healthy  slots // for backends that answered the last time, or were never asked
	failing  slots // for the others
	watchers map[routes.BackendID]*watcher
	seeds    map[routes.BackendID]*catalog.Catalog // of backends that are not configured yet
	untried  int                                   // backends that the first round still waits for
	running  bool
}

// slots is a semaphore. A round gives its slot back to the semaphore that it took it from, whatever was configured since.
type slots chan struct{}

// New checks the options; it starts nothing.
func New(o Options) (*Discoverer, error) {
	if o.Client == nil {
		return nil, errors.New("discovery: Client is required")
	}
	m, err := newMetrics(o.Registry)
	if err != nil {
		return nil, err
	}
	o.Limits = o.Limits.withDefaults()
	if o.Jitter == nil {
		o.Jitter = func(d time.Duration) time.Duration { return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64())) }
	}
	if o.Changed == nil {
		o.Changed = func(routes.BackendID) {}
	}
	return &Discoverer{
		o: o, log: cmp.Or(o.Log, zap.NewNop()), metrics: m,
		first: make(chan struct{}), wake: make(chan struct{}, 1),
		watchers: map[routes.BackendID]*watcher{}, seeds: map[routes.BackendID]*catalog.Catalog{},
	}, nil
}

// Seed installs catalogs loaded from Redis, so that a backend that is down keeps its routes. A backend that has a catalog already
// keeps its own, which is newer. It may be called at any time.
func (d *Discoverer) Seed(catalogs map[routes.BackendID]*catalog.Catalog) {
	var changed []routes.BackendID
	d.mu.Lock()
	for id, c := range catalogs {
		if c == nil {
			continue
		}
		w := d.watchers[id]
		switch {
		case w == nil:
			d.seeds[id] = c
		case w.catalog == nil:
			w.catalog = c
			d.metrics.lists(id, c)
			changed = append(changed, id)
		}
	}
	d.mu.Unlock()
	for _, id := range changed {
		d.o.Changed(id)
	}
}

// Configure replaces the set of backends; new and changed ones are discovered at once. Catalogs of removed ones are dropped.
// Stdio backends are left to their hosts.
func (d *Discoverer) Configure(dc config.Discovery, backends []config.Backend) {
	var changed []routes.BackendID
	d.mu.Lock()
	if dc != d.conf {
		d.conf = dc
		d.healthy = make(slots, max(dc.Parallel, 1))
		d.failing = make(slots, max(dc.Parallel/4, 1))
	}
	gone := maps.Clone(d.watchers)
	for i := range backends {
		b := &backends[i]
		if b.Stdio != nil {
			continue
		}
		delete(gone, b.ID)
		w := d.watchers[b.ID]
		if w == nil {
			w = &watcher{d: d, id: b.ID, poke: make(chan struct{}, 1), gone: make(chan struct{}), news: make(chan struct{}, 1), catalog: d.seeds[b.ID]}
			delete(d.seeds, b.ID)
			d.watchers[b.ID] = w
			if w.catalog != nil {
				d.metrics.lists(b.ID, w.catalog)
				changed = append(changed, b.ID)
			}
			if !d.running {
				d.untried++
				w.awaited = true
			}
		}
		if !reflect.DeepEqual(w.route, b.Route) {
			w.route = b.Route
			w.probed = "" // what was found out of its handshake was found of another backend
			w.refresh()
			w.tidings()
		}
	}
	for id, w := range gone {
		delete(d.watchers, id)
		close(w.gone)
		d.tried(w)
		d.metrics.drop(id)
		changed = append(changed, id)
	}
	d.mu.Unlock()
	for _, id := range changed {
		d.o.Changed(id)
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// tried takes a backend off the first round's list. d.mu is held.
func (d *Discoverer) tried(w *watcher) {
	if !w.awaited {
		return
	}
	w.awaited = false
	if d.untried--; d.untried == 0 && d.running {
		close(d.first)
	}
}

// Run discovers until ctx ends. It may be called once.
func (d *Discoverer) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	d.mu.Lock()
	if d.running = true; d.untried == 0 {
		close(d.first)
	}
	d.mu.Unlock()
	for {
		d.mu.Lock()
		for _, w := range d.watchers {
			if !w.started {
				w.started = true
				watching.Go(func() { w.run(ctx) })
			}
		}
		d.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		}
	}
}

// FirstRound is closed when every backend configured before Run was tried once.
func (d *Discoverer) FirstRound() <-chan struct{} { return d.first }

// Refresh discovers one backend now; false: unknown. A round that runs already is followed by another one.
func (d *Discoverer) Refresh(id routes.BackendID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.watchers[id]
	if w == nil {
		return false
	}
	w.refresh()
	return true
}

// Snapshot returns the catalogs (nil entries never) and healths as they stand; the maps are the caller's. A backend that was not
// tried yet has no health.
func (d *Discoverer) Snapshot() (map[routes.BackendID]*catalog.Catalog, map[routes.BackendID]catalog.Health) {
	d.mu.Lock()
	defer d.mu.Unlock()
	catalogs := make(map[routes.BackendID]*catalog.Catalog, len(d.watchers))
	healths := make(map[routes.BackendID]catalog.Health, len(d.watchers))
	for id, w := range d.watchers {
		if w.catalog != nil {
			catalogs[id] = w.catalog
		}
		if !w.health.Checked.IsZero() {
			healths[id] = w.health
		}
	}
	return catalogs, healths
}
