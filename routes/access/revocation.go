package access

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// RevocationStore is where revocations stand; *redisstore.Reader is one.
type RevocationStore interface {
	// Revocations returns all that stand, those that ended too, and the keys of those that can't be read.
	Revocations(ctx context.Context) (all []routes.Revocation, unreadable []string, err error)
	// Follow calls apply with changes, in order, until ctx ends; state is told whether the store can be reached.
	Follow(ctx context.Context, apply func([]routes.Event), state func(reachable bool, err error)) error
}

// RevocationWriter changes what stands in the store; *redisstore.Writer is one.
type RevocationWriter interface {
	Revoke(ctx context.Context, revocations []routes.Revocation) error
	DropRevocations(ctx context.Context, ended []string) error
}

// RevocationOptions of a Revocations.
type RevocationOptions struct {
	Store RevocationStore
	// Writer gets back what the store has lost, and drops what ended. Nil: this plane may not write.
	Writer RevocationWriter
	// FailClosedAfter is how long the store may be out of reach before Confirm fails. Zero: for ever.
	FailClosedAfter time.Duration
	// Now is the clock that ends are judged by. Nil means time.Now.
	Now func() time.Time
	// OnError is told of what goes wrong with the store; it is repeated until it succeeds. Nil: dropped.
	OnError func(error)
}

const (
	// reloadEvery is how often everything is read anew besides, for what a stream of changes can't tell.
	reloadEvery = 30 * time.Second
	// reloadRetry and reloadRetryMax bound the pause after a reading that failed.
	reloadRetry    = 50 * time.Millisecond
	reloadRetryMax = 2 * time.Second
	// confirmPatience is how long Confirm waits for the first reading.
	confirmPatience = 2 * time.Second
)

// Revocations keeps what was revoked, in memory: read before the first token is accepted, followed by the store's changes, and kept
// until each one ends whatever the store says later. What is read is merged, never put in place of what is known. Safe for
// concurrent use.
type Revocations struct {
	o     RevocationOptions
	began time.Time     // age counts from here; it has a monotonic reading
	wake  chan struct{} // capacity 1: read everything anew

	loaded   chan struct{} // closed once everything was read for the first time
	isLoaded atomic.Bool
	// unsure is since when changes may be missed, as nanoseconds after began, plus one; zero: none are.
	unsure atomic.Int64

	known revoked

	mu        sync.Mutex // guards what follows
	reachable bool
	resets    uint64 // how often something may have been missed
}

// NewRevocations checks the options; it starts nothing.
func NewRevocations(o RevocationOptions) (*Revocations, error) {
	if o.Store == nil {
		return nil, errors.New("revocations: Store is required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	k := &Revocations{o: o, began: time.Now(), wake: make(chan struct{}, 1), loaded: make(chan struct{})}
	k.known.init()
	k.unsure.Store(1)
	return k, nil
}

// Loaded is closed once everything was read for the first time.
func (k *Revocations) Loaded() <-chan struct{} { return k.loaded }

// Age is how long changes may have been missed; zero while they are followed. Before the first reading it counts from the start.
func (k *Revocations) Age() time.Duration {
	since := k.unsure.Load()
	if since == 0 {
		return 0
	}
	return time.Since(k.began) - time.Duration(since-1)
}

// Len is how many revocations are in force.
func (k *Revocations) Len() int { return k.known.size() }

// All returns those in force, in no order.
func (k *Revocations) All() []routes.Revocation { return k.known.all(k.o.Now()) }

// Revoked reports whether a token is revoked. It costs two look-ups and does not allocate.
func (k *Revocations) Revoked(id *Identity) bool { return k.known.has(id, k.o.Now) }

// Confirm returns an error while no token can be trusted: before the first reading, for which it waits up to 2 s, and when changes
// may have been missed for longer than FailClosedAfter. It does not allocate where it returns nil.
func (k *Revocations) Confirm(ctx context.Context) error {
	if !k.isLoaded.Load() {
		patience := time.NewTimer(confirmPatience)
		defer patience.Stop()
		select {
		case <-k.loaded:
		case <-ctx.Done():
			return ctx.Err()
		case <-patience.C:
			return errors.New("not read yet")
		}
	}
	if k.o.FailClosedAfter > 0 && k.unsure.Load() != 0 {
		if age := k.Age(); age > k.o.FailClosedAfter {
			return fmt.Errorf("not confirmed for %v", age.Round(time.Second))
		}
	}
	return nil
}

// Run follows the store until ctx ends; then it returns nil. Call it once.
func (k *Revocations) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { k.reload(ctx) })
	err := k.o.Store.Follow(ctx, k.apply, k.state)
	ended := ctx.Err() != nil
	stop()
	wg.Wait()
	if ended {
		return nil
	}
	return err
}

// apply takes changes as they come.
func (k *Revocations) apply(events []routes.Event) {
	for _, e := range events {
		if e.Reset {
			k.missed()
			select {
			case k.wake <- struct{}{}:
			default: // a reading is due
			}
		}
		k.known.merge(e.Revocations, k.o.Now())
	}
}

func (k *Revocations) state(reachable bool, _ error) {
	k.mu.Lock()
	k.reachable = reachable
	k.mu.Unlock()
	if !reachable {
		k.missed()
	}
}

// missed notes that changes may be missed from now on.
func (k *Revocations) missed() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.resets++
	k.unsure.CompareAndSwap(0, int64(time.Since(k.began))+1)
}

// reload reads everything when it is asked to, and now and then.
func (k *Revocations) reload(ctx context.Context) {
	wait := reloadEvery
	pause := reloadRetry
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-k.wake:
		case <-timer.C:
		}
		timer.Stop()
		if err := k.load(ctx); err != nil {
			if ctx.Err() == nil {
				k.o.OnError(err)
			}
			wait, pause = pause, min(2*pause, reloadRetryMax)
			continue
		}
		wait, pause = reloadEvery, reloadRetry
	}
}

// load reads what stands, merges it, and gives the store back what it has lost.
func (k *Revocations) load(ctx context.Context) error {
	k.mu.Lock()
	resets := k.resets
	k.mu.Unlock()
	stand, unreadable, err := k.o.Store.Revocations(ctx)
	if err != nil {
		return fmt.Errorf("read revocations: %w", err)
	}
	now := k.o.Now()
	k.known.sweep(now)
	k.known.merge(stand, now)
	k.confirm(resets)
	if len(unreadable) > 0 {
		k.o.OnError(fmt.Errorf("%d revocations can't be read and are not in force, such as %s", len(unreadable), unreadable[0]))
	}
	if k.o.Writer == nil {
		return nil
	}
	return k.repair(ctx, stand, now)
}

// confirm notes that everything was read, and no change missed since resets was looked at.
func (k *Revocations) confirm(resets uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.isLoaded.Load() {
		close(k.loaded)
		k.isLoaded.Store(true)
	}
	if k.reachable && k.resets == resets {
		k.unsure.Store(0)
	}
}

// repair writes what is known and does not stand, and drops what stands and has ended. Several planes may do so at once.
func (k *Revocations) repair(ctx context.Context, stand []routes.Revocation, now time.Time) error {
	ends := make(map[string]time.Time, len(stand))
	var ended []string
	for i := range stand {
		key := stand[i].Key()
		ends[key] = stand[i].Until
		if !now.Before(stand[i].Until) {
			ended = append(ended, key)
		}
	}
	var lost []routes.Revocation
	for _, r := range k.known.all(now) {
		if ends[r.Key()].Before(r.Until) {
			lost = append(lost, r)
		}
	}
	if len(lost) > 0 {
		if err := k.o.Writer.Revoke(ctx, lost); err != nil {
			return fmt.Errorf("write %d revocations again that the store lost: %w", len(lost), err)
		}
	}
	if len(ended) > 0 {
		if err := k.o.Writer.DropRevocations(ctx, ended); err != nil {
			return fmt.Errorf("drop revocations that ended: %w", err)
		}
	}
	return nil
}
