package publish

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
)

// Reasons why a term ends, besides what the store says.
var (
	errConfigVersion = errors.New("config_version changed")
	errExpired       = errors.New("lease not renewed in time")
)

// term is one leadership, from Acquire until it is lost.
type term struct {
	lease routes.Lease
	end   context.CancelCauseFunc // ends the term; the first cause counts
}

// campaign tries to lead until ctx ends.
func (c *Controller) campaign(ctx context.Context) error {
	said := ""             // why the lease is not ours, as logged last: said once, not at each try
	var owed *routes.Lease // that could not be given back: a renewal that was given up may have come through
	for {
		if owed != nil && c.giveBack(ctx, *owed) == nil {
			owed = nil
		}
		lease, err := c.o.Leases.Acquire(ctx, c.o.Owner, c.o.LeaseTTL, c.config.Load().ConfigVersion)
		if err == nil {
			said = ""
			c.refused.Store(nil)
			owed = c.lead(ctx, lease)
			// Lost data and a lost lease look alike; who lost it waits a moment, so that replicas don't race in step.
			err = pause(ctx, jitter(c.o.Campaign/4))
		} else {
			if said != err.Error() && ctx.Err() == nil {
				said = err.Error()
				level := zap.InfoLevel
				if errors.Is(err, routes.ErrConfigOutdated) {
					level = zap.WarnLevel // it will not lead before somebody does something about it
				}
				c.log.Log(level, "not leading", zap.Error(err))
			}
			why := err
			c.refused.Store(&why)
			err = pause(ctx, jitter(c.o.Campaign))
		}
		if err != nil {
			return nil
		}
	}
}

// lead holds the lease until it is lost or ctx ends. It returns the lease where it may still stand.
func (c *Controller) lead(ctx context.Context, lease routes.Lease) (owed *routes.Lease) {
	log := c.log.With(zap.String("incarnation", lease.Incarnation), zap.Uint64("epoch", lease.Epoch))
	termCtx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c.term.Store(&term{lease: lease, end: end})
	c.metrics.leading.Set(1)
	log.Info("leading")
	c.Notify()

	c.renew(termCtx, end, lease)

	c.term.Store(nil)
	c.metrics.leading.Set(0)
	c.Notify() // the follower's state takes over
	cause := context.Cause(termCtx)
	if ctx.Err() == nil {
		log.Warn("not leading any more", zap.Error(cause))
	}
	if errors.Is(cause, routes.ErrFenced) {
		return nil // not ours to give back
	}
	if err := c.giveBack(ctx, lease); err != nil {
		log.Warn("lease not given back; it runs out", zap.Error(err))
		return &lease
	}
	return nil
}

// giveBack releases a lease. That somebody else holds it by now is no error.
func (c *Controller) giveBack(ctx context.Context, lease routes.Lease) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := c.o.Leases.Release(bounded, lease); err != nil && !errors.Is(err, routes.ErrFenced) {
		return err
	}
	return nil
}

// renew keeps the lease alive and returns when the term is over.
func (c *Controller) renew(ctx context.Context, end context.CancelCauseFunc, lease routes.Lease) {
	renewed := time.Now()
	next := c.o.Renew
	for {
		if pause(ctx, next) != nil {
			return
		}
		asked := time.Now()
		switch err := c.o.Leases.Renew(ctx, lease, c.o.LeaseTTL); {
		case err == nil:
			renewed, next = asked, c.o.Renew
		case ctx.Err() != nil:
			return
		case errors.Is(err, routes.ErrFenced), errors.Is(err, routes.ErrNotLeader):
			end(err)
			return
		default:
			c.log.Warn("lease not renewed", zap.Error(err))
			if time.Since(renewed) > c.o.LeaseTTL {
				end(errExpired)
				return
			}
			next = jitter(c.o.Renew / 3)
		}
	}
}

// pause waits; an error says that ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// jitter is d, give or take a quarter.
func jitter(d time.Duration) time.Duration {
	return d - d/4 + rand.N(d/2+1)
}
