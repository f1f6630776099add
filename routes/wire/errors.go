package wire

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// Error is a JSON-RPC error with the HTTP status it travels with. A zero Status is derived from Code and the era, see
// [Error.HTTPStatus].
type Error struct {
	Code       int
	Message    string
	Data       json.RawMessage // nil: none
	Status     int
	RetryAfter time.Duration // >0: Retry-After header
	Challenge  string        // WWW-Authenticate value (403 insufficient_scope); the Response adds resource_metadata
	Reason     string        // data.reason, for logs and metrics; empty for most
}

// Error returns the message that the client sees.
func (e *Error) Error() string { return e.Message }

// The codes of JSON-RPC, of MCP 2026-07-28, and two that only earlier versions may use.
const (
	CodeParse                  = -32700
	CodeInvalidRequest         = -32600
	CodeMethodNotFound         = -32601
	CodeInvalidParams          = -32602
	CodeInternal               = -32603
	CodeHeaderMismatch         = -32020
	CodeMissingCapability      = -32021
	CodeUnsupportedVersion     = -32022
	CodeResourceNotFoundLegacy = -32002
	CodeURLElicitationLegacy   = -32042
)

// Reasons of a -32603, in data.reason. Source: CONTRACT, fine print.
const (
	ReasonUnreachable       = "unreachable"
	ReasonTimeout           = "timeout"
	ReasonReset             = "reset"
	ReasonBadResponse       = "bad_response"
	ReasonTooLarge          = "too_large"
	ReasonOverloaded        = "overloaded"
	ReasonCircuitOpen       = "circuit_open"
	ReasonAuthFailed        = "auth_failed"
	ReasonRateLimited       = "rate_limited"
	ReasonOwnerLost         = "owner_lost"
	ReasonAmbiguousTask     = "ambiguous_task"
	ReasonNeedsModernClient = "needs_modern_client"
	ReasonNeedsLegacyClient = "needs_legacy_client"
	ReasonUnauthorized      = "unauthorized"
	ReasonUnavailable       = "unavailable"
)

// ReasonText returns the words that a client sees with a reason; they name no backend and no URL.
func ReasonText(reason string) string {
	switch reason {
	case ReasonUnreachable:
		return "backend unreachable"
	case ReasonTimeout:
		return "backend did not answer in time"
	case ReasonReset:
		return "backend closed the connection before it answered"
	case ReasonBadResponse:
		return "backend sent an answer that is no MCP response"
	case ReasonTooLarge:
		return "backend sent an answer over the size limit"
	case ReasonOverloaded:
		return "too many calls are running"
	case ReasonCircuitOpen:
		return "backend is failing and not called for now"
	case ReasonAuthFailed:
		return "backend refused the gateway's credentials"
	case ReasonRateLimited:
		return "backend limits the rate of calls"
	case ReasonOwnerLost:
		return "the host that runs the backend was lost"
	case ReasonAmbiguousTask:
		return "more than one backend knows this task"
	case ReasonNeedsModernClient:
		return "the answer needs a client of MCP 2026-07-28 or later"
	case ReasonNeedsLegacyClient:
		return "the answer needs a client of MCP 2025-11-25 or earlier"
	case ReasonUnauthorized:
		return "the token is not accepted any more"
	case ReasonUnavailable:
		return "whose task this is can't be told now"
	}
	return "internal error"
}

// HTTPStatus returns the status an error travels with: Status, else by code and era. HTTP speaks of the gateway, JSON-RPC
// of the call (DESIGN § 7).
func (e *Error) HTTPStatus(era Era) int {
	if e.Status != 0 {
		return e.Status
	}
	switch e.Code {
	case CodeParse, CodeInvalidRequest:
		return http.StatusBadRequest
	case CodeMethodNotFound:
		if era == Modern {
			return http.StatusNotFound
		}
	case CodeInvalidParams, CodeHeaderMismatch, CodeMissingCapability, CodeUnsupportedVersion:
		if era == Modern {
			return http.StatusBadRequest
		}
	}
	return http.StatusOK
}

// Append appends the error object ({"code":…,"message":…,"data":…}) to dst.
func (e *Error) Append(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"code":`...), int64(e.Code), 10)
	dst = appendQuoted(append(dst, `,"message":`...), e.Message)
	if len(e.Data) > 0 {
		dst = append(append(dst, `,"data":`...), e.Data...)
	}
	return append(dst, '}')
}

// AppendErrorResponse appends a JSON-RPC error response to dst. A nil id is left out, as MCP asks where it is not known.
func AppendErrorResponse(dst []byte, id json.RawMessage, e *Error) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if id != nil {
		dst = append(append(dst, `,"id":`...), id...)
	}
	return append(e.Append(append(dst, `,"error":`...)), '}')
}

// Internal makes the -32603 of a failed backend with data.reason. An empty message means [ReasonText]; an empty reason, no
// data.
func Internal(reason, message string) *Error {
	if message == "" {
		message = ReasonText(reason)
	}
	e := &Error{Code: CodeInternal, Message: message, Reason: reason}
	if reason != "" {
		e.Data = append(appendQuoted([]byte(`{"reason":`), reason), '}')
	}
	return e
}

// InternalRetry is Internal with data.retryAfterMs: when the call may be tried again, rounded up to a millisecond.
func InternalRetry(reason, message string, after time.Duration) *Error {
	e := Internal(reason, message)
	if after > 0 && reason != "" {
		ms := (after + time.Millisecond - 1) / time.Millisecond
		e.Data = append(e.Data[:len(e.Data)-1], fmt.Sprintf(`,"retryAfterMs":%d}`, ms)...)
	}
	return e
}

// UnknownName refuses a tool, prompt or resource that the host does not have. It never says which backends exist.
func UnknownName(kind routes.Kind, era Era, name string) *Error {
	switch kind {
	case routes.KindTool:
		return &Error{Code: CodeInvalidParams, Message: "unknown tool"}
	case routes.KindPrompt:
		return &Error{Code: CodeInvalidParams, Message: "unknown prompt"}
	}
	e := &Error{Code: CodeInvalidParams, Message: "resource not found"}
	if era == Legacy {
		e.Code = CodeResourceNotFoundLegacy
	}
	e.Data = append(appendQuoted([]byte(`{"uri":`), name), '}')
	return e
}

// UnknownTask refuses a task id that is unknown, somebody else's, expired, or may not be asked for: these can't be told apart, so that
// every refusal of this kind is made here. notFound is the host's TaskPolicy.NotFound: -32002 serves legacy clients that were written to
// an older convention, and no others.
func UnknownTask(era Era, notFound int) *Error {
	e := &Error{Code: CodeInvalidParams, Message: "task not found"}
	if era == Legacy && notFound == CodeResourceNotFoundLegacy {
		e.Code, e.Status = notFound, http.StatusOK
	}
	return e
}

// MethodNotFound refuses a method that Weir, or the client's version, does not have.
func MethodNotFound() *Error { return &Error{Code: CodeMethodNotFound, Message: "method not found"} }

// InvalidParams refuses params with -32602.
func InvalidParams(message string) *Error { return invalidParams(message) }

// InvalidRequest refuses a request with -32600 and 400: what the gateway itself will not take.
func InvalidRequest(message string) *Error { return invalidRequest(message) }

// Denied is a hook's refusal: it speaks of the call, so the status is 200. A zero code means -32600.
func Denied(code int, message string) *Error {
	if code == 0 {
		code = CodeInvalidRequest
	}
	return &Error{Code: code, Message: message, Status: http.StatusOK}
}

// InsufficientScope refuses a call that the token's scopes do not cover: 403 with a challenge that names what is needed.
// Source: MCP 2026-07-28, basic/authorization (Runtime Insufficient Scope Errors).
func InsufficientScope(scopes ...string) *Error {
	return &Error{
		Code: CodeInvalidRequest, Message: "insufficient scope", Status: http.StatusForbidden,
		Challenge: `Bearer error="insufficient_scope", scope="` + strings.Join(scopes, " ") + `"`,
		Reason:    "insufficient_scope",
	}
}

// MissingCapability refuses a modern request that needs client capabilities it did not declare; required is the object of
// them, such as {"extensions":{"io.modelcontextprotocol/tasks":{}}}.
func MissingCapability(required json.RawMessage) *Error {
	data := append(append([]byte(`{"requiredCapabilities":`), required...), '}')
	return &Error{Code: CodeMissingCapability, Message: "missing required client capability", Data: data}
}

// UnsupportedVersion refuses a protocol version, naming the served ones.
func UnsupportedVersion(requested string) *Error { return unsupportedVersion(requested) }

func unsupportedVersion(requested string) *Error {
	data := []byte(`{"supported":[`)
	for i, v := range Versions {
		if i > 0 {
			data = append(data, ',')
		}
		data = appendQuoted(data, v)
	}
	data = append(appendQuoted(append(data, `],"requested":`...), requested), '}')
	return &Error{
		Code: CodeUnsupportedVersion, Message: "unsupported protocol version", Data: data, Status: http.StatusBadRequest,
	}
}

func parseError(what string) *Error {
	return &Error{Code: CodeParse, Message: "parse error: " + what}
}

func invalidRequest(what string) *Error {
	return &Error{Code: CodeInvalidRequest, Message: "invalid request: " + what}
}

func invalidParams(what string) *Error {
	return &Error{Code: CodeInvalidParams, Message: "invalid params: " + what}
}

func errTooDeep() *Error {
	return invalidRequest(fmt.Sprintf("nested deeper than %d", maxDepth))
}

func headerMismatch(what string) *Error {
	return &Error{Code: CodeHeaderMismatch, Message: "header mismatch: " + what, Status: http.StatusBadRequest}
}

// missingMeta names the served versions: the message may be all that a client's user gets to see.
// Source: MCP 2026-07-28, basic/versioning (Backward Compatibility).
func missingMeta(name string) *Error {
	e := invalidParams("params._meta lacks " + name + " (served versions: " + strings.Join(Versions, ", ") + ")")
	e.Status = http.StatusBadRequest
	return e
}

func invalidMeta(name, want string) *Error {
	e := invalidParams("params._meta: " + name + " must be " + want)
	e.Status = http.StatusBadRequest
	return e
}
