package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

var errNoSecrets = errors.New("a header refers to a secret and none may be read")

// Session is discovery's way: several requests to one backend, whose era Open found. It is safe for concurrent use; calls to a
// legacy backend take turns.
type Session struct {
	Protocol string          // negotiated
	Discover json.RawMessage // the DiscoverResult (modern) or InitializeResult (legacy), exact bytes

	c       *Client
	id      routes.BackendID
	backend routes.Backend // a copy, with Protocol
	header  http.Header

	mu     sync.Mutex  // guards what follows
	legacy *legacyConn // nil: modern
	lastID int64
}

// Open finds the backend's era: server/discover first; on anything but a recognized modern error, initialize. preferred is the
// version known from last time, "" if none: it is tried first where it is modern. The error is a *Failure, or a *RPCError when a modern
// backend refuses server/discover or a legacy one initialize.
// Source: MCP 2026-07-28, basic/versioning and basic/transports/streamable-http (Backward Compatibility).
func (c *Client) Open(ctx context.Context, id routes.BackendID, b *routes.Backend, preferred string) (*Session, error) {
	header, err := c.Header(b)
	if err != nil {
		return nil, &Failure{Reason: ReasonAuthFailed, Err: err}
	}
	s := &Session{c: c, id: id, backend: *b, header: header}
	version := wire.LatestModern
	if preferred != "" && wire.EraOf(preferred) == wire.Modern && wire.Served(preferred) {
		version = preferred
	}
	modernErr := s.openModern(ctx, version)
	if modernErr == nil {
		return s, nil
	}
	if !tryInitialize(ctx, modernErr) {
		return nil, modernErr
	}
	legacyErr := s.openLegacy(ctx, preferred)
	if legacyErr == nil {
		return s, nil
	}
	if f, ok := errors.AsType[*Failure](modernErr); ok && f.Reason == ReasonAuthFailed {
		return nil, f // initialize was refused for the same reason, or for a lesser one
	}
	return nil, legacyErr
}

// errNoCommonVersion is a modern backend that serves no modern version which Weir does.
var errNoCommonVersion = errors.New("no common protocol version")

// tryInitialize reports whether a failed server/discover leaves room for a legacy backend.
func tryInitialize(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	if errors.Is(err, errNoCommonVersion) {
		return true // it may be an older version that we share
	}
	if re, ok := errors.AsType[*RPCError](err); ok {
		return !modernCode(re.Code)
	}
	f, ok := errors.AsType[*Failure](err)
	if !ok {
		return true
	}
	switch f.Reason {
	case ReasonUnreachable, ReasonTimeout, ReasonRateLimited, ReasonOverloaded:
		return false // says nothing about the era: another time it may answer
	}
	return true
}

// modernCode reports whether only a modern server answers with this code.
func modernCode(code int) bool {
	switch code {
	case wire.CodeHeaderMismatch, wire.CodeMissingCapability, wire.CodeUnsupportedVersion:
		return true
	}
	return false
}

func (s *Session) openModern(ctx context.Context, version string) error {
	s.backend.Protocol = version
	result, err := s.callModern(ctx, "server/discover", nil)
	if err != nil {
		return err
	}
	if !s.supports(result, s.backend.Protocol) {
		return &Failure{Reason: ReasonBadResponse, Sent: true, Status: http.StatusOK, Err: errNoCommonVersion}
	}
	s.Protocol, s.Discover = s.backend.Protocol, result
	return nil
}

// supports reports whether a DiscoverResult lists the version. A result that lists none is no DiscoverResult.
func (s *Session) supports(result json.RawMessage, version string) bool {
	var d struct {
		SupportedVersions []string `json:"supportedVersions"`
	}
	if json.Unmarshal(result, &d) != nil {
		return false
	}
	for _, v := range d.SupportedVersions {
		if v == version {
			return true
		}
	}
	return false
}

func (s *Session) openLegacy(ctx context.Context, preferred string) error {
	p, err := s.c.pools.get(s.id, &s.backend)
	if err != nil {
		return &Failure{Reason: ReasonUnreachable, Err: err}
	}
	l, err := s.c.dialLegacy(p, &s.backend, s.header, "")
	if err != nil {
		return &Failure{Reason: ReasonUnreachable, Err: err}
	}
	version := wire.LatestLegacy
	if preferred != "" && wire.EraOf(preferred) == wire.Legacy && wire.Served(preferred) {
		version = preferred
	}
	result, err := l.handshake(ctx, version, nil, nil)
	if err != nil {
		l.close()
		return err
	}
	s.legacy = l
	s.Protocol, s.Discover = unquote(member(result, "protocolVersion")), result
	s.backend.Protocol = s.Protocol
	return nil
}

// Call makes one request and returns the exact result. A JSON-RPC error is a *RPCError; anything else a *Failure. params is what the
// method needs; the protocol's own members of _meta are added for a modern backend. Notifications on the way are dropped.
func (s *Session) Call(ctx context.Context, method string, params wire.Object) (json.RawMessage, error) {
	s.mu.Lock()
	if s.legacy == nil {
		s.mu.Unlock()
		return s.callModern(ctx, method, params)
	}
	defer s.mu.Unlock()
	if params == nil {
		params = wire.Object{}
	}
	a, err := s.legacy.send(ctx, method, params, nil, time.Now().Add(s.legacy.limits.total))
	defer a.end(true)
	if err != nil {
		return nil, err
	}
	return a.result()
}

// callModern makes one request; when the backend does not serve our version but another one that we know, once more with that.
func (s *Session) callModern(ctx context.Context, method string, params wire.Object) (json.RawMessage, error) {
	s.mu.Lock()
	b := s.backend
	s.mu.Unlock()
	result, err := s.post(ctx, &b, method, params)
	re, ok := errors.AsType[*RPCError](err)
	if !ok || re.Code != wire.CodeUnsupportedVersion {
		return result, err
	}
	if b.Protocol = commonVersion(re.Data, b.Protocol); b.Protocol == "" {
		return nil, fmt.Errorf("%w: %w", errNoCommonVersion, err)
	}
	if result, err = s.post(ctx, &b, method, params); err == nil {
		s.mu.Lock()
		s.backend.Protocol = b.Protocol
		s.mu.Unlock()
	}
	return result, err
}

// commonVersion picks the newest modern version that both sides serve out of a -32022's data; not the one that was refused.
func commonVersion(data json.RawMessage, refused string) string {
	var d struct {
		Supported []string `json:"supported"`
	}
	if json.Unmarshal(data, &d) != nil {
		return ""
	}
	for _, ours := range wire.Versions { // newest first
		for _, v := range d.Supported {
			if v == ours && v != refused && wire.EraOf(v) == wire.Modern {
				return v
			}
		}
	}
	return ""
}

func (s *Session) post(ctx context.Context, b *routes.Backend, method string, params wire.Object) (json.RawMessage, error) {
	s.mu.Lock()
	s.lastID++
	id := strconv.AppendInt(nil, s.lastID, 10)
	s.mu.Unlock()
	var meta wire.Object
	if raw, ok := params.Get("_meta"); ok {
		m, err := wire.ParseObject(raw)
		if err != nil {
			return nil, &Failure{Reason: ReasonBadResponse, Err: err}
		}
		meta = m
	}
	meta = meta.With(wire.MetaProtocolVersion, wire.Quote(b.Protocol)).
		With(wire.MetaClientInfo, s.c.clientInfo).
		With(wire.MetaClientCapabilities, json.RawMessage("{}"))
	raw, _ := meta.MarshalJSON() // never fails
	name, _ := params.Text("name")
	if name == "" {
		name, _ = params.Text("uri")
	}
	a, err := s.c.Do(ctx, Call{
		ID: s.id, Backend: b, RPCID: id, Method: method, Name: name,
		Params: params.With("_meta", raw), Header: s.header, Probe: true,
	})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	for {
		m, err := a.Next()
		if err != nil {
			return nil, err
		}
		if m.Final {
			return resultOf(m)
		}
	}
}

// Close ends the session. A legacy backend's is deleted in the background.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.legacy != nil {
		s.legacy.close()
	}
}

// resultOf splits a final message.
func resultOf(m Message) (json.RawMessage, error) {
	if m.Error == nil {
		return m.Result, nil
	}
	re := new(RPCError)
	if err := json.Unmarshal(m.Error, re); err != nil {
		return nil, &Failure{Reason: ReasonBadResponse, Sent: true, Status: m.Status, Err: errors.New("the answer's error is malformed")}
	}
	return nil, re
}

// failureOf makes a *Failure of any error of a handshake.
func failureOf(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		out := *f
		return &out
	}
	return &Failure{Reason: ReasonBadResponse, Err: fmt.Errorf("handshake refused: %w", err)}
}
