package wire

import (
	"context"
	"time"
)

// recheckEvery is how often the caller of an open stream is asked about: twice in the second within which a revocation is in
// force.
const recheckEvery = 500 * time.Millisecond

// watchCaller has the streams of this request end with the caller's right to them; release undoes it.
func (x *exchange) watchCaller() (release func()) {
	if x.e.o.Recheck == nil || x.e.o.Auth == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancelCause(x.r.Context())
	x.r = x.r.WithContext(ctx)
	x.req.HTTP = x.r
	x.w.recheck = func() error { return x.e.o.Recheck(ctx, x.req.Identity) }
	x.w.cut = cancel
	return func() { cancel(nil) }
}

// recheckCaller runs on its timer's goroutine while the stream is open.
func (w *Response) recheckCaller() {
	if err := w.recheck(); err != nil {
		w.Fail(Internal(ReasonUnauthorized, ""))
		w.cut(err) // whoever works for this request stops
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == streaming {
		w.checks.Reset(recheckEvery)
	}
}
