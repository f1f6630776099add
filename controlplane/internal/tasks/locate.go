package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/wire"
)

// Owners keeps owner records; *redisstore.Owners does.
type Owners interface {
	TaskRecord(ctx context.Context, host routes.HostID, id, principal string) (routes.TaskRecord, error)
	ClaimTask(ctx context.Context, host routes.HostID, id string, o routes.TaskOwner) (routes.TaskRecord, error)
	// Recovered says when the store was last back after it had been away; zero: it never was. away: it is now.
	Recovered() (since time.Time, away bool)
}

// Backends calls backends; *egress.Client does.
type Backends interface {
	Do(ctx context.Context, call egress.Call) (*egress.Answer, error)
	// Header resolves what the operator adds to every request to a backend.
	Header(b *routes.Backend) (http.Header, error)
}

// Options of a Locator.
type Options struct {
	Owners   Owners
	Backends Backends
	Version  string                // of Weir, as backends are told it
	Log      *zap.Logger           // nil: nothing is logged
	Audit    *zap.Logger           // gets a line of every miss and of every claim; nil: there are none
	Registry prometheus.Registerer // nil: nothing is counted
}

// locateTimeout bounds one look: a record read, the probes and a claim, each with bounds of its own that add up to less.
const locateTimeout = 5 * time.Second

// Locator finds tasks. Safe for concurrent use.
type Locator struct {
	owners  Owners
	ask     asker
	log     *zap.Logger
	audit   *zap.Logger
	m       *metrics
	budget  *budget
	misses  *misses
	places  places
	flights flights
}

// New checks the options; it starts nothing.
func New(o Options) (*Locator, error) {
	if o.Owners == nil || o.Backends == nil {
		return nil, errors.New("tasks: Owners and Backends are required")
	}
	l := &Locator{
		owners: o.Owners, log: cmp.Or(o.Log, zap.NewNop()), audit: cmp.Or(o.Audit, zap.NewNop()),
		budget: newBudget(), misses: newMisses(),
	}
	p := &prober{backends: o.Backends, info: clientInfo(o.Version), log: l.log}
	l.ask = p.ask
	var err error
	if l.m, err = newMetrics(o.Registry, l); err != nil {
		return nil, fmt.Errorf("tasks: %w", err)
	}
	return l, nil
}

// Query is one question for a task.
type Query struct {
	Identity *access.Identity
	Host     *routes.VirtualHost // one that the identity may use
	TaskID   string
	Era      wire.Era // the caller's
	// Method and RequestID are for the audit line.
	Method, RequestID string
}

// Outcome is what became of a Query.
type Outcome struct {
	Kind  routes.LocateOutcome
	Owner *routes.TaskOwner // of routes.LocateOwner
	Cause string            // of the others, for logs only: routes.CauseUnknown …
	// Foreign: the record names somebody else, whatever the Cause. For logs only.
	Foreign bool
	// Claimed: this look made the entry.
	Claimed bool
}

// Locate is Ask for a task that somebody wants to listen to.
func (l *Locator) Locate(ctx context.Context, id *access.Identity, vh *routes.VirtualHost, taskID string, era wire.Era) Outcome {
	return l.Ask(ctx, Query{Identity: id, Host: vh, TaskID: taskID, Era: era, Method: "subscriptions/listen"})
}

// Ask finds the backend of a task, and writes the audit line of a miss. It takes 5 s at most. What was begun goes on when ctx ends.
func (l *Locator) Ask(ctx context.Context, q Query) Outcome {
	out := l.flights.join(ctx, &q, func() Outcome {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), locateTimeout)
		defer cancel()
		return l.find(ctx, &q)
	})
	l.m.count(&out)
	l.report(&q, &out)
	return out
}

// find is the order of the steps. Once the record has not let the caller through, an id that is somebody else's goes the same way, and
// takes as long, as one that is nobody's.
func (l *Locator) find(ctx context.Context, q *Query) Outcome {
	principal := string(q.Identity.Principal)
	record, err := l.owners.TaskRecord(ctx, q.Host.ID, q.TaskID, principal)
	if err != nil {
		l.log.Warn("owner record not read", zap.String("host", string(q.Host.ID)), zap.Error(err))
		return Outcome{Kind: routes.LocateUnavailable, Cause: routes.CauseStore}
	}
	view, err := q.view(record)
	switch {
	case err != nil:
		return Outcome{Kind: routes.LocateAmbiguous, Cause: routes.CauseAmbiguous}
	case view.Owner != nil:
		return Outcome{Kind: routes.LocateOwner, Owner: view.Owner}
	}
	out := l.look(ctx, q, view.Held)
	out.Foreign = q.foreign(record)
	if out.Kind == routes.LocateMiss && out.Cause == routes.CauseUnknown {
		out.Cause = q.causeOf(record)
	}
	return out
}

// look looks for a task whose record does not let the caller through. Nothing that the caller can see or measure may depend on held.
func (l *Locator) look(ctx context.Context, q *Query, held []routes.BackendID) Outcome {
	if since, away := l.owners.Recovered(); away || !since.IsZero() && time.Since(since) < routes.TaskOutageGrace {
		return Outcome{Kind: routes.LocateUnavailable, Cause: routes.CauseRecovery}
	}
	key := missKey{q.Host.ID, q.Identity.Principal, routes.TaskDigest(q.TaskID), q.Era}
	switch {
	case q.Host.Tasks.Unrecorded == "deny":
		return miss(routes.CauseDenied)
	case !q.Identity.Scopes.AllowsAllTools(): // which tool made it nobody would know
		return miss(routes.CauseScope)
	case q.TaskID == "" || len(q.TaskID) > routes.MaxLocateID:
		return miss(routes.CauseTooLong)
	case l.misses.has(key): // asked for after the record was read: what was minted meanwhile is found
		return miss(routes.CauseNegative)
	case !l.budget.take(q.Identity.Principal):
		return miss(routes.CauseBudget)
	}
	found, failed := l.probe(ctx, q, held)
	switch {
	case len(found) > 1:
		return Outcome{Kind: routes.LocateAmbiguous, Cause: routes.CauseAmbiguous}
	case len(found) == 1:
		return l.claim(ctx, q, found[0], key)
	case failed:
		return Outcome{Kind: routes.LocateUnavailable, Cause: routes.CauseBackend}
	}
	l.misses.add(key)
	return miss(routes.CauseUnknown)
}

// claim records a task for the caller, or, where the host has it so, for everybody. Somebody else may have been faster.
func (l *Locator) claim(ctx context.Context, q *Query, f finding, key missKey) Outcome {
	o := routes.TaskOwner{Principal: string(q.Identity.Principal), Backend: f.backend, Source: routes.TaskClaimed, Life: f.life}
	if q.Host.Tasks.Unrecorded == "probe" {
		o.Principal, o.Source = routes.AnyPrincipal, routes.TaskShared
	}
	record, err := l.owners.ClaimTask(ctx, q.Host.ID, q.TaskID, o)
	switch {
	case errors.Is(err, routes.ErrTooManyTasks):
		return Outcome{Kind: routes.LocateUnavailable, Cause: routes.CauseTooMany}
	case err != nil:
		l.log.Warn("task not claimed", zap.String("host", string(q.Host.ID)), zap.Error(err))
		return Outcome{Kind: routes.LocateUnavailable, Cause: routes.CauseStore}
	}
	view, err := q.view(record)
	switch {
	case err != nil:
		return Outcome{Kind: routes.LocateAmbiguous, Cause: routes.CauseAmbiguous}
	case view.Owner == nil:
		l.misses.add(key)
		return miss(routes.CauseForeign)
	}
	return Outcome{Kind: routes.LocateOwner, Owner: view.Owner, Claimed: true}
}

func miss(cause string) Outcome { return Outcome{Kind: routes.LocateMiss, Cause: cause} }

// view is what a record means to the caller.
func (q *Query) view(record routes.TaskRecord) (routes.TaskView, error) {
	return record.For(string(q.Identity.Principal), q.Host.Tasks, func(o *routes.TaskOwner) bool {
		return access.MayFollow(q.Identity, q.Host, o)
	})
}

// foreign reports whether a record names anybody but the caller.
func (q *Query) foreign(record routes.TaskRecord) bool {
	for i := range record {
		if record[i].Principal != string(q.Identity.Principal) {
			return true
		}
	}
	return false
}

// causeOf says why a record, together with the backends, lets nobody through.
func (q *Query) causeOf(record routes.TaskRecord) string {
	cause := routes.CauseUnknown
	for i := range record {
		o := &record[i]
		mine := o.Principal == string(q.Identity.Principal) || o.Principal == routes.AnyPrincipal
		_, there := q.Host.Backends[o.Backend]
		switch {
		case mine && !there:
			return routes.CauseRemoved
		case mine && !access.MayFollow(q.Identity, q.Host, o):
			return routes.CauseScope
		}
		cause = routes.CauseForeign
	}
	return cause
}

// report writes the line of a miss or a claim. It names the task by its digest, never by its id.
func (l *Locator) report(q *Query, out *Outcome) {
	event := "task_miss"
	switch {
	case out.Kind == routes.LocateMiss:
	case out.Claimed:
		event = "task_claimed"
	default:
		return
	}
	ce := l.audit.Check(zap.InfoLevel, event)
	if ce == nil {
		return
	}
	fields := []zap.Field{
		zap.String("event", event), zap.String("host", string(q.Host.ID)), zap.String("principal", string(q.Identity.Principal)),
		zap.String("task", routes.TaskDigest(q.TaskID)), zap.String("method", q.Method),
	}
	if out.Claimed {
		fields = append(fields, zap.String("backend", string(out.Owner.Backend)), zap.String("source", string(out.Owner.Source)))
	} else {
		fields = append(fields, zap.String("cause", out.Cause), zap.Bool("foreign", out.Foreign))
	}
	if q.RequestID != "" {
		fields = append(fields, zap.String("request_id", q.RequestID))
	}
	ce.Write(fields...)
}
