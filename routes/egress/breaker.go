package egress

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/weir-mcp/weir/routes"
)

// BreakerOptions are those of the circuit breakers, one per backend. A breaker opens when of at least MinCalls calls that ended within
// Window the FailureRatio failed, for at least two principals: what one caller does must not close a backend to the others. Failures to
// connect need no second principal. Zero fields mean the defaults that they name.
type BreakerOptions struct {
	Window       time.Duration // zero means 10s
	MinCalls     uint32        // zero means 20
	FailureRatio float64       // zero means 0.6
	// Open is how long nothing is let through; then Probes calls show whether the backend is back. Zero means 5s and 3.
	Open   time.Duration
	Probes uint32
	// OnChange is told of every change: "closed", "open", "half-open". It must not block. Nil: nobody is.
	OnChange func(id routes.BackendID, state string)
}

// breaker is the circuit breaker of one backend. A nil breaker lets everything through.
type breaker struct {
	opts BreakerOptions
	gate *gobreaker.TwoStepCircuitBreaker[struct{}]

	mu      sync.Mutex // guards what follows: who failed, and how, within the window
	failing [2]failing // the latest two principals
	connect []failedConnects
}

type failing struct {
	principal string
	at        time.Time
}

// failedConnects counts within one second.
type failedConnects struct {
	second int64
	n      uint32
}

// outcomes that the gate is told of.
var (
	errCounts   = errors.New("failure")
	errExcluded = errors.New("says nothing of the backend")
)

func newBreaker(id routes.BackendID, o BreakerOptions) *breaker {
	o.Window = cmp.Or(o.Window, 10*time.Second)
	o.MinCalls = cmp.Or(o.MinCalls, 20)
	o.FailureRatio = cmp.Or(o.FailureRatio, 0.6)
	o.Open = cmp.Or(o.Open, 5*time.Second)
	o.Probes = cmp.Or(o.Probes, 3)
	b := &breaker{opts: o}
	b.gate = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:         string(id),
		MaxRequests:  o.Probes,
		Interval:     o.Window,
		BucketPeriod: o.Window / 10,
		Timeout:      o.Open,
		ReadyToTrip:  b.trips,
		IsExcluded:   func(err error) bool { return err == errExcluded },
		OnStateChange: func(name string, _, to gobreaker.State) {
			b.forget()
			if o.OnChange != nil {
				o.OnChange(routes.BackendID(name), to.String())
			}
		},
	})
	return b
}

// permit is the leave to make one call; its outcome is told once. A nil permit is one of no breaker.
type permit struct {
	b         *breaker
	principal string
	began     time.Time
	mu        sync.Mutex
	done      func(error) // nil: told
}

// allow asks for leave; the error is a *Failure with ReasonCircuitOpen.
func (b *breaker) allow(principal string) (*permit, error) {
	if b == nil {
		return nil, nil
	}
	done, err := b.gate.Allow()
	if err != nil {
		return nil, &Failure{Reason: ReasonCircuitOpen, RetryAfter: b.opts.Open, Err: err}
	}
	return &permit{b: b, principal: principal, began: time.Now(), done: done}, nil
}

func (p *permit) tell(err error) {
	p.mu.Lock()
	done := p.done
	p.done = nil
	p.mu.Unlock()
	if done == nil {
		return
	}
	if err == errCounts && time.Since(p.began) >= p.b.opts.Window*9/10 && p.b.gate.State() == gobreaker.StateClosed {
		// The gate counts a call where it began, which has left the window. A deadline of a minute is news all the same.
		done(errExcluded)
		if done, err = p.b.gate.Allow(); err != nil {
			return
		}
		err = errCounts
	}
	done(err)
}

// streaming: an event stream has begun. Where the breaker waits to see whether the backend is back, that is enough: the stream may
// last for hours. Elsewhere its end is awaited, since it may break.
func (p *permit) streaming() {
	if p != nil && p.b.gate.State() == gobreaker.StateHalfOpen {
		p.tell(nil)
	}
}

// abandoned: the caller left.
func (p *permit) abandoned() {
	if p != nil {
		p.tell(errExcluded)
	}
}

// ended: the call had an answer (nil), or failed.
func (p *permit) ended(err error) {
	if p == nil {
		return
	}
	f, ok := errors.AsType[*Failure](err)
	switch {
	case err == nil || !ok:
		p.tell(nil)
	case f.Reason == ReasonCanceled || f.Reason == ReasonTooLarge:
		p.tell(errExcluded)
	case counts(f):
		p.b.note(p.principal, f.Reason == ReasonUnreachable && f.Status == 0, time.Now())
		p.tell(errCounts)
	default: // 401, 429 and the like: it lives
		p.tell(nil)
	}
}

// counts reports whether a failure is the backend's: no connection, a deadline, 5xx, a broken body. One user's 401 is none.
func counts(f *Failure) bool {
	switch f.Reason {
	case ReasonUnreachable, ReasonTimeout, ReasonReset, ReasonOverloaded:
		return true
	case ReasonBadResponse:
		return f.Status >= 500 || f.Status < 300
	}
	return false
}

// note remembers a failure. An empty principal is one like any other.
func (b *breaker) note(principal string, connect bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	older := 0
	if b.failing[1].at.Before(b.failing[0].at) {
		older = 1
	}
	switch {
	case b.failing[0].principal == principal && !b.failing[0].at.IsZero():
		older = 0
	case b.failing[1].principal == principal && !b.failing[1].at.IsZero():
		older = 1
	}
	b.failing[older] = failing{principal, now}
	if !connect {
		return
	}
	if n := len(b.connect); n > 0 && b.connect[n-1].second == now.Unix() {
		b.connect[n-1].n++
		return
	}
	b.connect = append(b.recent(now), failedConnects{now.Unix(), 1})
}

// recent returns the failed connects within the window; b.mu is held.
func (b *breaker) recent(now time.Time) []failedConnects {
	i := 0
	for i < len(b.connect) && now.Unix()-b.connect[i].second > int64(b.opts.Window/time.Second) {
		i++
	}
	return b.connect[i:]
}

// trips is asked after each failure while the breaker is closed.
func (b *breaker) trips(c gobreaker.Counts) bool {
	ended := c.TotalSuccesses + c.TotalFailures // calls in flight say nothing yet
	if ended < b.opts.MinCalls || float64(c.TotalFailures) < b.opts.FailureRatio*float64(ended) {
		return false
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if since := now.Add(-b.opts.Window); b.failing[0].at.After(since) && b.failing[1].at.After(since) {
		return true
	}
	var connects uint32
	for _, f := range b.recent(now) {
		connects += f.n
	}
	return float64(connects) >= b.opts.FailureRatio*float64(ended)
}

// forget starts the window anew.
func (b *breaker) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failing, b.connect = [2]failing{}, nil
}
