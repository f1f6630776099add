package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes/wire"
)

// exchange is one HTTP request of a call, from dial to the last byte of its answer. It keeps the deadlines, and it knows whether
// a byte of the request may have left.
//
// It knows by looking at the connection, not at the error: net/http says which connection the request got (httptrace), every
// connection counts its writes, and a request whose connection's count did not move was not written. On HTTP/2 other requests move
// the count too, so that the answer errs on the side of "may have left".
type exchange struct {
	ctx    context.Context // carries the trace; its cause is what ended the exchange
	plain  context.Context // the same without the trace, for what is sent beside it: traces add up
	cancel context.CancelCauseFunc
	limits limits
	end    time.Time // of the total deadline
	trace  httptrace.ClientTrace

	mu     sync.Mutex // guards what follows
	timer  *time.Timer
	due    phase
	over   bool
	got    bool // a connection was had
	reused bool
	conn   *meteredConn // of the current try; nil: unknown kind, taken as sent
	mark   int64        // its count when we got it
	left   bool         // a byte may have left in a try before
	// headers: net/http wrote the headers of this try, on HTTP/1 perhaps into a buffer only. Without it an HTTP/2 connection that
	// others use too does not look as if this request had left on it.
	headers bool
	once    bool // the request under way must not go out again; false for a GET
	status  int  // of the answer, 0 until its headers are there
}

// newExchange begins an exchange; the caller ends it with finish.
func newExchange(parent context.Context, l limits) *exchange {
	x := &exchange{limits: l, end: time.Now().Add(l.total), due: phaseResponse}
	ctx, cancel := context.WithCancelCause(parent)
	x.plain, x.cancel = ctx, cancel
	x.trace.GotConn, x.trace.WroteHeaders = x.gotConn, x.wroteHeaders
	x.ctx = httptrace.WithClientTrace(ctx, &x.trace)
	x.timer = time.AfterFunc(min(l.response, l.total), x.expire)
	return x
}

func (x *exchange) expire() {
	x.mu.Lock()
	due := x.due
	x.mu.Unlock()
	x.cancel(due)
}

// arm starts the deadline of a phase; the total one ends earlier if it is nearer.
func (x *exchange) arm(p phase, d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	if rest := time.Until(x.end); p == phaseTotal || rest < d {
		p, d = phaseTotal, max(rest, 0)
	}
	x.due = p
	x.timer.Reset(d)
}

// disarm leaves only the total deadline: while nobody waits for the backend, its silence is not its fault.
func (x *exchange) disarm() { x.arm(phaseTotal, 0) }

// finish ends the exchange and whatever still runs of it.
func (x *exchange) finish() {
	x.mu.Lock()
	x.over = true
	x.timer.Stop()
	x.mu.Unlock()
	x.cancel(errFinished)
}

func (x *exchange) gotConn(info httptrace.GotConnInfo) {
	c := info.Conn
	if tc, ok := c.(*tls.Conn); ok {
		c = tc.NetConn()
	}
	mc, _ := c.(*meteredConn)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.left = x.leftLocked(); x.left && x.headers && x.once {
		x.cancel(errWouldRepeat) // the last guard: net/http has no reason to get here
	}
	x.headers = false
	x.got, x.reused, x.conn = true, info.Reused, mc
	if mc != nil {
		x.mark = mc.writes.Load()
	}
}

func (x *exchange) wroteHeaders() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.headers = true
}

func (x *exchange) leftLocked() bool {
	return x.left || x.got && (x.conn == nil || x.conn.writes.Load() != x.mark)
}

// sent reports whether a byte of the request may have left.
func (x *exchange) sent() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.leftLocked()
}

func (x *exchange) setStatus(status int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.status = status
}

// httpStatus returns the answer's status, 0 when there is none yet.
func (x *exchange) httpStatus() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.status
}

// connected reports whether the request ever had a connection.
func (x *exchange) connected() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.got
}

// mayRetry reports whether a failed try may be followed by one on a fresh connection.
func (x *exchange) mayRetry() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.got && x.reused && !x.leftLocked() && x.ctx.Err() == nil
}

func (x *exchange) forgetConn() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.got, x.conn = false, nil
}

// request is what one try sends. Without GetBody net/http replays nothing of its own accord.
type request struct {
	method string
	header http.Header  // not changed by net/http
	body   [][]byte     // in parts
	memory *wire.Memory // holds the parts; nil: nothing lent
}

// try builds the http.Request of one try.
func (x *exchange) try(p *pool, r request) *http.Request {
	out := http.Request{
		Method: r.method, URL: p.url, Host: p.url.Host, Header: r.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}
	x.mu.Lock()
	x.once = len(r.body) > 0
	x.mu.Unlock()
	switch len(r.body) {
	case 0:
	case 1:
		// net/http knows this very type to be in memory, and writes it together with the headers.
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(r.body[0])), int64(len(r.body[0]))
	default:
		o := newOutgoing(r.body, r.memory)
		out.Body, out.ContentLength = o, o.left
	}
	return out.WithContext(x.ctx)
}

// answerBody keeps the idle deadline: it runs only while somebody reads.
type answerBody struct {
	io.ReadCloser
	x *exchange
}

func (b *answerBody) Read(p []byte) (int, error) {
	b.x.arm(phaseIdle, b.x.limits.idle)
	n, err := b.ReadCloser.Read(p)
	b.x.disarm()
	return n, err
}
