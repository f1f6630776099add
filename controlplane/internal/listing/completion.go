package listing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/wire"
)

// Backends calls backends; *egress.Client does.
type Backends interface {
	// Do makes one call to one backend.
	Do(ctx context.Context, call egress.Call) (*egress.Answer, error)
	// Header resolves what the operator adds to every request to a backend.
	Header(b *routes.Backend) (http.Header, error)
}

// completionTimeout bounds one completion, whatever the backend's own limits are: a suggestion that comes later helps nobody who
// types.
const completionTimeout = 30 * time.Second

// noSuggestions is the answer where the owner of a prompt or template completes nothing (CompleteResult of the legacy schema).
const noSuggestions = `{"completion":{"values":[],"total":0,"hasMore":false}}`

// completion is one completion/complete on its way to the backend that owns what it asks about.
type completion struct {
	s      *Server
	w      *wire.Response
	r      *wire.Request
	target routes.Target
}

// complete answers completion/complete.
// Source: MCP 2026-07-28 and 2025-11-25, server/utilities/completion; decision 41.
func (s *Server) complete(w *wire.Response, r *wire.Request) {
	c := completion{s: s, w: w, r: r}
	if err := c.run(); err != nil {
		w.Fail(err)
	}
}

func (c *completion) run() *wire.Error {
	if c.s.backends == nil || !anyBackend(c.r.Index.Host(), func(b routes.BackendCapabilities) bool { return b.Completions }) {
		return lacking("completions")
	}
	ref, err := wire.ReferenceOf(c.r.Params)
	if err != nil {
		return err
	}
	if !c.r.Identity.Scopes.Allows(ref.Kind, ref.Name) {
		return wire.InsufficientScope(scopeOf(ref.Kind))
	}
	if err := c.lookUp(ref); err != nil {
		return err
	}
	if !c.target.Backend.Capabilities.Completions {
		return c.answer("none", wire.LatestLegacy, json.RawMessage(noSuggestions))
	}
	params, err := wire.RequestFor(c.r, c.target.Backend.Protocol, c.target.Upstream)
	if err != nil {
		return err
	}
	leave, err := c.s.slots.enter(c.r.Identity.Principal, c.target.ID)
	if err != nil {
		return c.ended(wire.ReasonOverloaded, err)
	}
	defer leave()
	return c.call(params)
}

// lookUp finds the owner. A ref/resource names a template by its own text, as the list shows it, or a URI.
func (c *completion) lookUp(ref wire.Reference) *wire.Error {
	var ok bool
	if c.target, ok = c.r.Index.Lookup(ref.Kind, ref.Name); ok {
		return nil
	}
	if ref.Kind == routes.KindResourceTemplate {
		if c.target, ok = c.r.Index.Lookup(routes.KindResource, ref.Name); ok {
			return nil
		}
	}
	return wire.UnknownName(ref.Kind, wire.Modern, ref.Name) // -32602 in both eras: the -32002 is of resources/read
}

// call asks the backend. Its notifications are left out: they would be about a suggestion.
func (c *completion) call(params wire.Object) *wire.Error {
	header, err := c.s.backends.Header(c.target.Backend)
	if err != nil {
		c.log(err)
		return c.ended(wire.ReasonAuthFailed, wire.Internal(wire.ReasonAuthFailed, "the gateway lacks its credentials for the backend"))
	}
	ctx, cancel := context.WithTimeout(c.r.HTTP.Context(), completionTimeout)
	defer cancel()
	out := egress.Call{
		ID: c.target.ID, Backend: c.target.Backend, RPCID: c.r.ID, Method: c.r.Method, Params: params, Header: header,
		Principal: string(c.r.Identity.Principal),
	}
	if info, ok := c.r.Meta.Get(wire.MetaClientInfo); ok && c.r.Era == wire.Modern {
		out.Handshake.ClientInfo = info
	}
	answer, err := c.s.backends.Do(ctx, out)
	if err != nil {
		return c.failed(err)
	}
	defer answer.Close()
	for {
		m, err := answer.Next()
		switch {
		case err != nil:
			return c.failed(err)
		case !m.Final:
			continue
		case m.Error != nil:
			return c.relayError(m)
		}
		return c.answer("ok", c.target.Backend.Protocol, m.Result)
	}
}

// answer sends a result that is in the words of a protocol version.
func (c *completion) answer(outcome, version string, result json.RawMessage) *wire.Error {
	result, err := wire.ResultFor(c.r.Era, version, c.r.Method, result)
	if err != nil {
		return c.ended(err.Reason, err)
	}
	c.w.Result(result)
	return c.ended(outcome, nil)
}

// relayError answers with the backend's own error.
func (c *completion) relayError(m egress.Message) *wire.Error {
	var e struct {
		Code int `json:"code"`
	}
	_ = json.Unmarshal(m.Error, &e)            // ErrorFor judges it
	if e.Code == wire.CodeUnsupportedVersion { // between Weir and the backend: the client's version is fine
		return c.ended(wire.ReasonBadResponse, wire.Internal(wire.ReasonBadResponse, ""))
	}
	translated, err := wire.ErrorFor(c.r.Era, m.Error)
	if err != nil {
		return c.ended(err.Reason, err)
	}
	doc := append(append([]byte(`{"jsonrpc":"2.0","id":`), c.r.ID...), `,"error":`...)
	status := m.Status
	if c.r.Era == wire.Legacy {
		status = http.StatusOK // HTTP speaks of the gateway alone
	}
	const outcome = "backend_error"
	c.w.Note(e.Code, outcome)
	c.w.Raw(status, append(append(doc, translated...), '}'))
	return c.ended(outcome, nil)
}

// failed says what became of a call that got no answer. The text names no backend and no address.
func (c *completion) failed(err error) *wire.Error {
	if c.r.HTTP.Context().Err() != nil {
		return c.ended("canceled", wire.Internal("", "the client left")) // nobody reads it
	}
	c.log(err)
	f, ok := errors.AsType[*egress.Failure](err)
	if !ok {
		return c.ended("internal", wire.Internal("", ""))
	}
	e := wire.InternalRetry(f.Reason, "", f.RetryAfter)
	if n := len(e.Data); n > 0 {
		e.Data = fmt.Appendf(e.Data[:n-1:n-1], `,"sent":%t}`, f.Sent)
	}
	return c.ended(f.Reason, e)
}

func (c *completion) log(err error) {
	c.s.log.Debug("completion failed", zap.String("host", string(c.r.Host)), zap.String("backend", string(c.target.ID)), zap.Error(err))
}

// ended counts what became of a completion that has an owner.
func (c *completion) ended(outcome string, err *wire.Error) *wire.Error {
	c.s.completions.WithLabelValues(string(c.target.ID), outcome).Inc()
	return err
}

// lacking refuses a method whose capability no backend of the host has.
func lacking(capability string) *wire.Error {
	e := wire.MethodNotFound()
	e.Message = "method not found: this server has no " + capability + " capability"
	return e
}

// anyBackend reports whether a backend of the host can do something.
func anyBackend(vh *routes.VirtualHost, can func(routes.BackendCapabilities) bool) bool {
	for _, b := range vh.Backends {
		if can(b.Capabilities) {
			return true
		}
	}
	return false
}

// scopeOf is the scope that covers a kind whole.
func scopeOf(kind routes.Kind) string {
	switch kind {
	case routes.KindTool:
		return "mcp:tools"
	case routes.KindPrompt:
		return "mcp:prompts"
	}
	return "mcp:resources"
}
