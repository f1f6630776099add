package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes/wire"
)

// kind says what an exchange of the SDK's transport carries.
type kind uint8

const (
	kindCall         kind = iota // a request: its answer matters
	kindNotification             // its status matters
	kindSide                     // an answer to the backend's own request: nothing of it matters
)

// sdkExchange is an exchange that the SDK's transport makes for us. Every Write has its own; the SDK uses it again for the GETs
// that resume its stream.
type sdkExchange struct {
	*exchange
	kind kind
	// message goes out in the place of what the SDK encoded, which has no params: the SDK would write them anew, and decode
	// them to look for a version. Nil: what the SDK encoded.
	message [][]byte
	memory  *wire.Memory // that message lies in; nil: nothing lent
	number  int64        // the id of a call's request

	mu     sync.Mutex     // guards what follows; the SDK reads bodies in its own goroutines
	stream bool           // the answer is an event stream
	aside  *aside         // the response that came on it, if it is large
	json   *http.Response // the answer is one document, which is not read yet; the SDK has another one in its place
	body   []byte         // of an error status, bounded
	header http.Header
	failed error         // what ended the answer's body, nil: still open
	ended  chan struct{} // closed at the answer's end; nil: no answer yet
	awaits bool          // somebody waits for a message
}

type exchangeKey struct{}

// context returns the context for the SDK's Write; it lives until the exchange is finished.
func (s *sdkExchange) context() context.Context { return context.WithValue(s.ctx, exchangeKey{}, s) }

func (s *sdkExchange) streaming() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream
}

// document returns an answer that is one document; nil: there is none.
func (s *sdkExchange) document() *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.json
}

// refusal returns the JSON-RPC error that came with status 400 or 404, nil if there is none. Its id does not matter: the status
// answers this request.
func (s *sdkExchange) refusal() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status := s.httpStatus(); status != http.StatusBadRequest && status != http.StatusNotFound {
		return nil
	}
	scan, err := wire.ScanMessage(s.body)
	if err != nil || scan.Kind != wire.KindResponse {
		return nil
	}
	return scan.Error
}

// writeFailed turns the error of the SDK's Write into a *Failure.
func (s *sdkExchange) writeFailed(l *legacyConn, err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	s.mu.Lock()
	header := s.header
	s.mu.Unlock()
	if status := s.httpStatus(); status != 0 && (status < 200 || status > 299) {
		return s.refused(status, header)
	}
	return s.bad(l.hideSession(err))
}

// readFailed turns the error of the SDK's Read into a *Failure: all the SDK's errors look alike, what went over the wire does not.
func (s *sdkExchange) readFailed(l *legacyConn, err error) *Failure {
	s.mu.Lock()
	failed, header := s.failed, s.header
	s.mu.Unlock()
	status := s.httpStatus()
	switch {
	case context.Cause(s.ctx) != nil:
		return s.exchange.failed(err)
	case status != 0 && (status < 200 || status > 299): // of a GET that was to resume the stream
		return s.refused(status, header)
	case strings.Contains(err.Error(), "SSE event exceeded"): // the SDK's own text; a test pins it
		return s.exchange.failed(errTooLarge)
	case failed != nil && !errors.Is(failed, io.EOF):
		return s.exchange.failed(failed)
	}
	return s.bad(l.hideSession(err))
}

// torn is the *Failure of a stream that ended, or broke, before the response.
func (s *sdkExchange) torn() *Failure {
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	if failed == nil || errors.Is(failed, io.EOF) {
		return s.bad(errEarlyEnd)
	}
	return s.exchange.failed(failed)
}

// await begins a wait for a message. While a body is open its reads keep the idle deadline; where it has ended, the SDK may be
// waiting to resume the stream, and that is silence too.
func (s *sdkExchange) await() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaits = true
	if s.failed != nil {
		s.arm(phaseIdle, s.limits.idle)
	}
}

// awaited ends the wait.
func (s *sdkExchange) awaited() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaits = false
	if s.failed != nil {
		s.disarm()
	}
}

// settle waits a moment for the end of the answer's body, so that its connection can be used again.
func (s *sdkExchange) settle() {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if ended == nil {
		return
	}
	t := time.NewTimer(drainTime)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
	case <-s.ctx.Done():
	}
}

// sdkTransport is the http.RoundTripper of one legacy connection. It sends what the SDK's transport builds, with Weir's headers,
// deadlines and bounds, and keeps what the SDK's errors do not tell.
type sdkTransport struct {
	c      *Client
	p      *pool
	limits limits
	header http.Header // Weir's part of every request; read-only

	mu      sync.Mutex // guards what follows
	version string     // stated in every request, empty until it is negotiated
	id      string     // of the session, empty if none
	kept    bool       // the session outlives the connection
	stopped bool
}

func newSDKTransport(c *Client, p *pool, l limits, header http.Header, version string) *sdkTransport {
	t := &sdkTransport{c: c, p: p, limits: l, version: version, header: make(http.Header, len(header)+6)}
	addHeaders(t.header, header, wire.Legacy)
	if _, ok := t.header["User-Agent"]; !ok {
		t.header["User-Agent"] = c.userAgent
	}
	return t
}

func (t *sdkTransport) setVersion(v string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version = v
}

// session returns the session's id, empty if there is none.
func (t *sdkTransport) session() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.id
}

// resume makes the requests part of a session that was kept.
func (t *sdkTransport) resume(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.id, t.kept = id, true
}

func (t *sdkTransport) keep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = true
}

// mine reports whether there is a session that ends with the connection.
func (t *sdkTransport) mine() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.id != "" && !t.kept
}

// stop refuses every further request.
func (t *sdkTransport) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
}

// build makes the request to send out of the SDK's.
func (t *sdkTransport) build(req *http.Request) (request, error) {
	out := request{method: req.Method}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body) // from the SDK's own buffer
		req.Body.Close()
		if err != nil {
			return request{}, err
		}
		out.body = [][]byte{body}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return request{}, errFinished
	}
	h := make(http.Header, len(t.header)+6)
	for name, values := range t.header {
		h[name] = values
	}
	for _, name := range [...]string{"Content-Type", "Accept", headerSession, headerLastEvent} {
		if v, ok := req.Header[name]; ok {
			h[name] = v
		}
	}
	if t.id != "" {
		h[headerSession] = []string{t.id}
	}
	if t.version != "" {
		h[headerVersion] = []string{t.version}
	}
	out.header = h
	return out, nil
}

// RoundTrip implements http.RoundTripper.
func (t *sdkTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	out, err := t.build(req)
	if err != nil {
		return nil, err
	}
	s, _ := req.Context().Value(exchangeKey{}).(*sdkExchange)
	if s == nil { // the DELETE that ends the session
		x := newExchange(req.Context(), t.limits.within(sideTimeout))
		defer x.finish()
		resp, err := t.p.roundTrip(x, out)
		if err != nil {
			return nil, err
		}
		return emptied(resp, resp.StatusCode), nil
	}
	if s.message != nil && req.Method == http.MethodPost {
		out.body, out.memory = s.message, s.memory
	}
	resp, err := t.p.roundTrip(s.exchange, out)
	if err != nil {
		if s.kind == kindSide {
			return emptied(nil, http.StatusAccepted), nil
		}
		return nil, err
	}
	if id := resp.Header.Get(headerSession); id != "" {
		t.mu.Lock()
		if t.id == "" {
			t.id = id // the SDK refuses another one later on
		}
		t.mu.Unlock()
	}
	switch {
	case s.kind == kindSide:
		return emptied(resp, http.StatusAccepted), nil
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return s.keepRefusal(resp, t.c.opts.ResponseLimit)
	case s.kind == kindNotification:
		return emptied(resp, resp.StatusCode), nil
	}
	return t.keepAnswer(s, resp, req.Method)
}

// keepRefusal reads the body of an error status, for us and for the SDK.
func (s *sdkExchange) keepRefusal(resp *http.Response, limit int64) (*http.Response, error) {
	body, err := wire.ReadBody(resp.Body, resp.ContentLength, min(limit, maxRefusal))
	resp.Body.Close()
	if err != nil {
		body = nil // the status alone says enough
	}
	s.mu.Lock()
	s.header = resp.Header
	if media, _ := mediaOf(resp.Header); media == mediaJSON {
		s.body = body
	}
	s.mu.Unlock()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// maxRefusal bounds the body of an error status, in bytes.
const maxRefusal = 1 << 20

// keepAnswer watches how a stream ends, and sets aside what the SDK need not see.
func (t *sdkTransport) keepAnswer(s *sdkExchange, resp *http.Response, method string) (*http.Response, error) {
	media, ok := mediaOf(resp.Header)
	if !ok || resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusNoContent {
		resp.Body.Close()
		if ok || resp.StatusCode != http.StatusOK {
			return nil, s.refused(resp.StatusCode, resp.Header)
		}
		return nil, s.bad(errBadMedia)
	}
	if media == mediaJSON && method != http.MethodPost { // what resumes a stream is a stream
		resp.Body.Close()
		return nil, s.bad(errBadMedia)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if media == mediaJSON {
		s.json = resp
		body := instead(s.number)
		return &http.Response{
			Status: resp.Status, StatusCode: resp.StatusCode, Proto: resp.Proto, ProtoMajor: resp.ProtoMajor, ProtoMinor: resp.ProtoMinor,
			Header: resp.Header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		}, nil
	}
	s.stream = true
	s.failed, s.ended = nil, make(chan struct{})
	lines := newPlainLines(&watchedBody{ReadCloser: resp.Body, s: s, ended: s.ended})
	resp.Body = newAsideReader(lines, s, &t.c.buffers, t.c.opts.ResponseLimit)
	return resp, nil
}

// watchedBody notes how a stream's body ends; the SDK bounds each event.
type watchedBody struct {
	io.ReadCloser
	s     *sdkExchange
	ended chan struct{}
	once  sync.Once
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end(err)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	b.end(io.EOF)
	return b.ReadCloser.Close()
}

func (b *watchedBody) end(err error) {
	b.once.Do(func() {
		b.s.mu.Lock()
		defer b.s.mu.Unlock()
		b.s.failed = err
		if b.s.awaits {
			b.s.arm(phaseIdle, b.s.limits.idle)
		}
		close(b.ended)
	})
}

// emptied drains a body that nobody reads, so that its connection can be used again, and returns the answer without it.
func emptied(resp *http.Response, status int) *http.Response {
	if resp == nil {
		resp = &http.Response{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}}
	} else {
		_, _ = io.CopyN(io.Discard, resp.Body, drainBytes)
		resp.Body.Close()
	}
	resp.StatusCode, resp.Status = status, http.StatusText(status)
	resp.Body, resp.ContentLength = http.NoBody, 0
	return resp
}
