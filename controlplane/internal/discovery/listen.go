package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
)

// Rhythm of listening. A change is to reach clients within 1.5 s, and a backend that announces without end must not be walked
// without end.
const (
	// collect is how long after an announcement its round begins: a change seldom comes alone.
	collect = 50 * time.Millisecond
	// announceGap is the least time between two rounds that one backend's announcements cause.
	announceGap = 500 * time.Millisecond
	// firstReopen and lastReopen bound the pause before a stream that ended is opened again.
	firstReopen, lastReopen = 500 * time.Millisecond, 15 * time.Second
	// steady is how long a stream must last for the pause to be short again.
	steady = 10 * time.Second
	// noStreamPause is the rest where a backend declares list changes and offers no stream, unless it changes before.
	noStreamPause = 10 * time.Minute
)

// hearing is what a stream of announcements depends on.
type hearing struct {
	route  routes.Backend // with its protocol
	filter egress.Filter
	server string // serverInfo: another version may offer what this one does not
}

// hearing returns what to listen to; nil: the backend announces nothing, or was never heard of.
func (w *watcher) hearing() *hearing {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	if w.catalog == nil || w.catalog.Protocol == "" {
		return nil
	}
	h := &hearing{route: w.route, filter: announced(w.catalog), server: string(w.catalog.ServerInfo)}
	if !h.filter.Tools && !h.filter.Prompts && !h.filter.Resources {
		return nil
	}
	h.route.Protocol = w.catalog.Protocol
	return h
}

// announced are the lists whose changes a backend declares to announce (ServerCapabilities of the schema, 2025-11-25 and
// 2026-07-28).
func announced(c *catalog.Catalog) egress.Filter {
	type list struct {
		ListChanged bool `json:"listChanged"`
	}
	read := func(raw json.RawMessage) bool {
		var l list
		return json.Unmarshal(raw, &l) == nil && l.ListChanged
	}
	var caps map[string]json.RawMessage
	if json.Unmarshal(c.Capabilities, &caps) != nil {
		return egress.Filter{}
	}
	return egress.Filter{Tools: read(caps["tools"]), Prompts: read(caps["prompts"]), Resources: read(caps["resources"])}
}

// tidings says that what a stream depends on may have changed.
func (w *watcher) tidings() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// listen keeps one stream of announcements open, as long as the backend declares any, until ctx ends. It replaces no round: what it
// misses the interval finds.
func (w *watcher) listen(ctx context.Context) {
	pause := &backoff.ExponentialBackOff{InitialInterval: firstReopen, MaxInterval: lastReopen, Multiplier: 2, RandomizationFactor: 0.3}
	pause.Reset()
	for ctx.Err() == nil {
		at := w.hearing()
		if at == nil {
			select {
			case <-ctx.Done():
			case <-w.news:
			}
			continue
		}
		began := time.Now()
		var err error
		hearing, stop := context.WithCancel(ctx)
		over := make(chan struct{})
		go func() {
			defer close(over)
			err = w.hear(hearing, at)
		}()
		same := w.until(ctx, at, over, nil)
		stop()
		<-over
		if !same || time.Since(began) >= steady {
			pause.Reset()
		}
		if !same || ctx.Err() != nil {
			continue
		}
		w.d.log.Debug("backend's announcements not heard", zap.String("backend", string(w.id)), zap.Error(err))
		timer := time.NewTimer(reopenAfter(err, pause.NextBackOff()))
		w.until(ctx, at, nil, timer.C)
		timer.Stop()
	}
}

// until waits for over, for after, for the end of ctx, or for tidings that mean another stream than at: then it returns false.
func (w *watcher) until(ctx context.Context, at *hearing, over <-chan struct{}, after <-chan time.Time) (same bool) {
	for {
		select {
		case <-ctx.Done():
			return true
		case <-over:
			return true
		case <-after:
			return true
		case <-w.news:
			if !reflect.DeepEqual(w.hearing(), at) {
				return false
			}
		}
	}
}

// reopenAfter is how long to rest after a stream that ended with err, or was not to be had.
func reopenAfter(err error, pause time.Duration) time.Duration {
	if errors.Is(err, egress.ErrNoStream) {
		return noStreamPause
	}
	if f, ok := errors.AsType[*egress.Failure](err); ok {
		return max(pause, min(f.RetryAfter, maxRetryAfter))
	}
	return pause
}

// hear opens a stream and makes a round due for what it announces, until it ends. A round is due at its opening as well: what
// changed before nobody announced.
func (w *watcher) hear(ctx context.Context, at *hearing) error {
	s, err := w.d.o.Client.Listen(ctx, w.id, &at.route, at.filter)
	if err != nil {
		return err
	}
	defer s.Close()
	w.d.metrics.listening.WithLabelValues(string(w.id)).Set(1)
	defer w.d.metrics.listening.DeleteLabelValues(string(w.id))
	w.refresh()

	var planned time.Time
	due := time.AfterFunc(time.Hour, w.refresh)
	due.Stop()
	defer func() {
		if due.Stop() { // a round was announced, and it is not lost with the stream
			w.refresh()
		}
	}()
	for {
		n, err := s.Next()
		if err != nil {
			return err
		}
		if n.Method == egress.ResourceUpdated || time.Now().Before(planned) {
			continue
		}
		planned = later(time.Now().Add(collect), planned.Add(announceGap))
		due.Reset(time.Until(planned))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
