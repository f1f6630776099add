package admin

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// Tasks keeps owner records; *redisstore.Owners does.
type Tasks interface {
	HostTasks(ctx context.Context, host routes.HostID, limit int) (routes.HostTasks, error)
}

const (
	tasksShown    = 1000   // where nothing is said
	maxTasksShown = 10_000 // whatever is asked for
)

// tasksView is who holds a host's tasks. No task id is in it: Redis has digests only.
type tasksView struct {
	Host       routes.HostID   `json:"host"`
	Count      int             `json:"count"` // of live tasks
	More       bool            `json:"more"`  // there are some that are not shown
	Principals []principalView `json:"principals"`
}

// principalView is what one principal holds.
type principalView struct {
	Principal string `json:"principal"` // a digest, or * for what everybody may follow
	Count     int    `json:"count"`
	// Backends and Sources count what is shown of the principal.
	Backends map[routes.BackendID]int  `json:"backends,omitempty"`
	Sources  map[routes.TaskSource]int `json:"sources,omitempty"`
	Tasks    []taskView                `json:"tasks,omitempty"`
}

// taskView is one entry of a task's record.
type taskView struct {
	Task    string            `json:"task"` // routes.TaskDigest
	Backend routes.BackendID  `json:"backend"`
	Source  routes.TaskSource `json:"source"`
	Tool    string            `json:"tool,omitempty"` // absent: not known
	Created time.Time         `json:"created"`
	Expires time.Time         `json:"expires"`
}

// tasks shows who holds the tasks of a host.
func (a *API) tasks(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	host := routes.HostID(query.Get("host"))
	if len(query["host"]) != 1 || !routes.ValidID(string(host)) {
		fail(w, http.StatusBadRequest, "bad_request", "give host=…, the name of one virtual host")
		return
	}
	limit := tasksShown
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxTasksShown {
			fail(w, http.StatusBadRequest, "bad_request", fmt.Sprintf("limit is not a number from 1 to %d", maxTasksShown))
			return
		}
		limit = n
	}
	held, err := a.o.Tasks.HostTasks(r.Context(), host, limit)
	if err != nil {
		a.storeFailed(w, err)
		return
	}
	if _, _, known := a.o.Published.Host(host); !known && held.Count == 0 {
		fail(w, http.StatusNotFound, "unknown_host", "no virtual host of this name is published, and none has tasks")
		return
	}
	view := tasksView{Host: host, Count: held.Count, More: held.More, Principals: []principalView{}}
	for i := range held.Principals {
		view.Principals = append(view.Principals, viewOfPrincipal(&held.Principals[i]))
	}
	answer(w, http.StatusOK, view)
}

func viewOfPrincipal(p *routes.PrincipalTasks) principalView {
	v := principalView{Principal: p.Principal, Count: p.Count}
	if len(p.Tasks) > 0 {
		v.Backends, v.Sources = map[routes.BackendID]int{}, map[routes.TaskSource]int{}
	}
	for _, t := range p.Tasks {
		v.Backends[t.Backend]++
		v.Sources[t.Source]++
		v.Tasks = append(v.Tasks, taskView{t.Task, t.Backend, t.Source, t.Tool, t.Created, t.Expires})
	}
	return v
}
