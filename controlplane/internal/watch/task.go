package watch

import (
	"context"
	"crypto/sha256"
	"errors"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// Task is a task of the extension io.modelcontextprotocol/tasks at the modern backend that holds it.
type Task struct {
	Backend routes.BackendID
	Route   *routes.Backend
	ID      string // as the backend gave it
}

// taskKey is one task of one backend as it is configured now.
type taskKey struct {
	backend  routes.BackendID
	url      string
	protocol string
	id       string
}

// taskFeed is one task that is followed.
type taskFeed struct {
	key     taskKey
	backend routes.Backend // read-only
	stop    context.CancelFunc
	asked   chan struct{} // capacity 1: the present state is wanted
	opened  chan struct{} // closed once the backend told of the task or refused
	refused error         // why the task can't be followed; set before opened is closed

	// Guarded by Hub.mu:
	members map[*taskMember]struct{}
	told    [sha256.Size]byte // the digest of what was told last
}

// taskMember is one listener's part in a feed.
type taskMember struct {
	changed func(State)
	told    bool // anything yet
}

var (
	errTooManyTasks = errors.New("too many tasks are followed")
	errLegacyTask   = errors.New("the backend holds its tasks in a legacy client's way")
)

// Follow has changed called with the state of a task now, then whenever the backend says another, until it is over or release is
// called; changed must not block. However many follow a task, its backend is asked once. Follow waits until the backend has told of
// the task, or could not be reached, and then it is asked again and again. An error means that nothing will come: the backend does not
// know the task or refuses the plane's own credentials, or too many tasks are followed. release may be called more than once.
func (h *Hub) Follow(ctx context.Context, t Task, changed func(State)) (release func(), err error) {
	if wire.EraOf(t.Route.Protocol) != wire.Modern {
		return nil, errLegacyTask
	}
	m := &taskMember{changed: changed}
	h.mu.Lock()
	k := taskKey{t.Backend, t.Route.URL, t.Route.Protocol, t.ID}
	f := h.tasks[k]
	switch {
	case h.stopped:
		h.mu.Unlock()
		return nil, errStopped
	case f == nil && len(h.tasks) >= h.o.MaxTasks:
		h.mu.Unlock()
		return nil, errTooManyTasks
	case f == nil:
		f = h.startTask(k, t.Route)
	default:
		f.ask()
	}
	f.members[m] = struct{}{}
	h.mu.Unlock()
	select {
	case <-f.opened:
		if f.refused == nil {
			return func() { h.leaveTask(f, m) }, nil
		}
		err = f.refused
	case <-ctx.Done():
		err = ctx.Err()
	}
	h.leaveTask(f, m)
	return nil, err
}

// startTask begins a feed. h.mu is held.
func (h *Hub) startTask(k taskKey, b *routes.Backend) *taskFeed {
	ctx, cancel := context.WithCancel(context.Background())
	f := &taskFeed{
		key: k, backend: *b, stop: cancel,
		asked: make(chan struct{}, 1), opened: make(chan struct{}), members: map[*taskMember]struct{}{},
	}
	h.tasks[k] = f
	h.m.tasks.Set(float64(len(h.tasks)))
	h.running.Go(func() {
		defer cancel()
		h.followTask(ctx, f)
	})
	return f
}

// ask wakes a feed up to read the present state.
func (f *taskFeed) ask() {
	select {
	case f.asked <- struct{}{}:
	default:
	}
}

// leaveTask ends a listener's part.
func (h *Hub) leaveTask(f *taskFeed, m *taskMember) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(f.members, m)
	if len(f.members) == 0 {
		h.forgetTask(f)
		f.stop()
	}
}

// forgetTask takes a feed off the table. h.mu is held.
func (h *Hub) forgetTask(f *taskFeed) {
	if h.tasks[f.key] == f {
		delete(h.tasks, f.key)
		h.m.tasks.Set(float64(len(h.tasks)))
	}
}

// refuse ends a feed that has not begun.
func (h *Hub) refuse(f *taskFeed, why error) {
	h.mu.Lock()
	h.forgetTask(f)
	f.refused = why
	h.mu.Unlock()
	close(f.opened)
}

// tellTask passes a state on: to all if it is another one, else to those who have heard nothing yet. After one that is over the feed is
// off the table, so that whoever comes next begins a new one.
func (h *Hub) tellTask(f *taskFeed, s State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := s.digest != f.told || s.Task == nil
	f.told = s.digest
	if s.Over {
		h.forgetTask(f)
	}
	for m := range f.members {
		if news || !m.told {
			m.told = true
			m.changed(s)
		}
	}
}
