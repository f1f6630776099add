package call

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/wire"
)

// Locator finds, in the control plane, the backend of a task that nobody recorded; *tasks.Locator does. The error means that there is no
// answer.
type Locator interface {
	Locate(ctx context.Context, q *routes.LocateRequest) (*routes.LocateAnswer, error)
}

// retryTask is what a client is told to wait while nobody can say whose a task is.
const retryTask = time.Second

// toTask is the way of a task method: to the one backend that holds the caller's task. Up to the call a foreign id goes the way of an
// unknown one.
func (c *call) toTask() *wire.Error {
	if c.h.o.Tasks == nil {
		return c.refuse(wire.MethodNotFound(), "unknown_method")
	}
	c.task = routes.TaskDigest(c.r.Name)
	if !c.r.Identity.Scopes.AllowsTasks() {
		c.audit("task_denied", routes.CauseScope)
		return c.refuse(wire.InsufficientScope("mcp:tasks"), "insufficient_scope")
	}
	if c.r.Era == wire.Modern && !c.r.DeclaresTasks() {
		return c.refuse(wire.NeedsTasks(), "missing_capability")
	}
	var err *wire.Error
	if c.owner, err = c.findOwner(); err != nil {
		return err
	}
	return c.follow()
}

// findOwner finds whom to ask for the caller's task.
func (c *call) findOwner() (*routes.TaskOwner, *wire.Error) {
	vh, principal := c.r.Index.Host(), string(c.r.Identity.Principal)
	record, sure, err := c.h.o.Tasks.Lookup(c.ctx, c.r.Host, c.r.Name, principal)
	if err != nil {
		return nil, c.cantTell(err)
	}
	view, err := record.For(principal, vh.Tasks, func(o *routes.TaskOwner) bool { return access.MayFollow(c.r.Identity, vh, o) })
	switch {
	case err != nil:
		return nil, c.ambiguous()
	case view.Owner != nil:
		c.lookedUp("own")
		return view.Owner, nil
	case !sure:
		return nil, c.cantTell(errUnsure)
	}
	cause := c.causeOf(record)
	switch {
	case vh.Tasks.Unrecorded == "deny":
		return nil, c.miss(cmp.Or(cause, routes.CauseDenied))
	case c.r.Name == "":
		return nil, c.miss(cmp.Or(cause, routes.CauseUnknown)) // no task has an empty id
	case len(c.r.Name) > routes.MaxLocateID:
		return nil, c.miss(cmp.Or(cause, routes.CauseTooLong))
	}
	return c.locate(cause)
}

var errUnsure = errors.New("the store was away a moment ago: a record may still be on its way")

// locate asks the control plane. cause is what the record says of the denial, for the audit.
func (c *call) locate(cause string) (*routes.TaskOwner, *wire.Error) {
	if c.h.o.Locator == nil {
		return nil, c.cantTell(errors.New("no control plane can be asked"))
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	answer, err := c.h.o.Locator.Locate(c.ctx, &routes.LocateRequest{
		Token: c.r.Token(), Resource: c.r.Resource(), Host: c.r.Host, TaskID: c.r.Name, Era: c.r.Era.String(),
		Method: c.r.Method, RequestID: c.requestID(),
	})
	switch {
	case err != nil:
		return nil, c.cantTell(err)
	case answer.Outcome == routes.LocateMiss:
		return nil, c.miss(cmp.Or(cause, answer.Cause, routes.CauseUnknown))
	case answer.Outcome == routes.LocateAmbiguous:
		return nil, c.ambiguous()
	case answer.Outcome != routes.LocateOwner || answer.Owner == nil:
		return nil, c.cantTell(errors.New("the control plane can't tell: " + answer.Cause))
	}
	o := answer.Owner.For(string(c.r.Identity.Principal))
	if !access.MayFollow(c.r.Identity, c.r.Index.Host(), o) { // as this plane sees the host
		return nil, c.miss(c.causeOf(routes.TaskRecord{*o}))
	}
	c.lookedUp("located")
	return o, nil
}

// causeOf says why a record does not let the caller through, empty where there is none.
func (c *call) causeOf(record routes.TaskRecord) string {
	cause := ""
	for i := range record {
		o := &record[i]
		mine := o.Principal == string(c.r.Identity.Principal) || o.Principal == routes.AnyPrincipal
		_, there := c.r.Index.Host().Backends[o.Backend]
		switch {
		case mine && !there:
			return routes.CauseRemoved
		case mine && !access.MayFollow(c.r.Identity, c.r.Index.Host(), o):
			return routes.CauseScope
		default:
			cause = routes.CauseForeign
		}
	}
	return cause
}

// miss is the one answer to every id that is not the caller's.
func (c *call) miss(cause string) *wire.Error {
	c.audit("task_miss", cause)
	c.lookedUp("miss")
	return c.refuse(wire.UnknownTask(c.r.Era, c.r.Index.Host().Tasks.NotFound), "unknown_task")
}

// ambiguous: nothing is sent, since a guess may cancel the wrong task.
func (c *call) ambiguous() *wire.Error {
	c.outcome = wire.ReasonAmbiguousTask
	c.lookedUp("ambiguous")
	return wire.Internal(wire.ReasonAmbiguousTask, "")
}

// cantTell is neither a miss nor an answer: asking again may help.
func (c *call) cantTell(err error) *wire.Error {
	if c.ctx.Err() != nil {
		return c.failed(err)
	}
	c.outcome, c.err = wire.ReasonUnavailable, err
	c.lookedUp("unavailable")
	return wire.InternalRetry(wire.ReasonUnavailable, "", retryTask)
}

// follow makes the call to the owner.
func (c *call) follow() *wire.Error {
	backend := c.r.Index.Host().Backends[c.owner.Backend]
	c.target = routes.Target{ID: c.owner.Backend, Backend: &backend, Upstream: c.r.Name}
	if era := wire.EraOf(backend.Protocol); era != c.r.Era {
		reason := wire.ReasonNeedsModernClient
		if era == wire.Legacy {
			reason = wire.ReasonNeedsLegacyClient
		}
		c.outcome = reason
		return wire.Internal(reason, "")
	}
	if c.r.Method == "tasks/result" { // waits until the task ends (2025-11-25, basic/utilities/tasks, Retrieving Task Results)
		backend.Timeouts.Response = max(backend.Timeouts.Response, cmp.Or(backend.Timeouts.Total, time.Hour))
	}
	params, err := wire.RequestFor(c.r, backend.Protocol, c.r.Name)
	if err != nil {
		return c.refuse(err, "invalid_params")
	}
	header, err := c.header(c.h.tables.of(c.r.Index).backend(c.target.ID))
	if err != nil {
		return err
	}
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	return c.exchange(params, header)
}

// inNewSession reports whether a call that failed may be made once more in a session of its own: the backend says that it does not know
// the kept one any more, and so did nothing. A task that is not bound to its session outlives it.
func (c *call) inNewSession(err error, call *egress.Call) bool {
	f, ok := errors.AsType[*egress.Failure](err)
	if !ok || !f.SessionLost || call.Session == "" {
		return false
	}
	call.Session, c.renewed = "", true
	return true
}

// renewSession has later calls use the session that answered in the place of the lost one.
func (c *call) renewSession() {
	if !c.renewed {
		return
	}
	o := *c.owner
	if o.Session = c.answered.Session(); o.Session != "" {
		c.answered.KeepSession()
	}
	c.h.o.Tasks.Update(c.r.Host, c.r.Name, o)
}

// prolong remembers the task longer where its backend has come to promise more.
func (c *call) prolong(state json.RawMessage) {
	scan, err := wire.ScanTaskState(c.r.Era, state)
	if err != nil || scan.ID != c.r.Name || scan.TTL == 0 && !scan.Unlimited {
		return
	}
	if life := routes.TaskLife(scan.TTL, scan.Unlimited); life > c.owner.Life {
		c.owner.Life = life
		if !c.renewed { // else the new session is written with it
			c.h.o.Tasks.Update(c.r.Host, c.r.Name, *c.owner)
		}
	}
}
