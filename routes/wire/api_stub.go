// Package wire is MCP over HTTP as both planes speak it to clients.
package wire

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
)

// Era is a generation of the protocol.
type Era uint8

const (
	Legacy Era = iota // 2025-11-25 and earlier
	Modern            // 2026-07-28 and later
)

// EraOf tells the era of a protocol version by its date. Unknown or malformed is Modern (DESIGN § 7).
func EraOf(version string) Era { panic("stub") }

// The protocol versions that Weir serves, newest first.
var Versions = []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"}

const LatestLegacy = "2025-11-25"

// Member is one member of a JSON object in source order; Value is its exact text.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Object is a JSON object that keeps order and exact values. Names are unique (strict decoding).
type Object []Member

// ParseObject decodes strictly: duplicate keys at any depth, depth over 256, trailing data and invalid UTF-8 are errors.
func ParseObject(raw []byte) (Object, error)                { panic("stub") }
func (o Object) Get(name string) (json.RawMessage, bool)    { panic("stub") }
func (o Object) With(name string, v json.RawMessage) Object { panic("stub") } // copy, replaced in place or appended
func (o Object) Without(names ...string) Object             { panic("stub") } // copy
func (o Object) Append(dst []byte) []byte                   { panic("stub") } // encodes
func (o Object) MarshalJSON() ([]byte, error)               { panic("stub") }

// Message is one decoded JSON-RPC message of a client.
type Message struct {
	ID     json.RawMessage // exact text; nil for a notification
	Method string
	Params Object // nil when absent
	Meta   Object // params._meta, nil when absent
	Raw    []byte // the body as it came
}

// DecodeMessage decodes and checks a body: JSON-RPC envelope, strictness of DESIGN § 4. Errors are *Error with -32700/-32600.
func DecodeMessage(body []byte) (*Message, *Error) { panic("stub") }

// Encode writes the message again (from its fields, not Raw).
func (m *Message) Encode() []byte { panic("stub") }

// Request is one checked request of a client, ready for dispatch.
type Request struct {
	*Message
	HTTP     *http.Request
	Identity *access.Identity
	Index    *routes.Index // what Options.Resolve returned
	Era      Era
	Version  string // the protocol version the client speaks
	Name     string // tools/call, prompts/get: params.name; resources/read: params.uri; tasks/*: params.taskId; else ""
}

// Error is a JSON-RPC error with the HTTP status it travels with. A zero Status is derived from Code and the era.
type Error struct {
	Code       int
	Message    string
	Data       json.RawMessage
	Status     int
	RetryAfter time.Duration // >0: Retry-After header
	Challenge  string        // WWW-Authenticate value (403 insufficient_scope)
}

func (e *Error) Error() string { panic("stub") }

// Standard and MCP codes.
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

// Internal makes the -32603 of a failed backend with data.reason (CONTRACT: unreachable, timeout, …).
func Internal(reason, message string) *Error { panic("stub") }

// Response is the answer to one request: exactly one of the calls JSON, Fail, or Stream…Finish is made.
type Response struct{}

// Result answers with one JSON document; result is raw JSON of the result member.
func (w *Response) Result(result json.RawMessage) { panic("stub") }

// Raw answers with one complete JSON-RPC response document (already carrying the client's id) and a status; status 0: 200.
func (w *Response) Raw(status int, doc []byte) { panic("stub") }

// Fail answers with an error: as JSON, or as the last event when the stream has begun.
func (w *Response) Fail(err *Error) { panic("stub") }

// Accepted answers 202 with an empty body (notifications).
func (w *Response) Accepted() { panic("stub") }

// Event sends one message as an event, beginning the stream on first use (200, text/event-stream, X-Accel-Buffering: no),
// flushed at once. The error is the client's connection's.
func (w *Response) Event(doc []byte) error { panic("stub") }

// Begin starts the event stream without an event; keep-alive comments start.
func (w *Response) Begin() error { panic("stub") }

// Started reports whether anything was sent.
func (w *Response) Started() bool { panic("stub") }

// Limits of ingress; zero fields mean the defaults of CONTRACT.
type Limits struct {
	Body            int64
	MCPHeaders      int
	MCPHeaderValue  int
	MCPHeadersTotal int
}

// Authenticator verifies a bearer token; *access.Verifier implements it.
type Authenticator interface {
	Verify(ctx context.Context, token, resource string) (*access.Identity, error)
}

// Options of an Endpoint.
type Options struct {
	Auth      Authenticator // nil: Anonymous is used for every call
	Anonymous *access.Identity
	// Resolve finds a host's table; errors: routes.ErrUnknownHost → 404, ErrNotPublished and ErrUnavailable → 503 + Retry-After.
	Resolve func(context.Context, routes.HostID) (*routes.Index, error)
	// Dispatch answers a checked request or notification (ID nil). It must answer exactly once, before it returns.
	Dispatch                     func(*Response, *Request)
	Limits                       Limits
	PublicURL                    string
	AllowedOrigins, AllowedHosts []string
	Loopback                     bool          // the listener is loopback: empty lists then take loopback origins and names only
	AuthServers                  []string      // issuers, for RFC 9728 metadata
	KeepAlive                    time.Duration // comment interval on streams; zero: 15s
	Draining                     func() bool   // true: answers carry Connection: close. nil: never
	OnDone                       func(Summary) // called once per HTTP request, for logs and metrics; nil: nothing
}

// Summary is one line of log per request; never arguments, tokens or bodies.
type Summary struct {
	Host         routes.HostID
	Method, Name string
	Era          Era
	Status, Code int
	Reason       string
	Duration     time.Duration
}

// Endpoint is the http.Handler of /mcp, /servers/{host}/mcp and the metadata paths.
type Endpoint struct{}

func NewEndpoint(o Options) (*Endpoint, error)                       { panic("stub") }
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) { panic("stub") }

// ToModern and ToLegacy translate between eras (cells). See implementation.
// EncodeMcpName encodes a value for Mcp-Name / Mcp-Param-*: plain, or Base64 sentinel. DecodeMcpValue is the inverse.
func EncodeHeaderValue(v string) string          { panic("stub") }
func DecodeHeaderValue(v string) (string, error) { panic("stub") }

// RequestFor translates a client's request for a backend that speaks backendVersion: upstream name put in (params.name or
// params.uri), modern _meta keys added or dropped. It returns the params to send.
func RequestFor(r *Request, backendVersion, upstream string) (Object, *Error) { panic("stub") }

// ResultFor translates a backend's raw result for the client's era: resultType, ttlMs, cacheScope added where a modern result
// needs them and the backend is legacy; input_required and task refused for legacy (an *Error with reason needs_modern_client).
func ResultFor(client Era, backendVersion, method string, result json.RawMessage) (json.RawMessage, *Error) {
	panic("stub")
}

// ErrorFor translates a backend's JSON-RPC error object for the client's era (-32002 → -32602, -32042 → -32603 to modern).
func ErrorFor(client Era, backendErr json.RawMessage) (json.RawMessage, *Error) { panic("stub") }
