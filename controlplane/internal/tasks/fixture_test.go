package tasks

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/routestest"
	"github.com/weir-mcp/weir/routes/wire"
)

// bench is a Locator over a store in memory and backends that are functions.
type bench struct {
	*routestest.Memory
	t     *testing.T
	l     *Locator
	host  *routes.VirtualHost
	audit *observer.ObservedLogs

	claimErr error // of every claim; nil: the store's own

	mu    sync.Mutex
	says  map[routes.BackendID]func(ctx context.Context, id string) reply
	asked map[routes.BackendID][]string
}

// inBubble runs f in a bubble of fake time, with the backends a and b, which speak 2026-07-28 and know nothing.
func inBubble(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newBench(t)) })
}

func newBench(t *testing.T) *bench {
	b := &bench{
		Memory: routestest.NewMemory(), t: t,
		says: map[routes.BackendID]func(context.Context, string) reply{}, asked: map[routes.BackendID][]string{},
	}
	host := routestest.Host("acme")
	for _, id := range []routes.BackendID{"a", "b"} {
		host.Backend(id, backendOf("2026-07-28"))
	}
	b.host = host.Document()
	b.l = b.another()
	return b
}

func backendOf(protocol string) routes.Backend {
	return routes.Backend{URL: "http://backend.invalid/mcp", Protocol: protocol, Capabilities: routes.BackendCapabilities{Tasks: true}}
}

// another is one more control plane on the same store, before the same backends.
func (b *bench) another() *Locator {
	b.t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	b.audit = logs
	l, err := New(Options{Owners: b, Backends: noBackends{}, Audit: zap.New(core)})
	if err != nil {
		b.t.Fatal(err)
	}
	l.ask = b.ask
	return l
}

type noBackends struct{}

func (noBackends) Do(context.Context, egress.Call) (*egress.Answer, error) {
	return nil, errors.New("not asked for")
}
func (noBackends) Header(*routes.Backend) (http.Header, error) { return nil, nil }

func (b *bench) ask(ctx context.Context, id routes.BackendID, _ *routes.Backend, task string) reply {
	b.mu.Lock()
	b.asked[id] = append(b.asked[id], task)
	say := b.says[id]
	b.mu.Unlock()
	if say == nil {
		return reply{}
	}
	return say(ctx, task)
}

// ClaimTask is the store's.
func (b *bench) ClaimTask(ctx context.Context, host routes.HostID, id string, o routes.TaskOwner) (routes.TaskRecord, error) {
	if b.claimErr != nil {
		return nil, b.claimErr
	}
	return b.Memory.ClaimTask(ctx, host, id, o)
}

// knows makes a backend know some ids.
func (b *bench) knows(id routes.BackendID, tasks ...string) {
	b.says[id] = func(_ context.Context, asked string) reply {
		for _, task := range tasks {
			if task == asked {
				return reply{known, routes.MinTaskLife}
			}
		}
		return reply{}
	}
}

// fails makes a backend that can't be asked.
func (b *bench) fails(id routes.BackendID) {
	b.says[id] = func(context.Context, string) reply { return reply{verdict: failed} }
}

// askedFor returns how often a backend was asked, for anything and for one id.
func (b *bench) askedFor(id routes.BackendID, task string) (all, one int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, asked := range b.asked[id] {
		if asked == task {
			one++
		}
	}
	return len(b.asked[id]), one
}

func caller(name string, scopes ...string) *access.Identity {
	id := &access.Identity{Principal: access.Principal(name), Hosts: []routes.HostID{"acme"}, Scopes: access.AllScopes()}
	for _, s := range scopes {
		id.Scopes, _ = access.ParseScopes(s, true)
	}
	return id
}

// find asks for a task as a modern client.
func (b *bench) find(who, task string) Outcome {
	return b.l.Ask(b.t.Context(), Query{Identity: caller(who), Host: b.host, TaskID: task, Era: wire.Modern, Method: "tasks/get"})
}

func (b *bench) record(who, task string, backend routes.BackendID) {
	b.t.Helper()
	err := b.RecordTask(b.t.Context(), "acme", task, routes.TaskOwner{Principal: who, Backend: backend, Source: routes.TaskMinted,
		Tool: "job", Created: time.Now(), Life: routes.MinTaskLife})
	if err != nil {
		b.t.Fatal(err)
	}
}

// entries returns how many entries a task has.
func (b *bench) entries(task string) int {
	b.t.Helper()
	record, err := b.TaskRecord(b.t.Context(), "acme", task, "nobody")
	if err != nil {
		b.t.Fatal(err)
	}
	return len(record)
}

// want checks an outcome: the backend of an owner, else the cause.
func want(t *testing.T, got Outcome, kind routes.LocateOutcome, detail string) {
	t.Helper()
	is := got.Cause
	if got.Owner != nil {
		is = string(got.Owner.Backend)
	}
	if got.Kind != kind || is != detail {
		t.Errorf("%s %q, want %s %q", got.Kind, is, kind, detail)
	}
}
