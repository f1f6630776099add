package egress

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// DefaultResponseLimit is the response limit where Options name none.
const DefaultResponseLimit = 16 << 20

// Options of a Client. The zero value is usable.
type Options struct {
	// ResponseLimit bounds one JSON answer, and one event, in bytes. Zero means DefaultResponseLimit.
	ResponseLimit int64
	// Expand resolves the secret references of a backend's AddHeaders, for sessions (the headers of a Call come resolved).
	// Nil: values with references are refused.
	Expand func(string) (string, error)
	// Breaker opens a backend's circuit when it fails too often; nil: no breaker.
	Breaker *BreakerOptions
	// Name and Version are the clientInfo that Weir shows to backends of its own accord. Empty: "weir" and "0".
	Name, Version string
}

// Client calls backends. It is safe for concurrent use; it pools TCP and TLS connections, never an MCP session.
type Client struct {
	opts       Options
	clientInfo json.RawMessage
	userAgent  []string // the header's value; read-only
	pools      pools
	buffers    wire.Buffers // for large answers

	mu       sync.Mutex // guards what follows
	running  int        // background work; see background
	closed   bool
	finished sync.Cond // signalled when running falls
}

// maxBackground bounds what runs in the background at a time: legacy sessions being closed (one round trip as a rule, 5 s where
// the backend does not answer), cancellations, answers being drained. What is over it is left out; backends expire sessions.
const maxBackground = 1024

// New checks the options. It starts nothing.
func New(o Options) (*Client, error) {
	if o.ResponseLimit < 0 {
		return nil, errors.New("egress: ResponseLimit must not be negative")
	}
	o.ResponseLimit = cmp.Or(o.ResponseLimit, DefaultResponseLimit)
	o.Name, o.Version = cmp.Or(o.Name, "weir"), cmp.Or(o.Version, "0")
	info, err := json.Marshal(struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}{o.Name, o.Version})
	if err != nil {
		return nil, err
	}
	c := &Client{opts: o, clientInfo: info, userAgent: []string{o.Name + "/" + o.Version}}
	c.pools.breaker = o.Breaker
	c.finished.L = &c.mu
	return c, nil
}

// Close waits for legacy sessions that are still being closed (10 s at most: a cancellation, then
// the session's end) and closes idle connections. The caller ends
// its calls first.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	for c.running > 0 {
		c.finished.Wait()
	}
	c.mu.Unlock()
	c.pools.closeIdle()
}

// background runs f in a goroutine that Close waits for, or not at all when too many run already.
func (c *Client) background(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.running >= maxBackground {
		return false
	}
	c.running++
	go func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.running--
			c.finished.Broadcast()
		}()
		f()
	}()
	return true
}

// Call is one request to one backend.
type Call struct {
	ID      routes.BackendID
	Backend *routes.Backend
	// RPCID is the client's id, exact text; it comes back in the response.
	RPCID  json.RawMessage
	Method string
	// Name is the upstream name, URI or task id, for Mcp-Name; empty: no such header.
	Name   string
	Params wire.Object
	// Memory is what Params lie in, where that was lent: it is held for as long as the call is being sent, which may be longer than
	// the call lasts. Nil: they lie in memory that nobody uses again.
	Memory *wire.Memory
	// Header was computed by the plane (passthrough, add, Mcp-Param-*, trace context); nil: none. Protected names in it are
	// not sent (see headers.go). It is not changed.
	Header http.Header
	// Handshake is what a legacy backend is told in initialize; zero: Options' own.
	Handshake struct {
		ClientInfo, Capabilities json.RawMessage
	}
	// LogLevel is what a legacy backend is told by logging/setLevel in a session of the call's own, before the call: another round
	// trip. Empty, or without a handshake: nothing. What the backend says to it does not matter.
	LogLevel string
	// Principal is who calls, for the circuit breaker; empty: nobody in particular.
	Principal string
	// Probe: the call goes past the circuit breaker, which does not learn of it.
	Probe bool
	// Session is the id of a legacy backend's session that was kept (Answer.KeepSession): the call is made in it, without a
	// handshake, and the session is left alone afterwards. Empty: a session of its own.
	Session string
}

// Message is one message of an answer.
type Message struct {
	// Final: this is the response. Result or Error is set.
	Final bool
	// Doc is a notification in exact bytes; the response, where the backend is modern and wrote RPCID just so, else nil (see Parts).
	Doc []byte
	// Method is a notification's.
	Method string
	// Result and Error are exact bytes.
	Result json.RawMessage
	Error  json.RawMessage
	// Top is what stands at the top of Result, where there is one.
	Top wire.ResultScan
	// Status is that of a Final message from a JSON answer: 200, 400 or 404. It is 0 on a stream.
	Status int

	id json.RawMessage // RPCID
}

// Parts returns the message as a document, of which it may be large parts: they are not copied. A response has RPCID as its id.
func (m *Message) Parts() [][]byte {
	switch {
	case m.Doc != nil:
		return [][]byte{m.Doc}
	case m.Error != nil:
		return wire.ResponseParts(m.id, "error", m.Error)
	}
	return wire.ResponseParts(m.id, "result", m.Result)
}

// Answer is a call in flight. It is not safe for concurrent use, but Close is. Every Answer must be closed.
type Answer struct {
	src       source
	permit    *permit
	streaming bool
	once      sync.Once
	done      bool // the Final message was returned, or a failure
	err       error
}

// source yields the messages of one answer.
type source interface {
	// next returns the next message; the error is a *Failure.
	next() (Message, error)
	// free lets go of the memory of the messages; no call of next follows.
	free()
	// close ends the exchange. It may be called while next runs, and is called once.
	close()
}

// Do sends the call and returns once the answer's headers are there. Cancelling ctx cancels upstream. The error is a *Failure.
func (c *Client) Do(ctx context.Context, call Call) (*Answer, error) {
	p, err := c.pools.get(call.ID, call.Backend)
	if err != nil {
		return nil, &Failure{Reason: ReasonUnreachable, Err: err}
	}
	var leave *permit
	if !call.Probe {
		if leave, err = p.breaker.allow(call.Principal); err != nil {
			return nil, err
		}
	}
	var a *Answer
	if wire.EraOf(call.Backend.Protocol) == wire.Modern {
		a, err = c.relay(ctx, p, &call)
	} else {
		a, err = c.callLegacy(ctx, p, &call)
	}
	if err != nil {
		leave.ended(err)
		return nil, err
	}
	a.permit = leave
	if a.streaming {
		leave.streaming()
	}
	return a, nil
}

// Streaming reports whether the backend answers with an event stream.
func (a *Answer) Streaming() bool { return a.streaming }

// Next returns the next message; after a Final one, io.EOF. Other errors are *Failure, and stay.
func (a *Answer) Next() (Message, error) {
	if a.done {
		return Message{}, a.err
	}
	m, err := a.src.next()
	if err != nil || m.Final {
		a.permit.ended(err)
		a.done, a.err = true, cmp.Or(err, errEnd)
	}
	return m, err
}

// Close ends the call. Before the Final message it cancels upstream: the connection is closed, and a legacy backend is sent
// notifications/cancelled in the background.
func (a *Answer) Close() {
	a.once.Do(func() {
		a.permit.abandoned() // unless its end is known
		a.src.close()
	})
}

// Free says that nobody will look at the answer's messages any more, so that their memory can serve another call; they are garbage
// without it. It comes after the Final message and before Close.
func (a *Answer) Free() {
	if a.done {
		a.src.free()
	}
}

// Session returns the id of the legacy session in which the call is made, empty if there is none.
func (a *Answer) Session() string {
	if l, ok := a.src.(*legacyAnswer); ok {
		return l.l.wire.session()
	}
	return ""
}

// KeepSession leaves the legacy session alive beyond Close, for calls that follow (Call.Session).
func (a *Answer) KeepSession() {
	if l, ok := a.src.(*legacyAnswer); ok {
		l.l.wire.keep()
	}
}

// limits are a backend's deadlines with their defaults filled in.
type limits struct{ response, idle, total time.Duration }

// Defaults of routes.Timeouts.
const (
	defaultConnect  = 5 * time.Second
	defaultResponse = 60 * time.Second
	defaultIdle     = 5 * time.Minute
	defaultTotal    = time.Hour
)

func limitsOf(t routes.Timeouts) limits {
	return limits{
		response: cmp.Or(t.Response, defaultResponse),
		idle:     cmp.Or(t.Idle, defaultIdle),
		total:    cmp.Or(t.Total, defaultTotal),
	}
}

// within returns the limits of something that must not take longer than d.
func (l limits) within(d time.Duration) limits {
	return limits{response: min(l.response, d), idle: min(l.idle, d), total: min(l.total, d)}
}
