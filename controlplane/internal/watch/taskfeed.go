package watch

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/wire"
)

// How often a backend is asked for a task.
const (
	// quickest and slowest bound pollIntervalMs, unsaid stands where the backend says none.
	quickest, unsaid, slowest = 500 * time.Millisecond, 5 * time.Second, time.Minute
	// answering bounds one tasks/get.
	answering = 4 * time.Second
)

// event is what the stream of a backend has to say to a feed.
type event struct {
	state *State // told by the backend; nil: the stream was opened or ended
	open  bool   // it is open now
}

// followTask keeps listeners informed of a task until it is over or ctx ends: by the backend's own stream where it agrees to one, else
// by asking. Whenever the stream was opened or broke, the present state is read, since what happened meanwhile nobody told; while it
// is open it is read at the slowest pace all the same, in case the backend forgets to tell.
func (h *Hub) followTask(ctx context.Context, f *taskFeed) {
	s, err := h.readTask(ctx, f)
	if refusal(err) {
		h.log.Debug("task not followed", zap.String("backend", string(f.key.backend)), zap.Error(err))
		h.refuse(f, err)
		return
	}
	close(f.opened)
	p := pace{interval: unsaid}
	if h.learn(f, &p, s, err) {
		return
	}
	events := make(chan event)
	listening := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		<-listening
	}()
	go func() {
		defer close(listening)
		h.streamTask(ctx, f, events)
	}()
	timer := time.NewTimer(p.next())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			if e.state != nil {
				p.learned(*e.state)
				h.tellTask(f, *e.state)
				if e.state.Over {
					return
				}
				continue
			}
			p.pushed = e.open
			timer.Reset(p.soon())
		case <-f.asked:
			timer.Reset(p.soon())
		case <-timer.C:
			s, err := h.readTask(ctx, f)
			if ctx.Err() != nil || h.learn(f, &p, s, err) {
				return
			}
			timer.Reset(p.next())
		}
	}
}

// learn takes what a tasks/get brought, and reports whether the feed is at its end.
func (h *Hub) learn(f *taskFeed, p *pace, s State, err error) bool {
	p.read(err)
	switch {
	case unknownTask(err):
		s = State{Over: true}
	case err != nil:
		h.log.Debug("task not read", zap.String("backend", string(f.key.backend)), zap.Error(err))
		return false
	}
	p.learned(s)
	h.tellTask(f, s)
	return s.Over
}

// pace is when a feed asks its backend next.
type pace struct {
	interval time.Duration // as the backend wishes
	pushed   bool          // the backend tells by itself
	failures int           // in a row
	after    time.Duration // as a backend asked that has too much to do
	last     time.Time     // it was asked
}

func (p *pace) read(err error) {
	p.last, p.after = time.Now(), 0
	if err == nil {
		p.failures = 0
		return
	}
	p.failures++
	if f, ok := errors.AsType[*egress.Failure](err); ok {
		p.after = f.RetryAfter
	}
}

func (p *pace) learned(s State) {
	if p.interval = s.poll; p.interval == 0 {
		p.interval = unsaid
	}
}

// next is how long to wait after a read. One that failed is repeated soon, and then ever later.
func (p *pace) next() time.Duration {
	switch {
	case p.failures > 0:
		return max(min(time.Second<<min(p.failures-1, 10), slowest), p.after)
	case p.pushed:
		return slowest
	}
	return min(max(p.interval, quickest), slowest)
}

// soon is how long to wait where the present state is wanted: not at all, as long as that is not too often.
func (p *pace) soon() time.Duration {
	if p.failures > 0 {
		return max(0, p.next()-time.Since(p.last))
	}
	return max(0, quickest-time.Since(p.last))
}

// readTask asks the backend for the task's present state, past its circuit breaker: who follows a task calls nothing.
func (h *Hub) readTask(ctx context.Context, f *taskFeed) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, answering)
	defer cancel()
	s, err := h.getTask(ctx, f)
	h.m.polls.WithLabelValues(string(f.key.backend), outcome(err)).Inc()
	return s, err
}

func (h *Hub) getTask(ctx context.Context, f *taskFeed) (State, error) {
	header, err := h.o.Upstream.Header(&f.backend)
	if err != nil {
		return State{}, &egress.Failure{Reason: egress.ReasonAuthFailed, Err: err}
	}
	meta := wire.Object{
		{Name: wire.MetaProtocolVersion, Value: wire.Quote(f.backend.Protocol)},
		{Name: wire.MetaClientInfo, Value: h.clientInfo},
		{Name: wire.MetaClientCapabilities, Value: json.RawMessage(egress.TaskCapabilities)},
	}
	a, err := h.o.Upstream.Do(ctx, egress.Call{
		ID: f.key.backend, Backend: &f.backend, RPCID: json.RawMessage("1"), Method: "tasks/get", Name: f.key.id, Header: header, Probe: true,
		Params: wire.Object{{Name: "taskId", Value: wire.Quote(f.key.id)}, {Name: "_meta", Value: meta.Append(nil)}},
	})
	if err != nil {
		return State{}, err
	}
	defer a.Close()
	for {
		m, err := a.Next()
		switch {
		case err != nil:
			return State{}, err
		case !m.Final:
			continue
		case m.Error != nil:
			return State{}, rpcError(m.Error)
		}
		s, err := stateOf(m.Result, f.key.id)
		if err != nil {
			return State{}, &egress.Failure{Reason: egress.ReasonBadResponse, Sent: true, Status: m.Status, Err: err}
		}
		return s, nil
	}
}

func rpcError(raw json.RawMessage) error {
	e := new(egress.RPCError)
	if json.Unmarshal(raw, e) != nil {
		return &egress.Failure{Reason: egress.ReasonBadResponse, Sent: true, Err: errors.New("the answer's error is malformed")}
	}
	return e
}

// unknownTask reports whether a backend said that there is no such task.
// Source: SEP-2663 (Error Handling); -32002 is of an older convention.
func unknownTask(err error) bool {
	e, ok := errors.AsType[*egress.RPCError](err)
	return ok && (e.Code == wire.CodeInvalidParams || e.Code == wire.CodeResourceNotFoundLegacy)
}

// refusal reports whether asking again is of no use: the backend judged the question, and did not merely fail to answer it.
func refusal(err error) bool {
	if e, ok := errors.AsType[*egress.RPCError](err); ok {
		return e.Code != wire.CodeInternal
	}
	f, ok := errors.AsType[*egress.Failure](err)
	return ok && (f.Reason == egress.ReasonAuthFailed || f.Reason == egress.ReasonBadResponse)
}

// outcome names what a tasks/get brought, for metrics.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	if unknownTask(err) {
		return "unknown"
	}
	if _, ok := errors.AsType[*egress.RPCError](err); ok {
		return "backend_error"
	}
	if f, ok := errors.AsType[*egress.Failure](err); ok {
		return f.Reason
	}
	return "internal"
}

// streamTask keeps a stream about the task open at its backend, and tells the feed what it says, until ctx ends or the backend turns out
// to offer none: then the feed asks.
func (h *Hub) streamTask(ctx context.Context, f *taskFeed, events chan<- event) {
	tell := func(e event) bool {
		select {
		case events <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	pause := &backoff.ExponentialBackOff{InitialInterval: firstReopen, MaxInterval: lastReopen, Multiplier: 2, RandomizationFactor: 0.3}
	pause.Reset()
	for {
		began := time.Now()
		s, err := h.openTask(ctx, f)
		switch {
		case err == nil:
			if tell(event{open: true}) {
				h.passTask(f, s, tell)
			}
			s.Close()
			if !tell(event{}) {
				return
			}
		case ctx.Err() != nil:
			return
		default:
			h.log.Debug("no stream about a task", zap.String("backend", string(f.key.backend)), zap.Error(err))
			if refusal(err) || errors.Is(err, egress.ErrNoStream) || errors.Is(err, errNotAgreed) {
				return
			}
		}
		if time.Since(began) >= steady {
			pause.Reset()
		}
		timer := time.NewTimer(pause.NextBackOff())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// openTask opens the stream.
func (h *Hub) openTask(ctx context.Context, f *taskFeed) (*egress.Subscription, error) {
	s, err := h.o.Upstream.Listen(ctx, f.key.backend, &f.backend, egress.Filter{TaskIDs: []string{f.key.id}})
	if err != nil {
		return nil, err
	}
	if !s.Agreed.HasTask(f.key.id) {
		s.Close()
		return nil, errNotAgreed
	}
	return s, nil
}

// passTask passes on what the stream says of the task until it ends, or nobody listens to it. What is malformed is left out: the
// task is also read.
func (h *Hub) passTask(f *taskFeed, s *egress.Subscription, tell func(event) bool) {
	for {
		n, err := s.Next()
		if err != nil {
			return
		}
		if n.Method != egress.TaskUpdated {
			continue
		}
		state, err := stateOf([]byte(n.Task), f.key.id)
		if err != nil {
			h.log.Debug("a notification about a task is left out", zap.String("backend", string(f.key.backend)), zap.Error(err))
			continue
		}
		if !tell(event{state: &state}) {
			return
		}
	}
}
