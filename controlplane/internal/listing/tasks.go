package listing

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/watch"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

// TaskOptions is what tasks need: subscriptions/listen with taskIds, and the legacy tasks/list. The zero value serves neither.
type TaskOptions struct {
	Owners TaskOwners
	// Locate finds the entry of a task that lets the caller through: by its record, else by asking backends, under the caller's budget.
	// Nil: as far as the caller may know there is no such task, or nobody can say now.
	Locate func(ctx context.Context, id *access.Identity, vh *routes.VirtualHost, task string) *routes.TaskOwner
	Follow TaskFollower
}

// TaskOwners reads owner records; *redisstore.Owners does.
type TaskOwners interface {
	TaskRecord(ctx context.Context, host routes.HostID, id, principal string) (routes.TaskRecord, error)
	// PrincipalTasks returns every entry that a principal holds itself.
	PrincipalTasks(ctx context.Context, host routes.HostID, principal string) ([]routes.TaskEntry, error)
}

// TaskFollower tells how tasks fare at their backends; *watch.Hub does.
type TaskFollower interface {
	Follow(ctx context.Context, t watch.Task, changed func(watch.State)) (release func(), err error)
}

// hasTaskMethod reports whether a client's version has a method about tasks.
// Source: SEP-2663 (Backward Compatibility); MCP 2025-11-25, basic/utilities/tasks.
func hasTaskMethod(r *wire.Request) bool {
	switch r.Method {
	case "tasks/get", "tasks/cancel":
		return r.Era == wire.Modern || r.Version == routes.LegacyTasksVersion
	case "tasks/update":
		return r.Era == wire.Modern
	}
	return r.Version == routes.LegacyTasksVersion // tasks/list, tasks/result
}

// tasksPerPage is how many owner records one page of tasks/list looks at: each may be of a session of its own, which is one request to
// its backend.
const tasksPerPage = 64

// listTasks answers a page of a legacy tasks/list: of the caller's own tasks at the legacy backends of the host, the latest first, what
// these say of them. A record does not hold a task's id, so that only a backend's own list tells it.
// Source: MCP 2025-11-25, basic/utilities/tasks (Listing Tasks); DESIGN § 8.
func (s *Server) listTasks(v *view, r *wire.Request) (json.RawMessage, *wire.Error) {
	if s.tasks.Owners == nil || s.backends == nil || !v.doc.OffersLegacyTasks() {
		return nil, lacking("tasks")
	}
	if !r.Identity.Scopes.AllowsTasks() {
		return nil, wire.InsufficientScope("mcp:tasks")
	}
	after, werr := taskCursorOf(r, v.doc.ID)
	if werr != nil {
		return nil, werr
	}
	leave, werr := s.taskLists.enter(r.Identity.Principal, "")
	if werr != nil {
		return nil, werr
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.HTTP.Context(), listingTasks)
	defer cancel()
	entries, err := s.tasks.Owners.PrincipalTasks(ctx, v.doc.ID, string(r.Identity.Principal))
	if err != nil {
		s.log.Warn("owner records not read", zap.String("host", string(v.doc.ID)), zap.Error(err))
		return nil, wire.InternalRetry(wire.ReasonUnavailable, "", time.Second)
	}
	entries = slices.DeleteFunc(entries, func(e routes.TaskEntry) bool {
		b := v.doc.Backends[e.Backend]
		return b.Protocol != routes.LegacyTasksVersion || !access.MayFollow(r.Identity, v.doc, &e.TaskOwner) || !after.before(&e)
	})
	slices.SortFunc(entries, latestFirst)
	shown := entries[:min(len(entries), tasksPerPage, s.pageSize())]
	l := &taskList{s: s, v: v, r: r, entries: shown}
	l.gather(ctx)
	return l.page(len(shown) < len(entries)), nil
}

// latestFirst is the order of tasks/list. New tasks come before the first page, so that no later page changes by them.
func latestFirst(a, b routes.TaskEntry) int {
	return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.Task, b.Task), strings.Compare(string(a.Backend), string(b.Backend)))
}

// page builds the result of what was gathered.
func (l *taskList) page(more bool) json.RawMessage {
	b := []byte(`{"tasks":[`)
	for i := range l.entries {
		raw, ok := l.found[keyOf(&l.entries[i])]
		if !ok {
			continue // its backend has forgotten it, or could not be asked
		}
		if b[len(b)-1] != '[' {
			b = append(b, ',')
		}
		b = append(b, raw...)
	}
	b = append(b, ']')
	if more {
		b = append(b, `,"nextCursor":`...)
		b = appendQuoted(b, taskCursorFor(l.v.doc.ID, l.r.Identity.Principal, &l.entries[len(l.entries)-1]))
	}
	slices.Sort(l.partial)
	return append(appendMeta(b, nil, slices.Compact(l.partial), wire.Legacy), '}')
}
