package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/controlplane/internal/history"
	"github.com/weir-mcp/weir/routes"
)

// StandingDecisions is what operators decided; *redisstore.Reader has it.
type StandingDecisions interface {
	Decisions(ctx context.Context) (map[string]string, routes.Meta, error)
	Decision(ctx context.Context, subject string) (doc []byte, digest string, err error)
}

// Decider writes decisions; *redisstore.Writer does.
type Decider interface {
	Decide(ctx context.Context, subject, expected string, doc []byte) error
}

// decisions is what this replica knows of them. The publishing goroutine's alone.
type decisions struct {
	incarnation string // of the store that they were read from; empty: none was
	known       map[string]decision
	pins        map[routes.BackendID]*catalog.Pins
	holds       map[routes.HostID]*history.Hold
	seen        map[routes.BackendID]*catalog.Catalog // that pins were last compared with
}

// decision is one as it stands. An empty digest means that the store lost it: the leader writes it again.
type decision struct {
	digest string
	doc    []byte
}

func newDecisions() decisions {
	return decisions{
		known: map[string]decision{}, pins: map[routes.BackendID]*catalog.Pins{}, holds: map[routes.HostID]*history.Hold{},
		seen: map[routes.BackendID]*catalog.Catalog{},
	}
}

// Decided says that operators may have decided something. It never blocks.
func (c *Controller) Decided() {
	c.undecided.Store(true)
	c.Notify()
}

// decided is the leader's part of decisions, before it compiles.
func (c *Controller) decided(ctx context.Context) error {
	if err := c.readDecisions(ctx); err != nil {
		return err
	}
	if err := c.decide(ctx); err != nil {
		return fmt.Errorf("write decisions: %w", err)
	}
	return nil
}

// readDecisions brings what is known of decisions in step with the store, where it may have changed. What the store lost with all
// else is kept; what it has no more was taken back.
func (c *Controller) readDecisions(ctx context.Context) (err error) {
	if !c.undecided.Swap(false) {
		return nil
	}
	defer func() {
		if err != nil {
			c.undecided.Store(true)
		}
	}()
	digests, meta, err := c.o.Decisions.Decisions(ctx)
	if err != nil {
		return fmt.Errorf("read decisions: %w", err)
	}
	d := &c.decisions
	for subject, digest := range digests {
		if d.known[subject].digest == digest {
			continue
		}
		doc, digest, err := c.o.Decisions.Decision(ctx, subject)
		if errors.Is(err, routes.ErrNotPublished) {
			continue // taken back in between: an event says so
		}
		if err != nil {
			return fmt.Errorf("read decision %q: %w", subject, err)
		}
		if err := d.take(subject, doc, digest); err != nil {
			c.log.Error("decision not readable, the last good one stays", zap.String("subject", subject), zap.Error(err))
		}
	}
	for subject, known := range d.known {
		if _, stands := digests[subject]; stands {
			continue
		}
		if meta.Incarnation == "" || meta.Incarnation != d.incarnation {
			d.known[subject] = decision{doc: known.doc}
			continue
		}
		d.drop(subject)
	}
	if meta.Incarnation != "" {
		d.incarnation = meta.Incarnation
	}
	return nil
}

func (d *decisions) take(subject string, doc []byte, digest string) error {
	host, backend := history.SubjectOf(subject)
	switch {
	case backend != "":
		pins, err := catalog.DecodePins(doc)
		if err != nil {
			return err
		}
		d.pins[backend] = pins
		delete(d.seen, backend)
	case host != "":
		hold := new(history.Hold)
		if err := json.Unmarshal(doc, hold); err != nil {
			return err
		}
		d.holds[host] = hold
	}
	d.known[subject] = decision{digest, doc}
	return nil
}

func (d *decisions) drop(subject string) {
	host, backend := history.SubjectOf(subject)
	delete(d.known, subject)
	delete(d.pins, backend)
	delete(d.seen, backend)
	delete(d.holds, host)
}

// decide writes what the leader has to say: what it saw for the first time of pinned backends, what the store lost, and that
// decisions on what is not there any more are over. Pins of what is away stay for a while: what comes back must be what was approved.
func (c *Controller) decide(ctx context.Context) error {
	conf := c.config.Load()
	catalogs, _ := c.o.Source.Snapshot()
	for i := range conf.Backends {
		b := &conf.Backends[i]
		subject := history.PinsSubject(b.ID)
		if b.Pin == config.PinOff || b.Pin == "" {
			if err := c.takeBack(ctx, subject); err != nil {
				return err
			}
			continue
		}
		cat := catalogs[b.ID]
		if cat == nil || c.decisions.seen[b.ID] == cat {
			continue
		}
		before := c.decisions.pins[b.ID]
		if err := c.pin(ctx, b.ID, before, before.See(cat).Tidy(cat, time.Now())); err != nil {
			return err
		}
		c.decisions.seen[b.ID] = cat
	}
	if err := c.tidyPins(ctx, conf); err != nil {
		return err
	}
	hosts := make(map[routes.HostID]bool, len(conf.VirtualHosts))
	for i := range conf.VirtualHosts {
		hosts[conf.VirtualHosts[i].ID] = true
	}
	for id := range c.decisions.holds {
		if !hosts[id] {
			if err := c.takeBack(ctx, history.HoldSubject(id)); err != nil {
				return err
			}
		}
	}
	for subject, known := range c.decisions.known {
		if known.digest == "" {
			if err := c.store(ctx, subject, known.doc); err != nil {
				return err
			}
		}
	}
	return nil
}

// tidyPins notes which pinned backends the config has no more, and forgets the pins of those that left long ago. While a source has
// yet to speak, that can't be known.
func (c *Controller) tidyPins(ctx context.Context, conf *config.Config) error {
	if conf.Awaiting {
		return nil
	}
	configured := make(map[routes.BackendID]bool, len(conf.Backends))
	for i := range conf.Backends {
		configured[conf.Backends[i].ID] = true
	}
	for id, before := range maps.Clone(c.decisions.pins) {
		if configured[id] {
			continue
		}
		if err := c.pin(ctx, id, before, before.Tidy(nil, time.Now())); err != nil {
			return err
		}
	}
	return nil
}

// pin puts pins in the place of others, unless they are the same; nil takes them back.
func (c *Controller) pin(ctx context.Context, id routes.BackendID, before, next *catalog.Pins) error {
	switch {
	case next == before:
		return nil
	case next == nil:
		return c.takeBack(ctx, history.PinsSubject(id))
	}
	doc, err := catalog.EncodePins(next)
	if err != nil {
		return err
	}
	return c.store(ctx, history.PinsSubject(id), doc)
}

// store stores one decision and takes it. Who was overtaken reads what stands and decides anew.
func (c *Controller) store(ctx context.Context, subject string, doc []byte) error {
	if err := c.o.Decider.Decide(ctx, subject, c.decisions.known[subject].digest, doc); err != nil {
		c.undecided.Store(true)
		return err
	}
	return c.decisions.take(subject, doc, routes.Digest(doc))
}

func (c *Controller) takeBack(ctx context.Context, subject string) error {
	known, stands := c.decisions.known[subject]
	if !stands {
		return nil
	}
	if err := c.o.Decider.Decide(ctx, subject, known.digest, nil); err != nil {
		c.undecided.Store(true)
		return err
	}
	c.decisions.drop(subject)
	return nil
}

// usedPins are those of the host's backends, in order.
func (c *Controller) usedPins(vh *config.VirtualHost) []*catalog.Pins {
	pins := make([]*catalog.Pins, len(vh.Backends))
	for i, b := range vh.Backends {
		pins[i] = c.decisions.pins[b.Name]
	}
	return pins
}

// hold puts the revision that an operator holds the host at in the place of what was compiled.
func (a *compiled) hold(compiler *compile.Compiler) error {
	doc, list, err := history.Unpack(a.held.Archive)
	if err != nil {
		return fmt.Errorf("held revision %d: %w", a.held.Version.Revision, err)
	}
	a.host = compiler.Held(a.host, doc, list)
	a.host.Problems = append(slices.Clone(a.host.Problems), compile.HeldProblem(a.from.ID, a.held.Version.Revision))
	return nil
}
