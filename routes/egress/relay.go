package egress

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-mcp/weir/routes/wire"
)

// relay sends one call to a modern backend: one POST, whose answer is one JSON document or one event stream.
// Source: MCP 2026-07-28, basic/transports/streamable-http.
func (c *Client) relay(ctx context.Context, p *pool, call *Call) (*Answer, error) {
	x := newExchange(ctx, limitsOf(call.Backend.Timeouts))
	id := upstreamID(call.RPCID)
	message := wire.Message{ID: id, Method: call.Method, Params: call.Params}
	resp, err := p.roundTrip(x, request{http.MethodPost, c.header(call), message.EncodeParts(), call.Memory})
	if err != nil {
		x.finish()
		return nil, err
	}
	r := &relayed{c: c, x: x, resp: resp, id: id, client: call.RPCID}
	if streaming, err := r.check(); err != nil {
		x.finish()
		resp.Body.Close()
		return nil, err
	} else if streaming {
		r.events = c.buffers.NewEventReader(resp.Body, c.opts.ResponseLimit)
		if meta, ok := call.Params.Get("_meta"); ok {
			r.token = progressToken(meta)
		}
	}
	return &Answer{src: r, streaming: r.events != nil}, nil
}

// header builds the headers of a modern call's POST.
func (c *Client) header(call *Call) http.Header {
	h := make(http.Header, len(call.Header)+6)
	addHeaders(h, call.Header, wire.Modern)
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = c.userAgent
	}
	h["Content-Type"] = valueJSON
	h["Accept"] = valueAccept
	values := [...]string{call.Backend.Protocol, wire.EncodeHeaderValue(call.Method), wire.EncodeHeaderValue(call.Name)}
	h[headerVersion] = values[0:1:1]
	h[headerMethod] = values[1:2:2]
	if call.Name != "" {
		h[headerName] = values[2:3:3]
	}
	return h
}

// relayed is the answer of a modern backend.
type relayed struct {
	c      *Client
	x      *exchange
	resp   *http.Response
	id     json.RawMessage   // what was sent
	client json.RawMessage   // the client's, exact text
	token  json.RawMessage   // the call's progress token, nil if none
	events *wire.EventReader // nil: a JSON document
	memory *wire.Memory      // of the document
	final  atomic.Bool
}

// check looks at the answer's status and media type.
func (r *relayed) check() (streaming bool, err error) {
	media, ok := mediaOf(r.resp.Header)
	switch status := r.resp.StatusCode; {
	case status == http.StatusBadRequest || status == http.StatusNotFound:
		if !ok || media != mediaJSON {
			return false, r.x.refused(status, r.resp.Header)
		}
		return false, nil // it may carry a JSON-RPC error
	case status < 200 || status > 299 || status == http.StatusAccepted || status == http.StatusNoContent:
		return false, r.x.refused(status, r.resp.Header)
	case !ok:
		return false, r.x.bad(errBadMedia)
	}
	return media == mediaStream, nil
}

func (r *relayed) next() (Message, error) {
	if r.events == nil {
		return r.document()
	}
	for {
		data, err := r.events.Next()
		if err != nil {
			return Message{}, r.torn(err)
		}
		s, err := wire.ScanMessage(data)
		switch {
		case err != nil:
			return Message{}, r.x.bad(err)
		case s.Kind == wire.KindRequest:
			// Forbidden: basic/transports/streamable-http, "Receiving Messages".
			return Message{}, r.x.bad(errors.New("the backend sent a request on the answer's stream"))
		case s.Kind == wire.KindNotification:
			if s.Method == "notifications/progress" && !sameJSON(s.ProgressToken, r.token) {
				continue // somebody else's
			}
			return Message{Doc: data, Method: s.Method}, nil
		case !sameJSON(s.ID, r.id):
			return Message{}, r.x.bad(errForeignID)
		}
		r.memory = r.events.Memory()
		return r.finish(data, &s, 0), nil
	}
}

// document reads a JSON answer whole.
func (r *relayed) document() (Message, error) {
	doc, memory, err := r.c.buffers.ReadBody(r.resp.Body, r.resp.ContentLength, r.c.opts.ResponseLimit)
	if err != nil {
		return Message{}, r.x.failed(err)
	}
	r.memory = memory
	s, err := wire.ScanMessage(doc)
	status := r.resp.StatusCode
	if status == http.StatusBadRequest || status == http.StatusNotFound {
		if err != nil || s.Kind != wire.KindResponse || s.Error == nil || s.ID != nil && !sameJSON(s.ID, r.id) {
			return Message{}, r.x.refused(status, r.resp.Header)
		}
		return r.finish(doc, &s, status), nil
	}
	if err := answers(&s, err, r.id); err != nil {
		return Message{}, r.x.bad(err)
	}
	return r.finish(doc, &s, http.StatusOK), nil
}

// answers tells why a document, as it was scanned, is not the response to a request's id; nil: it is.
func answers(s *wire.Scan, err error, id json.RawMessage) error {
	switch {
	case err != nil:
		return err
	case s.Kind != wire.KindResponse:
		return errNoAnswer
	case !sameJSON(s.ID, id):
		return errForeignID
	}
	return nil
}

func (r *relayed) finish(doc []byte, s *wire.Scan, status int) Message {
	r.final.Store(true)
	m := responseOf(doc, s, r.client)
	m.Status = status
	return m
}

func (r *relayed) free() {
	r.memory.Release()
	r.memory = nil
}

// torn tells a stream that ended too early from one that broke.
func (r *relayed) torn(err error) *Failure {
	if errors.Is(err, io.EOF) {
		return r.x.bad(errEarlyEnd)
	}
	return r.x.failed(err)
}

// close lets go of the connection. After a stream's response the server usually ends the body at once; waiting for that in the
// background saves the connection.
func (r *relayed) close() {
	if r.final.Load() && r.events != nil && r.c.background(r.drain) {
		return
	}
	r.x.finish()
	r.resp.Body.Close()
}

const (
	drainTime  = 250 * time.Millisecond
	drainBytes = 4 << 10
)

func (r *relayed) drain() {
	t := time.AfterFunc(drainTime, r.x.finish)
	_, _ = io.CopyN(io.Discard, r.resp.Body, drainBytes) // an end is what we hope for, any other outcome closes the connection
	t.Stop()
	r.resp.Body.Close()
	r.x.finish()
}

// The media types of an answer.
const (
	mediaJSON   = "application/json"
	mediaStream = "text/event-stream"
)

func mediaOf(h http.Header) (string, bool) {
	v, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	v = strings.TrimSpace(v)
	switch {
	case strings.EqualFold(v, mediaJSON):
		return mediaJSON, true
	case strings.EqualFold(v, mediaStream):
		return mediaStream, true
	}
	return "", false
}
