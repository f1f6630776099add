package call

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-mcp/weir/dataplane/internal/tasks"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
	"github.com/weir-mcp/weir/routes/wire"
)

var (
	_ Tasks   = (*tasks.Book)(nil)
	_ Locator = (*tasks.Locator)(nil)
)

// locator answers as it is told, and keeps what it was asked.
type locator struct {
	mu     sync.Mutex // guards what follows
	answer routes.LocateAnswer
	err    error
	asked  []routes.LocateRequest
}

func (l *locator) Locate(_ context.Context, q *routes.LocateRequest) (*routes.LocateAnswer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, *q)
	a := l.answer
	return &a, l.err
}

func (l *locator) say(a routes.LocateAnswer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer, l.err = a, err
}

func (l *locator) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.asked)
}

// taskGateway is a gateway that remembers tasks in a store in memory.
type taskGateway struct {
	*gateway
	store *routestest.Memory
	loc   *locator
}

func newTaskGateway(t *testing.T, host *routestest.HostBuilder, edit func(*Options)) *taskGateway {
	t.Helper()
	tg := &taskGateway{store: routestest.NewMemory(), loc: &locator{answer: routes.LocateAnswer{Outcome: routes.LocateMiss, Cause: routes.CauseUnknown}}}
	book, err := tasks.New(tasks.Options{Store: tg.store, Outage: tg.store.Recovered})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- book.Run(ctx) }()
	tg.gateway = newGateway(t, host, func(o *Options) {
		o.Tasks, o.Locator = book, tg.loc
		if edit != nil {
			edit(o)
		}
	})
	t.Cleanup(func() { cancel(); <-done })
	return tg
}

// record is what stands of a task for a principal.
func (g *taskGateway) record(t *testing.T, id string) routes.TaskRecord {
	t.Helper()
	r, err := g.store.TaskRecord(t.Context(), "acme", id, "nobody")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// withTasks is how the gateway reaches a backend that declares tasks.
func (b *backend) withTasks(version string) routes.Backend {
	r := b.route(version)
	r.Capabilities.Tasks = true
	return r
}

const (
	modernTask = `{"resultType":"task","taskId":"t-1","status":"working","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":60000}`
	oldTask    = `{"task":{"taskId":"t-1","status":"working","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":60000}}`
)

var ignoreTimes = cmpopts.IgnoreFields(routes.TaskOwner{}, "Created", "Expires")

func TestMintRecordsTheOwnerBeforeTheAnswerLeaves(t *testing.T) {
	day, month := routes.MinTaskLife, routes.MaxTaskLife
	for name, tt := range map[string]struct {
		backend, result string
		declares        bool // what the backend declared
		want            routes.TaskOwner
	}{
		"a modern task":                                {modern, modernTask, true, routes.TaskOwner{Life: day}},
		"of a backend that declares no tasks":          {modern, modernTask, false, routes.TaskOwner{Life: day}},
		"a task without end":                           {modern, strings.Replace(modernTask, "60000", "null", 1), true, routes.TaskOwner{Life: month}},
		"an advertisement":                             {modern, `{"resultType":"complete","content":[],"_meta":{"task":{"taskId":"t-1"}}}`, true, routes.TaskOwner{Life: day}},
		"a legacy task, with the session it is of":     {legacy, oldTask, true, routes.TaskOwner{Life: day, Session: "s-1"}},
		"a legacy advertisement, of a backend without": {legacy, `{"content":[],"_meta":{"task":{"taskId":"t-1"}}}`, false, routes.TaskOwner{Life: day, Session: "s-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var g *taskGateway
			b := newBackend(t, func(w http.ResponseWriter, r seen) { answerJSON(w, 200, r.id, `"result":`+tt.result) })
			b.session = "s-1"
			t.Cleanup(func() { // the client is closed by then, and with it every session that would be ended
				if len(b.deletes()) > 0 {
					t.Error("the session of the task was ended")
				}
			})
			route := b.route(tt.backend)
			route.Capabilities.Tasks = tt.declares
			g = newTaskGateway(t, routestest.Host("acme").Backend("b", route).Tool("b__run", "b", "run"), nil)
			params := `{"name":"b__run"}`
			if tt.backend == legacy {
				params = `{"name":"b__run","task":{"ttl":60000}}`
			}
			if got := g.must(t, request{version: tt.backend, method: "tools/call", params: params, tasks: true}); got != tt.result {
				t.Errorf("the client got %s, want what the backend sent: %s", got, tt.result)
			}
			tt.want.Principal, tt.want.Backend, tt.want.Tool, tt.want.Source = "alice", "b", "b__run", routes.TaskMinted
			if diff := cmp.Diff(routes.TaskRecord{tt.want}, g.record(t, "t-1"), ignoreTimes); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

// A task reaches only a client that can follow it; what is not shown is not recorded.
func TestTasksThatAreNotShown(t *testing.T) {
	const asks, plain = `{"name":"b__run","task":{}}`, `{"name":"b__run"}`
	for name, tt := range map[string]struct {
		backend, client, params, result string
		tasks                           bool // the modern client declares the extension
		code                            int
		reason                          string
	}{
		"a modern client that did not declare the extension": {modern, modern, plain, modernTask, false, -32021, ""},
		"a task without an id":                               {modern, modern, plain, `{"resultType":"task","status":"working"}`, true, -32603, "bad_response"},
		"a task of an empty id":                              {modern, modern, plain, `{"resultType":"task","taskId":""}`, true, -32603, "bad_response"},
		"a task of a number":                                 {modern, modern, plain, `{"resultType":"task","taskId":1}`, true, -32603, "bad_response"},
		"a legacy task without an id":                        {legacy, legacy, asks, `{"task":{}}`, false, -32603, "bad_response"},
		"a modern shape from a legacy backend":               {legacy, modern, plain, modernTask, true, -32603, "bad_response"},
		"a legacy shape from a modern backend":               {modern, modern, plain, oldTask, true, -32603, "bad_response"},
		"a legacy task for a modern client":                  {legacy, modern, plain, oldTask, true, -32603, "needs_legacy_client"},
		"a modern task for a legacy client":                  {modern, legacy, asks, modernTask, false, -32603, "needs_modern_client"},
		"a legacy client that did not ask for a task":        {legacy, legacy, plain, oldTask, false, -32603, "needs_modern_client"},
		"a client older than tasks":                          {legacy, "2025-06-18", asks, oldTask, false, -32603, "needs_modern_client"},
	} {
		t.Run(name, func(t *testing.T) {
			b := result(t, tt.result)
			b.session = "s-1"
			g := newTaskGateway(t, routestest.Host("acme").Backend("b", b.withTasks(tt.backend)).Tool("b__run", "b", "run"), nil)
			a := g.ask(t, request{version: tt.client, method: "tools/call", params: tt.params, tasks: tt.tasks})
			if a.code() != tt.code || a.reason() != tt.reason {
				t.Errorf("%s, want %d %s", a.body, tt.code, tt.reason)
			}
			if tt.code == -32021 && !strings.Contains(string(a.rpc.Error.Data), `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`) {
				t.Errorf("data %s", a.rpc.Error.Data)
			}
			if strings.Contains(a.body, "t-1") {
				t.Errorf("the task is shown: %s", a.body)
			}
			if r := g.record(t, "t-1"); len(r) > 0 {
				t.Errorf("recorded: %+v", r)
			}
		})
	}
}

// An advertisement is part of a complete result: what can't be recorded of it is no error.
func TestAnAdvertisementNeverFailsItsResult(t *testing.T) {
	const advertised = `{"resultType":"complete","content":[{"type":"text","text":"done"}],"_meta":{"task":{"taskId":"t-1"}}}`
	g := newTaskGateway(t, routestest.Host("acme").Backend("b", result(t, advertised).route(modern)).Tool("b__run", "b", "run"), func(o *Options) {
		o.Tasks = refusing{err: errors.New("full")}
	})
	if got := g.must(t, request{method: "tools/call", params: `{"name":"b__run"}`}); got != advertised {
		t.Errorf("the client got %s", got)
	}
}

// refusing takes no record.
type refusing struct {
	Tasks
	err error
}

func (r refusing) Record(context.Context, routes.HostID, string, routes.TaskOwner) error {
	return r.err
}

func TestATaskThatCouldNotBeRecordedIsNotShown(t *testing.T) {
	for name, tt := range map[string]struct {
		err    error
		reason string
	}{
		"too many of one principal":       {routes.ErrTooManyTasks, "overloaded"},
		"the store away, and memory full": {tasks.ErrFull, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			b := result(t, oldTask)
			b.session = "s-1"
			g := newTaskGateway(t, routestest.Host("acme").Backend("b", b.withTasks(legacy)).Tool("b__run", "b", "run"), func(o *Options) {
				o.Tasks = refusing{err: tt.err}
			})
			a := g.ask(t, request{version: legacy, method: "tools/call", params: `{"name":"b__run","task":{}}`})
			if a.code() != wire.CodeInternal || a.reason() != tt.reason || !strings.Contains(a.rpc.Error.Message, "may run") {
				t.Errorf("%s, want the reason %s, and that it may run", a.body, tt.reason)
			}
		})
	}
}

func TestParamsTask(t *testing.T) {
	for name, tt := range map[string]struct {
		client, backend string
		declares, want  bool
	}{
		"2025-11-25 to a backend with tasks":     {legacy, legacy, true, true},
		"2025-11-25 to a backend without":        {legacy, legacy, false, false},
		"2025-06-18 to a backend with tasks":     {"2025-06-18", legacy, true, false},
		"2025-11-25 to a modern backend":         {legacy, modern, true, false},
		"2025-11-25 to a backend of 2025-06-18":  {legacy, "2025-06-18", true, false},
		"modern to a legacy backend":             {modern, legacy, true, false},
		"modern to modern is as sent, to ignore": {modern, modern, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := result(t, `{"content":[]}`)
			route := b.route(tt.backend)
			route.Capabilities.Tasks = tt.declares
			g := newTaskGateway(t, routestest.Host("acme").Backend("b", route).Tool("b__run", "b", "run"), nil)
			g.must(t, request{version: tt.client, method: "tools/call", params: `{"name":"b__run","task":{"ttl":5}}`})
			if got := strings.Contains(b.last(t, "tools/call").body, `"task":{"ttl":5}`); got != tt.want {
				t.Errorf("the backend saw params.task: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestMintsAreCounted(t *testing.T) {
	g := newTaskGateway(t, routestest.Host("acme").Backend("b", result(t, modernTask).route(modern)).Tool("b__run", "b", "run"), nil)
	g.must(t, request{method: "tools/call", params: `{"name":"b__run"}`, tasks: true})
	if n := testutil.ToFloat64(g.handler.metrics.minted.WithLabelValues("b", "result")); n != 1 {
		t.Errorf("minted: %v, want 1", n)
	}
}

// A task that ends a stream is recorded like any other.
func TestATaskOnAStream(t *testing.T) {
	for _, tt := range []struct{ version, result, params string }{
		{modern, modernTask, `{"name":"b__run","_meta":{"progressToken":7}}`},
		{legacy, oldTask, `{"name":"b__run","task":{},"_meta":{"progressToken":7}}`},
	} {
		t.Run(tt.version, func(t *testing.T) {
			b := newBackend(t, func(w http.ResponseWriter, r seen) {
				stream(w, func(send func(string)) {
					send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`)
					send(`{"jsonrpc":"2.0","id":` + r.id + `,"result":` + tt.result + `}`)
				})
			})
			b.session = "s-1"
			g := newTaskGateway(t, routestest.Host("acme").Backend("b", b.withTasks(tt.version)).Tool("b__run", "b", "run"), nil)
			a := g.ask(t, request{version: tt.version, method: "tools/call", params: tt.params, tasks: true})
			if string(a.rpc.Result) != tt.result || len(a.events) != 2 {
				t.Errorf("the client got %s", a.body)
			}
			if r := g.record(t, "t-1"); len(r) != 1 {
				t.Errorf("record %+v", r)
			}
			if a := g.ask(t, request{version: "2025-06-18", method: "tools/call", params: tt.params}); a.code() != -32603 || strings.Contains(a.body, "t-1") {
				t.Errorf("a client that can't follow it got %s", a.body)
			}
		})
	}
}

// Only tools/call may be answered by a task.
func TestATaskOfAnotherMethod(t *testing.T) {
	for method, params := range map[string]string{"prompts/get": `{"name":"b__p"}`, "resources/read": `{"uri":"file:///a"}`} {
		host := func(doc string) *routestest.HostBuilder {
			return routestest.Host("acme").Backend("b", result(t, doc).withTasks(modern)).Prompt("b__p", "b", "p").Resource("file:///a", "b")
		}
		g := newTaskGateway(t, host(modernTask), nil)
		if a := g.ask(t, request{method: method, params: params, tasks: true}); a.reason() != "bad_response" || len(g.record(t, "t-1")) > 0 {
			t.Errorf("%s: %s", method, a.body)
		}
		const text = `{"resultType":"complete","messages":[{"task":"task"}]}`
		if got := newTaskGateway(t, host(text), nil).must(t, request{method: method, params: params, tasks: true}); got != text {
			t.Errorf("%s: the word task: %s", method, got)
		}
	}
}
