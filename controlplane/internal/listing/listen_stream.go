package listing

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

// listener is one open stream. What it has not sent yet is a flag for each list and a set of resources, so that a client that reads
// slowly gets one notification for many changes, and costs no more memory than a quick one.
type listener struct {
	server   *Server
	id       json.RawMessage // of the request, exact text: the subscription's id
	host     routes.HostID
	identity *access.Identity
	lists    [3]bool // agreed to

	wake chan struct{} // capacity 1: there is something to send

	mu      sync.Mutex // guards what follows
	pending [3]bool
	updated []update            // in the order of the first that was not sent
	news    []string            // tasks with a state that was not sent, in the order of the first
	moved   bool                // the host's table is another one: resources may have another owner
	ended   bool                // over is closed
	reason  string              // why the plane ends the stream
	watched map[string]*watched // agreed to, by URI
	tasks   map[string]*followed
	over    chan struct{} // closed when the plane ends the stream
}

// update is one of a resource that was subscribed to as asked: of itself, or of one below it.
type update struct{ asked, uri string }

// watched is one resource of a stream.
type watched struct {
	target  routes.Target
	release func() // nil: nobody serves it now
}

// maxUpdated bounds the resources that wait to be announced: those below a resource that was subscribed to have no other bound.
const maxUpdated = 256

// note takes changes of the lists, as far as the stream is about them.
func (l *listener) note(changes [3]change, moved bool) {
	l.mu.Lock()
	for i := range changes {
		if l.lists[i] && changes[i].visible(l.identity.Scopes) {
			l.pending[i] = true
		}
	}
	l.moved = l.moved || moved && len(l.watched)+len(l.tasks) > 0
	l.mu.Unlock()
	l.signal()
}

// noteUpdate takes an update of a resource.
func (l *listener) noteUpdate(u update) {
	l.mu.Lock()
	if len(l.updated) >= maxUpdated {
		u.uri = u.asked
	}
	if !slices.Contains(l.updated, u) {
		l.updated = append(l.updated, u)
	}
	l.mu.Unlock()
	l.signal()
}

func (l *listener) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// end makes the plane end the stream. The first reason counts.
func (l *listener) end(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended, l.reason = true, reason
		close(l.over)
	}
}

// agree finds out what of a filter can be served, and begins to listen to it, within a time that does not grow with the filter.
func (l *listener) agree(ctx context.Context, f filter) {
	ctx, cancel := context.WithTimeout(ctx, subscribing)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() { l.subscribe(ctx, f.uris) })
	both.Go(func() { l.followTasks(ctx, f.tasks) })
	both.Wait()
}

// subscribe subscribes to resources at their backends, all at once, and waits for these: what they do not agree to is left out.
func (l *listener) subscribe(ctx context.Context, uris []string) {
	if len(uris) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, subscribing)
	defer cancel()
	var all sync.WaitGroup
	for _, uri := range uris {
		target, ok := l.owner(uri)
		if !ok {
			continue
		}
		all.Go(func() {
			release, err := l.server.listeners.o.Watch.Subscribe(ctx, target, func(changed string) { l.noteUpdate(update{uri, changed}) })
			if err != nil {
				l.server.log.Debug("resource not agreed to", zap.String("backend", string(target.ID)), zap.Error(err))
				return
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.watched == nil {
				l.watched = make(map[string]*watched)
			}
			l.watched[uri] = &watched{target, release}
		})
	}
	all.Wait()
}

// owner finds the backend of a resource, if it takes subscriptions.
func (l *listener) owner(uri string) (routes.Target, bool) {
	v, err := l.server.store.view(l.host)
	if err != nil || l.server.listeners.o.Watch == nil || !l.identity.Scopes.Allows(routes.KindResource, uri) {
		return routes.Target{}, false
	}
	ix, err := v.index()
	if err != nil {
		return routes.Target{}, false
	}
	t, ok := ix.Lookup(routes.KindResource, uri)
	return t, ok && t.Backend.Capabilities.Subscribe
}

// follow moves subscriptions to the present owners of their resources, after the host's table changed. A resource that nobody serves
// any more is looked for again at the next change.
func (l *listener) follow(ctx context.Context) {
	l.mu.Lock()
	all := make(map[string]*watched, len(l.watched))
	for uri, w := range l.watched {
		all[uri] = w
	}
	l.mu.Unlock()
	var anew []string
	for uri, w := range all {
		t, ok := l.owner(uri)
		if ok && w.release != nil && t.ID == w.target.ID && t.Backend.URL == w.target.Backend.URL && t.Backend.Protocol == w.target.Backend.Protocol {
			continue
		}
		if w.release != nil {
			w.release()
			w.release = nil
		}
		if ok {
			anew = append(anew, uri)
			l.noteUpdate(update{uri, uri}) // what its new owner has is another thing
		}
	}
	l.subscribe(ctx, anew)
}

// unsubscribe ends the stream's part in subscriptions, and in tasks.
func (l *listener) unsubscribe() {
	l.mu.Lock()
	all, tasks := l.watched, slices.Collect(maps.Keys(l.tasks))
	l.watched = nil
	l.mu.Unlock()
	for _, id := range tasks {
		l.unfollow(id)
	}
	for _, w := range all {
		if w.release != nil {
			w.release()
		}
	}
}

// serve sends the acknowledgment and then what happens, until the client leaves or the plane ends the stream.
func (l *listener) serve(ctx context.Context, w *wire.Response) {
	agreed := l.agreed()
	if w.Event(l.notification("notifications/subscriptions/acknowledged", `"notifications":`, agreed.append(nil))) != nil {
		w.Finish()
		return
	}
	if agreed.empty() {
		w.Result(l.completion()) // there is nothing to wait for
		return
	}
	expired, stop := l.expiry()
	defer stop()
	check := time.NewTicker(recheck)
	defer check.Stop()
	if l.server.listeners.o.Revoked == nil {
		check.Stop()
	}
	records := time.NewTicker(recordEvery)
	defer records.Stop()
	if len(agreed.tasks) == 0 {
		records.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			w.Finish()
			return
		case <-l.over:
			l.finish(w, l.reason)
			return
		case <-expired:
			l.finish(w, "token_expired")
			return
		case <-check.C:
			if l.server.listeners.o.Revoked(l.identity) {
				l.finish(w, "token_revoked")
				return
			}
		case <-l.wake:
			if !l.send(ctx, w) {
				w.Finish()
				return
			}
		case <-records.C:
			l.checkTasks(ctx)
		}
		if left := l.agreed(); len(agreed.tasks) > 0 && left.empty() {
			l.finish(w, "tasks_over") // nothing more will come
			return
		}
	}
}

// expiry is a channel that something is sent on when the token ends; nil where it does not.
func (l *listener) expiry() (<-chan time.Time, func() bool) {
	if l.identity.Expires.IsZero() {
		return nil, func() bool { return false }
	}
	t := time.NewTimer(time.Until(l.identity.Expires))
	return t.C, t.Stop
}

// finish ends the stream as the specification says (Graceful Closure), whatever the reason: a client that listens again learns it.
func (l *listener) finish(w *wire.Response, reason string) {
	l.server.listeners.m.ended.WithLabelValues(reason).Inc()
	w.Note(0, reason)
	w.Result(l.completion())
}

// agreed is what the acknowledgment says.
func (l *listener) agreed() filter {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := filter{lists: l.lists}
	for uri := range l.watched {
		f.uris = append(f.uris, uri)
	}
	for id := range l.tasks {
		f.tasks = append(f.tasks, id)
	}
	return f
}

// send sends what is pending; false: the client is gone.
func (l *listener) send(ctx context.Context, w *wire.Response) bool {
	l.mu.Lock()
	lists, updated, news, moved := l.pending, l.updated, l.news, l.moved
	l.pending, l.updated, l.news, l.moved = [3]bool{}, nil, nil, false
	l.mu.Unlock()
	for i, changed := range lists {
		if !changed {
			continue
		}
		if w.Event(l.notification(listKinds[i].notification, "", nil)) != nil {
			return false
		}
		l.server.listeners.m.sent.WithLabelValues(listKinds[i].notification).Inc()
	}
	for _, u := range updated {
		if w.Event(l.notification("notifications/resources/updated", `"uri":`, wire.Quote(l.visible(u)))) != nil {
			return false
		}
		l.server.listeners.m.sent.WithLabelValues("notifications/resources/updated").Inc()
	}
	for _, id := range news {
		if !l.sendTask(ctx, w, id) {
			return false
		}
	}
	if moved {
		l.follow(ctx)
		l.checkTasks(ctx)
	}
	return true
}

// visible is the URI to announce. One below the resource that was subscribed to is shown only where the host leads it to the same
// backend: what the host hides stays hidden.
func (l *listener) visible(u update) string {
	if u.uri == u.asked {
		return u.uri
	}
	below, ok := l.owner(u.uri)
	if above, has := l.owner(u.asked); !ok || !has || below.ID != above.ID {
		return u.asked
	}
	return u.uri
}
