package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
)

// Source is one place that backends come from.
type Source interface {
	// Run looks and reports, at its own pace, until ctx ends or it can't go on; it is then begun anew. What it started has ended
	// when it returns. report does not block for long and keeps nothing of what it is given.
	Run(ctx context.Context, report func(Report)) error
}

// Report is the outcome of one look.
type Report struct {
	Entries   []Entry // everything that the source names
	Unchanged bool    // everything is as in the last good report; Entries is nil
	Err       error   // the look failed; the other fields are zero
}

// Opener makes a source out of its config; it connects to nothing.
type Opener func(*config.Source) (Source, error)

// Options of a Watcher. Durations left zero mean the default that they name.
type Options struct {
	Open map[string]Opener // by kind, see config.Source.Kind; one that is absent is reported as a failure of the source
	// Changed is told when the backends of a set, or whether it is settled, changed; it must not block. nil: nobody is told.
	Changed  func()
	Log      *zap.Logger           // nil: nothing is logged
	Registry prometheus.Registerer // nil: nothing is counted

	Grace time.Duration // for the first answer of a source: 15s
	Retry time.Duration // longest wait before a source that ended is begun anew: 1m
}

// Watcher runs the configured sources and keeps what they said last. Safe for concurrent use.
type Watcher struct {
	o       Options
	log     *zap.Logger
	metrics *metrics
	wake    chan struct{} // capacity 1: Run looks for sources to begin

	mu     sync.Mutex // guards what follows
	order  []string   // of the config
	states map[string]*state
	seeded bool // Seed was called
}

// state is one source. Its fields are guarded by Watcher.mu.
type state struct {
	conf    config.Source
	set     *Set // never nil; replaced, never changed
	good    *Set // as of the last good report, whatever Seed did since; nil: there was none
	tried   bool // a look ended, or the grace has passed
	started bool
	gone    chan struct{} // closed when the config has it no more, or another way
}

// New checks the options; it starts nothing.
func New(o Options) (*Watcher, error) {
	m, err := newMetrics(o.Registry)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	o.Grace = cmp.Or(o.Grace, 15*time.Second)
	o.Retry = cmp.Or(o.Retry, time.Minute)
	return &Watcher{
		o: o, log: cmp.Or(o.Log, zap.NewNop()), metrics: m, wake: make(chan struct{}, 1), states: make(map[string]*state),
	}, nil
}

// Configure replaces the sources. One whose config changed is begun anew and keeps its set until it answers; the set of a
// removed one is dropped. The caller takes the sets up itself: Changed is not told.
func (w *Watcher) Configure(sources []config.Source) {
	w.mu.Lock()
	w.order = nil
	gone := maps.Clone(w.states)
	for i := range sources {
		conf := sources[i]
		w.order = append(w.order, conf.Name)
		old := gone[conf.Name]
		delete(gone, conf.Name)
		next := &state{conf: conf, set: &Set{Source: conf.Name}, gone: make(chan struct{})}
		if old != nil {
			if reflect.DeepEqual(old.conf, conf) {
				continue
			}
			close(old.gone)
			next.set, next.tried = old.set, old.tried
		}
		w.states[conf.Name] = next
	}
	for name, st := range gone {
		close(st.gone)
		delete(w.states, name)
		w.metrics.drop(name)
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run runs the sources until ctx ends. It may be called once.
func (w *Watcher) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	for {
		w.mu.Lock()
		for _, st := range w.states {
			if !st.started {
				st.started = true
				watching.Go(func() { w.watch(ctx, st) })
			}
		}
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
		}
	}
}

// watch runs one source until ctx ends or the config has it no more.
func (w *Watcher) watch(ctx context.Context, st *state) {
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	defer func() { <-stopped }()
	defer cancel()
	go func() {
		defer close(stopped)
		grace := time.NewTimer(w.o.Grace)
		defer grace.Stop()
		select {
		case <-grace.C:
			w.change(st, func(*Set) { st.tried = true })
		case <-st.gone:
		case <-ctx.Done():
		}
		select {
		case <-st.gone:
		case <-ctx.Done():
		}
		cancel()
	}()

	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = min(time.Second, w.o.Retry), w.o.Retry
	for ctx.Err() == nil {
		err := w.runOnce(ctx, st, retry)
		if ctx.Err() != nil {
			return
		}
		w.report(st, Report{Err: cmp.Or(err, errEnded)})
		timer := time.NewTimer(retry.NextBackOff())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

var errEnded = errors.New("the source ended")

func (w *Watcher) runOnce(ctx context.Context, st *state, retry *backoff.ExponentialBackOff) error {
	open := w.o.Open[st.conf.Kind()]
	if open == nil {
		return fmt.Errorf("this program has no sources of kind %s", st.conf.Kind())
	}
	src, err := open(&st.conf)
	if err != nil {
		return err
	}
	return src.Run(ctx, func(r Report) {
		if r.Err == nil {
			retry.Reset()
		}
		if ctx.Err() == nil { // what broke off on our side says nothing of the source
			w.report(st, r)
		}
	})
}

// report takes the outcome of a look.
func (w *Watcher) report(st *state, r Report) {
	if len(r.Entries) > MaxEntries {
		r = Report{Err: fmt.Errorf("the source names %d backends; at most %d are allowed", len(r.Entries), MaxEntries)}
	}
	now := time.Now()
	w.change(st, func(next *Set) {
		st.tried = true
		w.metrics.look(st.conf.Name, r)
		if r.Err != nil {
			next.Reason = cut(r.Err.Error())
			return
		}
		next.Reason, next.Heard = "", now
		if !r.Unchanged {
			next.Backends, next.Refused = accept(st.conf.Name, next.Backends, r.Entries)
			st.good = &Set{Backends: next.Backends, Refused: next.Refused}
		} else if st.good != nil {
			next.Backends, next.Refused = st.good.Backends, st.good.Refused
		}
	})
}

// cut bounds a reason, in bytes: parts of it may be a stranger's words.
func cut(s string) string {
	const most = 512
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}

// change edits a copy of a source's set and puts it in its place, unless the source is gone.
func (w *Watcher) change(st *state, edit func(next *Set)) {
	w.mu.Lock()
	if w.states[st.conf.Name] != st {
		w.mu.Unlock()
		return
	}
	before, next := st.set, *st.set
	edit(&next)
	next.Settled = before.Settled || !next.Heard.IsZero() || (w.seeded && st.tried)
	st.set = &next
	w.metrics.set(&next)
	changed := next.Settled != before.Settled || !slices.EqualFunc(next.Backends, before.Backends, func(a, b config.Backend) bool { return same(&a, &b) })
	w.mu.Unlock()
	w.tell(before, &next, changed)
	if changed {
		w.o.Changed()
	}
}

func (w *Watcher) tell(before, next *Set, changed bool) {
	log := w.log.With(zap.String("source", next.Source), zap.Int("backends", len(next.Backends)), zap.Int("refused", len(next.Refused)))
	switch {
	case next.Reason != before.Reason && next.Reason != "":
		log.Warn("source failed, its last good backends stay", zap.String("reason", next.Reason))
	case next.Reason != before.Reason:
		log.Info("source answers again")
	case changed:
		log.Info("source changed")
	}
}

// Seed installs what stands published (see Standing) for the sources that are not answering: those never heard of, and those
// whose latest look failed. The first call says as well that what stands published was read, without which no source settles
// but by answering.
func (w *Watcher) Seed(standing map[string][]Entry) {
	w.mu.Lock()
	w.seeded = true
	states := slices.Collect(maps.Values(w.states))
	w.mu.Unlock()
	for _, st := range states {
		w.change(st, func(next *Set) {
			if next.Heard.IsZero() || next.Reason != "" {
				next.Backends, _ = accept(st.conf.Name, nil, standing[st.conf.Name])
			}
		})
	}
}

// Failing reports whether some source was not heard of, or failed when it was last looked at.
func (w *Watcher) Failing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, st := range w.states {
		if st.set.Heard.IsZero() || st.set.Reason != "" {
			return true
		}
	}
	return false
}

// Sets returns what is known of each source; the map is the caller's.
func (w *Watcher) Sets() map[string]*Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	sets := make(map[string]*Set, len(w.states))
	for name, st := range w.states {
		sets[name] = st.set
	}
	return sets
}

// Problems are those of the sources, in the order of the config.
func (w *Watcher) Problems() []compile.Problem {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	var out []compile.Problem
	for _, name := range w.order {
		out = append(out, w.states[name].set.Problems(now)...)
	}
	return out
}
