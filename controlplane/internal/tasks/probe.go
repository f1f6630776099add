package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/wire"
)

// probeTimeout bounds the question to one backend, handshake included.
const probeTimeout = 2 * time.Second

// verdict is what a backend says of an id.
type verdict uint8

const (
	unknown verdict = iota // it does not know it
	known
	failed // it could not be asked, or could not say
)

// reply is a backend's answer.
type reply struct {
	verdict verdict
	life    time.Duration // of the task, if it is known
}

// asker asks one backend for a task, by a method that only reads. It ends with ctx.
type asker func(ctx context.Context, id routes.BackendID, b *routes.Backend, taskID string) reply

// finding is a backend that knows the task.
type finding struct {
	backend routes.BackendID
	life    time.Duration
}

// asked reports whether a backend may hold a task of a client of this era: the eras' tasks have different methods.
func asked(b *routes.Backend, era wire.Era) bool {
	if !b.Capabilities.Tasks || wire.EraOf(b.Protocol) != era {
		return false
	}
	return era == wire.Modern || b.Protocol == routes.LegacyTasksVersion
}

// probe asks the host's backends, at once, and waits for all of them: how long it takes must not tell what was found. Those that hold the
// id for somebody else are asked for a decoy. failing: some backend could not say.
func (l *Locator) probe(ctx context.Context, q *Query, held []routes.BackendID) (found []finding, failing bool) {
	var (
		wg sync.WaitGroup
		mu sync.Mutex // guards the results
	)
	decoy := decoyOf(q.TaskID) // also where nobody gets it: it takes its time
	for _, id := range slices.Sorted(maps.Keys(q.Host.Backends)) {
		b := q.Host.Backends[id]
		if !asked(&b, q.Era) {
			continue
		}
		task := q.TaskID
		if slices.Contains(held, id) {
			task = decoy
		}
		wg.Go(func() {
			r := l.one(ctx, id, &b, task, task == decoy)
			mu.Lock()
			defer mu.Unlock()
			switch r.verdict {
			case known:
				found = append(found, finding{id, r.life})
			case failed:
				failing = true
			}
		})
	}
	wg.Wait()
	return found, failing
}

// one asks one backend. A decoy that is a task by chance is nobody's business.
func (l *Locator) one(ctx context.Context, id routes.BackendID, b *routes.Backend, task string, decoy bool) reply {
	if !l.places.enter(id) {
		l.m.probed(id, "full")
		return reply{verdict: failed}
	}
	defer l.places.leave(id)
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	r := l.ask(ctx, id, b, task)
	switch {
	case decoy:
		l.m.probed(id, "decoy")
		if r.verdict == known {
			r = reply{verdict: unknown}
		}
	case r.verdict == known:
		l.m.probed(id, "known")
	case r.verdict == failed:
		l.m.probed(id, "failed")
	default:
		l.m.probed(id, "unknown")
	}
	return r
}

// prober asks backends for tasks, with the plane's own credentials and never with a caller's, past the circuit breaker.
type prober struct {
	backends Backends
	info     json.RawMessage // clientInfo
	log      *zap.Logger
}

func clientInfo(version string) json.RawMessage {
	if version == "" {
		version = "0"
	}
	return append(append([]byte(`{"name":"weir","version":`), wire.Quote(version)...), '}')
}

// ask is an asker: tasks/get.
// Source: SEP-2663 (Task Polling); MCP 2025-11-25, basic/utilities/tasks (Getting Tasks).
func (p *prober) ask(ctx context.Context, id routes.BackendID, b *routes.Backend, taskID string) reply {
	era := wire.EraOf(b.Protocol)
	m, err := p.get(ctx, id, b, era, taskID)
	if err != nil {
		if f, ok := errors.AsType[*egress.Failure](err); ok && f.Reason == egress.ReasonAuthFailed {
			return reply{verdict: unknown} // it lets nobody in by the plane's credentials, so that it holds nothing that could be followed
		}
		p.log.Debug("backend not asked for a task", zap.String("backend", string(id)), zap.Error(err))
		return reply{verdict: failed}
	}
	if m.Error != nil {
		return reply{verdict: verdictOf(m.Error)}
	}
	task, err := wire.ScanTaskState(era, m.Result)
	if err != nil || task.ID != taskID {
		return reply{verdict: unknown}
	}
	return reply{verdict: known, life: routes.TaskLife(task.TTL, task.Unlimited)}
}

// get makes the call and returns its final message.
func (p *prober) get(ctx context.Context, id routes.BackendID, b *routes.Backend, era wire.Era, taskID string) (egress.Message, error) {
	header, err := p.backends.Header(b)
	if err != nil {
		return egress.Message{}, err
	}
	answer, err := p.backends.Do(ctx, egress.Call{
		ID: id, Backend: b, RPCID: json.RawMessage("1"), Method: "tasks/get", Name: taskID,
		Params: p.params(b, era, taskID), Header: header, Probe: true,
	})
	if err != nil {
		return egress.Message{}, err
	}
	defer answer.Close()
	for {
		m, err := answer.Next()
		if err != nil || m.Final {
			return m, err
		}
	}
}

func (p *prober) params(b *routes.Backend, era wire.Era, taskID string) wire.Object {
	params := wire.Object{{Name: "taskId", Value: wire.Quote(taskID)}}
	if era == wire.Legacy {
		return params
	}
	meta := wire.Object{
		{Name: wire.MetaProtocolVersion, Value: wire.Quote(b.Protocol)},
		{Name: wire.MetaClientInfo, Value: p.info},
		{Name: wire.MetaClientCapabilities, Value: json.RawMessage(`{"extensions":{"` + wire.TasksExtension + `":{}}}`)},
	}
	return append(params, wire.Member{Name: "_meta", Value: meta.Append(nil)})
}

// verdictOf tells an error that says "no such task" from one that says nothing of the task.
func verdictOf(raw json.RawMessage) verdict {
	var e struct {
		Code int `json:"code"`
	}
	if json.Unmarshal(raw, &e) != nil {
		return failed
	}
	switch e.Code {
	case wire.CodeInternal, wire.CodeParse, wire.CodeInvalidRequest,
		wire.CodeHeaderMismatch, wire.CodeMissingCapability, wire.CodeUnsupportedVersion:
		return failed
	}
	return unknown
}
