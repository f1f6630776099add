package tasks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-mcp/weir/routes"
)

// ErrFull: the store is away and as many records wait for it as are held, in all or of this principal; nothing was recorded.
var ErrFull = errors.New("too many records wait for the store")

const (
	// mintPatience is how long the answer that tells of a task waits for the store, in all. Source: DESIGN § 8.
	mintPatience = 250 * time.Millisecond
	// MaxUnwritten is how many records wait for the store at most. Once it is half full, a principal may have a tenth of it.
	MaxUnwritten = 10_000
	// updates is how many rewrites wait for their turn at most; what is over it is left to the next poll of the task.
	updates       = 256
	updateTimeout = time.Second
)

// Store keeps owner records; *redisstore.Owners does.
type Store interface {
	// RecordTask writes a minted entry. It may be repeated; the longer life stands.
	RecordTask(ctx context.Context, host routes.HostID, id string, o routes.TaskOwner) error
	// ClaimTask writes a claimed or shared entry, unless somebody else's forbids it.
	ClaimTask(ctx context.Context, host routes.HostID, id string, o routes.TaskOwner) (routes.TaskRecord, error)
	// TaskRecord reads a task's live entries, and prolongs those of the principal.
	TaskRecord(ctx context.Context, host routes.HostID, id, principal string) (routes.TaskRecord, error)
}

// Options of a Book.
type Options struct {
	Store Store
	// Outage says when the store was last back after it had been away (zero: it never was), and whether it is away now. Nil: it
	// never is.
	Outage     func() (since time.Time, away bool)
	Log        *zap.Logger           // nil: nothing is logged
	Registerer prometheus.Registerer // nil: the metrics are not exposed
}

// Book records and finds owners of tasks. Safe for concurrent use. Records that wait for the store are written while Run runs.
type Book struct {
	o       Options
	queue   *queue
	updates chan update
	metrics *metrics

	flushing sync.Mutex // held while what waits is written
}

// New checks the options; it starts nothing.
func New(o Options) (*Book, error) {
	if o.Store == nil {
		return nil, errors.New("tasks: Store is required")
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Outage == nil {
		o.Outage = func() (time.Time, bool) { return time.Time{}, false }
	}
	b := &Book{o: o, queue: newQueue(MaxUnwritten), updates: make(chan update, updates)}
	var err error
	b.metrics, err = newMetrics(o.Registerer, b.queue.len)
	return b, err
}

// Record notes whose a task is that a backend's answer has just told of. When it returns nil, the entry stands in the store, or, where
// the store could not be used within 250 ms, in memory until it can. It goes on when ctx is cancelled: the task runs all the same. The
// error is routes.ErrTooManyTasks, ErrFull, or says what is wrong with the entry or why the store refuses it; then nothing was recorded.
func (b *Book) Record(ctx context.Context, host routes.HostID, id string, o routes.TaskOwner) error {
	if err := o.Validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mintPatience)
	defer cancel()
	err := b.o.Store.RecordTask(ctx, host, id, o)
	if err == nil || errors.Is(err, routes.ErrTooManyTasks) {
		return err
	}
	if ctx.Err() == nil && !errors.Is(err, routes.ErrUnavailable) {
		// The store is there and refuses, for want of memory say. Held here, the record would be unknown to every other dataplane, which
		// has no reason to doubt the store.
		b.metrics.lost.WithLabelValues(lostRefused).Inc()
		return err
	}
	w := &waiting{host: host, id: id, digest: routes.TaskDigest(id), owner: o}
	if !b.queue.put(w) {
		b.metrics.lost.WithLabelValues(lostFull).Inc()
		b.o.Log.Error("task not recorded: the store is away, and too many records wait for it", w.fields(zap.Error(err))...)
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	b.o.Log.Warn("task recorded in memory until the store is back", w.fields(zap.Error(err))...)
	return nil
}

// Lookup returns what is recorded of a task, in one round trip. Sure says that what it does not show is nowhere: false while the store
// is away and for some seconds afterwards, when another dataplane may still hold what it could not write. The error wraps
// routes.ErrUnavailable: the store is away, and nothing of this principal's is held here.
func (b *Book) Lookup(ctx context.Context, host routes.HostID, id, principal string) (record routes.TaskRecord, sure bool, err error) {
	held := b.queue.find(host, id)
	if !held.knows(principal) {
		record, err = b.o.Store.TaskRecord(ctx, host, id, principal)
		if err != nil {
			return nil, false, err
		}
		return held.merge(record), b.sure(), nil
	}
	// What is held here is the principal's own and enough; the store may know of a second backend.
	bounded, cancel := context.WithTimeout(ctx, mintPatience)
	defer cancel()
	if record, err = b.o.Store.TaskRecord(bounded, host, id, principal); err != nil {
		return held.merge(nil), false, nil
	}
	return held.merge(record), b.sure(), nil
}

func (b *Book) sure() bool {
	since, away := b.o.Outage()
	return !away && (since.IsZero() || time.Since(since) >= routes.TaskOutageGrace)
}

// update is an entry to be written again.
type update struct {
	host  routes.HostID
	id    string
	owner routes.TaskOwner
}

// Update writes an entry again, in the background and only if there is room: its life has grown, or its session is another one.
func (b *Book) Update(host routes.HostID, id string, o routes.TaskOwner) {
	select {
	case b.updates <- update{host, id, o}:
	default:
	}
}

// Run writes what waits for the store, until ctx ends.
func (b *Book) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { b.flushLoop(ctx); return nil })
	g.Go(func() error { b.updateLoop(ctx); return nil })
	return g.Wait()
}

func (b *Book) updateLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-b.updates:
			if err := b.update(ctx, u); err != nil && ctx.Err() == nil {
				b.o.Log.Debug("task entry not rewritten", zap.String("task", routes.TaskDigest(u.id)), zap.Error(err))
			}
		}
	}
}

func (b *Book) update(ctx context.Context, u update) error {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	if u.owner.Source == routes.TaskMinted {
		return b.o.Store.RecordTask(ctx, u.host, u.id, u.owner)
	}
	_, err := b.o.Store.ClaimTask(ctx, u.host, u.id, u.owner)
	return err
}
