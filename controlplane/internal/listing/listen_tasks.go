package listing

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/watch"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/wire"
)

// recordEvery is how often the records of a stream's tasks are read again: whether they still let the caller through, and so that they
// live on while somebody listens.
const recordEvery = time.Minute

// followed is one task of a stream. Of its states only the latest is kept that was not sent: each tells everything.
type followed struct {
	owner routes.TaskOwner
	route routes.Backend

	// Guarded by listener.mu:
	release func()
	state   *watch.State // nil: nothing to send
}

// followTasks follows those of the tasks that the caller may follow, all at once. What an id is that he may not, nobody can tell from
// outside: it is left out, and so is one whose backend can't say anything of it.
func (l *listener) followTasks(ctx context.Context, ids []string) {
	o := &l.server.tasks
	if o.Locate == nil || o.Follow == nil || o.Owners == nil {
		return
	}
	ids = ids[:l.server.listeners.takeTasks(l.identity, len(ids))]
	l.mu.Lock()
	l.tasks = make(map[string]*followed, len(ids))
	l.mu.Unlock()
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			if !l.followTask(ctx, id) {
				l.server.listeners.giveTask(l.identity)
			}
		})
	}
	all.Wait()
}

// followTask begins to follow one task; false: it is not followed.
func (l *listener) followTask(ctx context.Context, id string) bool {
	v, err := l.server.store.view(l.host)
	if err != nil { // removed since
		return false
	}
	owner := l.server.tasks.Locate(ctx, l.identity, v.doc, id)
	if owner == nil {
		return false
	}
	route, ok := v.doc.Backends[owner.Backend]
	if !ok || wire.EraOf(route.Protocol) != wire.Modern {
		return false // it is followed in a legacy client's way
	}
	f := &followed{owner: *owner, route: route}
	l.mu.Lock()
	l.tasks[id] = f // from here on its states are noted
	l.mu.Unlock()
	release, err := l.server.tasks.Follow.Follow(ctx, watch.Task{Backend: owner.Backend, Route: &f.route, ID: id}, func(s watch.State) { l.noteTask(id, f, s) })
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		delete(l.tasks, id)
		l.server.log.Debug("task not agreed to", zap.String("backend", string(owner.Backend)), zap.Error(err))
		return false
	}
	f.release = release
	return true
}

// noteTask takes a state of a task.
func (l *listener) noteTask(id string, f *followed, s watch.State) {
	l.mu.Lock()
	if l.tasks[id] == f {
		f.state = &s
		if !slices.Contains(l.news, id) {
			l.news = append(l.news, id)
		}
	}
	l.mu.Unlock()
	l.signal()
}

// sendTask sends what is new of a task, if its record still lets the caller through; false: the client is gone. After its end it is
// not followed any more.
func (l *listener) sendTask(ctx context.Context, w *wire.Response, id string) bool {
	l.mu.Lock()
	f := l.tasks[id]
	var s *watch.State
	if f != nil {
		s, f.state = f.state, nil
	}
	l.mu.Unlock()
	if s == nil {
		return true
	}
	if s.Task == nil || !l.holds(ctx, id, f) {
		l.unfollow(id)
		return true
	}
	if task, ok := l.show(f, s.Task); ok {
		if w.Event(l.taskNotification(task, s.Meta)) != nil {
			return false
		}
		l.server.listeners.m.sent.WithLabelValues(egress.TaskUpdated).Inc()
	}
	if s.Over {
		l.unfollow(id)
	}
	return true
}

// show is the one way of a task's state to a client: what hooks that run after a tool have to say of the task's result, its error and its
// input requests is asked here, as where a dataplane answers tasks/get. False: nothing of the state may be shown.
func (l *listener) show(_ *followed, task json.RawMessage) (json.RawMessage, bool) { return task, true }

// holds reports whether a task's record still leads the caller to the backend that is asked for it. While Redis is away, or if it has
// lost the record, what was agreed to stays so: nobody else has been let through instead.
func (l *listener) holds(ctx context.Context, id string, f *followed) bool {
	v, err := l.server.store.view(l.host)
	if err != nil {
		return false
	}
	record, err := l.server.tasks.Owners.TaskRecord(ctx, l.host, id, string(l.identity.Principal))
	if err != nil || len(record) == 0 {
		return access.MayFollow(l.identity, v.doc, &f.owner)
	}
	view, err := record.For(string(l.identity.Principal), v.doc.Tasks, func(o *routes.TaskOwner) bool {
		return access.MayFollow(l.identity, v.doc, o)
	})
	return err == nil && view.Owner != nil && view.Owner.Backend == f.owner.Backend
}

// checkTasks ends what the caller may not follow any more, and moves on to a backend's new address.
func (l *listener) checkTasks(ctx context.Context) {
	l.mu.Lock()
	all := make(map[string]*followed, len(l.tasks))
	for id, f := range l.tasks {
		all[id] = f
	}
	l.mu.Unlock()
	for id, f := range all {
		if !l.holds(ctx, id, f) {
			l.unfollow(id)
			continue
		}
		v, err := l.server.store.view(l.host)
		if err != nil {
			return // the stream is about to end
		}
		if b := v.doc.Backends[f.owner.Backend]; b.URL != f.route.URL || b.Protocol != f.route.Protocol {
			l.unfollow(id)
			l.refollow(ctx, id)
		}
	}
}

// refollow follows a task anew.
func (l *listener) refollow(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, subscribing)
	defer cancel()
	if l.server.listeners.takeTasks(l.identity, 1) == 1 && !l.followTask(ctx, id) {
		l.server.listeners.giveTask(l.identity)
	}
}

// unfollow ends the stream's part in a task.
func (l *listener) unfollow(id string) {
	l.mu.Lock()
	f := l.tasks[id]
	delete(l.tasks, id)
	l.news = slices.DeleteFunc(l.news, func(other string) bool { return other == id })
	l.mu.Unlock()
	if f == nil {
		return
	}
	f.release()
	l.server.listeners.giveTask(l.identity)
}

// takeTasks takes so many tasks in for a principal, or as many as the bound leaves.
func (ls *listeners) takeTasks(id *access.Identity, n int) int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if alone(id) {
		n = max(0, min(n, ls.o.TasksPerPrincipal-ls.tasks[id.Principal]))
	}
	if n > 0 {
		ls.tasks[id.Principal] += n
	}
	return n
}

func (ls *listeners) giveTask(id *access.Identity) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.tasks[id.Principal]--; ls.tasks[id.Principal] <= 0 {
		delete(ls.tasks, id.Principal)
	}
}
