package call

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/dataplane/internal/headers"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/wire"
)

// ErrStopping is the cause with which the server ends the requests that outlive its drain deadline.
var ErrStopping = errors.New("the dataplane is stopping")

// Backends makes one call to one backend; *egress.Client does.
type Backends interface {
	Do(ctx context.Context, call egress.Call) (*egress.Answer, error)
}

// Options of a Handler.
type Options struct {
	Backends   Backends
	Log        *zap.Logger           // nil: nothing is logged
	Registerer prometheus.Registerer // nil: the metrics are not exposed
	// Expand resolves secret references in published headers; nil: a backend that has some is not called.
	Expand func(string) (string, error)
	// HasReference tells a reference from a literal; nil: nothing is one.
	HasReference func(string) bool
	// Tasks remembers whose tasks are where; nil: no task can be followed, and a backend that answers with one fails.
	Tasks Tasks
	// Locator finds tasks that nobody recorded; nil: nobody can be asked.
	Locator Locator
	// Audit takes a line for every task that a caller was denied; nil: Log's own, named "audit".
	Audit *zap.Logger
	// Delegate is where delegated methods go: its transport and the control plane's base URL. Nil: they are refused.
	Delegate *Delegate
	// CallsPerPrincipal and CallsPerBackend bound how many calls run at once. Zero and less mean no bound.
	CallsPerPrincipal, CallsPerBackend int
	// Public says that every caller gets the same answers (no auth), so that discovery may be cached by all.
	Public bool
	// Name and Version are the serverInfo where the published document has none.
	Name, Version string
}

// Handler answers checked requests. Safe for concurrent use.
type Handler struct {
	o       Options
	log     *zap.Logger
	tables  *tables
	slots   *slots
	metrics *metrics
}

// New checks the options; it starts nothing.
func New(o Options) (*Handler, error) {
	if o.Backends == nil {
		return nil, errors.New("call: Backends is required")
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Audit == nil {
		o.Audit = o.Log.Named("audit")
	}
	if o.HasReference == nil {
		o.HasReference = func(string) bool { return false }
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	return &Handler{
		o: o, log: o.Log, metrics: m,
		tables: newTables(o.Log, o.HasReference),
		slots:  newSlots(o.CallsPerPrincipal, o.CallsPerBackend),
	}, nil
}

// Dispatch answers one request or notification, and reports it.
func (h *Handler) Dispatch(w *wire.Response, r *wire.Request) {
	if r.ID == nil { // clients cancel by closing; nothing else that a notification could say matters to one call
		w.Accepted()
		return
	}
	began := time.Now()
	by := servedBy(r.Method, r.Era, r.Version)
	c := call{h: h, w: w, r: r, ctx: r.HTTP.Context(), outcome: outcomeOK}
	var err *wire.Error
	switch by {
	case aBackend:
		err = c.toBackend(kindOf(r.Method))
	case aTaskOwner:
		err = c.toTask()
	case theSnapshot:
		err = c.fromSnapshot()
	case theControlPlane:
		err = c.toControlPlane()
	case notNow:
		err = c.wrongEra()
	case nobody:
		err = c.refuse(wire.MethodNotFound(), "unknown_method")
	}
	if err != nil {
		w.Fail(err)
		c.code, c.reason = err.Code, err.Reason
	}
	h.report(&c, labelOf(r.Method, by), time.Since(began))
}

// call is one request on its way.
type call struct {
	h      *Handler
	w      *wire.Response
	r      *wire.Request
	ctx    context.Context // the request's: it ends when the client leaves
	target routes.Target

	answered *egress.Answer    // of the backend; nil: none yet
	asksTask bool              // the backend was asked for a task (2025-11-25)
	task     string            // digest of the task that a task method names, for logs
	owner    *routes.TaskOwner // of that task, once it is found
	renewed  bool              // the owner's session was lost, and the call was made in another

	outcome string // what became of it, for metrics and the log
	code    int    // of the error that the client got; 0: none
	reason  string
	events  int   // notifications passed on
	err     error // behind a failure, for the log
}

// toBackend is the way of a targeted method: each step may refuse, and what is refused never reaches the backend.
func (c *call) toBackend(kind routes.Kind) *wire.Error {
	if err := c.checkScope(kind); err != nil {
		return err
	}
	if err := c.lookUp(kind); err != nil {
		return err
	}
	plan := c.h.tables.of(c.r.Index).backend(c.target.ID)
	if err := c.checkParams(plan); err != nil {
		return err
	}
	params, err := c.params()
	if err != nil {
		return c.refuse(err, "invalid_params")
	}
	header, err := c.header(plan)
	if err != nil {
		return err
	}
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	return c.exchange(params, header)
}

// checkScope asks the token alone.
func (c *call) checkScope(kind routes.Kind) *wire.Error {
	if c.r.Identity.Scopes.Allows(kind, c.r.Name) {
		return nil
	}
	return c.refuse(wire.InsufficientScope(scopeOf(kind)), "insufficient_scope")
}

// lookUp finds the one backend that a name leads to in this host's table.
func (c *call) lookUp(kind routes.Kind) *wire.Error {
	var ok bool
	if c.target, ok = c.r.Index.Lookup(kind, c.r.Name); !ok {
		return c.refuse(wire.UnknownName(kind, c.r.Era, c.r.Name), "unknown_name")
	}
	return nil
}

// checkParams compares Mcp-Param-* headers with the arguments. A legacy client sends none.
func (c *call) checkParams(plan *backendPlan) *wire.Error {
	if c.r.Era != wire.Modern || c.r.Method != "tools/call" {
		return nil
	}
	if err := plan.params[c.target.Upstream].Check(c.r.Arguments(), c.r.HTTP.Header); err != nil {
		return c.refuse(err, "header_mismatch")
	}
	return nil
}

// params are the request's, in the backend's words and era.
func (c *call) params() (wire.Object, *wire.Error) {
	params, err := wire.RequestFor(c.r, c.target.Backend.Protocol, c.target.Upstream)
	if err != nil {
		return nil, err
	}
	return c.withLogLevel(c.taskParam(params)), nil
}

// header computes what the backend sees beside the protocol's own headers.
func (c *call) header(plan *backendPlan) (http.Header, *wire.Error) {
	in := headers.Input{Caller: c.r.HTTP.Header, Expand: c.h.o.Expand, SpanID: spanID}
	if c.r.Method == "tools/call" && wire.EraOf(c.target.Backend.Protocol) == wire.Modern {
		computed, err := plan.params[c.target.Upstream].Headers(c.r.Arguments())
		if err != nil {
			return nil, c.refuse(err, "invalid_params")
		}
		in.Params, in.ForwardParams = computed, c.r.Era == wire.Modern
	}
	h, err := plan.headers.Header(in)
	if err != nil {
		c.outcome, c.err = wire.ReasonAuthFailed, err
		return nil, wire.Internal(wire.ReasonAuthFailed, "the gateway lacks its credentials for the backend")
	}
	return h, nil
}

// exchange makes the call and answers with what comes back.
func (c *call) exchange(params wire.Object, header http.Header) *wire.Error {
	out := egress.Call{
		ID: c.target.ID, Backend: c.target.Backend, RPCID: c.r.ID, Method: c.r.Method, Name: c.target.Upstream,
		Params: params, Memory: c.r.Memory, Header: header, Principal: string(c.r.Identity.Principal),
	}
	if info, ok := c.r.Meta.Get(wire.MetaClientInfo); ok && c.r.Era == wire.Modern {
		out.Handshake.ClientInfo = info // who calls; what the client can do is not passed on: a legacy backend may not ask
	}
	if c.owner != nil {
		out.Session = c.owner.Session
	}
	if c.target.Backend.Capabilities.Logging {
		out.LogLevel = c.logLevel()
	}
	c.w.Reuse() // what of the request outlives it is copied, or held
	answer, err := c.h.o.Backends.Do(c.ctx, out)
	if err != nil && c.inNewSession(err, &out) {
		answer, err = c.h.o.Backends.Do(c.ctx, out)
	}
	if err != nil {
		return c.failed(err)
	}
	defer answer.Close()
	c.answered = answer
	if err := c.relay(answer); err != nil {
		return err
	}
	if c.w.Sent() {
		answer.Free()
	}
	return nil
}

// refuse names the outcome of a request that Weir itself turns down.
func (c *call) refuse(err *wire.Error, outcome string) *wire.Error {
	c.outcome = outcome
	if err.Reason == "" {
		err.Reason = outcome
	}
	return err
}

func spanID() (id [8]byte) {
	_, _ = rand.Read(id[:]) // never fails: crypto/rand aborts the process instead
	return id
}
