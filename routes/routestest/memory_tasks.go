package routestest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// memoryTasks are owner records: by digest, and host, principal and backend.
type memoryTasks map[string]map[taskField]routes.TaskOwner

type taskField struct {
	host      routes.HostID
	principal string
	backend   routes.BackendID
}

// SetMaxTasks bounds a principal's live tasks from now on; zero: routes.MaxTasks.
func (m *Memory) SetMaxTasks(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most.Tasks = n
}

// SetMaxTaskOwners bounds a task's entries from now on; zero: routes.MaxTaskOwners.
func (m *Memory) SetMaxTaskOwners(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most.Entries = n
}

// Recovered is redisstore.Owners', as are all that follow: SetDown makes an outage and ends it.
func (m *Memory) Recovered() (since time.Time, away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.recovered, m.down
}

// EvictionPolicy is always what it should be.
func (m *Memory) EvictionPolicy(ctx context.Context) (string, error) {
	if err := m.enter(ctx, "eviction policy"); err != nil {
		return "", err
	}
	defer m.mu.Unlock()
	return "noeviction", nil
}

// RecordTask records a minted task.
func (m *Memory) RecordTask(ctx context.Context, host routes.HostID, id string, o routes.TaskOwner) error {
	if o.Source != routes.TaskMinted {
		return fmt.Errorf("record task: source %q is not %q", o.Source, routes.TaskMinted)
	}
	_, err := m.putTask(ctx, "record task", host, id, o)
	return err
}

// ClaimTask records a claimed or shared task, unless somebody else's entry forbids it, and returns the record then.
func (m *Memory) ClaimTask(ctx context.Context, host routes.HostID, id string, o routes.TaskOwner) (routes.TaskRecord, error) {
	if o.Source == routes.TaskMinted {
		return nil, fmt.Errorf("claim task: source is %q", o.Source)
	}
	return m.putTask(ctx, "claim task", host, id, o)
}

func (m *Memory) putTask(ctx context.Context, op string, host routes.HostID, id string, o routes.TaskOwner) (routes.TaskRecord, error) {
	if err := checkTask(host, id, &o); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if err := m.enter(ctx, op); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	now, digest, field := taskTime(time.Now()), routes.TaskDigest(id), taskField{host, o.Principal, o.Backend}
	if o.Created.IsZero() {
		o.Created = now
	}
	o.Created, o.Life, o.Expires = taskTime(o.Created), o.Life.Truncate(time.Millisecond), now.Add(o.Life.Truncate(time.Millisecond))
	record := m.data.liveTask(digest, now)
	old, stands := record[field]
	if !stands {
		holds := slices.ContainsFunc(taskRecord(host, record), func(other routes.TaskOwner) bool { return other.Principal == o.Principal })
		full := fmt.Errorf("%s: %w", op, routes.ErrTooManyTasks)
		switch {
		case !holds && len(m.data.tasksOf(host, o.Principal, now)) >= cmp.Or(m.most.Tasks, routes.MaxTasks):
			return nil, full // before anything else: Redis makes room before it looks at the record
		case refused(record, field, o.Source):
			return taskRecord(host, record), nil
		case len(record) >= cmp.Or(m.most.Entries, routes.MaxTaskOwners):
			return nil, full
		}
	} else {
		o = mergeTask(old, o)
	}
	if record == nil {
		record = map[taskField]routes.TaskOwner{}
		m.data.tasks[digest] = record
	}
	record[field] = o
	return taskRecord(host, record), nil
}

// checkTask refuses what can't be meant.
func checkTask(host routes.HostID, id string, o *routes.TaskOwner) error {
	if host == "" || id == "" {
		return errors.New("host or task id is empty")
	}
	return o.Validate()
}

// taskTime is how exactly a store keeps times.
func taskTime(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }

// refused reports whether somebody else's entry forbids a claim.
func refused(record map[taskField]routes.TaskOwner, own taskField, source routes.TaskSource) bool {
	for field, other := range record {
		if field != own && field.backend == own.backend && source != routes.TaskMinted && other.Source != routes.TaskShared {
			return true
		}
	}
	return false
}

// mergeTask is what stands when next is written over old: the longer life, what is minted, and of two of a kind the later made.
func mergeTask(old, next routes.TaskOwner) routes.TaskOwner {
	stays := old.Source == routes.TaskMinted && (next.Source != routes.TaskMinted || next.Created.Before(old.Created)) ||
		old.Source == next.Source && next.Created.Before(old.Created)
	kept := next
	if stays {
		kept = old
	}
	kept.Life = max(old.Life, next.Life)
	kept.Expires = next.Expires
	if old.Expires.After(next.Expires) {
		kept.Expires = old.Expires
	}
	return kept
}

// liveTask forgets what has expired of a task and returns the rest; nil: nothing is left.
func (d *memoryData) liveTask(digest string, now time.Time) map[taskField]routes.TaskOwner {
	record := d.tasks[digest]
	for field, o := range record {
		if !o.Expires.After(now) {
			delete(record, field)
		}
	}
	if len(record) == 0 {
		delete(d.tasks, digest)
		return nil
	}
	return record
}

// tasksOf returns a principal's live entries, by digest.
func (d *memoryData) tasksOf(host routes.HostID, principal string, now time.Time) map[string][]routes.TaskOwner {
	tasks := map[string][]routes.TaskOwner{}
	for digest := range d.tasks {
		for field, o := range d.liveTask(digest, now) {
			if field.host == host && o.Principal == principal {
				tasks[digest] = append(tasks[digest], o)
			}
		}
	}
	return tasks
}

// taskRecord is a record as it is seen in a host.
func taskRecord(host routes.HostID, record map[taskField]routes.TaskOwner) routes.TaskRecord {
	var all routes.TaskRecord
	for field, o := range record {
		if field.host != host {
			if o.Source == routes.TaskShared {
				continue
			}
			o.Principal, o.Tool, o.Session = string(field.host)+"/"+o.Principal, "", ""
		}
		all = append(all, o)
	}
	return all
}

// TaskRecord returns a task's record, and prolongs the principal's own entries and shared ones.
func (m *Memory) TaskRecord(ctx context.Context, host routes.HostID, id, principal string) (routes.TaskRecord, error) {
	if host == "" || principal == "" {
		return nil, errors.New("task record: host or principal is empty")
	}
	if err := m.enter(ctx, "task record"); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	now := taskTime(time.Now())
	record := m.data.liveTask(routes.TaskDigest(id), now)
	for field, o := range record {
		if field.host == host && (o.Principal == principal || o.Principal == routes.AnyPrincipal) && o.Expires.Sub(now) < o.Life/2 {
			o.Expires = now.Add(o.Life)
			record[field] = o
		}
	}
	return taskRecord(host, record), nil
}

// PrincipalTasks returns what a principal holds.
func (m *Memory) PrincipalTasks(ctx context.Context, host routes.HostID, principal string) ([]routes.TaskEntry, error) {
	if host == "" || principal == "" {
		return nil, errors.New("principal tasks: host or principal is empty")
	}
	if err := m.enter(ctx, "principal tasks"); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	return m.data.entriesOf(host, principal), nil
}

// entriesOf returns the same as redisstore does: the earliest made first.
func (d *memoryData) entriesOf(host routes.HostID, principal string) []routes.TaskEntry {
	var entries []routes.TaskEntry
	for digest, owners := range d.tasksOf(host, principal, taskTime(time.Now())) {
		for _, o := range owners {
			entries = append(entries, routes.TaskEntry{Task: digest, TaskOwner: o})
		}
	}
	slices.SortFunc(entries, func(a, b routes.TaskEntry) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Task, b.Task), strings.Compare(string(a.Backend), string(b.Backend)))
	})
	return entries
}

// HostTasks returns at most limit tasks of a host.
func (m *Memory) HostTasks(ctx context.Context, host routes.HostID, limit int) (routes.HostTasks, error) {
	if host == "" || limit < 1 {
		return routes.HostTasks{}, fmt.Errorf("host tasks: host is empty, or limit %d under 1", limit)
	}
	if err := m.enter(ctx, "host tasks"); err != nil {
		return routes.HostTasks{}, err
	}
	defer m.mu.Unlock()
	now, last := taskTime(time.Now()), map[string]time.Time{}
	for digest := range m.data.tasks {
		for field, o := range m.data.liveTask(digest, now) {
			if field.host == host && o.Expires.After(last[o.Principal]) {
				last[o.Principal] = o.Expires
			}
		}
	}
	var view routes.HostTasks
	left := limit
	for principal := range last {
		view.Principals = append(view.Principals, routes.PrincipalTasks{Principal: principal})
	}
	slices.SortFunc(view.Principals, func(a, b routes.PrincipalTasks) int {
		return cmp.Or(last[b.Principal].Compare(last[a.Principal]), strings.Compare(b.Principal, a.Principal))
	})
	for i := range view.Principals {
		p := &view.Principals[i]
		tasks := m.data.tasksOf(host, p.Principal, now)
		p.Count = len(tasks)
		view.Count += p.Count
		entries := m.data.entriesOf(host, p.Principal)
		slices.SortStableFunc(entries, func(a, b routes.TaskEntry) int { return b.Expires.Compare(a.Expires) })
		shown := map[string]bool{}
		for _, e := range entries {
			if !shown[e.Task] && len(shown) == left {
				view.More = true
				continue
			}
			shown[e.Task], e.Session = true, ""
			p.Tasks = append(p.Tasks, e)
		}
		left -= len(shown)
	}
	return view, nil
}
