package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Response is the answer to one request. Dispatch ends it with exactly one of Result, Raw, Fail, Accepted or Finish; before
// Result, Raw, Fail or Finish there may be any number of Events, and then the end is the last event of the stream. What
// comes after the end is dropped. Methods may be called from any goroutine until Dispatch returns.
type Response struct {
	w         http.ResponseWriter
	rc        *http.ResponseController
	id        json.RawMessage
	era       Era
	x         *exchange     // knows the URL for challenges
	keepAlive time.Duration // between comments
	patience  time.Duration // for one write
	recheck   func() error  // whether the caller may still listen; nil: not asked
	cut       func(error)   // ends the request; set with recheck

	reuse bool // the request's memory may be used again once Dispatch has returned

	mu     sync.Mutex // guards what follows, and every write to w
	state  responseState
	timer  *time.Timer // sends comments while streaming
	checks *time.Timer // asks recheck while streaming; nil: there is none
	err    error       // the first write that failed
	status int
	code   int
	reason string
}

type responseState uint8

const (
	fresh     responseState = iota // nothing sent
	streaming                      // the stream's head was sent
	finished                       // nothing more will be sent
)

// writePiece is how much is written under one deadline, so that a slow but living reader of a large answer is not cut.
const writePiece = 64 << 10

// Result answers with a result: raw JSON of the result member. A notification has no result: it is [Response.Accepted].
func (w *Response) Result(result json.RawMessage) {
	if w.id == nil {
		w.Accepted()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.document(http.StatusOK, ResponseParts(w.id, "result", result)...)
}

// ResponseParts makes a response document without copying its member, which is "result" or "error" and may itself come in parts:
// the document is what it returns, one after another.
func ResponseParts(id json.RawMessage, member string, value ...[]byte) [][]byte {
	head := make([]byte, 0, 40+len(id)+len(member))
	head = append(append(append(head, `{"jsonrpc":"2.0","id":`...), id...), `,"`...)
	head = append(append(head, member...), `":`...)
	return slices.Concat([][]byte{head}, value, [][]byte{{'}'}})
}

// Raw answers with one complete JSON-RPC response document, perhaps in parts, which carries the client's id already. Status 0
// means 200; on a stream that has begun it is not used.
func (w *Response) Raw(status int, doc ...[]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if status == 0 {
		status = http.StatusOK
	}
	w.document(status, doc...)
}

// Fail answers with an error: as JSON with the error's status, or as the last event when the stream has begun.
func (w *Response) Fail(err *Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == finished {
		return
	}
	w.code, w.reason = err.Code, err.Reason
	if w.state == fresh {
		if err.RetryAfter > 0 {
			setRetryAfter(w.w.Header(), err.RetryAfter)
		}
		if err.Challenge != "" {
			w.w.Header().Set("WWW-Authenticate", withMetadata(err.Challenge, w.x.metadataURL()))
		}
	}
	w.document(err.HTTPStatus(w.era), AppendErrorResponse(nil, w.id, err))
}

// Accepted answers 202 with an empty body: a notification was taken.
func (w *Response) Accepted() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != fresh {
		return
	}
	w.state, w.status = finished, http.StatusAccepted
	w.w.Header().Set("Content-Length", "0")
	w.w.WriteHeader(http.StatusAccepted)
}

// Finish ends a stream without a further message: its last Event was the response. On a response that has not begun it does
// nothing.
func (w *Response) Finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == streaming {
		w.end()
	}
}

// Note sets what the Summary says about an answer whose code the Response can't know (Raw, Finish).
func (w *Response) Note(code int, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.code, w.reason = code, reason
}

// Reuse says that nothing will look at the request's message once Dispatch has returned, but for who holds its Memory: large
// requests then cost no garbage. It is for Dispatch's own goroutine.
func (w *Response) Reuse() { w.reuse = true }

// Sent reports whether everything that was given to the answer was written, so that its memory can be used again. After a write
// that failed it can't: on HTTP/2 it may still be on its way.
func (w *Response) Sent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state != fresh && w.err == nil
}

// Header returns the headers of the answer, to be changed before anything is sent; most callers need none.
func (w *Response) Header() http.Header { return w.w.Header() }

// Event sends one message, perhaps in parts, as an event, flushed at once, and begins the stream on first use. The error is the
// client's connection's, or says that the answer has ended.
func (w *Response) Event(doc ...[]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.begin(); err != nil {
		return err
	}
	if err := w.event(doc...); err != nil {
		return err
	}
	w.timer.Reset(w.keepAlive)
	return nil
}

// Begin starts the event stream (200, text/event-stream) without an event; from then on comments keep it alive.
func (w *Response) Begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == streaming {
		return w.err
	}
	if err := w.begin(); err != nil {
		return err
	}
	return w.flush()
}

// Started reports whether anything was sent.
func (w *Response) Started() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state != fresh
}

// Done reports whether the answer has ended.
func (w *Response) Done() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state == finished
}

var errFinished = errors.New("the answer has ended")

// begin sends the head of a stream, unless that is done. w.mu is held, as in all that follows.
func (w *Response) begin() error {
	switch w.state {
	case finished:
		return errFinished
	case streaming:
		return w.err
	}
	h := w.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	w.state, w.status = streaming, http.StatusOK
	w.setDeadline()
	w.w.WriteHeader(http.StatusOK)
	w.timer = time.AfterFunc(w.keepAlive, w.comment)
	if w.recheck != nil {
		w.checks = time.AfterFunc(recheckEvery, w.recheckCaller)
	}
	return nil
}

// comment keeps a quiet stream alive. It runs on the timer's goroutine; the lock keeps it apart from every other write, and
// from the end of the request.
func (w *Response) comment() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != streaming || w.err != nil {
		return
	}
	if w.write([]byte(":\n\n")) == nil && w.flush() == nil {
		w.timer.Reset(w.keepAlive)
	}
}

// document sends the last message, made of parts: as the whole answer, or as an event.
func (w *Response) document(status int, parts ...[]byte) {
	switch w.state {
	case finished:
		return
	case streaming:
		w.end()
		_ = w.event(parts...) // kept in w.err
		return
	}
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	h := w.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(n))
	w.state, w.status = finished, status
	w.setDeadline()
	w.w.WriteHeader(status)
	for _, p := range parts {
		if w.write(p) != nil {
			return
		}
	}
	_ = w.flush() // kept in w.err
}

// release is called once Dispatch has returned: net/http ends the stream's encoding next, which must not take for ever.
func (w *Response) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.setDeadline()
	}
}

func (w *Response) end() {
	w.state = finished
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.checks != nil {
		w.checks.Stop()
	}
}

// event writes one event and flushes it.
func (w *Response) event(parts ...[]byte) error {
	if slices.ContainsFunc(parts, breaksLine) {
		parts = [][]byte{appendEvent(nil, bytes.Join(parts, nil))}
	} else {
		parts = slices.Concat([][]byte{[]byte("data: ")}, parts, [][]byte{[]byte("\n\n")})
	}
	for _, p := range parts {
		if err := w.write(p); err != nil {
			return err
		}
	}
	return w.flush()
}

func breaksLine(p []byte) bool { return bytes.IndexByte(p, '\n') >= 0 || bytes.IndexByte(p, '\r') >= 0 }

// write sends p in pieces, each with its own deadline, so that a reader who went away without a word holds nobody for ever; or at
// once, where the connection sees to that.
func (w *Response) write(p []byte) error {
	piece := writePiece
	if len(p) > piece && patient(w.x.r) {
		piece = len(p)
	}
	for len(p) > 0 && w.err == nil {
		n := min(len(p), piece)
		if len(p) > writePiece {
			w.setDeadline()
		}
		_, w.err = w.w.Write(p[:n])
		p = p[n:]
	}
	return w.err
}

// flush sends what is buffered and then lifts the deadline: on HTTP/2 it would end the stream even while nothing is written.
func (w *Response) flush() error {
	if w.err != nil {
		return w.err
	}
	w.setDeadline()
	if err := w.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		w.err = err
		return err
	}
	_ = w.rc.SetWriteDeadline(time.Time{}) // not every writer has deadlines
	return nil
}

func (w *Response) setDeadline() {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.patience)) // not every writer has deadlines
}

func setRetryAfter(h http.Header, after time.Duration) {
	h.Set("Retry-After", strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10))
}

// abort stops what would still be written; the connection is about to be cut.
func (w *Response) abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
}
