package egress

import (
	"errors"
	"io"
	"net"
	"sync"

	"github.com/weir-mcp/weir/routes/wire"
)

var errBodyClosed = errors.New("the request's body is closed")

// outgoing is the body of one try to send a large request: parts that lie in memory, some of it lent. net/http may go on to send it
// after the answer is there, and may close it while it does: the memory is held until both are over.
type outgoing struct {
	memory *wire.Memory

	mu     sync.Mutex // guards what follows
	parts  net.Buffers
	left   int64
	busy   bool // parts are being written
	closed bool
}

func newOutgoing(parts [][]byte, memory *wire.Memory) *outgoing {
	o := &outgoing{memory: memory, parts: append(net.Buffers(nil), parts...)}
	for _, p := range parts {
		o.left += int64(len(p))
	}
	memory.Hold()
	return o
}

// Read copies, for HTTP/2 and TLS, which copy in any case.
func (o *outgoing) Read(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed || o.busy:
		return 0, errBodyClosed
	case o.left == 0:
		return 0, io.EOF
	}
	n, err := o.parts.Read(p)
	o.left -= int64(n)
	return n, err
}

// writeTo writes what is left to the connection, from where it lies.
func (o *outgoing) writeTo(conn net.Conn) (int64, error) {
	o.mu.Lock()
	if o.closed || o.busy {
		o.mu.Unlock()
		return 0, errBodyClosed
	}
	o.busy = true
	o.mu.Unlock()
	n, err := o.parts.WriteTo(conn)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy = false
	o.left -= n
	if o.closed {
		o.let()
	}
	return n, err
}

// Close may be called at any time, and more than once.
func (o *outgoing) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		if o.closed = true; !o.busy {
			o.let()
		}
	}
	return nil
}

// let lets go of the memory; o.mu is held.
func (o *outgoing) let() {
	o.parts, o.left = nil, 0
	o.memory.Release()
}

// ReadFrom implements io.ReaderFrom: net/http hands over a request's body this way. One of ours is written from where it lies, with
// few large writes; else it would pass through a buffer of 32 KiB that is made anew each time.
func (c *meteredConn) ReadFrom(r io.Reader) (int64, error) {
	if limited, ok := r.(*io.LimitedReader); ok {
		if o, ok := limited.R.(*outgoing); ok {
			return c.send(o, limited)
		}
	}
	return io.Copy(struct{ io.Writer }{c}, r)
}

func (c *meteredConn) send(o *outgoing, limited *io.LimitedReader) (int64, error) {
	c.writes.Add(1) // as in Write
	n, err := o.writeTo(c.Conn)
	limited.N -= n
	if n == 0 && err != nil {
		c.writes.Add(-1)
	}
	return n, err
}
