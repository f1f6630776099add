// Package egress makes one call to one backend.
package egress

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// Options of a Client.
type Options struct {
	// ResponseLimit bounds one JSON answer, and one event. Zero means 16 MiB.
	ResponseLimit int64
	// Expand resolves a header value's secret references; nil: values with references are refused.
	Expand func(string) (string, error)
	// Name and Version are the clientInfo that Weir shows to backends of its own accord.
	Name, Version string
}

// Client calls backends. Safe for concurrent use; it pools TCP and TLS connections, never an MCP session.
type Client struct{}

func New(o Options) (*Client, error) { panic("stub") }

// Close closes idle connections and waits for background closes of legacy sessions.
func (c *Client) Close() { panic("stub") }

// Call is one request to one backend.
type Call struct {
	ID        routes.BackendID
	Backend   *routes.Backend
	RPCID     json.RawMessage // the client's id, exact text; it comes back in the response
	Method    string
	Name      string // upstream name, URI or task id, for Mcp-Name
	Params    wire.Object
	Header    http.Header // computed by the plane (passthrough, add, Mcp-Param-*, trace context); nil: none
	Handshake struct {    // what a legacy backend is told in initialize; zero: Options' own
		ClientInfo, Capabilities json.RawMessage
	}
}

// Failure is a call that got no usable JSON-RPC answer.
type Failure struct {
	Reason     string // CONTRACT: unreachable, timeout, reset, bad_response, too_large, overloaded, auth_failed, rate_limited, …
	Sent       bool   // a byte may have left: never retry
	Status     int    // HTTP status of the answer, 0 when there was none
	RetryAfter time.Duration
	Err        error
}

func (f *Failure) Error() string { panic("stub") }
func (f *Failure) Unwrap() error { return f.Err }

// Message is one message of an answer.
type Message struct {
	Final  bool            // the response; Result or Error is set and Doc is the whole document with RPCID
	Doc    []byte          // the JSON-RPC message, exact bytes as the backend sent them (id put back for legacy)
	Method string          // of a notification
	Result json.RawMessage // exact bytes
	Error  json.RawMessage // exact bytes
	Status int             // of a Final from a JSON answer: 200, 400 or 404; else 0
}

// Answer is a call in flight. Not safe for concurrent use, but Close is.
type Answer struct{}

// Do sends the call and returns once the answer's headers are there (or the first message, legacy). Cancel ctx to cancel upstream.
func (c *Client) Do(ctx context.Context, call Call) (*Answer, error) { panic("stub") } // error: *Failure

// Streaming reports whether the backend answers with an event stream.
func (a *Answer) Streaming() bool { panic("stub") }

// Next returns the next message; after a Final one, io.EOF. Errors are *Failure.
func (a *Answer) Next() (Message, error) { panic("stub") }

// Close ends the call; before the Final message it cancels upstream (notifications/cancelled for legacy).
func (a *Answer) Close() { panic("stub") }

// Session is discovery's way: several requests to one backend.
type Session struct {
	Protocol string          // negotiated
	Discover json.RawMessage // the DiscoverResult (modern) or InitializeResult (legacy), exact bytes
}

// Open finds the backend's era: server/discover first, then initialize. preferred is the version known from last time, "" if none.
func (c *Client) Open(ctx context.Context, id routes.BackendID, b *routes.Backend, preferred string) (*Session, error) {
	panic("stub")
}

// Call makes one request and returns the exact result. A JSON-RPC error is *RPCError; anything else *Failure.
func (s *Session) Call(ctx context.Context, method string, params wire.Object) (json.RawMessage, error) {
	panic("stub")
}
func (s *Session) Close() { panic("stub") }

// RPCError is a backend's own JSON-RPC error.
type RPCError struct {
	Code    int
	Message string
	Data    json.RawMessage
}

func (e *RPCError) Error() string { return e.Message }
