package routes

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Errors of owner records.
var (
	// ErrAmbiguousTask: one principal holds the same task id at several backends. Nobody can say which one is meant.
	ErrAmbiguousTask = errors.New("more than one backend knows this task")
	// ErrTooManyTasks: the principal holds MaxTasks live tasks of the host, or the id has MaxTaskOwners; nothing was recorded.
	ErrTooManyTasks = errors.New("too many live tasks")
)

const (
	// MaxTasks is how many live tasks a principal may have in one host. Those that everybody may follow are together held to it, too.
	MaxTasks = 10_000
	// MaxTaskOwners is how many live entries one task id may have in one host: only a backend that gives one id to many principals
	// comes near it.
	MaxTaskOwners = 1000
	// MaxTaskText is how long the text of an owner (a tool, a session) may be, in bytes each.
	MaxTaskText = 8192
	// TaskOutageGrace is how long after an outage of the store "nothing is recorded" is not to be believed: a dataplane may still hold
	// what it could not write.
	TaskOutageGrace = 10 * time.Second
)

// TaskDigest stands for a task id wherever it is kept: its hex SHA-256, in every host the same, so that hosts which share a backend see
// each other's owners. The id itself may be all that protects a task, so that it is never stored. The result is the same on every plane
// and in every version.
func TaskDigest(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// TaskSource says how a task came to its owner.
type TaskSource string

// The sources of an owner record.
const (
	TaskMinted  TaskSource = "mint"  // the backend's answer to the principal's own call told of it
	TaskClaimed TaskSource = "claim" // the principal was the first who asked for it
	TaskShared  TaskSource = "probe" // any principal of the host may follow it; Principal is AnyPrincipal
)

// AnyPrincipal is the principal of a shared task.
const AnyPrincipal = "*"

// TaskOwner is one entry of a task's record: which backend holds the task, and for whom.
type TaskOwner struct {
	// Principal is as package access has it, or AnyPrincipal. A store returns an entry of another host with that host's name and a slash
	// before the principal: it is somebody else's, also where the principal is the same.
	Principal string
	Backend   BackendID
	Tool      string // the downstream name of the tool that made it; empty: unknown
	Source    TaskSource
	Session   string // of a legacy backend, in which the task was made; empty: none
	Created   time.Time
	// Life is how long the entry lives from now whenever it is written or, below half of it, read. See TaskLife.
	Life time.Duration
	// Expires is when the entry ends if nobody asks, by the store's clock. Set by the store.
	Expires time.Time
}

// Bounds of TaskOwner.Life. An unlimited task is remembered for MaxTaskLife after the last request for it.
const (
	MinTaskLife   = 24 * time.Hour
	MaxTaskLife   = 30 * 24 * time.Hour
	taskLifeGrace = time.Hour // a backend may keep a task beyond its ttl
)

// TaskLife is how long a task of the given ttl is remembered: some grace longer than its backend promises to, at least MinTaskLife and
// at most MaxTaskLife. Unlimited is a ttl of null. Zero and less mean that the backend said nothing.
func TaskLife(ttl time.Duration, unlimited bool) time.Duration {
	if unlimited || ttl > MaxTaskLife {
		return MaxTaskLife
	}
	return min(max(ttl+taskLifeGrace, MinTaskLife), MaxTaskLife)
}

// TaskRecord is every live entry of one task id, in no order: those of the host in question, and the minted and claimed ones of others.
type TaskRecord []TaskOwner

// TaskView is what a record means to one principal.
type TaskView struct {
	// Owner is whom to ask; nil: the record does not let this principal through.
	Owner *TaskOwner
	// Held are the backends at which the id belongs to somebody else (or to the principal, who may not follow it): these must not be
	// asked for it on the principal's behalf. Sorted.
	Held []BackendID
}

// For tells what the record means to a principal under the host's policy. An own minted entry outranks an own claimed one, and that a
// shared one; at one backend, another's minted entry outranks an own claimed one, and any entry of another a shared one. may decides from
// what is recorded whether the principal's token covers an entry; one that it does not cover is as good as another's. The error is
// ErrAmbiguousTask. Source: DESIGN § 8.
func (r TaskRecord) For(principal string, policy TaskPolicy, may func(*TaskOwner) bool) (TaskView, error) {
	ranks := [...]TaskSource{TaskMinted, TaskClaimed, TaskShared}
	var found [len(ranks)][]*TaskOwner
	var v TaskView
	for i := range r {
		o := &r[i]
		rank := slices.Index(ranks[:], o.Source)
		mine := o.Principal == principal || o.Source == TaskShared && policy.Unrecorded == "probe"
		switch {
		case rank < 0:
			continue // of a later version
		case mine && r.outranked(o, principal):
			continue // the other entry is counted by itself
		case mine && may(o):
			found[rank] = append(found[rank], o)
		case o.Source == TaskShared && !mine:
			continue // the policy changed since: it is nobody's
		default:
			v.Held = append(v.Held, o.Backend)
		}
	}
	slices.Sort(v.Held)
	v.Held = slices.Compact(v.Held)
	for _, owners := range found {
		switch len(owners) {
		case 0:
			continue
		case 1:
			v.Owner = owners[0]
			return v, nil
		}
		return TaskView{}, ErrAmbiguousTask
	}
	return v, nil
}

// outranked reports whether somebody else has a better right to the id at the entry's backend.
func (r TaskRecord) outranked(o *TaskOwner, principal string) bool {
	if o.Source == TaskMinted {
		return false
	}
	return slices.ContainsFunc(r, func(other TaskOwner) bool {
		return other.Backend == o.Backend && other.Principal != principal &&
			(other.Source == TaskMinted || other.Source == TaskClaimed && o.Source == TaskShared)
	})
}

// TaskEntry is an owner's entry with the digest of its task, where several tasks are told of.
type TaskEntry struct {
	Task string // TaskDigest
	TaskOwner
}

// PrincipalTasks is what one principal (or everybody, as AnyPrincipal) holds in a host.
type PrincipalTasks struct {
	Principal string
	Count     int         // of live tasks
	Tasks     []TaskEntry // some of them, those that end last first; without sessions
}

// HostTasks is the operator's view of a host's tasks.
type HostTasks struct {
	Count      int              // of live tasks, over all principals that were counted
	Principals []PrincipalTasks // whoever's last task ends last comes first
	More       bool             // there are principals or tasks that are not shown, or not even counted
}

// Validate reports what no store may be given.
func (o *TaskOwner) Validate() error {
	switch {
	case o.Principal == "" || strings.ContainsAny(o.Principal, "/ "):
		return errors.New("task owner: bad principal")
	case !ValidID(string(o.Backend)):
		return fmt.Errorf("task owner: bad backend %q", o.Backend)
	case (o.Source == TaskShared) != (o.Principal == AnyPrincipal):
		return errors.New("task owner: shared tasks, and no others, belong to everybody")
	case o.Source != TaskMinted && o.Source != TaskClaimed && o.Source != TaskShared:
		return fmt.Errorf("task owner: unknown source %q", o.Source)
	case o.Life < time.Second || o.Life > MaxTaskLife:
		return fmt.Errorf("task owner: life %v is out of bounds", o.Life)
	case len(o.Tool) > MaxTaskText || len(o.Session) > MaxTaskText:
		return fmt.Errorf("task owner: tool or session has over %d bytes", MaxTaskText)
	case !utf8.ValidString(o.Tool) || !utf8.ValidString(o.Session):
		return errors.New("task owner: tool or session is not UTF-8")
	}
	return nil
}
