package watch

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
)

// Pauses before a stream that broke is opened again, and how long one must last for the pause to be short again.
const (
	firstReopen, lastReopen = 250 * time.Millisecond, 15 * time.Second
	steady                  = 10 * time.Second
)

// feed is one upstream subscription.
type feed struct {
	key     key
	backend routes.Backend // read-only
	stop    context.CancelFunc
	opened  chan struct{} // closed once the backend agreed or refused
	refused error         // why there is no subscription; set before opened is closed

	// Guarded by Hub.mu:
	members map[*member]struct{}
}

var errNotAgreed = errors.New("the backend did not agree to the subscription")

// start begins a feed. h.mu is held.
func (h *Hub) start(k key, b *routes.Backend) *feed {
	ctx, cancel := context.WithCancel(context.Background())
	f := &feed{key: k, backend: *b, stop: cancel, opened: make(chan struct{}), members: map[*member]struct{}{}}
	h.feeds[k] = f
	h.m.streams.Set(float64(len(h.feeds)))
	h.running.Go(func() {
		defer cancel()
		h.follow(ctx, f)
	})
	return f
}

// follow keeps the stream of a feed open until ctx ends. Only the first try decides whether there is a subscription: what breaks
// later is opened again.
func (h *Hub) follow(ctx context.Context, f *feed) {
	s, err := h.open(ctx, f)
	if err != nil {
		h.mu.Lock()
		h.forget(f)
		f.refused = err
		h.mu.Unlock()
		close(f.opened)
		h.log.Debug("resource not subscribed to", zap.String("backend", string(f.key.backend)), zap.Error(err))
		return
	}
	close(f.opened)
	pause := &backoff.ExponentialBackOff{InitialInterval: firstReopen, MaxInterval: lastReopen, Multiplier: 2, RandomizationFactor: 0.3}
	pause.Reset()
	for {
		began := time.Now()
		if s != nil {
			h.pass(f, s)
			s.Close()
		}
		if time.Since(began) >= steady {
			pause.Reset()
		}
		timer := time.NewTimer(pause.NextBackOff())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if s, err = h.open(ctx, f); err == nil {
			h.tell(f, f.key.uri) // whatever changed meanwhile nobody announced
		} else if ctx.Err() == nil {
			h.log.Debug("resource not subscribed to again", zap.String("backend", string(f.key.backend)), zap.Error(err))
		}
	}
}

// open opens the stream.
func (h *Hub) open(ctx context.Context, f *feed) (*egress.Subscription, error) {
	s, err := h.o.Upstream.Listen(ctx, f.key.backend, &f.backend, egress.Filter{URIs: []string{f.key.uri}})
	if err != nil {
		return nil, err
	}
	if !s.Agreed.Has(f.key.uri) {
		s.Close()
		return nil, errNotAgreed
	}
	return s, nil
}

// pass passes on what the stream says until it ends.
func (h *Hub) pass(f *feed, s *egress.Subscription) {
	for {
		n, err := s.Next()
		if err != nil {
			return
		}
		if n.Method == egress.ResourceUpdated {
			h.tell(f, n.URI)
		}
	}
}

func (h *Hub) tell(f *feed, uri string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for m := range f.members {
		m.updated(uri)
	}
}
