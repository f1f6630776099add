package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/controlplane/internal/history"
	"github.com/weir-mcp/weir/routes"
)

// compiled is a host as it came out of the compiler, and what went in.
type compiled struct {
	from   *config.VirtualHost
	conf   *config.Config
	prev   *routes.VirtualHost
	used   []*catalog.Catalog // of the host's backends, in order
	pins   []*catalog.Pins    // as used
	held   *history.Hold      // nil: it is not held
	host   compile.Host
	digest string // see encode; empty until this replica leads
	table  []byte // the encoded document, without its version; nil once it stands, as is list
	list   []byte
	kept   []byte // what the history keeps; nil as table is
	fault  error  // why the document must not be published
}

// round compiles and, when this replica leads, brings the store in step. An error asks for another round.
func (c *Controller) round(ctx context.Context) error {
	state := State{}
	err := c.compileAndPublish(ctx, &state)
	if err != nil && ctx.Err() != nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(c.compiled)) {
		if fault := c.compiled[id].fault; fault != nil {
			state.Problems = append(state.Problems, compile.Problem{Code: compile.CodeDocumentInvalid, Host: id,
				Text: "the host is not published anew: " + fault.Error()})
		}
	}
	if state.Error = err; err != nil {
		if c.State().Error == nil { // said once, not at each try
			c.log.Warn("round not finished, will be repeated until it is", zap.Error(err))
		}
		state.Problems = append(state.Problems, compile.Problem{Code: compile.CodeNotPublished, Text: "the store is behind: " + err.Error()})
	}
	if err == nil && c.State().Error != nil {
		c.log.Info("rounds succeed again")
	}
	c.metrics.rounds.WithLabelValues(outcome(err)).Inc()
	c.metrics.problems.Set(float64(len(state.Problems)))
	c.state.Store(&state)
	return err
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, routes.ErrFenced):
		return "fenced"
	}
	return "failed"
}

func (c *Controller) compileAndPublish(ctx context.Context, state *State) error {
	t := c.term.Load()
	if t == nil {
		c.standing = nil
		if err := c.readDecisions(ctx); err != nil {
			c.log.Debug("decisions not read", zap.Error(err)) // a leader's concern; the ones known are good enough for problems
		}
		c.compile(c.o.Warm(), state)
		return nil
	}
	state.Leading, state.Epoch = true, t.lease.Epoch
	if c.standing == nil || c.standing.lease != t.lease {
		st, err := c.load(ctx, t.lease)
		if err != nil {
			c.compile(c.o.Warm(), state)
			return err
		}
		c.standing = st
		c.undecided.Store(true)
	}
	if err := c.decided(ctx); err != nil {
		c.compile(c.standing.previous(), state)
		return err
	}
	conf := c.compile(c.standing.previous(), state)
	start := time.Now()
	err := c.write(ctx, conf)
	if err != nil {
		c.standing = nil // what of it was written is not known
		if errors.Is(err, routes.ErrFenced) {
			t.end(err)
		}
		return err
	}
	c.metrics.duration.Observe(time.Since(start).Seconds())
	return nil
}

// compile compiles every host whose inputs changed since the last time.
func (c *Controller) compile(previous map[routes.HostID]*routes.VirtualHost, state *State) *config.Config {
	start := time.Now()
	conf := c.config.Load()
	catalogs, healths := c.o.Source.Snapshot()
	in := compile.Input{Config: conf, Catalogs: catalogs, Previous: previous, Pins: c.decisions.pins, ServerVersion: c.o.ServerVersion}
	compiler := compile.For(in)
	state.Problems = append(state.Problems, downProblems(conf, healths)...)
	state.Problems = append(state.Problems, compiler.Backends()...)

	kept := c.compiled
	c.compiled = make(map[routes.HostID]*compiled, len(conf.VirtualHosts))
	var changed []*compiled
	for i := range conf.VirtualHosts {
		vh := &conf.VirtualHosts[i]
		next := &compiled{from: vh, conf: conf, prev: previous[vh.ID], used: usedCatalogs(vh, catalogs),
			pins: c.usedPins(vh), held: c.decisions.holds[vh.ID]}
		if old := kept[vh.ID]; old != nil && old.sameInput(next) {
			next = old
		} else {
			changed = append(changed, next)
		}
		c.compiled[vh.ID] = next
	}
	onAllCores(changed, func(h *compiled) {
		h.host = compiler.Host(h.from)
		if h.held != nil {
			h.fault = h.hold(compiler)
		}
		if h.fault == nil {
			h.fault = h.host.Document.Validate()
		}
	})
	for i := range conf.VirtualHosts {
		state.Problems = append(state.Problems, c.compiled[conf.VirtualHosts[i].ID].host.Problems...)
	}
	c.catalogs = catalogs
	c.metrics.compile.Observe(time.Since(start).Seconds())
	return conf
}

// onAllCores does something to each host: what is done to one depends on nothing of the others.
func onAllCores(hosts []*compiled, do func(*compiled)) {
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	const chunk = 16
	for part := range slices.Chunk(hosts, chunk) {
		g.Go(func() error {
			for _, h := range part {
				do(h)
			}
			return nil
		})
	}
	_ = g.Wait() // its functions return nil
}

func (a *compiled) sameInput(b *compiled) bool {
	return a.from == b.from && a.conf == b.conf && a.prev == b.prev && slices.Equal(a.used, b.used) && slices.Equal(a.pins, b.pins) && a.held == b.held
}

func usedCatalogs(vh *config.VirtualHost, catalogs map[routes.BackendID]*catalog.Catalog) []*catalog.Catalog {
	used := make([]*catalog.Catalog, len(vh.Backends))
	for i, b := range vh.Backends {
		used[i] = catalogs[b.Name]
	}
	return used
}

// downProblems are the backends that did not answer when they were last asked.
func downProblems(conf *config.Config, healths map[routes.BackendID]catalog.Health) []compile.Problem {
	var out []compile.Problem
	for _, b := range conf.Backends {
		if h, ok := healths[b.ID]; ok && !h.Up && !h.Checked.IsZero() {
			out = append(out, compile.Problem{Code: compile.CodeBackendDown, Backend: b.ID, Text: h.LastError})
		}
	}
	return out
}

// write brings the store in step with what was compiled: catalogs, then the hosts that refer to them, then removals.
func (c *Controller) write(ctx context.Context, conf *config.Config) error {
	if err := c.writeCatalogs(ctx, conf); err != nil {
		return fmt.Errorf("publish catalogs: %w", err)
	}
	if err := c.writeHosts(ctx, conf); err != nil {
		return fmt.Errorf("publish hosts: %w", err)
	}
	if err := c.removeCatalogs(ctx, conf); err != nil {
		return fmt.Errorf("remove catalogs: %w", err)
	}
	if c.settled && !conf.Awaiting && !c.standing.complete {
		if err := c.o.Documents.MarkComplete(ctx, c.standing.lease); err != nil {
			return fmt.Errorf("mark complete: %w", err)
		}
		c.standing.complete = true
		c.completeOnce.Do(func() { close(c.complete) })
		c.log.Info("everything is published", zap.Int("hosts", len(conf.VirtualHosts)))
	}
	return nil
}

func (c *Controller) writeCatalogs(ctx context.Context, conf *config.Config) error {
	var b routes.Batch
	for _, backend := range conf.Backends {
		cat := c.catalogs[backend.ID]
		if cat == nil {
			continue
		}
		digest := cat.Digest()
		if c.standing.catalogs[backend.ID] == digest {
			continue
		}
		doc, err := catalog.Encode(cat)
		if err != nil {
			return fmt.Errorf("backend %q: %w", backend.ID, err)
		}
		b.Catalogs = append(b.Catalogs, routes.CatalogChange{Backend: backend.ID, Digest: digest, Document: doc})
	}
	if len(b.Catalogs) == 0 {
		return nil
	}
	if err := c.o.Documents.Publish(ctx, c.standing.lease, b); err != nil {
		return err
	}
	for _, change := range b.Catalogs {
		c.standing.catalogs[change.Backend] = change.Digest
	}
	return nil
}

// writeHosts publishes the hosts that differ from what stands, and a tombstone for each that the config has no more. Before
// discovery had its first round, a host with a backend never heard of is held back: it would be published without its names. So
// is one that awaits a source.
func (c *Controller) writeHosts(ctx context.Context, conf *config.Config) error {
	lease := c.standing.lease
	c.encodeHosts()
	var b routes.Batch
	written := make(map[routes.HostID]*standingHost)
	keep := make(map[routes.HostID]bool, len(conf.VirtualHosts))
	for i := range conf.VirtualHosts {
		id := conf.VirtualHosts[i].ID
		keep[id] = true
		next, stands := c.compiled[id], c.standing.hosts[id]
		if next.fault != nil || conf.VirtualHosts[i].Awaits || (!next.host.Whole() && !c.settled) {
			continue
		}
		if stands == nil {
			stands = &standingHost{}
		}
		if stands.here && !stands.removed && stands.digest == next.digest {
			continue
		}
		change, doc, err := next.change(lease, stands.revision+1)
		if err != nil {
			return err
		}
		b.Hosts = append(b.Hosts, change)
		written[id] = &standingHost{doc: doc, digest: next.digest, revision: doc.Revision, here: true}
	}
	for _, id := range surplus(c.standing.hosts, keep) {
		stands := c.standing.hosts[id]
		if stands.removed && stands.here {
			continue
		}
		b.Hosts = append(b.Hosts, routes.HostChange{ID: id, Revision: stands.revision + 1})
		written[id] = &standingHost{revision: stands.revision + 1, here: true, removed: true}
	}
	for _, h := range c.compiled {
		h.table, h.list, h.kept = nil, nil, nil
	}
	if len(b.Hosts) == 0 {
		return nil
	}
	if err := c.o.Documents.Publish(ctx, lease, b); err != nil {
		return err
	}
	for id, h := range written {
		c.standing.hosts[id] = h
	}
	c.metrics.published.Add(float64(len(b.Hosts)))
	c.log.Info("published", zap.Int("hosts", len(b.Hosts)))
	return nil
}

// encodeHosts encodes what was not compared with what stands yet.
func (c *Controller) encodeHosts() {
	var fresh []*compiled
	for _, h := range c.compiled {
		if h.fault == nil && h.digest == "" {
			fresh = append(fresh, h)
		}
	}
	onAllCores(fresh, func(h *compiled) {
		h.fault = h.encode()
		if stands := c.standing.hosts[h.from.ID]; h.fault == nil && (stands == nil || stands.digest != h.digest) {
			h.fault = h.pack() // it is about to be written
		}
	})
}

// removeCatalogs drops catalogs of backends that the config has no more; no host refers to them now. While a source has yet to
// speak, that can't be known.
func (c *Controller) removeCatalogs(ctx context.Context, conf *config.Config) error {
	if conf.Awaiting {
		return nil
	}
	keep := make(map[routes.BackendID]bool, len(conf.Backends))
	for _, backend := range conf.Backends {
		keep[backend.ID] = true
	}
	var b routes.Batch
	for _, id := range surplus(c.standing.catalogs, keep) {
		b.Catalogs = append(b.Catalogs, routes.CatalogChange{Backend: id})
	}
	if len(b.Catalogs) == 0 {
		return nil
	}
	if err := c.o.Documents.Publish(ctx, c.standing.lease, b); err != nil {
		return err
	}
	for _, change := range b.Catalogs {
		delete(c.standing.catalogs, change.Backend)
	}
	return nil
}
