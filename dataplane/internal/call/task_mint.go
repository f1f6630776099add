package call

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// Tasks remembers which backend holds a task, and for whom; *tasks.Book does.
type Tasks interface {
	// Record notes a minted task before its answer leaves. The error is routes.ErrTooManyTasks, or says that it could not be noted.
	Record(ctx context.Context, host routes.HostID, id string, o routes.TaskOwner) error
	// Lookup returns what is recorded of a task; sure: what it does not show is nowhere. The error means that it can't be told now.
	Lookup(ctx context.Context, host routes.HostID, id, principal string) (record routes.TaskRecord, sure bool, err error)
	// Update writes an entry again, in the background.
	Update(host routes.HostID, id string, o routes.TaskOwner)
}

// resultOf says which part of a tool's work a result brings.
type resultOf uint8

const (
	ofNoTool    resultOf = iota
	ofToolCall           // tools/call: the tool's result, or a task, or a question
	ofTaskState          // tasks/get: the tool's result and its questions are in members of it
	ofTask               // tasks/result of 2025-11-25: the tool's result itself
)

// resultKind tells what a method's result brings.
func resultKind(method string) resultOf {
	switch method {
	case "tools/call":
		return ofToolCall
	case "tasks/get":
		return ofTaskState
	case "tasks/result":
		return ofTask
	}
	return ofNoTool
}

// inspect sees every result of a tool before its client does, whichever way it comes, and returns it as the client may see it. tool is
// the downstream name, empty where it is not known; top is what stands at the result's top. A task is recorded here, and what a backend
// says of one that is recorded is noted.
func (c *call) inspect(kind resultOf, tool string, result json.RawMessage, top *wire.ResultScan) (json.RawMessage, *wire.Error) {
	switch kind {
	case ofToolCall:
		if mayBeTask(top) {
			return result, c.mint(tool, result)
		}
	case ofTaskState:
		c.prolong(result)
	case ofNoTool:
		if c.owner == nil && bytes.Contains(result, []byte(`"task"`)) {
			return result, c.noTask(result)
		}
	}
	return result, nil
}

// mayBeTask reports whether a result is worth a closer look, whatever the backend declared: the word may be written with escapes.
func mayBeTask(top *wire.ResultScan) bool {
	return top.ResultType == "task" || top.Task != nil || bytes.Contains(top.Meta, []byte("task")) || bytes.IndexByte(top.Meta, '\\') >= 0
}

// mint records the task that a call's result tells of, so that whoever reads the answer can follow it; without a record the task is not
// shown. What goes on at the backend goes on: the texts say so.
func (c *call) mint(tool string, result json.RawMessage) *wire.Error {
	scan, err := wire.ScanTask(result)
	switch {
	case err != nil:
		c.outcome, c.err = wire.ReasonBadResponse, err
		return wire.Internal(wire.ReasonBadResponse, "")
	case scan.Shape == wire.NoTask:
		return nil
	case scan.Shape == wire.AdvertisedTask:
		if c.h.o.Tasks != nil {
			if err := c.record(tool, &scan, "advertisement"); err != nil { // the result is complete without it
				c.h.log.Warn("advertised task not recorded", zap.String("host", string(c.r.Host)), zap.Error(err))
			}
		}
		return nil
	}
	if err := c.canCarry(scan.Shape); err != nil {
		return err
	}
	switch err := c.record(tool, &scan, "result"); {
	case err == nil:
		return nil
	case errors.Is(err, routes.ErrTooManyTasks):
		c.outcome, c.err = "too_many_tasks", err
		return wire.Internal(wire.ReasonOverloaded, "this gateway remembers as many tasks as it does for one caller, or for one id; the new one may run, but can't be followed")
	default:
		c.outcome, c.err = wire.ReasonUnavailable, err
		return wire.Internal(wire.ReasonUnavailable, "the backend answered with a task that could not be recorded; it may run, but can't be followed")
	}
}

// noTask refuses a task where nobody expects one: only tools/call may be answered by one.
// Source: SEP-2663 (Supported Methods; Capability Negotiation).
func (c *call) noTask(result json.RawMessage) *wire.Error {
	scan, err := wire.ScanResult(result)
	if err != nil || scan.ResultType != "task" {
		return nil // whatever else it is, it is passed on
	}
	c.outcome = wire.ReasonBadResponse
	return wire.Internal(wire.ReasonBadResponse, "")
}

// canCarry refuses a task that the client could not follow, or did not ask for.
// Source: SEP-2663 (Capability Negotiation, Backward Compatibility); MCP 2025-11-25, basic/utilities/tasks (Task Support and Handling).
func (c *call) canCarry(shape wire.TaskShape) *wire.Error {
	modernBackend := wire.EraOf(c.target.Backend.Protocol) == wire.Modern
	reason := ""
	switch modernClient := c.r.Era == wire.Modern; {
	case c.h.o.Tasks == nil, modernBackend != (shape == wire.ModernTask):
		reason = wire.ReasonBadResponse
	case modernClient && !modernBackend:
		reason = wire.ReasonNeedsLegacyClient
	case !modernClient && (modernBackend || !c.asksTask):
		reason = wire.ReasonNeedsModernClient
	case modernClient && !c.r.DeclaresTasks():
		c.outcome = "missing_capability"
		return wire.NeedsTasks()
	default:
		return nil
	}
	c.outcome = reason
	return wire.Internal(reason, "")
}

// record writes the owner's entry, and keeps the session in which a legacy backend made the task.
func (c *call) record(tool string, scan *wire.TaskScan, source string) error {
	o := routes.TaskOwner{
		Principal: string(c.r.Identity.Principal), Backend: c.target.ID, Tool: tool, Source: routes.TaskMinted,
		Session: c.answered.Session(), Created: time.Now(), Life: routes.TaskLife(scan.TTL, scan.Unlimited),
	}
	if err := c.h.o.Tasks.Record(c.ctx, c.r.Host, scan.ID, o); err != nil {
		return err
	}
	c.answered.KeepSession()
	c.h.metrics.minted.WithLabelValues(string(c.target.ID), source).Inc()
	return nil
}

// taskParam leaves out of a call the wish for a task that its backend does not know, or its client's version does not have: who does not
// offer tasks ignores it. Modern to modern it is as sent, for the backend to ignore.
// Source: MCP 2025-11-25, basic/utilities/tasks (Capability Negotiation).
func (c *call) taskParam(params wire.Object) wire.Object {
	if c.r.Era == wire.Modern && wire.EraOf(c.target.Backend.Protocol) == wire.Modern {
		return params
	}
	if _, ok := params.Get("task"); !ok {
		return params
	}
	if c.r.Version == routes.LegacyTasksVersion && c.target.Backend.Protocol == routes.LegacyTasksVersion && c.target.Backend.Capabilities.Tasks {
		c.asksTask = true
		return params
	}
	return params.Without("task")
}
