// Package watch keeps upstream subscriptions to resources, and follows tasks: one a resource or task of a backend, however many
// clients listen, dropped with the last of them.
//
// Each has a stream of its own, so that a resource that a backend refuses, or that one tenant asks for, is nobody else's concern.
// A task whose backend offers no stream is polled. Backends are asked with the plane's own credentials, as by discovery, never with a
// caller's.
package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
)

// Upstream is the way to backends; *egress.Client is.
type Upstream interface {
	// Listen opens a stream of notifications.
	Listen(ctx context.Context, id routes.BackendID, b *routes.Backend, want egress.Filter) (*egress.Subscription, error)
	// Do makes one call.
	Do(ctx context.Context, call egress.Call) (*egress.Answer, error)
	// Header resolves what the operator adds to every request to a backend.
	Header(b *routes.Backend) (http.Header, error)
}

// Options of a Hub.
type Options struct {
	Upstream Upstream
	Log      *zap.Logger           // nil: nothing is logged
	Registry prometheus.Registerer // nil: nothing is counted
	// Max bounds the resources that are subscribed to, MaxTasks the tasks that are followed. Zero means 1,024 each.
	Max, MaxTasks int
	// ClientInfo is what backends are told of who asks for a task: an Implementation of the schema. Nil: {"name":"weir","version":"0"}.
	ClientInfo json.RawMessage
}

// Hub shares upstream subscriptions. Safe for concurrent use.
type Hub struct {
	o          Options
	log        *zap.Logger
	m          metrics
	clientInfo json.RawMessage

	mu      sync.Mutex // guards what follows, and the fields of feeds below theirs
	feeds   map[key]*feed
	tasks   map[taskKey]*taskFeed
	stopped bool
	running sync.WaitGroup // feeds
}

// key is one resource of one backend as it is configured now.
type key struct {
	backend  routes.BackendID
	url      string
	protocol string
	uri      string
}

// New checks the options; it starts nothing.
func New(o Options) (*Hub, error) {
	if o.Upstream == nil {
		return nil, errors.New("watch: Upstream is required")
	}
	o.Max, o.MaxTasks = cmp.Or(o.Max, 1024), cmp.Or(o.MaxTasks, 1024)
	h := &Hub{
		o: o, log: cmp.Or(o.Log, zap.NewNop()), m: newMetrics(), clientInfo: o.ClientInfo,
		feeds: map[key]*feed{}, tasks: map[taskKey]*taskFeed{},
	}
	if h.clientInfo == nil {
		h.clientInfo = json.RawMessage(`{"name":"weir","version":"0"}`)
	}
	if o.Registry != nil {
		for _, c := range []prometheus.Collector{h.m.streams, h.m.tasks, h.m.polls} {
			if err := o.Registry.Register(c); err != nil {
				return nil, err
			}
		}
	}
	return h, nil
}

// metrics of a Hub.
type metrics struct {
	streams, tasks prometheus.Gauge
	polls          *prometheus.CounterVec
}

func newMetrics() metrics {
	return metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_watch_subscriptions",
			Help: "Resources that are subscribed to at their backends.",
		}),
		tasks: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_watch_tasks",
			Help: "Tasks that are followed at their backends.",
		}),
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_watch_task_polls_total",
			Help: "Requests for the state of a task that is followed, by backend and by what they brought: ok, unknown, backend_error, internal, or the reason of a failure.",
		}, []string{"backend", "outcome"}),
	}
}

// Run ends every subscription when ctx does, and waits for that. It returns nil.
func (h *Hub) Run(ctx context.Context) error {
	<-ctx.Done()
	h.mu.Lock()
	h.stopped = true
	for _, f := range h.feeds {
		f.stop()
	}
	for _, f := range h.tasks {
		f.stop()
	}
	h.mu.Unlock()
	h.running.Wait()
	return nil
}

// member is one listener's part in a feed.
type member struct{ updated func(uri string) }

// Subscribe has updated called whenever the resource changed, until release is called, and when a change may have been missed.
// updated gets the resource's URI, or that of one below it; it must not block. Subscribe waits until the backend has agreed. An error
// means that there is no subscription: the backend refused it or can't be reached, or too many are open. release may be called more
// than once; the last listener's ends the subscription at the backend.
func (h *Hub) Subscribe(ctx context.Context, t routes.Target, updated func(uri string)) (release func(), err error) {
	m := &member{updated}
	h.mu.Lock()
	k := key{t.ID, t.Backend.URL, t.Backend.Protocol, t.Upstream}
	f := h.feeds[k]
	switch {
	case h.stopped:
		h.mu.Unlock()
		return nil, errStopped
	case f == nil && len(h.feeds) >= h.o.Max:
		h.mu.Unlock()
		return nil, errTooMany
	case f == nil:
		f = h.start(k, t.Backend)
	}
	f.members[m] = struct{}{}
	h.mu.Unlock()
	select {
	case <-f.opened:
		if f.refused == nil {
			return func() { h.leave(f, m) }, nil
		}
		err = f.refused
	case <-ctx.Done():
		err = ctx.Err()
	}
	h.leave(f, m)
	return nil, err
}

// leave ends a listener's part.
func (h *Hub) leave(f *feed, m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(f.members, m)
	if len(f.members) == 0 {
		h.forget(f)
		f.stop()
	}
}

var (
	errStopped = errors.New("the plane is stopping")
	errTooMany = errors.New("too many resources are subscribed to")
)

// forget takes a feed off the table, so that whoever comes next begins a new one. h.mu is held.
func (h *Hub) forget(f *feed) {
	if h.feeds[f.key] == f {
		delete(h.feeds, f.key)
		h.m.streams.Set(float64(len(h.feeds)))
	}
}
