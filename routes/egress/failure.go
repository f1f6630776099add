package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/weir-mcp/weir/routes/wire"
)

// The reasons of a Failure, as data.reason shows them (CONTRACT.md, fine print).
const (
	ReasonUnreachable = "unreachable"  // no connection: DNS, dial, TLS, a refused address
	ReasonTimeout     = "timeout"      // a deadline: connect, response, idle, total, or the caller's own
	ReasonReset       = "reset"        // the connection broke
	ReasonBadResponse = "bad_response" // an answer that is none
	ReasonTooLarge    = "too_large"    // over Options.ResponseLimit
	ReasonOverloaded  = "overloaded"   // 503
	ReasonAuthFailed  = "auth_failed"  // 401, 403
	ReasonRateLimited = "rate_limited" // 429
	ReasonCircuitOpen = "circuit_open" // the breaker let nothing through
	ReasonCanceled    = "canceled"     // the caller's context; nobody waits for this answer
)

// Failure is a call that got no usable JSON-RPC answer.
type Failure struct {
	Reason string
	// Sent: a byte of the call may have left, so that the backend may have run it. It is known, not guessed (see exchange).
	// What was not sent has been tried again already where that could help.
	Sent bool
	// Status is the HTTP status of the answer, 0 when there was none.
	Status int
	// SessionLost: the backend does not know Call.Session any more, and did nothing with the call. It may be made once more without.
	SessionLost bool
	// RetryAfter is what the backend asked for with 429 or 503, at most an hour; 0: nothing.
	RetryAfter time.Duration
	// Err is for the log: it may name addresses, never a credential or an argument.
	Err error
}

func (f *Failure) Error() string {
	s := f.Reason
	if f.Status != 0 {
		s += " (HTTP " + strconv.Itoa(f.Status) + ")"
	}
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	return s
}

func (f *Failure) Unwrap() error { return f.Err }

// RPCError is a backend's own JSON-RPC error.
type RPCError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *RPCError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

var (
	// errEnd is what Next returns after the Final message.
	errEnd = io.EOF

	errTooLarge    = errors.New("the answer is over the response limit")
	errCompressed  = errors.New("the answer is compressed although none was asked for")
	errBadMedia    = errors.New("the answer is neither application/json nor text/event-stream")
	errEarlyEnd    = errors.New("the stream ended before the response")
	errWouldRepeat = errors.New("refused to send a request twice")
	errFinished    = errors.New("the call is over")
)

// phase is what a deadline bounds.
type phase uint32

const (
	phaseResponse phase = iota
	phaseIdle
	phaseTotal
)

func (p phase) Error() string {
	switch p {
	case phaseResponse:
		return "no answer within the response timeout"
	case phaseIdle:
		return "nothing more within the idle timeout"
	}
	return "not finished within the total timeout"
}

// failed builds a *Failure of what stopped x. err is what the network or a check said.
func (x *exchange) failed(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	f := &Failure{Sent: x.sent(), Status: x.httpStatus(), Err: err}
	cause := context.Cause(x.ctx)
	var ph phase
	switch {
	case errors.As(cause, &ph):
		f.Reason, f.Err = ReasonTimeout, ph
	case errors.Is(err, errTooLarge), errors.Is(err, wire.ErrBodyTooLarge), errors.Is(err, wire.ErrEventTooLarge):
		f.Reason = ReasonTooLarge
	case cause == errWouldRepeat:
		f.Reason, f.Err = ReasonReset, cause
	case cause != nil && errors.Is(cause, context.DeadlineExceeded):
		f.Reason, f.Err = ReasonTimeout, cause
	case cause != nil:
		f.Reason, f.Err = ReasonCanceled, context.Canceled
	case !x.connected():
		f.Reason = ReasonUnreachable
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			f.Reason = ReasonTimeout
		}
	case isBadResponse(err):
		f.Reason = ReasonBadResponse
	default:
		f.Reason = ReasonReset
	}
	return f
}

// bad is failed for an answer that arrived and is not what it should be.
func (x *exchange) bad(err error) *Failure {
	f := x.failed(err)
	if f.Reason == ReasonReset {
		f.Reason = ReasonBadResponse
	}
	return f
}

// isBadResponse tells answers that net/http could not parse from connections that broke; net/http's errors have no types.
func isBadResponse(err error) bool {
	if errors.Is(err, errCompressed) || errors.Is(err, errBadMedia) || errors.Is(err, errEarlyEnd) {
		return true
	}
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok {
		return true
	}
	text := err.Error()
	return strings.Contains(text, "malformed ") || strings.Contains(text, "response headers exceeded") ||
		strings.Contains(text, "unsupported transfer encoding") || strings.Contains(text, "bad Content-Length") ||
		strings.Contains(text, "invalid byte in chunk length") || strings.Contains(text, "too many 1xx")
}

// refused builds the *Failure of an HTTP status that carries no JSON-RPC answer. An answer's body is not looked at, and of its
// headers only Retry-After.
func (x *exchange) refused(status int, h http.Header) *Failure {
	f := &Failure{Reason: ReasonBadResponse, Sent: true, Status: status, Err: fmt.Errorf("the backend answered HTTP %d", status)}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		f.Reason = ReasonAuthFailed
	case http.StatusTooManyRequests:
		f.Reason, f.RetryAfter = ReasonRateLimited, retryAfter(h, time.Now())
	case http.StatusServiceUnavailable:
		f.Reason, f.RetryAfter = ReasonOverloaded, retryAfter(h, time.Now())
	case http.StatusBadGateway:
		f.Reason = ReasonUnreachable // says a proxy in front of the backend
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		f.Reason = ReasonTimeout
	}
	return f
}

// maxRetryAfter bounds what a backend may ask a client to wait.
const maxRetryAfter = time.Hour

// retryAfter reads Retry-After: seconds or a date (RFC 9110, 10.2.3). Zero: absent or nonsense.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if n, err := strconv.ParseUint(v, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxRetryAfter)
	}
	if t, err := http.ParseTime(v); err == nil {
		return min(max(t.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
