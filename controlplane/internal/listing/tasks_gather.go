package listing

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/wire"
)

const (
	// listingTasks bounds one page of tasks/list, taskPageTimeout one request for it to a backend.
	listingTasks    = 20 * time.Second
	taskPageTimeout = 5 * time.Second
	// maxTaskPages bounds the pages that are read of one backend's list.
	maxTaskPages = 100
	// maxTaskSessions is how many sessions of one backend are asked at once.
	maxTaskSessions = 8
)

// taskList is one page of tasks/list on its way.
type taskList struct {
	s       *Server
	v       *view
	r       *wire.Request
	entries []routes.TaskEntry // those that the page is about

	mu      sync.Mutex // guards what follows
	found   map[taskAt]json.RawMessage
	partial []routes.BackendID // could not be asked, or not to the end
}

// taskAt is a task of the caller at a backend.
type taskAt struct {
	backend routes.BackendID
	task    string // digest
}

func keyOf(e *routes.TaskEntry) taskAt { return taskAt{e.Backend, e.Task} }

// gather asks the backends of the entries, all at once.
func (l *taskList) gather(ctx context.Context) {
	l.found = make(map[taskAt]json.RawMessage, len(l.entries))
	sessions := make(map[routes.BackendID][]string) // the latest first
	for i := range l.entries {
		e := &l.entries[i]
		if !slices.Contains(sessions[e.Backend], e.Session) {
			sessions[e.Backend] = append(sessions[e.Backend], e.Session)
		}
	}
	var all sync.WaitGroup
	for id, of := range sessions {
		all.Go(func() { l.askBackend(ctx, id, of) })
	}
	all.Wait()
}

// askBackend asks one backend in each session that holds an entry. A backend whose tasks don't belong to sessions tells all of them in
// the first, and the others are left alone.
func (l *taskList) askBackend(ctx context.Context, id routes.BackendID, sessions []string) {
	b := l.v.doc.Backends[id]
	fresh := sync.OnceValue(func() error { return l.askSession(ctx, id, &b, "") })
	ask := func(session string) {
		if !l.wanted(id, session) {
			return
		}
		err := error(nil)
		if session == "" {
			err = fresh()
		} else if err = l.askSession(ctx, id, &b, session); lostSession(err) {
			err = fresh() // the tasks may outlive it
		}
		if err == nil {
			return
		}
		l.s.log.Debug("tasks not listed", zap.String("host", string(l.v.doc.ID)), zap.String("backend", string(id)), zap.Error(err))
		l.mu.Lock()
		defer l.mu.Unlock()
		l.partial = append(l.partial, id)
	}
	ask(sessions[0])
	var running sync.WaitGroup
	defer running.Wait()
	room := make(chan struct{}, maxTaskSessions)
	for _, session := range sessions[1:] {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			ask(session)
		})
	}
}

func lostSession(err error) bool {
	f, ok := errors.AsType[*egress.Failure](err)
	return ok && f.SessionLost
}

// wanted reports whether a task is still looked for that was made in the session; an empty one stands for all of the backend's.
func (l *taskList) wanted(id routes.BackendID, session string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.entries, func(e routes.TaskEntry) bool {
		_, has := l.found[keyOf(&e)]
		return !has && e.Backend == id && (session == "" || e.Session == session)
	})
}

var errEndlessTasks = errors.New("the backend's list of tasks does not end")

// askSession walks a backend's list, in one of its sessions or in none, until nothing that was made there is missing.
func (l *taskList) askSession(ctx context.Context, id routes.BackendID, b *routes.Backend, session string) error {
	header, err := l.s.backends.Header(b)
	if err != nil {
		return err
	}
	var params wire.Object
	seen := make(map[string]bool)
	for range maxTaskPages {
		tasks, cursor, err := l.askPage(ctx, egress.Call{
			ID: id, Backend: b, RPCID: json.RawMessage("1"), Method: "tasks/list", Params: params, Header: header,
			Principal: string(l.r.Identity.Principal), Session: session,
		})
		if err != nil {
			return err
		}
		for _, raw := range tasks {
			l.take(ctx, id, raw)
		}
		if cursor == nil || !l.wanted(id, session) {
			return nil
		}
		if seen[*cursor] {
			return errEndlessTasks
		}
		seen[*cursor] = true
		params = wire.Object{{Name: "cursor", Value: wire.Quote(*cursor)}}
	}
	return errEndlessTasks
}

// askPage reads one page of a backend's list.
func (l *taskList) askPage(ctx context.Context, call egress.Call) (tasks []json.RawMessage, cursor *string, _ error) {
	ctx, cancel := context.WithTimeout(ctx, taskPageTimeout)
	defer cancel()
	a, err := l.s.backends.Do(ctx, call)
	if err != nil {
		return nil, nil, err
	}
	defer a.Close()
	for {
		m, err := a.Next()
		switch {
		case err != nil:
			return nil, nil, err
		case !m.Final:
			continue
		case m.Error != nil:
			return nil, nil, errors.New("the backend answered with an error")
		}
		var page struct {
			Tasks      []json.RawMessage `json:"tasks"`
			NextCursor *string           `json:"nextCursor"`
		}
		err = json.Unmarshal(m.Result, &page)
		return page.Tasks, page.NextCursor, err
	}
}

// take keeps a task if it is one of the caller's: a backend may show whatever it has to Weir, which has one credential for all.
func (l *taskList) take(ctx context.Context, id routes.BackendID, raw json.RawMessage) {
	scan, err := wire.ScanTaskState(wire.Legacy, raw)
	if err != nil {
		return
	}
	at := taskAt{id, routes.TaskDigest(scan.ID)}
	i := slices.IndexFunc(l.entries, func(e routes.TaskEntry) bool { return keyOf(&e) == at })
	if i < 0 || l.entries[i].Source != routes.TaskMinted && !l.holds(ctx, scan.ID, id) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found[at] = raw
}

// holds reports whether a claim still holds: whoever made the task may have come after who claimed it.
func (l *taskList) holds(ctx context.Context, task string, id routes.BackendID) bool {
	owner, err := l.s.recorded(ctx, l.r.Identity, l.v.doc, task)
	return err == nil && owner != nil && owner.Backend == id
}

// recorded is the entry of a task's record that lets a caller through, nil if there is none.
func (s *Server) recorded(ctx context.Context, id *access.Identity, vh *routes.VirtualHost, task string) (*routes.TaskOwner, error) {
	record, err := s.tasks.Owners.TaskRecord(ctx, vh.ID, task, string(id.Principal))
	if err != nil {
		return nil, err
	}
	view, err := record.For(string(id.Principal), vh.Tasks, func(o *routes.TaskOwner) bool { return access.MayFollow(id, vh, o) })
	return view.Owner, err
}
