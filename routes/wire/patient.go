package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// PatientListener returns ln with connections on which a large answer can be written at once, in few system calls: a write
// deadline that passes while the peer reads on, be it slowly, is set anew. A server that uses it has [ConnContext] too.
func PatientListener(ln net.Listener) net.Listener { return patientListener{ln} }

type patientListener struct{ net.Listener }

func (l patientListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &patientConn{Conn: c}, nil
}

// patientConn takes a write deadline for the time in which writePiece bytes must be written.
type patientConn struct {
	net.Conn
	patience atomic.Int64 // how far off the deadline was set, in nanoseconds; not positive: there is none, or it had passed
	written  atomic.Int64 // bytes since then
}

// SetDeadline implements net.Conn.
func (c *patientConn) SetDeadline(t time.Time) error {
	c.patience.Store(0)
	return c.Conn.SetDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *patientConn) SetWriteDeadline(t time.Time) error {
	c.written.Store(0)
	if t.IsZero() {
		c.patience.Store(0)
	} else {
		c.patience.Store(int64(time.Until(t)))
	}
	return c.Conn.SetWriteDeadline(t)
}

// Write implements net.Conn.
func (c *patientConn) Write(p []byte) (int, error) {
	for done := 0; ; {
		n, err := c.Conn.Write(p[done:])
		done += n
		written, patience := c.written.Add(int64(n)), c.patience.Load()
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || written < writePiece || patience <= 0 {
			return done, err
		}
		if err := c.SetWriteDeadline(time.Now().Add(time.Duration(patience))); err != nil {
			return done, err
		}
	}
}

type patientKey struct{}

// ConnContext is an http.Server's: it tells requests that came over a [PatientListener] from others.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if _, ok := c.(*patientConn); ok {
		return context.WithValue(ctx, patientKey{}, true)
	}
	return ctx
}

// patient reports whether an answer may be written at once. On HTTP/2 a deadline is the stream's, and ends it.
func patient(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.Context().Value(patientKey{}) != nil
}
