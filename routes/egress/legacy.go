package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

const (
	// sideTimeout bounds what is sent beside a call: answers to a backend's requests, cancellation, the session's end.
	sideTimeout = 5 * time.Second
	// maxResumes bounds how often in a row the SDK tries to resume a stream that makes no progress.
	maxResumes = 3
	// maxReplies bounds how many of a backend's requests are answered at a time.
	maxReplies = 4
)

// legacyConn is one MCP connection to a backend of an older version, fresh for each call.
// Source: MCP 2025-11-25, basic/transports (streamable HTTP) and basic/lifecycle.
type legacyConn struct {
	c      *Client
	p      *pool
	limits limits
	wire   *sdkTransport // what the SDK sends goes through it
	conn   mcp.Connection
	lastID int64

	replies chan struct{} // bounds the answers to the backend's requests
}

// dialLegacy prepares a connection; it sends nothing. version is what is stated until a handshake negotiates another, empty for
// none.
func (c *Client) dialLegacy(p *pool, b *routes.Backend, header http.Header, version string) (*legacyConn, error) {
	l := &legacyConn{c: c, p: p, limits: limitsOf(b.Timeouts), replies: make(chan struct{}, maxReplies)}
	l.wire = newSDKTransport(c, p, l.limits, header, version)
	t := &mcp.StreamableClientTransport{
		Endpoint:             b.URL,
		HTTPClient:           &http.Client{Transport: l.wire, CheckRedirect: noRedirect},
		MaxRetries:           maxResumes,
		MaxEventSize:         int(min(c.opts.ResponseLimit, 1<<31-1)),
		DisableStandaloneSSE: true,
	}
	conn, err := t.Connect(context.Background()) // opens nothing; each Write has its own context
	if err != nil {
		return nil, err
	}
	l.conn = conn
	return l, nil
}

// callLegacy makes one call on a connection of its own.
func (c *Client) callLegacy(ctx context.Context, p *pool, call *Call) (*Answer, error) {
	direct := call.Session != "" || call.Backend.Handshake == routes.HandshakeNone
	version := ""
	if direct {
		version = call.Backend.Protocol
	}
	l, err := c.dialLegacy(p, call.Backend, call.Header, version)
	if err != nil {
		return nil, &Failure{Reason: ReasonUnreachable, Err: err}
	}
	if call.Session != "" {
		l.resume(call.Session)
	}
	end := time.Now().Add(l.limits.total)
	if !direct {
		if l, err = l.prepare(ctx, call); err != nil {
			return nil, err
		}
	}
	a, err := l.send(ctx, call.Method, call.Params, call.Memory, end)
	if call.Session != "" {
		if lost := a.lostSession(); lost != nil {
			err = lost
		}
	}
	if err != nil {
		a.end(false)
		return nil, err
	}
	a.client = call.RPCID
	return &Answer{src: a, streaming: a.x.streaming()}, nil
}

// prepare shakes hands for a call and sets its level of log messages. Where that took the connection with it, the call gets another
// one, without a level. The error is a *Failure, and then the connection is closed.
func (l *legacyConn) prepare(ctx context.Context, call *Call) (*legacyConn, error) {
	for _, level := range []string{call.LogLevel, ""} {
		if _, err := l.handshake(ctx, call.Backend.Protocol, call.Handshake.ClientInfo, call.Handshake.Capabilities); err != nil {
			l.close()
			f := failureOf(err)
			f.Sent = false // the call itself never left
			return nil, f
		}
		if level == "" || l.setLevel(ctx, level) {
			break
		}
		l.close()
		next, err := l.c.dialLegacy(l.p, call.Backend, call.Header, "")
		if err != nil {
			return nil, &Failure{Reason: ReasonUnreachable, Err: err}
		}
		l = next
	}
	return l, nil
}

// handshake sends initialize and notifications/initialized, and returns the InitializeResult in exact bytes. A JSON-RPC error is
// a *RPCError, anything else a *Failure.
func (l *legacyConn) handshake(ctx context.Context, version string, info, capabilities json.RawMessage) (json.RawMessage, error) {
	if info == nil {
		info = l.c.clientInfo
	}
	if capabilities == nil {
		capabilities = json.RawMessage("{}")
	}
	params := wire.Object{
		{Name: "protocolVersion", Value: wire.Quote(version)},
		{Name: "capabilities", Value: capabilities},
		{Name: "clientInfo", Value: info},
	}
	a, err := l.send(ctx, "initialize", params, nil, time.Now().Add(l.limits.total))
	defer a.end(true)
	if err != nil {
		return nil, err
	}
	result, err := a.result()
	if err != nil {
		return nil, err
	}
	negotiated := unquote(member(result, "protocolVersion"))
	if wire.EraOf(negotiated) != wire.Legacy {
		return nil, &Failure{Reason: ReasonBadResponse, Sent: true,
			Err: fmt.Errorf("the backend negotiated %q, which is no version with a handshake", negotiated)}
	}
	l.wire.setVersion(negotiated)
	return result, l.notify(ctx, "notifications/initialized", nil, l.limits.response)
}

// setLevel tells the backend from which level on this session wants log messages, and waits until it knows. False: the connection
// may be of no use any more. A JSON-RPC error is none: the session goes on without.
// Source: MCP 2025-11-25, server/utilities/logging (Setting Log Level).
func (l *legacyConn) setLevel(ctx context.Context, level string) bool {
	a, err := l.send(ctx, "logging/setLevel", wire.Object{{Name: "level", Value: wire.Quote(level)}}, nil, time.Now().Add(sideTimeout))
	if err == nil {
		_, err = a.result()
	}
	a.end(true)
	_, refused := errors.AsType[*RPCError](err)
	return err == nil || refused
}

// notify sends a notification and waits until it is accepted.
func (l *legacyConn) notify(ctx context.Context, method string, params json.RawMessage, timeout time.Duration) error {
	x := newExchange(ctx, l.limits.within(timeout))
	defer x.finish()
	s := &sdkExchange{exchange: x, kind: kindNotification}
	if err := l.conn.Write(s.context(), &jsonrpc.Request{Method: method, Params: params}); err != nil {
		return s.writeFailed(l, err)
	}
	return nil
}

// send writes a request, whose params lie in memory, and returns its answer, whose headers are there. The answer must be ended
// after an error too.
func (l *legacyConn) send(ctx context.Context, method string, params wire.Object, memory *wire.Memory, end time.Time) (*legacyAnswer, error) {
	l.lastID++
	id, _ := jsonrpc.MakeID(float64(l.lastID)) // takes any number
	x := newExchange(ctx, l.limits)
	x.end = end
	a := &legacyAnswer{l: l, x: &sdkExchange{exchange: x, kind: kindCall, number: l.lastID}, id: id, method: method}
	if meta, ok := params.Get("_meta"); ok {
		a.token = progressToken(meta)
	}
	_, a.task = params.Get("task")
	message := wire.Message{ID: strconv.AppendInt(nil, l.lastID, 10), Method: method, Params: params}
	a.x.message, a.x.memory = message.EncodeParts(), memory
	if err := l.conn.Write(a.x.context(), &jsonrpc.Request{ID: id, Method: method}); err != nil {
		if a.refusal = a.x.refusal(); a.refusal != nil {
			return a, nil
		}
		return a, a.x.writeFailed(l, err)
	}
	return a, nil
}

// close ends the connection and its session: in the background where the backend must be told.
func (l *legacyConn) close() {
	if l.wire.mine() && l.c.background(l.shut) {
		return
	}
	l.wire.stop() // no DELETE
	l.shut()
}

func (l *legacyConn) shut() {
	if !l.wire.mine() {
		l.wire.stop() // no DELETE
	}
	_ = l.conn.Close() // best effort: the backend expires the session by itself
	l.wire.stop()
}

// reply answers a request of the backend: pings, and nothing else. It does not wait.
func (l *legacyConn) reply(ctx context.Context, req *jsonrpc.Request) {
	resp := &jsonrpc.Response{ID: req.ID}
	if req.Method == "ping" {
		resp.Result = json.RawMessage("{}")
	} else {
		resp.Error = &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "not supported by this client"}
	}
	select {
	case l.replies <- struct{}{}:
	case <-ctx.Done():
		return
	}
	started := l.c.background(func() {
		defer func() { <-l.replies }()
		x := newExchange(ctx, l.limits.within(sideTimeout))
		defer x.finish()
		s := &sdkExchange{exchange: x, kind: kindSide}
		_ = l.conn.Write(s.context(), resp) // a backend that does not take the answer loses no call by it
	})
	if !started {
		<-l.replies
	}
}

// legacyAnswer is the answer of a legacy backend.
type legacyAnswer struct {
	l      *legacyConn
	x      *sdkExchange
	id     jsonrpc.ID      // ours: the SDK's type can't hold every JSON number
	client json.RawMessage // the client's id, exact text
	method string
	token  json.RawMessage // the call's progress token, nil if none
	task   bool            // the call is task-augmented: it is not cancelled this way
	// refusal is the JSON-RPC error that came with an error status, nil if none did.
	refusal json.RawMessage

	memory   *wire.Memory // of a JSON answer
	finished atomic.Bool  // the response was read
}

func (a *legacyAnswer) next() (Message, error) {
	if a.refusal != nil {
		a.finished.Store(true)
		return a.message(nil, a.refusal, a.x.httpStatus()), nil
	}
	if resp := a.x.document(); resp != nil {
		return a.whole(resp)
	}
	for {
		a.x.await()
		msg, err := a.l.conn.Read(a.x.ctx)
		a.x.awaited()
		if err != nil {
			return Message{}, a.x.readFailed(a.l, err)
		}
		switch m := msg.(type) {
		case *jsonrpc.Request:
			if m.IsCall() {
				a.l.reply(a.x.plain, m)
				continue
			}
			if m.Method == "notifications/progress" && !sameJSON(progressToken(m.Params), a.token) {
				continue // somebody else's
			}
			return notification(m), nil
		case *jsonrpc.Response:
			if m.ID != a.id {
				continue
			}
			return a.response(m)
		}
	}
}

// response turns the SDK's view of a stream's response into a message with the client's id.
func (a *legacyAnswer) response(m *jsonrpc.Response) (Message, error) {
	a.finished.Store(true)
	if kept := a.x.fetch(); kept != nil && string(m.Result) == "{}" { // the backend's first response counts
		a.memory = kept.memory
		return a.scanned(&kept.scan, 0), nil
	}
	if m.Error == nil {
		top, err := wire.ScanResult(m.Result)
		if err != nil {
			return Message{}, a.x.bad(err)
		}
		out := a.message(m.Result, nil, 0)
		out.Top = top
		return out, nil
	}
	we, ok := errors.AsType[*jsonrpc.Error](m.Error)
	if !ok { // the SDK's own text: the stream ended
		return Message{}, a.x.torn()
	}
	raw := fmt.Appendf(nil, `{"code":%d,"message":%s`, we.Code, wire.Quote(we.Message))
	if len(we.Data) > 0 {
		raw = append(append(raw, `,"data":`...), we.Data...)
	}
	return a.message(nil, append(raw, '}'), 0), nil
}

func (a *legacyAnswer) message(result, rpcErr json.RawMessage, status int) Message {
	id := a.client
	if id == nil {
		id = json.RawMessage("null")
	}
	return Message{Final: true, Result: result, Error: rpcErr, Status: status, id: id}
}

// result reads on to the response and returns its result; a JSON-RPC error is a *RPCError.
func (a *legacyAnswer) result() (json.RawMessage, error) {
	for {
		m, err := a.next()
		if err != nil {
			return nil, err
		}
		if m.Final {
			return resultOf(m)
		}
	}
}

func notification(m *jsonrpc.Request) Message {
	doc := wire.AppendRequest(make([]byte, 0, 64+len(m.Params)), nil, m.Method, nil)
	if len(m.Params) > 0 {
		doc = append(append(append(doc[:len(doc)-1], `,"params":`...), m.Params...), '}')
	}
	return Message{Doc: doc, Method: m.Method}
}

func (a *legacyAnswer) free() {
	a.memory.Release()
	a.memory = nil
}

// close ends the call and its connection.
func (a *legacyAnswer) close() { a.end(false) }

// end lets go of the answer, and of the connection unless keep. When the call may have reached the backend and its answer is still
// due, the backend is told that nobody waits any more.
// Source: MCP 2025-11-25, basic/utilities/cancellation: never for initialize, nor for a task-augmented request.
func (a *legacyAnswer) end(keep bool) {
	l, done := a.l, a.finished.Load()
	cancel := !done && a.x.sent() && a.x.httpStatus() < 300 && !a.task && a.method != "initialize"
	if !done {
		a.x.finish()
		if resp := a.x.document(); resp != nil {
			resp.Body.Close()
		}
	}
	if keep && !cancel {
		a.x.finish()
		return
	}
	ending := func() {
		if cancel {
			params := fmt.Appendf(nil, `{"requestId":%d,"reason":"the caller no longer waits"}`, a.x.number)
			_ = l.notify(context.Background(), "notifications/cancelled", params, sideTimeout) // fire and forget
		}
		if keep {
			return
		}
		a.x.settle()
		a.x.finish()
		l.shut()
	}
	if !l.c.background(ending) {
		a.x.finish()
		if !keep {
			l.wire.stop()
			l.shut()
		}
	}
}

// hideSession keeps a session id out of an error's text: whoever has it can act in the session.
func (l *legacyConn) hideSession(err error) error {
	if id := l.wire.session(); id != "" && strings.Contains(err.Error(), id) {
		return errors.New(strings.ReplaceAll(err.Error(), id, "…"))
	}
	return err
}
