package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
)

// Owners keeps whose a task is: for every task id (as a digest; the id itself is never written) an entry for each principal and
// backend, and beside that which tasks a principal holds in a host. Both planes write it. Errors wrap routes.ErrUnavailable when Redis
// could not be used in time. Safe for concurrent use.
type Owners struct {
	store
	maxTasks, maxOwners int
	report              func(error)
}

// NewOwners checks the options; it does not connect.
func NewOwners(o Options) (*Owners, error) {
	s, err := newStore(o)
	switch {
	case err != nil:
		return nil, err
	case o.MaxTasks < 0 || o.MaxTaskOwners < 0:
		return nil, fmt.Errorf("redisstore: MaxTasks %d or MaxTaskOwners %d is negative", o.MaxTasks, o.MaxTaskOwners)
	}
	report := o.Report
	if report == nil {
		report = func(error) {}
	}
	return &Owners{
		store: s, maxTasks: cmp.Or(o.MaxTasks, routes.MaxTasks), maxOwners: cmp.Or(o.MaxTaskOwners, routes.MaxTaskOwners), report: report,
	}, nil
}

// Recovered tells when the last outage of Redis ended that anybody saw who shares Options.Outages (zero: none), and whether one
// lasts. Within routes.TaskOutageGrace of its end, "nothing is recorded" is not to be believed.
func (o *Owners) Recovered() (since time.Time, away bool) { return o.gate.outages.Last() }

// RecordTask records a minted task. What stands for the principal at the backend gives way, or if it was minted later, stays; either
// way the longer life and the later end stand, so that nothing is ever shortened, and repeating a call does nothing. It fails with
// routes.ErrTooManyTasks where the principal, or the id, has as many as it may; nothing is recorded then.
func (o *Owners) RecordTask(ctx context.Context, host routes.HostID, id string, owner routes.TaskOwner) error {
	if owner.Source != routes.TaskMinted {
		return fmt.Errorf("record task: source %q is not %q", owner.Source, routes.TaskMinted)
	}
	_, err := o.put(ctx, "record task", host, id, owner)
	return err
}

// ClaimTask records a claimed or shared task, if nobody else stands at that backend: a claim is refused by another's minted or claimed
// entry, a shared one by anybody's. Refused or not, it returns the record as it stands then, to which TaskRecord.For is applied again;
// what the principal holds already is prolonged, never demoted or shortened. It fails with routes.ErrTooManyTasks as RecordTask does.
func (o *Owners) ClaimTask(ctx context.Context, host routes.HostID, id string, owner routes.TaskOwner) (routes.TaskRecord, error) {
	if owner.Source == routes.TaskMinted {
		return nil, fmt.Errorf("claim task: source is %q", owner.Source)
	}
	return o.put(ctx, "claim task", host, id, owner)
}

// put makes room first, in the principal's set, and then writes the entry: the two lie in different slots of a cluster, and this order
// leaves at worst a place that is taken up and not used.
func (o *Owners) put(ctx context.Context, op string, host routes.HostID, id string, owner routes.TaskOwner) (routes.TaskRecord, error) {
	if host == "" || id == "" {
		return nil, fmt.Errorf("%s: host or task id is empty", op)
	}
	if err := owner.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	details, err := json.Marshal(ownerDetails{Tool: owner.Tool, Session: owner.Session})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	digest, life, created := routes.TaskDigest(id), owner.Life.Milliseconds(), int64(0)
	if !owner.Created.IsZero() {
		created = max(owner.Created.UnixMilli(), 0)
	}
	room := invocation{touchScript, []string{o.keys.tasks(host, owner.Principal)}, []any{digest, life, o.maxTasks}}
	seen := invocation{touchScript, []string{o.keys.taskHost(host)}, []any{owner.Principal, life, 0}}
	entry := invocation{ownScript, []string{o.keys.task(digest)}, []any{
		string(owner.Source), scoped(host, owner.Principal), string(owner.Backend), life, created, details, o.maxOwners,
	}}
	var made, reply []string
	err = o.gate.do(ctx, op, func(ctx context.Context) error {
		replies, err := o.runEach(ctx, room, seen)
		if err != nil {
			return err
		}
		if made = replies[0]; made[0] == replyFull {
			return nil
		}
		if replies, err = o.runEach(ctx, entry); err != nil {
			return err
		}
		reply = replies[0]
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case made[0] == replyFull:
		return nil, fmt.Errorf("%s: %w: the principal holds %d in host %q", op, routes.ErrTooManyTasks, o.maxTasks, host)
	case reply[0] == replyFull:
		o.giveUp(ctx, host, digest, owner.Principal, made, nil)
		return nil, fmt.Errorf("%s: %w: the id has %d entries", op, routes.ErrTooManyTasks, o.maxOwners)
	case reply[0] != replyOK:
		return nil, fmt.Errorf("%s: unexpected reply %q", op, reply[0])
	}
	if owner.Source == routes.TaskMinted {
		return nil, nil // nobody refuses it, and nobody asked for the record
	}
	record := o.recordOf(host, digest, reply[1:])
	o.giveUp(ctx, host, digest, owner.Principal, made, record)
	return record, nil
}

// giveUp takes back the room that was made in vain, because a claim was refused. Where that fails, the place is free when it expires.
func (o *Owners) giveUp(ctx context.Context, host routes.HostID, digest, principal string, made []string, record routes.TaskRecord) {
	if made[0] != replyNew || holds(record, principal) {
		return
	}
	_ = o.gate.do(ctx, "give up task", func(ctx context.Context) error {
		return o.client.ZRem(ctx, o.keys.tasks(host, principal), digest).Err()
	})
}

func holds(record routes.TaskRecord, principal string) bool {
	for i := range record {
		if record[i].Principal == principal {
			return true
		}
	}
	return false
}

// TaskRecord returns every live entry of a task; an empty record where nothing is recorded. It is one round trip of one script, which
// also prolongs the principal's own entries and shared ones that have less than half of their life left. Only then a second round trip
// follows, to prolong what the principal's set has of it; where that fails, tasks of the principal may be told of less long than they can
// be followed, until an entry is prolonged again.
//
// Entries that can't be read are reported and left out.
func (o *Owners) TaskRecord(ctx context.Context, host routes.HostID, id, principal string) (routes.TaskRecord, error) {
	if host == "" || principal == "" {
		return nil, errors.New("task record: host or principal is empty")
	}
	digest := routes.TaskDigest(id)
	reply, err := o.run(ctx, "task record", lookScript, []string{o.keys.task(digest)}, scoped(host, principal), scoped(host, routes.AnyPrincipal))
	if err != nil {
		return nil, err
	}
	if len(reply) < 3 || reply[0] != replyOK {
		return nil, fmt.Errorf("task record: unexpected reply %q", reply[0])
	}
	o.prolong(ctx, host, digest, principal, reply[1])
	o.prolong(ctx, host, digest, routes.AnyPrincipal, reply[2])
	return o.recordOf(host, digest, reply[3:]), nil
}

// prolong moves the end of what the set of a principal has of a task, if the script prolonged an entry to the given life.
func (o *Owners) prolong(ctx context.Context, host routes.HostID, digest, principal, life string) {
	if life == "0" {
		return
	}
	_ = o.gate.do(ctx, "prolong task", func(ctx context.Context) error {
		_, err := o.runEach(ctx,
			invocation{touchScript, []string{o.keys.tasks(host, principal)}, []any{digest, life, 0}},
			invocation{touchScript, []string{o.keys.taskHost(host)}, []any{principal, life, 0}})
		return err
	})
}

// scoped is how a principal stands in a field: a task of one host is none of another's.
func scoped(host routes.HostID, principal string) string { return string(host) + "/" + principal }

// recordOf reads fields and values, as they are seen in a host. What another host's principals share among themselves is left out.
func (o *Owners) recordOf(host routes.HostID, digest string, fields []string) routes.TaskRecord {
	var record routes.TaskRecord
	for i := 0; i+1 < len(fields); i += 2 {
		of, owner, err := parseOwner(fields[i], fields[i+1])
		if err != nil {
			o.report(fmt.Errorf("owner record %s: entry %q: %w", digest, fields[i][:min(len(fields[i]), 200)], err))
			continue
		}
		if of != host {
			if owner.Source == routes.TaskShared {
				continue
			}
			owner.Principal, owner.Tool, owner.Session = scoped(of, owner.Principal), "", ""
		}
		record = append(record, owner)
	}
	return record
}

// ownerDetails is what an entry holds that no script needs.
type ownerDetails struct {
	Tool    string `json:"tool,omitempty"`
	Session string `json:"session,omitempty"`
}

// parseOwner is the inverse of what ownScript writes. Its error shows nothing of the value.
func parseOwner(field, value string) (host routes.HostID, _ routes.TaskOwner, _ error) {
	who, f := strings.Split(field, "/"), strings.SplitN(value, " ", 5)
	if len(who) != 3 || len(f) != 5 {
		return "", routes.TaskOwner{}, errors.New("is not an entry")
	}
	var ms [3]int64
	for i := range ms {
		var err error
		if ms[i], err = strconv.ParseInt(f[i], 10, 64); err != nil {
			return "", routes.TaskOwner{}, errors.New("has a bad number")
		}
	}
	var details ownerDetails
	if err := json.Unmarshal([]byte(f[4]), &details); err != nil {
		return "", routes.TaskOwner{}, errors.New("has bad details")
	}
	owner := routes.TaskOwner{
		Principal: who[1], Backend: routes.BackendID(who[2]), Source: routes.TaskSource(f[3]),
		Tool: details.Tool, Session: details.Session,
		Expires: time.UnixMilli(ms[0]).UTC(), Life: time.Duration(ms[1]) * time.Millisecond, Created: time.UnixMilli(ms[2]).UTC(),
	}
	if err := owner.Validate(); err != nil {
		return "", routes.TaskOwner{}, err
	}
	return routes.HostID(who[0]), owner, nil
}

// invocation is one call of a script.
type invocation struct {
	script *redis.Script
	keys   []string
	args   []any
}

// runEach runs scripts that don't depend on each other in one round trip (on a cluster: one to each node), and once more those that
// Redis does not know. It is for use inside of the gate.
func (s *store) runEach(ctx context.Context, all ...invocation) ([][]string, error) {
	cmds := make([]*redis.Cmd, len(all))
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, c := range all {
			cmds[i] = c.script.EvalSha(ctx, p, c.keys, c.args...)
		}
		return nil
	})
	if err != nil {
		if _, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, c := range all {
				if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
					cmds[i] = c.script.Eval(ctx, p, c.keys, c.args...)
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	replies := make([][]string, len(all))
	for i, cmd := range cmds {
		if replies[i], err = cmd.StringSlice(); err != nil {
			return nil, err
		}
		if len(replies[i]) == 0 {
			return nil, errors.New("unexpected empty reply")
		}
	}
	return replies, nil
}
