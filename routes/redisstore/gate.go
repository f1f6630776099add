package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
)

const (
	// failuresToShut is how many operations in a row fail before the others stop waiting.
	failuresToShut = 3
	// The prober waits this long before its first and at most before a later try.
	probeFirst = 50 * time.Millisecond
	probeMax   = 500 * time.Millisecond
)

// gate bounds operations. While Redis is away it is shut: operations fail at once, and one prober, which runs only then, opens
// it when Redis answers. The prober also ends when the client is closed.
type gate struct {
	timeout time.Duration
	observe func(string, time.Duration, error)
	probe   func(context.Context) error
	outages *Outages

	mu       sync.Mutex // guards what follows
	failures int        // in a row
	cause    error      // why the gate is shut; nil: it is open
}

func newGate(timeout time.Duration, observe func(string, time.Duration, error), probe func(context.Context) error) *gate {
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	return &gate{timeout: timeout, observe: observe, probe: probe, outages: new(Outages)}
}

// do runs try, at most twice, each time no longer than the timeout. Its error is the caller's own (context.Canceled) or wraps
// routes.ErrUnavailable. try returns go-redis's errors but redis.Nil, and must be safe to run again.
func (g *gate) do(ctx context.Context, op string, try func(context.Context) error) error {
	return g.doFor(ctx, g.timeout, op, try)
}

// doFor is do with a bound of its own, for what moves more than usual.
func (g *gate) doFor(ctx context.Context, timeout time.Duration, op string, try func(context.Context) error) error {
	began := time.Now()
	err := g.attempt(ctx, timeout, try)
	if err != nil {
		err = fmt.Errorf("redis: %s: %w", op, err)
	}
	g.observe(op, time.Since(began), err)
	return err
}

func (g *gate) attempt(ctx context.Context, timeout time.Duration, try func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if cause := g.shut(); cause != nil {
		return fmt.Errorf("%w: %w", routes.ErrUnavailable, cause)
	}
	var err error
	for range 2 {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		err = try(bounded)
		cancel()
		if !isAway(err) {
			g.reached()
			if err != nil { // it answered, and refuses: permissions, types, memory
				err = fmt.Errorf("%w: %w", routes.ErrUnavailable, err)
			}
			return err
		}
		if ctx.Err() != nil || errors.Is(err, redis.ErrClosed) {
			break
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err() // the caller left; that says nothing about Redis
	}
	g.failed(err)
	return fmt.Errorf("%w: %w", routes.ErrUnavailable, err)
}

// shut returns why, or nil.
func (g *gate) shut() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}

// reached says that Redis answered; it opens the gate.
func (g *gate) reached() {
	g.outages.end()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failures, g.cause = 0, nil
}

func (g *gate) failed(err error) {
	g.outages.begin()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failures++; g.failures < failuresToShut || g.cause != nil || errors.Is(err, redis.ErrClosed) {
		return
	}
	g.cause = err
	go g.probeUntilBack()
}

func (g *gate) probeUntilBack() {
	for wait := probeFirst; ; wait = min(2*wait, probeMax) {
		time.Sleep(wait)
		if g.shut() == nil { // somebody else got through: the follower's connection is not subject to the gate
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
		err := g.probe(ctx)
		cancel()
		if !isAway(err) || errors.Is(err, redis.ErrClosed) {
			g.reached()
			return
		}
	}
}

// isAway reports whether err means that Redis could not be used at all, as opposed to an answer to this one operation.
func isAway(err error) bool {
	if err == nil {
		return false
	}
	if _, answered := errors.AsType[redis.Error](err); !answered {
		return true
	}
	return slices.ContainsFunc(awayAnswers(), func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// awayAnswers are those of a Redis that is there but can't serve now, or not us.
func awayAnswers() []string {
	return []string{"LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "READONLY", "MISCONF", "NOREPLICAS", "BUSY",
		"NOAUTH", "WRONGPASS", "max number of clients"}
}
