package publish

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

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// Leases is the right to write; *redisstore.Writer has it.
type Leases interface {
	Acquire(ctx context.Context, owner string, ttl time.Duration, configVersion int64) (routes.Lease, error)
	Renew(ctx context.Context, l routes.Lease, ttl time.Duration) error
	Release(ctx context.Context, l routes.Lease) error
}

// Documents is where a leader writes; *redisstore.Writer again.
type Documents interface {
	Publish(ctx context.Context, l routes.Lease, b routes.Batch) error
	MarkComplete(ctx context.Context, l routes.Lease) error
}

// StandingHosts is what stands published of hosts; *redisstore.Reader has it.
type StandingHosts interface {
	Index(ctx context.Context) (map[routes.HostID]routes.HostEntry, routes.Meta, error)
	Hosts(ctx context.Context, ids []routes.HostID) (map[routes.HostID]routes.HostRecord, error)
}

// StandingKeys is what a look for single keys needs beside; *redisstore.Reader once more.
type StandingKeys interface {
	Lost(ctx context.Context, hosts []routes.HostID, backends []routes.BackendID) ([]routes.HostID, []routes.BackendID, error)
	List(ctx context.Context, id routes.HostID) ([]byte, error)
}

// StandingCatalogs is what stands published of backends; *redisstore.Reader again.
type StandingCatalogs interface {
	Catalogs(ctx context.Context) (map[routes.BackendID]string, error)
	Catalog(ctx context.Context, id routes.BackendID) (doc []byte, digest string, err error)
}

// Source is what is known of backends; *discovery.Discoverer has it.
type Source interface {
	Seed(catalogs map[routes.BackendID]*catalog.Catalog)
	Snapshot() (map[routes.BackendID]*catalog.Catalog, map[routes.BackendID]catalog.Health)
	FirstRound() <-chan struct{}
}

// Options of a Controller. Durations left zero mean the default that they name.
type Options struct {
	Leases    Leases
	Documents Documents
	Hosts     StandingHosts
	Keys      StandingKeys
	Catalogs  StandingCatalogs
	Decisions StandingDecisions
	Decider   Decider
	Source    Source
	// Warm returns the documents that this replica saw published last. They stand in for the previous output where the store
	// lost its data, and for a follower. Nil: there are none.
	Warm func() map[routes.HostID]*routes.VirtualHost

	Owner         string // of the lease; unique to this process
	ServerVersion string // shown to clients
	Log           *zap.Logger
	Registry      prometheus.Registerer // nil: nothing is counted

	LeaseTTL time.Duration // 10s
	Renew    time.Duration // between renewals: 3s
	Campaign time.Duration // between tries to take the lease: 1s
	Quiet    time.Duration // without a change before a round: 50ms
	Patience time.Duration // longest wait for quiet: 200ms
	Settle   time.Duration // longest wait for the first round of discovery: 15s
	Retry    time.Duration // after a round that failed: 500ms
	Verify   time.Duration // between two looks for keys that vanished or were changed: 8s
}

// Controller keeps the store in step. Safe for concurrent use.
type Controller struct {
	o       Options
	log     *zap.Logger
	metrics *metrics

	config atomic.Pointer[config.Config]
	wake   chan struct{} // capacity 1: something may have changed

	term     atomic.Pointer[term]  // nil: this replica does not lead
	refused  atomic.Pointer[error] // why it does not, as of the latest try; nil: it leads, or has not tried
	state    atomic.Pointer[State] // never nil
	complete chan struct{}         // closed when this replica first published everything

	undecided atomic.Bool // decisions are to be read

	// What follows is the publishing goroutine's alone.
	standing     *standing // what stands, as of this term; nil: to be read
	settled      bool      // discovery's first round ended, or Settle passed
	compiled     map[routes.HostID]*compiled
	catalogs     map[routes.BackendID]*catalog.Catalog // that compiled was made from
	completeOnce sync.Once
	decisions    decisions
	audited      audit
}

// State is what a controller shows of itself. It is read-only.
type State struct {
	Leading  bool
	Epoch    uint64            // of the lease; 0 while not leading
	Problems []compile.Problem // of the latest compilation, and of publishing
	// Error is why the latest round did not reach the store; nil: it did, or there was nothing to write.
	Error error
}

// New checks the options; it starts nothing.
func New(o Options) (*Controller, error) {
	switch {
	case o.Leases == nil, o.Documents == nil, o.Hosts == nil, o.Keys == nil, o.Catalogs == nil, o.Source == nil:
		return nil, errors.New("publish: Leases, Documents, Hosts, Keys, Catalogs and Source are required")
	case o.Decisions == nil, o.Decider == nil:
		return nil, errors.New("publish: Decisions and Decider are required")
	case o.Owner == "":
		return nil, errors.New("publish: Owner is required")
	}
	if o.Warm == nil {
		o.Warm = func() map[routes.HostID]*routes.VirtualHost { return nil }
	}
	o.LeaseTTL = cmp.Or(o.LeaseTTL, 10*time.Second)
	o.Renew = cmp.Or(o.Renew, 3*time.Second)
	o.Campaign = cmp.Or(o.Campaign, time.Second)
	o.Quiet = cmp.Or(o.Quiet, 50*time.Millisecond)
	o.Patience = cmp.Or(o.Patience, 200*time.Millisecond)
	o.Settle = cmp.Or(o.Settle, 15*time.Second)
	o.Retry = cmp.Or(o.Retry, 500*time.Millisecond)
	o.Verify = cmp.Or(o.Verify, 8*time.Second)
	if o.Renew >= o.LeaseTTL {
		return nil, fmt.Errorf("publish: Renew %v must be below LeaseTTL %v", o.Renew, o.LeaseTTL)
	}
	m, err := newMetrics(o.Registry)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	c := &Controller{
		o: o, log: cmp.Or(o.Log, zap.NewNop()), metrics: m,
		wake: make(chan struct{}, 1), complete: make(chan struct{}), decisions: newDecisions(),
	}
	c.undecided.Store(true)
	c.state.Store(&State{})
	return c, nil
}

// Configure takes a config; it must be called before Run, and may be again at any time.
func (c *Controller) Configure(cfg *config.Config) {
	old := c.config.Swap(cfg)
	if t := c.term.Load(); t != nil && old != nil && old.ConfigVersion != cfg.ConfigVersion {
		t.end(errConfigVersion) // the lease says which version leads: take it anew
	}
	c.Notify()
}

// Notify says that something may have changed. It never blocks, so that discovery may call it.
func (c *Controller) Notify() {
	select {
	case c.wake <- struct{}{}:
	default: // a round is due anyway, and it reads everything anew
	}
}

// State returns the latest state.
func (c *Controller) State() *State { return c.state.Load() }

// NotLeading returns why this replica does not lead, as of its latest try: routes.ErrNotLeader where another one does, with
// routes.ErrConfigOutdated beside it where its config_version is too low; nil while it leads, and before it tried.
func (c *Controller) NotLeading() error {
	if err := c.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// Complete is closed once this replica, leading, has published everything.
func (c *Controller) Complete() <-chan struct{} { return c.complete }

// Run campaigns and publishes until ctx ends; then it gives the lease back. It returns nil.
func (c *Controller) Run(ctx context.Context) error {
	if c.config.Load() == nil {
		return errors.New("publish: Run before Configure")
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.campaign(ctx) })
	g.Go(func() error { return c.publish(ctx) })
	return g.Wait()
}

// publish runs a round after each change.
func (c *Controller) publish(ctx context.Context) error {
	settle := time.NewTimer(c.o.Settle)
	defer settle.Stop()
	retry := time.NewTimer(0) // the first round needs no change
	defer retry.Stop()
	verify := time.NewTicker(c.o.Verify)
	defer verify.Stop()
	firstRound := c.o.Source.FirstRound()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-firstRound:
			c.settled, firstRound = true, nil
		case <-settle.C:
			c.settled = true
		case <-retry.C:
		case <-verify.C:
			gone, err := c.verify(ctx)
			if err != nil && ctx.Err() == nil {
				c.log.Warn("not looked for keys that vanished", zap.Error(err))
			}
			if !gone {
				continue
			}
		case <-c.wake:
			if !c.quiet(ctx) {
				return nil
			}
		}
		if err := c.round(ctx); err != nil && ctx.Err() == nil {
			retry.Reset(c.o.Retry)
		}
	}
}

// quiet returns once nothing changed for a while, or the patience is at its end; false: ctx ended.
func (c *Controller) quiet(ctx context.Context) bool {
	patience := time.NewTimer(c.o.Patience)
	defer patience.Stop()
	quiet := time.NewTimer(c.o.Quiet)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-patience.C:
			return true
		case <-quiet.C:
			return true
		case <-c.wake:
			quiet.Reset(c.o.Quiet)
		}
	}
}
