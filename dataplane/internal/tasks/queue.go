package tasks

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-mcp/weir/routes"
)

const (
	// firstRetry and maxRetry bound the pause between two tries to write: well below routes.TaskOutageGrace, for other dataplanes to
	// find what was held here.
	firstRetry = 50 * time.Millisecond
	maxRetry   = time.Second
	// writesAtOnce is how many held records are written at a time.
	writesAtOnce = 16
	writeTimeout = time.Second
)

// waiting is a record that waits for the store. It is not changed, only replaced.
type waiting struct {
	host       routes.HostID
	id, digest string
	owner      routes.TaskOwner
}

func (w *waiting) fields(more ...zap.Field) []zap.Field {
	return append([]zap.Field{
		zap.String("host", string(w.host)), zap.String("task", w.digest), zap.String("principal", w.owner.Principal),
		zap.String("backend", string(w.owner.Backend)),
	}, more...)
}

// place is an entry of a task's record.
type place struct {
	host      routes.HostID
	principal string
	backend   routes.BackendID
}

// queue holds what waits for the store, by task.
type queue struct {
	max   int
	wake  chan struct{} // capacity 1: something was put in
	count atomic.Int64  // so that nobody takes the lock while it is empty

	mu    sync.Mutex                    // guards what follows
	tasks map[string]map[place]*waiting // by digest
	of    map[string]int                // how many each principal has
}

func newQueue(most int) *queue {
	return &queue{max: most, wake: make(chan struct{}, 1), tasks: map[string]map[place]*waiting{}, of: map[string]int{}}
}

func (q *queue) len() int { return int(q.count.Load()) }

// put holds a record, in the place of an older one; false: there is no room.
func (q *queue) put(w *waiting) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, at := w.digest, place{w.host, w.owner.Principal, w.owner.Backend}
	if old := q.tasks[key][at]; old == nil {
		if !q.room(at.principal) {
			return false
		}
		q.count.Add(1)
		q.of[at.principal]++
	}
	if q.tasks[key] == nil {
		q.tasks[key] = map[place]*waiting{}
	}
	q.tasks[key][at] = w
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// room reports whether a principal may put in one more. Half of the queue is for whoever comes first; of the rest nobody has more than
// a tenth of it all, so that one busy caller does not take an outage's every place. q.mu is held.
func (q *queue) room(principal string) bool {
	return q.len() < q.max/2 || q.len() < q.max && q.of[principal] < max(q.max/10, 1)
}

// remove forgets a record, unless it was replaced.
func (q *queue) remove(w *waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, at := w.digest, place{w.host, w.owner.Principal, w.owner.Backend}
	if q.tasks[key][at] != w {
		return
	}
	delete(q.tasks[key], at)
	if len(q.tasks[key]) == 0 {
		delete(q.tasks, key)
	}
	if q.of[at.principal]--; q.of[at.principal] == 0 {
		delete(q.of, at.principal)
	}
	q.count.Add(-1)
}

// all returns every record that waits, those that were made first first.
func (q *queue) all() []*waiting {
	q.mu.Lock()
	out := make([]*waiting, 0, q.len())
	for _, places := range q.tasks {
		for _, w := range places {
			out = append(out, w)
		}
	}
	q.mu.Unlock()
	slices.SortFunc(out, func(a, b *waiting) int { return a.owner.Created.Compare(b.owner.Created) })
	return out
}

// held is what the queue knows of one task; nil: nothing.
type held []routes.TaskOwner

// find returns what is held of a task, as it is seen in a host.
func (q *queue) find(host routes.HostID, id string) held {
	if q.len() == 0 {
		return nil
	}
	key := routes.TaskDigest(id)
	q.mu.Lock()
	defer q.mu.Unlock()
	var h held
	for _, w := range q.tasks[key] {
		o := w.owner
		o.Expires = o.Created.Add(o.Life)
		if w.host != host { // somebody else's, as the store has it
			o.Principal, o.Tool, o.Session = string(w.host)+"/"+o.Principal, "", ""
		}
		h = append(h, o)
	}
	return h
}

func (h held) knows(principal string) bool {
	return slices.ContainsFunc(h, func(o routes.TaskOwner) bool { return o.Principal == principal })
}

// merge puts what is held into a record; where both have an entry, the held one, which is later.
func (h held) merge(record routes.TaskRecord) routes.TaskRecord {
	if len(h) == 0 {
		return record
	}
	out := routes.TaskRecord(slices.Clone(h))
	for _, o := range record {
		if !slices.ContainsFunc(h, func(w routes.TaskOwner) bool { return w.Principal == o.Principal && w.Backend == o.Backend }) {
			out = append(out, o)
		}
	}
	return out
}

// flushLoop writes what waits, as soon as the store takes it.
func (b *Book) flushLoop(ctx context.Context) {
	var (
		pause time.Duration
		again <-chan time.Time // set while the store is away
	)
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
			again = nil
		case <-b.queue.wake:
			if again != nil { // one more record brings the store back no sooner
				continue
			}
		}
		if pause = b.flush(ctx, pause); pause > 0 {
			again = time.After(pause)
		}
	}
}

// flush writes what it can and returns how long to wait for the next try, 0 if nothing is left to do.
func (b *Book) flush(ctx context.Context, pause time.Duration) time.Duration {
	b.flushing.Lock() // Run and Drain
	defer b.flushing.Unlock()
	g := new(errgroup.Group)
	g.SetLimit(writesAtOnce)
	var away atomic.Bool
	for _, w := range b.queue.all() {
		if away.Load() || ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if !b.write(ctx, w) {
				away.Store(true)
			}
			return nil
		})
	}
	_ = g.Wait() // its functions return nil
	if away.Load() {
		return min(max(firstRetry, 2*pause), maxRetry)
	}
	return 0
}

// write writes one record, or drops what no later try would bring in; false: the store is away.
func (b *Book) write(ctx context.Context, w *waiting) bool {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := b.o.Store.RecordTask(ctx, w.host, w.id, w.owner)
	switch {
	case err == nil:
	case errors.Is(err, routes.ErrTooManyTasks):
		b.lose(w, lostTooMany, err)
	case errors.Is(err, routes.ErrUnavailable) || ctx.Err() != nil:
		return false
	default:
		b.lose(w, lostRefused, err)
	}
	b.queue.remove(w)
	return true
}

func (b *Book) lose(w *waiting, why string, err error) {
	b.metrics.lost.WithLabelValues(why).Inc()
	b.o.Log.Error("task record lost", w.fields(zap.String("why", why), zap.Error(err))...)
}

// Drain writes what still waits, until ctx ends; then what is left is lost, which is logged and counted. Run may run meanwhile; nothing
// is recorded any more.
func (b *Book) Drain(ctx context.Context) {
	pause := time.Duration(0)
	for b.queue.len() > 0 && ctx.Err() == nil {
		if pause = b.flush(ctx, pause); pause == 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	for _, w := range b.queue.all() {
		b.lose(w, lostDrain, ctx.Err())
		b.queue.remove(w)
	}
}
