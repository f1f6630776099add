package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
)

const (
	// recordsPerRead and setsPerRead are how many one round trip reads at most.
	recordsPerRead = 128
	setsPerRead    = 256
	// principalsPerHost is how many principals the view of a host counts at most.
	principalsPerHost = 10_000
)

// PrincipalTasks returns every live entry that the principal holds in the host itself, the earliest made first. It takes one round trip
// for the set, and one for every 128 tasks.
func (o *Owners) PrincipalTasks(ctx context.Context, host routes.HostID, principal string) ([]routes.TaskEntry, error) {
	if host == "" || principal == "" {
		return nil, errors.New("principal tasks: host or principal is empty")
	}
	sets, err := o.members(ctx, "principal tasks", []string{o.keys.tasks(host, principal)}, []int{routes.MaxTasks})
	if err != nil {
		return nil, err
	}
	entries, err := o.entries(ctx, "principal tasks", principal, sets[0])
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b routes.TaskEntry) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Task, b.Task), strings.Compare(string(a.Backend), string(b.Backend)))
	})
	return entries, nil
}

// HostTasks returns the operator's view of a host: at most limit tasks, and how many each principal holds. It counts 10,000 principals
// at most, those whose tasks end last.
func (o *Owners) HostTasks(ctx context.Context, host routes.HostID, limit int) (routes.HostTasks, error) {
	const op = "host tasks"
	if host == "" || limit < 1 {
		return routes.HostTasks{}, fmt.Errorf("%s: host is empty, or limit %d under 1", op, limit)
	}
	sets, err := o.members(ctx, op, []string{o.keys.taskHost(host)}, []int{principalsPerHost})
	if err != nil {
		return routes.HostTasks{}, err
	}
	view := routes.HostTasks{More: sets[0].count > principalsPerHost}
	names := sets[0].members
	keys := make([]string, len(names))
	for i, principal := range names {
		keys[i] = o.keys.tasks(host, principal)
	}
	if sets, err = o.members(ctx, op, keys, make([]int, len(keys))); err != nil {
		return routes.HostTasks{}, err
	}
	left := limit
	for i, principal := range names {
		if sets[i].count == 0 {
			continue
		}
		p := routes.PrincipalTasks{Principal: principal, Count: sets[i].count}
		view.Count += p.Count
		shown := min(p.Count, left)
		view.More = view.More || shown < p.Count
		left -= shown
		if p.Tasks, err = o.shown(ctx, op, keys[i], principal, shown); err != nil {
			return routes.HostTasks{}, err
		}
		view.Principals = append(view.Principals, p)
	}
	return view, nil
}

// shown returns the entries of some tasks of a principal, as an operator may see them.
func (o *Owners) shown(ctx context.Context, op, key, principal string, some int) ([]routes.TaskEntry, error) {
	if some == 0 {
		return nil, nil
	}
	sets, err := o.members(ctx, op, []string{key}, []int{some})
	if err != nil {
		return nil, err
	}
	entries, err := o.entries(ctx, op, principal, sets[0])
	for i := range entries {
		entries[i].Session = ""
	}
	slices.SortFunc(entries, func(a, b routes.TaskEntry) int {
		return cmp.Or(b.Expires.Compare(a.Expires), strings.Compare(a.Task, b.Task), strings.Compare(string(a.Backend), string(b.Backend)))
	})
	return entries, err
}

// set is what membersScript returns.
type set struct {
	now     time.Time
	count   int
	members []string
}

// members reads sets, at most so many members of each.
func (o *Owners) members(ctx context.Context, op string, keys []string, most []int) ([]set, error) {
	sets := make([]set, 0, len(keys))
	for from := 0; from < len(keys); from += setsPerRead {
		to := min(from+setsPerRead, len(keys))
		calls := make([]invocation, to-from)
		for i := range calls {
			calls[i] = invocation{membersScript, keys[from+i : from+i+1], []any{most[from+i]}}
		}
		var replies [][]string
		err := o.gate.do(ctx, op, func(ctx context.Context) (err error) {
			replies, err = o.runEach(ctx, calls...)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, reply := range replies {
			if len(reply) < 3 || reply[0] != replyOK {
				return nil, fmt.Errorf("%s: unexpected reply %q", op, reply[0])
			}
			ms, err1 := strconv.ParseInt(reply[1], 10, 64)
			count, err2 := strconv.Atoi(reply[2])
			if err := errors.Join(err1, err2); err != nil {
				return nil, fmt.Errorf("%s: unexpected reply: %w", op, err)
			}
			sets = append(sets, set{time.UnixMilli(ms).UTC(), count, reply[3:]})
		}
	}
	return sets, nil
}

// entries reads what a principal itself holds of the tasks of its set. A member without a live entry is one whose record is being
// written, or was lost.
func (o *Owners) entries(ctx context.Context, op, principal string, tasks set) ([]routes.TaskEntry, error) {
	var entries []routes.TaskEntry
	for digests := range slices.Chunk(tasks.members, recordsPerRead) {
		cmds := make([]*redis.MapStringStringCmd, len(digests))
		err := o.gate.do(ctx, op, func(ctx context.Context) error {
			_, err := o.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i, digest := range digests {
					cmds[i] = p.HGetAll(ctx, o.keys.task(digest))
				}
				return nil
			})
			return err
		})
		if err != nil {
			return nil, err
		}
		for i, digest := range digests {
			var own []string
			for field, value := range cmds[i].Val() {
				if strings.HasPrefix(field, principal+"/") {
					own = append(own, field, value)
				}
			}
			for _, owner := range o.recordOf(digest, own) {
				if owner.Expires.After(tasks.now) {
					entries = append(entries, routes.TaskEntry{Task: digest, TaskOwner: owner})
				}
			}
		}
	}
	return entries, nil
}
