package discovery

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
)

// watcher looks after one backend.
type watcher struct {
	d    *Discoverer
	id   routes.BackendID
	poke chan struct{} // capacity 1: a round is due now
	gone chan struct{} // closed when the backend is configured no more
	news chan struct{} // capacity 1: what listen depends on may have changed

	// Guarded by d.mu:
	route   routes.Backend
	catalog *catalog.Catalog // nil: never heard of
	health  catalog.Health
	failed  bool   // the last round
	probed  string // the identity of the legacy backend of which it is known whether it needs its handshake
	started bool
	awaited bool // the first round waits for it
}

// refresh makes a round due now.
func (w *watcher) refresh() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// firstRetry is how soon a failed backend is asked again; later retries come as late as the interval.
const firstRetry = time.Second

// run goes from round to round until ctx ends or the backend is gone.
func (w *watcher) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan struct{})
	defer func() { <-stopped }()
	go func() { // a round in flight ends when its backend is gone
		defer close(stopped)
		select {
		case <-w.gone:
		case <-ctx.Done():
		}
		cancel()
	}()
	defer cancel()
	heard := make(chan struct{})
	defer func() { <-heard }()
	go func() { // a backend that hangs while it is listened to delays no round
		defer close(heard)
		w.listen(ctx)
	}()
	defer cancel()

	pace := newRhythm(w.d.o.Jitter)
	for ctx.Err() == nil {
		interval := w.interval()
		err := w.round(ctx)
		timer := time.NewTimer(pace.pause(interval, err))
		select {
		case <-ctx.Done():
		case <-w.poke:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// rhythm tells how long to rest between rounds.
type rhythm struct {
	jitter func(time.Duration) time.Duration
	retry  *backoff.ExponentialBackOff
}

func newRhythm(jitter func(time.Duration) time.Duration) *rhythm {
	r := &rhythm{jitter: jitter, retry: backoff.NewExponentialBackOff()}
	r.retry.Multiplier = 2
	return r
}

// pause is the rest after a round that ended with err: the interval, or for a failed backend at first less, and never less than it
// asked for.
func (r *rhythm) pause(interval time.Duration, err error) time.Duration {
	if err == nil {
		r.retry.Reset()
		return r.jitter(interval)
	}
	if r.retry.MaxInterval != interval {
		r.retry.InitialInterval, r.retry.MaxInterval = min(firstRetry, interval), interval
		r.retry.Reset()
	}
	pause := min(r.retry.NextBackOff(), interval)
	if f, ok := errors.AsType[*egress.Failure](err); ok {
		pause = max(pause, min(f.RetryAfter, maxRetryAfter))
	}
	return pause
}

// maxRetryAfter bounds what a backend may ask for.
const maxRetryAfter = 10 * time.Minute

func (w *watcher) interval() time.Duration {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	return max(w.d.conf.Interval, time.Millisecond)
}

// round looks at the backend once and takes what it found. The error is why the backend counts as failed.
func (w *watcher) round(ctx context.Context) error {
	d := w.d
	d.mu.Lock()
	lane := d.healthy
	if w.failed {
		lane = d.failing
	}
	d.mu.Unlock()
	select {
	case lane <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-lane }()

	select {
	case <-w.poke: // due is what begins now
	default:
	}
	d.mu.Lock()
	p := probe{client: d.o.Client, limits: d.o.Limits, id: w.id, route: w.route, previous: w.catalog, probed: w.probed}
	timeout := d.conf.Timeout
	d.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, timeout)
	start := time.Now()
	found, err := p.walk(limited)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err() // what broke off on our side says nothing of the backend
	}
	w.take(found, err, start)
	return err
}

// take keeps the outcome of a round: found is nil when the backend did not answer; with an error beside it, some lists failed.
func (w *watcher) take(found *found, err error, start time.Time) {
	d, now := w.d, time.Now()
	d.mu.Lock()
	select {
	case <-w.gone:
		d.mu.Unlock()
		return
	default:
	}
	before, wasUp, lastError := w.catalog.Digest(), w.health.Up, w.health.LastError
	w.health = catalog.Health{Up: found != nil, Checked: now, Duration: now.Sub(start)}
	if err != nil {
		w.health.LastError = describe(err)
	}
	if found != nil {
		found.walk.Ended = now
		w.catalog, w.probed = catalog.Merge(w.catalog, found.walk), found.probed
	} else {
		w.catalog = catalog.Stale(w.catalog, reasonOf(err))
	}
	first := w.awaited
	w.failed = err != nil
	d.tried(w)
	d.metrics.round(w.id, found != nil, err, now.Sub(start))
	if w.catalog != nil {
		d.metrics.lists(w.id, w.catalog)
	}
	changed := w.catalog.Digest() != before || w.health.Up != wasUp || w.health.LastError != lastError || first
	d.mu.Unlock()
	w.tidings()
	if !changed {
		return
	}
	w.log(err, wasUp && found != nil)
	d.o.Changed(w.id)
}

func (w *watcher) log(err error, stillUp bool) {
	switch {
	case err != nil:
		w.d.log.Warn("backend not discovered", zap.String("backend", string(w.id)), zap.Error(err))
	case !stillUp:
		w.d.log.Info("backend is up", zap.String("backend", string(w.id)))
	default:
		w.d.log.Info("backend changed", zap.String("backend", string(w.id)))
	}
}
