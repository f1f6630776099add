package call

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/wire"
)

// silence is how long a stream that has not said anything stays without a head: most answer at once, and one write is
// cheaper than two. From then on comments keep the client's connection alive.
const silence = time.Second

// relay passes on an answer: the media type is the backend's, messages go as they come, the last one in the client's era.
func (c *call) relay(a *egress.Answer) *wire.Error {
	if a.Streaming() {
		quiet := time.AfterFunc(silence, func() { _ = c.w.Begin() }) // the next Event tells of a broken connection
		defer quiet.Stop()
	}
	for {
		m, err := a.Next()
		switch {
		case err != nil:
			return c.failed(err)
		case m.Final:
			return c.answer(a, m)
		case !ofCall(m.Method), c.unwanted(m):
			continue
		}
		if err := c.w.Event(m.Parts()...); err != nil {
			return c.gone(err)
		}
		c.events++
	}
}

// answer sends the response: the backend's own bytes, unless the client's era asks for a change. What may be large is not copied: a
// document comes in parts.
func (c *call) answer(a *egress.Answer, m egress.Message) *wire.Error {
	translate := c.resultDocument
	if m.Error != nil {
		translate = c.errorDocument
	}
	doc, err := translate(m)
	if err != nil {
		return err
	}
	if a.Streaming() {
		if err := c.w.Event(doc...); err != nil {
			return c.gone(err)
		}
		c.w.Finish()
		return nil
	}
	status := m.Status
	if c.r.Era == wire.Legacy {
		status = http.StatusOK // HTTP speaks of the gateway alone
	}
	c.w.Raw(status, doc...)
	return nil
}

func (c *call) resultDocument(m egress.Message) ([][]byte, *wire.Error) {
	tool := c.r.Name
	if c.owner != nil {
		tool = c.owner.Tool
	}
	seen, err := c.inspect(resultKind(c.r.Method), tool, m.Result, &m.Top)
	if err != nil {
		return nil, err
	}
	c.renewSession()
	result, err := wire.ResultParts(c.r.Era, c.target.Backend.Protocol, c.r.Method, seen)
	if err != nil {
		c.outcome = err.Reason
		return nil, err
	}
	if len(result) == 1 && same(result[0], m.Result) {
		return m.Parts(), nil
	}
	return wire.ResponseParts(c.r.ID, "result", result...), nil
}

func (c *call) errorDocument(m egress.Message) ([][]byte, *wire.Error) {
	var e struct {
		Code int `json:"code"`
	}
	_ = json.Unmarshal(m.Error, &e) // ErrorFor judges it
	if e.Code == wire.CodeUnsupportedVersion {
		// Between Weir and the backend: the client's version is fine, what discovery negotiated no longer is.
		c.outcome, c.err = wire.ReasonBadResponse, errVersion
		return nil, wire.Internal(wire.ReasonBadResponse, "")
	}
	translated, err := wire.ErrorFor(c.r.Era, m.Error)
	if err != nil {
		c.outcome = err.Reason
		return nil, err
	}
	c.outcome, c.code, c.reason = outcomeBackendError, e.Code, outcomeBackendError
	c.w.Note(e.Code, outcomeBackendError)
	if same(translated, m.Error) {
		return m.Parts(), nil
	}
	return wire.ResponseParts(c.r.ID, "error", translated), nil
}

var errVersion = errors.New("the backend no longer serves the version that discovery negotiated with it")

// failed says what became of a call that got no answer. The text is generic: it names no backend and no address.
func (c *call) failed(err error) *wire.Error {
	c.err = err
	switch cause := context.Cause(c.ctx); {
	case errors.Is(cause, ErrStopping):
		c.outcome = "stopping"
		return wire.Internal(wire.ReasonReset, "the gateway is stopping; the call was cancelled")
	case cause != nil:
		return c.gone(cause)
	}
	f, ok := errors.AsType[*egress.Failure](err)
	if !ok {
		c.outcome = outcomeInternal
		return c.refuse(wire.Internal("", ""), outcomeInternal)
	}
	c.outcome = f.Reason
	e := wire.InternalRetry(f.Reason, "", f.RetryAfter)
	if n := len(e.Data); n > 0 { // an unsent call may be made again without thought
		e.Data = fmt.Appendf(e.Data[:n-1:n-1], `,"sent":%t}`, f.Sent)
	}
	return e
}

// gone ends a call whose client no longer listens.
func (c *call) gone(err error) *wire.Error {
	c.outcome, c.err = outcomeCanceled, err
	return c.refuse(wire.Internal("", "the client left"), outcomeCanceled) // for the log: nobody reads it
}

// same reports whether a translation changed nothing.
func same(a, b json.RawMessage) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || bytes.Equal(a, b))
}
