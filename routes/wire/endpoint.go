package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
)

// Authenticator verifies a bearer token; *access.Verifier implements it.
type Authenticator interface {
	Verify(ctx context.Context, token, resource string) (*access.Identity, error)
}

// Options of an Endpoint.
type Options struct {
	Auth      Authenticator    // nil: Anonymous is used for every call
	Anonymous *access.Identity // needed when Auth is nil
	// Recheck is asked about the caller of each stream twice a second while it is open; an error ends the stream, and the
	// request's context with that cause. Nil: nobody is asked.
	Recheck func(context.Context, *access.Identity) error
	// Resolve finds a host's table; errors: routes.ErrUnknownHost → 404, any other one → 503 + Retry-After. Nil: Request.Index
	// stays nil.
	Resolve func(context.Context, routes.HostID) (*routes.Index, error)
	// Dispatch answers a checked request or notification (ID nil). It must answer exactly once, before it returns; what it
	// leaves unanswered is -32603, or 202 for a notification. A panic is -32603 too.
	Dispatch func(*Response, *Request)
	Limits   Limits

	PublicURL      string   // absolute, may have a path; empty: derived from each request's Host
	AllowedOrigins []string // exact serialized origins; PublicURL's is always allowed
	AllowedHosts   []string // host or host:port; PublicURL's is always allowed; empty: any
	Loopback       bool     // the listener is loopback: empty lists then take loopback origins and names only
	AuthServers    []string // issuers, for RFC 9728 metadata
	Scopes         []string // scopes_supported of the metadata; empty: left out

	ClientInfo   json.RawMessage // for Request.ClientInfo
	KeepAlive    time.Duration   // comment interval on streams; zero: 15s
	WriteTimeout time.Duration   // for one write to a client that does not read; zero: 30s
	BodyTimeout  time.Duration   // for reading a request's body; zero: 30s
	Draining     func() bool     // true: answers carry Connection: close. nil: never
	OnDone       func(Summary)   // called once per HTTP request, for logs and metrics; nil: nothing
	// OnPanic is told what Dispatch panicked with and where, for the log; nil: nothing.
	OnPanic func(v any, stack []byte)
}

// Summary is one line of log per request; never arguments, tokens or bodies.
type Summary struct {
	Host         routes.HostID
	Method, Name string // of the message; empty when it was refused before it was decoded
	Era          Era
	Status, Code int    // Code 0: no error
	Reason       string // data.reason, or a word for what was refused
	Duration     time.Duration
	Err          error // what stands behind a refusal, for the log only; nil for most
}

// Endpoint is the http.Handler of /mcp, /servers/{host}/mcp and the metadata paths. Safe for concurrent use.
type Endpoint struct {
	o      Options
	public *publicURL // nil: derived from the request
	gate   *gate
	bodies Buffers // for large requests
}

// NewEndpoint checks the options; it starts nothing.
func NewEndpoint(o Options) (*Endpoint, error) {
	switch {
	case o.Dispatch == nil:
		return nil, errors.New("endpoint: Dispatch is required")
	case o.Auth == nil && o.Anonymous == nil:
		return nil, errors.New("endpoint: Auth or Anonymous is required")
	}
	public, err := parsePublicURL(o.PublicURL)
	if err != nil {
		return nil, fmt.Errorf("endpoint: public URL: %w", err)
	}
	g, err := newGate(o.AllowedOrigins, o.AllowedHosts, public, o.Loopback)
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	o.Limits = o.Limits.withDefaults()
	o.KeepAlive = orDefault(o.KeepAlive, 15*time.Second)
	o.WriteTimeout = orDefault(o.WriteTimeout, 30*time.Second)
	o.BodyTimeout = orDefault(o.BodyTimeout, 30*time.Second)
	return &Endpoint{o: o, public: public, gate: g}, nil
}

func orDefault(d, or time.Duration) time.Duration {
	if d <= 0 {
		return or
	}
	return d
}

// ServeHTTP answers one HTTP request.
func (e *Endpoint) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	x := &exchange{e: e, r: r, w: Response{
		w: rw, rc: http.NewResponseController(rw), keepAlive: e.o.KeepAlive, patience: e.o.WriteTimeout,
	}}
	x.w.x = x
	if e.o.OnDone != nil {
		start := time.Now()
		defer func() { e.o.OnDone(x.summary(time.Since(start))) }()
	}
	if e.o.Draining != nil && e.o.Draining() {
		rw.Header().Set("Connection", "close")
	}
	x.serve()
}

// exchange is one HTTP request on its way through the checks.
type exchange struct {
	e    *Endpoint
	r    *http.Request
	w    Response
	req  Request
	path endpointPath
	// foreign: there is an Origin, and it is not allowed.
	foreign bool
	err     error // behind a refusal, for the log
}

func (x *exchange) summary(took time.Duration) Summary {
	s := Summary{
		Host: x.req.Host, Name: x.req.Name, Era: x.req.Era,
		Status: x.w.status, Code: x.w.code, Reason: x.w.reason, Duration: took, Err: x.err,
	}
	if x.req.Message != nil {
		s.Method = x.req.Method
	}
	return s
}

// serve is the order of the checks. Every step answers itself when it refuses.
func (x *exchange) serve() {
	x.path = x.e.parsePath(x.r.URL.EscapedPath())
	x.admitOrigin()
	switch x.path.kind {
	case pathUnknown:
		x.refuse(http.StatusNotFound, "not_found", "Not found")
	case pathMetadata:
		x.serveMetadata()
	default:
		x.serveMCP()
	}
}

func (x *exchange) serveMCP() {
	if !x.methodAllowed() || !x.withinBudget() || !x.throughGate() {
		return
	}
	if x.r.Method == http.MethodOptions {
		x.preflight()
		return
	}
	if !x.authenticate() || !x.selectHost() {
		return
	}
	if x.r.Method == http.MethodDelete { // a legacy client ends the session that it never had
		x.w.status = http.StatusNoContent
		x.w.w.WriteHeader(http.StatusNoContent)
		return
	}
	if !x.resolve() || !x.mediaTypes() {
		return
	}
	if body, memory, ok := x.readBody(); ok {
		x.message(body, memory)
	}
}

// methodAllowed answers 405 to all but POST, OPTIONS, and DELETE of a legacy client.
// Source: MCP 2026-07-28, basic/transports/streamable-http (Earlier Streamable HTTP Revisions).
func (x *exchange) methodAllowed() bool {
	switch x.r.Method {
	case http.MethodPost, http.MethodOptions:
		return true
	case http.MethodDelete:
		version, err := statedVersion(x.r.Header)
		if err == nil && (version == "" || EraOf(version) == Legacy) {
			return true
		}
	}
	x.w.w.Header().Set("Allow", http.MethodPost)
	x.refuse(http.StatusMethodNotAllowed, "method", "Method not allowed")
	return false
}

func (x *exchange) withinBudget() bool {
	if x.e.o.Limits.withinBudget(x.r.Header) {
		return true
	}
	x.refuse(http.StatusRequestHeaderFieldsTooLarge, "mcp_headers", "Too many or too large MCP headers")
	return false
}

// selectHost finds the virtual host: from the path if it names one, else the only one of the token.
func (x *exchange) selectHost() bool {
	id := x.req.Identity
	if x.path.kind == pathHost {
		host := routes.HostID(x.path.host)
		if x.malformedHost() || !id.MayUse(host) {
			x.unknownHost()
			return false
		}
		x.req.Host = host
		return true
	}
	switch len(id.Hosts) {
	case 0:
		x.unknownHost()
		return false
	case 1:
		x.req.Host = id.Hosts[0]
		return true
	}
	paths := make([]string, len(id.Hosts))
	for i, h := range id.Hosts {
		paths[i] = "/servers/" + string(h) + "/mcp"
	}
	x.refuse(http.StatusBadRequest, "several_hosts",
		"The token is for several servers; use the path of one: "+strings.Join(paths, ", "))
	return false
}

// unknownHost is the one answer for every host that is not to be had, so that none can be told from another.
func (x *exchange) unknownHost() { x.refuse(http.StatusNotFound, "unknown_host", "Server not found") }

func (x *exchange) resolve() bool {
	if x.e.o.Resolve == nil {
		return true
	}
	index, err := x.e.o.Resolve(x.r.Context(), x.req.Host)
	switch {
	case err == nil:
		x.req.Index = index
		return true
	case errors.Is(err, routes.ErrUnknownHost):
		x.err = err
		x.unknownHost()
	case errors.Is(err, routes.ErrNotPublished):
		x.err = err
		setRetryAfter(x.w.w.Header(), retryUnavailable)
		x.refuse(http.StatusServiceUnavailable, "not_published", "Nothing published yet")
	default:
		x.err = err
		setRetryAfter(x.w.w.Header(), retryUnavailable)
		x.refuse(http.StatusServiceUnavailable, "unavailable", "Server not available")
	}
	return false
}

// message decodes, checks and dispatches.
func (x *exchange) message(body []byte, memory *Memory) {
	m, err := DecodeMessage(body)
	if m != nil {
		x.w.id = m.ID
	}
	if err != nil {
		x.w.era = x.headerEra()
		x.w.Fail(err)
		return
	}
	x.req.Message, x.req.Memory, x.req.HTTP, x.req.ClientInfo, x.req.x = m, memory, x.r, x.e.o.ClientInfo, x
	x.req.Era, x.req.Version, err = negotiate(x.r.Header, m)
	x.w.era = x.req.Era
	if err == nil && m.ID != nil {
		x.req.Name, err = nameOf(m)
		if x.req.Era == Modern {
			err = firstError(checkModern(x.r.Header, m, x.req.Name, err))
		}
	}
	if err != nil {
		x.w.Fail(err)
		return
	}
	x.dispatch()
}

// headerEra tells the era of a body that could not be decoded.
func (x *exchange) headerEra() Era {
	version, err := statedVersion(x.r.Header)
	if err != nil || version != "" && EraOf(version) == Modern {
		return Modern
	}
	return Legacy
}

// checkModern makes the checks that only modern requests get: headers first, then _meta, then what the body itself lacks.
func checkModern(h http.Header, m *Message, name string, nameErr *Error) (header, meta, body *Error) {
	if nameErr == nil {
		header = checkStandardHeaders(h, m, name)
	}
	return header, checkMeta(m.Meta), nameErr
}

func firstError(errs ...*Error) *Error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// dispatch hands the request on and makes sure that it is answered.
func (x *exchange) dispatch() {
	defer x.watchCaller()()
	defer func() {
		if v := recover(); v != nil {
			x.w.reuse = false // who knows what it left behind
			if v == http.ErrAbortHandler {
				x.w.abort()
				panic(v)
			}
			if x.e.o.OnPanic != nil {
				x.e.o.OnPanic(v, debug.Stack())
			}
		}
		x.unanswered()
		x.w.release()
		if x.w.reuse {
			x.req.Memory.Release()
		}
	}()
	x.e.o.Dispatch(&x.w, &x.req)
}

// unanswered ends what Dispatch did not.
func (x *exchange) unanswered() {
	switch {
	case x.w.Done():
	case x.req.ID == nil && !x.w.Started():
		x.w.Accepted()
	default:
		x.w.Fail(Internal("", ""))
	}
}

// refuse answers what never became a message: {"detail": …}.
func (x *exchange) refuse(status int, reason, detail string) {
	w := &x.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reason = reason
	doc := append(appendQuoted([]byte(`{"detail":`), detail), '}')
	w.document(status, doc)
}
