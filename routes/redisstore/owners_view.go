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
	// principalsPerHost is how many principals the view of a host counts at most, tasksPerHost how many tasks it shows.
	principalsPerHost = 10_000
	tasksPerHost      = 10_000
)

// PrincipalTasks returns every live entry that the principal holds in the host itself, the earliest made first. It takes one round trip
// for the set, and one for every 128 tasks.
func (o *Owners) PrincipalTasks(ctx context.Context, host routes.HostID, principal string) ([]routes.TaskEntry, error) {
	if host == "" || principal == "" {
		return nil, errors.New("principal tasks: host or principal is empty")
	}
	sets, err := o.members(ctx, "principal tasks", []string{o.keys.tasks(host, principal)}, []int{o.maxTasks})
	if err != nil {
		return nil, err
	}
	entries, err := o.entries(ctx, "principal tasks", sets[0].held(host, principal))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b routes.TaskEntry) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Task, b.Task), strings.Compare(string(a.Backend), string(b.Backend)))
	})
	return entries, nil
}

// HostTasks returns the operator's view of a host: at most limit tasks (and 10,000), and how many each principal holds. It counts 10,000
// principals at most, those whose tasks end last.
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
	left := min(limit, tasksPerHost)
	some := make([]int, len(keys)) // how many tasks of each are shown
	for i, set := range sets {
		some[i] = min(set.count, left)
		left -= some[i]
		view.Count += set.count
		view.More = view.More || some[i] < set.count
	}
	shown := len(some)
	for shown > 0 && some[shown-1] == 0 {
		shown--
	}
	tops, err := o.members(ctx, op, keys[:shown], some[:shown])
	if err != nil {
		return routes.HostTasks{}, err
	}
	var wanted []held
	for i := range tops {
		wanted = append(wanted, tops[i].held(host, names[i])...)
	}
	entries, err := o.entries(ctx, op, wanted)
	if err != nil {
		return routes.HostTasks{}, err
	}
	of := map[string][]routes.TaskEntry{}
	for _, e := range entries {
		e.Session = ""
		of[e.Principal] = append(of[e.Principal], e)
	}
	for i, principal := range names {
		if sets[i].count == 0 {
			continue
		}
		tasks := of[principal]
		slices.SortFunc(tasks, func(a, b routes.TaskEntry) int {
			return cmp.Or(b.Expires.Compare(a.Expires), strings.Compare(a.Task, b.Task), strings.Compare(string(a.Backend), string(b.Backend)))
		})
		view.Principals = append(view.Principals, routes.PrincipalTasks{Principal: principal, Count: sets[i].count, Tasks: tasks})
	}
	return view, nil
}

// set is what membersScript returns.
type set struct {
	now     time.Time
	count   int
	members []string
}

// held is a task of a principal, as its set has it.
type held struct {
	host              routes.HostID
	principal, digest string
	now               time.Time // by Redis, when the set was read
}

func (s *set) held(host routes.HostID, principal string) []held {
	all := make([]held, len(s.members))
	for i, digest := range s.members {
		all[i] = held{host, principal, digest, s.now}
	}
	return all
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

// entries reads what principals themselves hold of tasks. A task without a live entry is one whose record is being written, or was
// lost.
func (o *Owners) entries(ctx context.Context, op string, wanted []held) ([]routes.TaskEntry, error) {
	var entries []routes.TaskEntry
	for some := range slices.Chunk(wanted, recordsPerRead) {
		cmds := make([]*redis.MapStringStringCmd, len(some))
		err := o.gate.do(ctx, op, func(ctx context.Context) error {
			_, err := o.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i, h := range some {
					cmds[i] = p.HGetAll(ctx, o.keys.task(h.digest))
				}
				return nil
			})
			return err
		})
		if err != nil {
			return nil, err
		}
		for i, h := range some {
			var own []string
			for field, value := range cmds[i].Val() {
				if strings.HasPrefix(field, scoped(h.host, h.principal)+"/") {
					own = append(own, field, value)
				}
			}
			for _, owner := range o.recordOf(h.host, h.digest, own) {
				if owner.Expires.After(h.now) {
					entries = append(entries, routes.TaskEntry{Task: h.digest, TaskOwner: owner})
				}
			}
		}
	}
	return entries, nil
}
