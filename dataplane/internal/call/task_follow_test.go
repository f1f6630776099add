package call

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

// own makes an entry of alice's at a backend.
func own(backend routes.BackendID) routes.TaskOwner {
	return routes.TaskOwner{Principal: "alice", Backend: backend, Tool: "b__run", Source: routes.TaskMinted, Life: routes.MinTaskLife}
}

func (g *taskGateway) put(t *testing.T, id string, owners ...routes.TaskOwner) {
	t.Helper()
	for _, o := range owners {
		var err error
		if o.Source == routes.TaskMinted {
			err = g.store.RecordTask(t.Context(), "acme", id, o)
		} else {
			_, err = g.store.ClaimTask(t.Context(), "acme", id, o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// taskHost has one backend, b, of a version.
func taskHost(b *backend, version string) *routestest.HostBuilder {
	return routestest.Host("acme").Backend("b", b.withTasks(version)).Tool("b__run", "b", "run")
}

func TestFollowUpsReachTheOwnerAlone(t *testing.T) {
	const state = `{"resultType":"complete","taskId":"t-1","status":"working","future":[1.50,{"a":"é"}]}`
	for _, tt := range []struct{ method, version, params string }{
		{"tasks/get", modern, `{"taskId":"t-1"}`},
		{"tasks/update", modern, `{"taskId":"t-1","inputResponses":{"name":{"action":"accept","content":{"n":1e2}}}}`},
		{"tasks/cancel", modern, `{"taskId":"t-1"}`},
		{"tasks/get", legacy, `{"taskId":"t-1"}`},
		{"tasks/result", legacy, `{"taskId":"t-1"}`},
		{"tasks/cancel", legacy, `{"taskId":"t-1"}`},
	} {
		t.Run(tt.method+" "+tt.version, func(t *testing.T) {
			b, other := result(t, state), result(t, state)
			g := newTaskGateway(t, taskHost(b, tt.version).Backend("other", other.withTasks(tt.version)), nil)
			g.put(t, "t-1", own("b"))
			a := g.ask(t, request{version: tt.version, id: `"é"`, method: tt.method, params: tt.params, tasks: true})
			if string(a.rpc.Result) != state || string(a.rpc.ID) != `"é"` {
				t.Errorf("answer %s, want the backend's own", a.body)
			}
			got := b.last(t, tt.method)
			if tt.version == modern {
				if name := got.header.Get("Mcp-Name"); name != "t-1" {
					t.Errorf("Mcp-Name %q upstream", name)
				}
				if !strings.Contains(got.body, `"io.modelcontextprotocol/tasks":{}`) {
					t.Errorf("the extension is not declared upstream: %s", got.body)
				}
			}
			if want := strings.TrimSuffix(strings.TrimPrefix(tt.params, "{"), "}"); !strings.Contains(got.body, want) {
				t.Errorf("the backend saw %s, want %s in it", got.body, want)
			}
			if n := len(other.calls(tt.method)); n != 0 {
				t.Errorf("another backend saw %d requests", n)
			}
			if g.loc.count() != 0 {
				t.Error("the control plane was asked for a recorded task")
			}
		})
	}
}

func TestTheOwnersErrorsAreVerbatim(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r seen) {
		answerJSON(w, 400, r.id, `"error":{"code":-32602,"message":"Failed to retrieve task: Task has expired","data":{"a":1.0}}`)
	})
	g := newTaskGateway(t, taskHost(b, modern), nil)
	g.put(t, "t-1", own("b"))
	a := g.ask(t, request{method: "tasks/get", params: `{"taskId":"t-1"}`, tasks: true})
	if a.status != 400 || a.body != `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Failed to retrieve task: Task has expired","data":{"a":1.0}}}` {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// What a client may ask depends on its version, and the refusals stand before any look at a record.
func TestWhoMayCallTaskMethods(t *testing.T) {
	for name, tt := range map[string]struct {
		version, method, token string
		tasks                  bool
		status, code           int
	}{
		"modern":                               {modern, "tasks/get", "alice", true, 400, -32602},
		"modern, without the extension":        {modern, "tasks/get", "alice", false, 400, -32021},
		"modern cancel, without the extension": {modern, "tasks/cancel", "alice", false, 400, -32021},
		"modern update, without the extension": {modern, "tasks/update", "alice", false, 400, -32021},
		"modern, no scope":                     {modern, "tasks/get", "alice:mcp:tools", true, 403, -32600},
		"modern, neither scope nor extension":  {modern, "tasks/get", "alice:mcp:tools", false, 403, -32600},
		"modern list":                          {modern, "tasks/list", "alice", true, 404, -32601},
		"modern result":                        {modern, "tasks/result", "alice", true, 404, -32601},
		"legacy":                               {legacy, "tasks/get", "alice", false, 200, -32602},
		"legacy result":                        {legacy, "tasks/result", "alice", false, 200, -32602},
		"legacy, no scope":                     {legacy, "tasks/cancel", "alice:mcp:tools", false, 403, -32600},
		"legacy update":                        {legacy, "tasks/update", "alice", false, 200, -32601},
		"older than tasks":                     {"2025-06-18", "tasks/get", "alice", false, 200, -32601},
		"older than tasks, result":             {"2025-03-26", "tasks/result", "alice", false, 200, -32601},
	} {
		t.Run(name, func(t *testing.T) {
			b := result(t, `{}`)
			g := newTaskGateway(t, taskHost(b, modern), nil)
			a := g.ask(t, request{version: tt.version, token: tt.token, method: tt.method, params: `{"taskId":"nobody's"}`, tasks: tt.tasks})
			if a.status != tt.status || a.code() != tt.code {
				t.Errorf("%d %s, want %d and %d", a.status, a.body, tt.status, tt.code)
			}
			if tt.status == 403 && !strings.Contains(a.header.Get("Www-Authenticate"), `error="insufficient_scope", scope="mcp:tasks"`) {
				t.Errorf("challenge %q", a.header.Get("Www-Authenticate"))
			}
			if len(b.calls(tt.method)) > 0 {
				t.Error("the backend was asked")
			}
		})
	}
}

// miss is one way not to get a task.
type miss struct {
	token   string // default alice
	owners  []routes.TaskOwner
	policy  routes.TaskPolicy
	located routes.LocateAnswer
	cause   string
	locates int // how often the control plane is asked
}

func misses() map[string]miss {
	foreign := own("b")
	foreign.Principal = "bob"
	removed := own("gone")
	return map[string]miss{
		"unknown":                            {cause: "unknown", locates: 1},
		"foreign":                            {owners: []routes.TaskOwner{foreign}, cause: "foreign", locates: 1},
		"own, at a backend that left":        {owners: []routes.TaskOwner{removed}, cause: "backend_removed", locates: 1},
		"own, of a tool beyond the scopes":   {token: "alice:mcp:tasks mcp:tools:c__*", owners: []routes.TaskOwner{own("b")}, cause: "scope", locates: 1},
		"over the budget":                    {located: routes.LocateAnswer{Outcome: routes.LocateMiss, Cause: routes.CauseBudget}, cause: "over_budget", locates: 1},
		"unknown a moment ago":               {located: routes.LocateAnswer{Outcome: routes.LocateMiss, Cause: routes.CauseNegative}, cause: "negative", locates: 1},
		"unrecorded, and the host denies it": {policy: routes.TaskPolicy{Unrecorded: "deny"}, cause: "denied_by_policy"},
		"foreign, and the host denies":       {policy: routes.TaskPolicy{Unrecorded: "deny"}, owners: []routes.TaskOwner{foreign}, cause: "foreign"},
		"shared, where nothing is":           {owners: []routes.TaskOwner{{Principal: "*", Backend: "b", Source: routes.TaskShared, Life: time.Hour}}, cause: "foreign", locates: 1},
		"shared, beyond the scopes": {token: "alice:mcp:tasks mcp:tools:b__*", policy: routes.TaskPolicy{Unrecorded: "probe"},
			owners: []routes.TaskOwner{{Principal: "*", Backend: "b", Source: routes.TaskShared, Life: time.Hour}}, cause: "scope", locates: 1},
		"found at a backend that is not here": {located: routes.LocateAnswer{Outcome: routes.LocateOwner,
			Owner: &routes.LocatedOwner{Backend: "gone", Source: routes.TaskClaimed, LifeMs: 1000}}, cause: "backend_removed", locates: 1},
	}
}

// Every miss has the same bytes, whatever is behind it and whichever method asks; what is behind it stands in the audit.
func TestMissesAreAlike(t *testing.T) {
	for _, tt := range []struct {
		version, method string
		notFound        int
		status          int
		want            string
	}{
		{modern, "tasks/get", 0, 400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"task not found"}}`},
		{modern, "tasks/update", -32002, 400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"task not found"}}`},
		{modern, "tasks/cancel", 0, 400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"task not found"}}`},
		{legacy, "tasks/get", 0, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"task not found"}}`},
		{legacy, "tasks/result", -32602, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"task not found"}}`},
		{legacy, "tasks/cancel", -32002, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"task not found"}}`},
	} {
		for name, m := range misses() {
			t.Run(fmt.Sprintf("%s %s %s", tt.version, tt.method, name), func(t *testing.T) {
				b := result(t, `{}`)
				m.policy.NotFound = tt.notFound
				g := newTaskGateway(t, taskHost(b, tt.version).Edit(func(vh *routes.VirtualHost) { vh.Tasks = m.policy }), nil)
				g.put(t, "t-1", m.owners...)
				if m.located.Outcome != "" {
					g.loc.say(m.located, nil)
				}
				a := g.ask(t, request{version: tt.version, token: m.token, method: tt.method, params: `{"taskId":"t-1"}`, tasks: true,
					header: http.Header{"X-Request-Id": {"r-7"}}})
				if a.status != tt.status || a.body != tt.want {
					t.Errorf("%d %s, want %d %s", a.status, a.body, tt.status, tt.want)
				}
				a.header.Del("Date")
				if diff := cmp.Diff(http.Header{"Content-Type": {"application/json"}, "Vary": {"Origin"}, "Content-Length": {fmt.Sprint(len(tt.want))}}, a.header); diff != "" {
					t.Errorf("headers (-want +got):\n%s", diff)
				}
				if len(b.calls(tt.method)) > 0 {
					t.Error("the backend was asked")
				}
				if n := g.loc.count(); n != m.locates {
					t.Errorf("the control plane was asked %d times, want %d", n, m.locates)
				}
				lines := g.log.FilterMessage("task_miss").All()
				if len(lines) != 1 || lines[0].LoggerName != "audit" {
					t.Fatalf("audit: %+v, want one line of the logger audit", lines)
				}
				if diff := cmp.Diff(map[string]any{
					"event": "task_miss", "host": "acme", "principal": "alice", "task": routes.TaskDigest("t-1"), "method": tt.method,
					"cause": m.cause, "request_id": "r-7",
				}, lines[0].ContextMap()); diff != "" {
					t.Errorf("audit (-want +got):\n%s", diff)
				}
				for _, line := range g.log.All() {
					if strings.Contains(fmt.Sprint(line.Message, line.ContextMap()), "t-1") {
						t.Errorf("a task's id is in the log: %+v", line)
					}
				}
			})
		}
	}
}

func TestIdsThatNobodyLooksFor(t *testing.T) {
	g := newTaskGateway(t, taskHost(result(t, `{}`), legacy), nil)
	for name, id := range map[string]string{"empty": "", "endless": strings.Repeat("x", routes.MaxLocateID+1)} {
		if a := g.ask(t, request{version: legacy, method: "tasks/get", params: `{"taskId":"` + id + `"}`}); a.code() != -32602 || a.reason() != "" {
			t.Errorf("%s: %s", name, a.body)
		}
	}
	if g.loc.count() > 0 {
		t.Error("the control plane was asked")
	}
}

func TestOneIdAtTwoBackendsIsAmbiguous(t *testing.T) {
	b, other := result(t, `{}`), result(t, `{}`)
	g := newTaskGateway(t, taskHost(b, modern).Backend("other", other.withTasks(modern)), nil)
	g.put(t, "t-1", own("b"), own("other"))
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		if a := g.ask(t, request{method: method, params: `{"taskId":"t-1"}`, tasks: true}); a.code() != -32603 || a.reason() != "ambiguous_task" || a.status != 200 {
			t.Errorf("%s: %d %s", method, a.status, a.body)
		}
	}
	g.loc.say(routes.LocateAnswer{Outcome: routes.LocateAmbiguous}, nil)
	if a := g.ask(t, request{method: "tasks/cancel", params: `{"taskId":"t-2"}`, tasks: true}); a.reason() != "ambiguous_task" {
		t.Errorf("found at two backends: %s", a.body)
	}
	if len(b.seen)+len(other.seen) > 0 {
		t.Error("a backend was asked")
	}
}

// Two principals with the same id at two backends each reach their own.
func TestTwoPrincipalsEachReachTheirOwn(t *testing.T) {
	a, b := result(t, `{"of":"a"}`), result(t, `{"of":"b"}`)
	g := newTaskGateway(t, taskHost(b, modern).Backend("a", a.withTasks(modern)), nil)
	bobs := own("a")
	bobs.Principal = "bob"
	g.put(t, "t-1", own("b"), bobs)
	for token, want := range map[string]string{"alice": `{"of":"b"}`, "bob": `{"of":"a"}`} {
		if got := g.must(t, request{token: token, method: "tasks/get", params: `{"taskId":"t-1"}`, tasks: true}); got != want {
			t.Errorf("%s got %s, want %s", token, got, want)
		}
	}
}

func TestAnOwnerOfAnotherEra(t *testing.T) {
	for name, tt := range map[string]struct{ backend, client, reason string }{
		"a modern client, a legacy backend": {legacy, modern, "needs_legacy_client"},
		"a legacy client, a modern backend": {modern, legacy, "needs_modern_client"},
	} {
		t.Run(name, func(t *testing.T) {
			b := result(t, `{}`)
			g := newTaskGateway(t, taskHost(b, tt.backend), nil)
			g.put(t, "t-1", own("b"))
			if a := g.ask(t, request{version: tt.client, method: "tasks/get", params: `{"taskId":"t-1"}`, tasks: true}); a.code() != -32603 || a.reason() != tt.reason {
				t.Errorf("%s, want %s", a.body, tt.reason)
			}
			if len(b.seen) > 0 {
				t.Error("the backend was asked")
			}
		})
	}
}

// A tool that left the host takes no task with it.
func TestATaskOutlivesItsTool(t *testing.T) {
	b := result(t, `{"resultType":"complete","taskId":"t-1"}`)
	g := newTaskGateway(t, routestest.Host("acme").Backend("b", b.withTasks(modern)).Tool("b__other", "b", "other"), nil)
	g.put(t, "t-1", own("b"))
	g.must(t, request{token: "alice:mcp:tasks mcp:tools:b__run", method: "tasks/get", params: `{"taskId":"t-1"}`, tasks: true})
}

func TestALocatedTaskIsFollowed(t *testing.T) {
	b := result(t, `{"resultType":"complete","taskId":"t-1"}`)
	g := newTaskGateway(t, taskHost(b, modern), nil)
	g.loc.say(routes.LocateAnswer{Outcome: routes.LocateOwner, Owner: &routes.LocatedOwner{Backend: "b", Source: routes.TaskClaimed, LifeMs: 1000}}, nil)
	g.must(t, request{method: "tasks/cancel", params: `{"taskId":"t-1"}`, tasks: true, header: http.Header{"X-Request-Id": {"r-7"}}})
	if n := len(b.calls("tasks/cancel")); n != 1 {
		t.Errorf("the owner saw %d requests", n)
	}
	want := routes.LocateRequest{Token: "alice", Resource: strings.Replace(g.url, "/mcp", "", 1) + "/mcp", Host: "acme", TaskID: "t-1", Era: "modern", Method: "tasks/cancel", RequestID: "r-7"}
	if diff := cmp.Diff([]routes.LocateRequest{want}, g.loc.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if n := testutil.ToFloat64(g.handler.metrics.lookups.WithLabelValues("located")); n != 1 {
		t.Errorf("located: %v", n)
	}
}

// Looking for a task is one of the caller's calls, and bounded with them.
func TestLooksForTasksAreBounded(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	g := newTaskGateway(t, taskHost(result(t, `{}`), modern), func(o *Options) {
		o.CallsPerPrincipal, o.Locator = 1, waiting{inside, leave}
	})
	get := request{method: "tasks/get", params: `{"taskId":"t-1"}`, tasks: true}
	first := make(chan *answer, 1)
	go func() { first <- g.ask(t, get) }()
	<-inside
	if a := g.ask(t, get); a.status != http.StatusTooManyRequests || a.reason() != "overloaded" {
		t.Errorf("a second look at once: %d %s", a.status, a.body)
	}
	close(leave)
	if a := <-first; a.code() != -32602 {
		t.Errorf("the first look: %s", a.body)
	}
}

// waiting is a control plane that takes its time.
type waiting struct{ inside, leave chan struct{} }

func (w waiting) Locate(context.Context, *routes.LocateRequest) (*routes.LocateAnswer, error) {
	w.inside <- struct{}{}
	<-w.leave
	return &routes.LocateAnswer{Outcome: routes.LocateMiss, Cause: routes.CauseUnknown}, nil
}

// What can't be told is no miss: the client may ask again.
func TestWhatCantBeTold(t *testing.T) {
	for name, arrange := range map[string]func(g *taskGateway){
		"the store is away":                  func(g *taskGateway) { g.store.SetDown(true) },
		"the store was away a moment ago":    func(g *taskGateway) { g.store.SetDown(true); g.store.SetDown(false) },
		"the control plane does not answer":  func(g *taskGateway) { g.loc.say(routes.LocateAnswer{}, errors.New("refused")) },
		"the control plane can't tell":       func(g *taskGateway) { g.loc.say(routes.LocateAnswer{Outcome: routes.LocateUnavailable}, nil) },
		"no control plane":                   func(g *taskGateway) { g.handler.o.Locator = nil },
		"an answer of a later control plane": func(g *taskGateway) { g.loc.say(routes.LocateAnswer{Outcome: "elsewhere"}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			bothVersions(t, func(t *testing.T, version string) {
				g := newTaskGateway(t, taskHost(result(t, `{}`), version), nil)
				bobs := own("b")
				bobs.Principal = "bob"
				g.put(t, "bob's", bobs)
				arrange(g)
				for _, id := range []string{"nobody's", "bob's"} {
					a := g.ask(t, request{version: version, method: "tasks/get", params: `{"taskId":"` + id + `"}`, tasks: true})
					const want = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"whose task this is can't be told now","data":{"reason":"unavailable","retryAfterMs":1000}}}`
					if a.status != 200 || a.body != want {
						t.Errorf("%s: %d %s", id, a.status, a.body)
					}
				}
			})
		})
	}
}

// Own tasks need no control plane, and on a host that denies what is unrecorded nobody does.
func TestTheControlPlaneAway(t *testing.T) {
	b := result(t, `{"resultType":"complete","taskId":"t-1"}`)
	g := newTaskGateway(t, taskHost(b, modern).Edit(func(vh *routes.VirtualHost) { vh.Tasks.Unrecorded = "deny" }), func(o *Options) { o.Locator = nil })
	g.put(t, "t-1", own("b"))
	g.must(t, request{method: "tasks/get", params: `{"taskId":"t-1"}`, tasks: true})
	if a := g.ask(t, request{method: "tasks/get", params: `{"taskId":"t-2"}`, tasks: true}); a.code() != -32602 {
		t.Errorf("%s, want a miss", a.body)
	}
}

// While the store is away this dataplane knows the tasks that it saw made.
func TestTheStoreAwayAtMint(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r seen) {
		if r.method == "tools/call" {
			answerJSON(w, 200, r.id, `"result":`+modernTask)
			return
		}
		answerJSON(w, 200, r.id, `"result":{"resultType":"complete","taskId":"t-1"}`)
	})
	g := newTaskGateway(t, taskHost(b, modern), nil)
	g.store.SetDown(true)
	if got := g.must(t, request{method: "tools/call", params: `{"name":"b__run"}`, tasks: true}); got != modernTask {
		t.Fatalf("the task is not returned: %s", got)
	}
	get := request{method: "tasks/get", params: `{"taskId":"t-1"}`, tasks: true}
	g.must(t, get)
	get.token = "bob"
	if a := g.ask(t, get); a.reason() != "unavailable" {
		t.Errorf("another principal gets %s", a.body)
	}
	g.store.SetDown(false)
	for deadline := time.Now().Add(30 * time.Second); len(g.record(t, "t-1")) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not written when the store was back")
		}
	}
	get.token = ""
	g.must(t, get)
}

func TestALegacyTaskIsFollowedInItsSession(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r seen) {
		if r.method == "tools/call" {
			answerJSON(w, 200, r.id, `"result":`+oldTask)
			return
		}
		answerJSON(w, 200, r.id, `"result":{"taskId":"t-1","status":"working","ttl":60000}`)
	})
	b.session = "s-1"
	g := newTaskGateway(t, taskHost(b, legacy), nil)
	g.must(t, request{version: legacy, method: "tools/call", params: `{"name":"b__run","task":{}}`})
	ids := map[string]bool{}
	for range 3 {
		g.must(t, request{version: legacy, method: "tasks/get", params: `{"taskId":"t-1"}`})
		got := b.last(t, "tasks/get")
		if s := got.header.Get("Mcp-Session-Id"); s != "s-1" {
			t.Errorf("tasks/get in session %q", s)
		}
		ids[got.id] = true
	}
	if len(ids) != 3 {
		t.Errorf("an id was used twice in one session: %v", ids)
	}
	if n := len(b.calls("initialize")); n != 1 {
		t.Errorf("%d handshakes, want one", n)
	}
	if len(b.deletes()) > 0 {
		t.Error("the session was ended")
	}
}

// A session that the backend no longer knows is replaced by the one in which a second try succeeded.
func TestALostSession(t *testing.T) {
	lost := map[string]func(w http.ResponseWriter){
		"404": func(w http.ResponseWriter) { http.Error(w, "session not found", 404) },
		"404 in JSON": func(w http.ResponseWriter) {
			answerJSON(w, 404, "null", `"error":{"code":-32001,"message":"Session not found"}`)
		},
		"400 of common habit": func(w http.ResponseWriter) {
			answerJSON(w, 400, `"server-error"`, `"error":{"code":-32000,"message":"Bad Request"}`)
		},
	}
	for name, refuse := range lost {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, func(w http.ResponseWriter, r seen) {
				if r.header.Get("Mcp-Session-Id") == "s-1" {
					refuse(w)
					return
				}
				answerJSON(w, 200, r.id, `"result":{"taskId":"t-1","status":"working","ttl":null}`)
			})
			b.session = "s-2"
			g := newTaskGateway(t, taskHost(b, legacy), nil)
			o := own("b")
			o.Session = "s-1"
			g.put(t, "t-1", o)
			g.must(t, request{version: legacy, method: "tasks/get", params: `{"taskId":"t-1"}`})
			if n := len(b.calls("tasks/get")); n != 2 {
				t.Errorf("%d tries, want 2", n)
			}
			for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				if r := g.record(t, "t-1"); r[0].Session == "s-2" && r[0].Life == routes.MaxTaskLife {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("record %+v, want the new session and the longer life", g.record(t, "t-1"))
				}
			}
			g.must(t, request{version: legacy, method: "tasks/get", params: `{"taskId":"t-1"}`})
			if n := len(b.calls("tasks/get")); n != 3 {
				t.Errorf("%d tries in all, want 3: the new session is used", n)
			}
		})
	}
}

// An error that answers our request is the owner's own, but for 404, which is of the session.
func TestAnErrorInAKeptSessionIsNoLostSession(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r seen) {
		answerJSON(w, 400, r.id, `"error":{"code":-32602,"message":"no such task"}`)
	})
	g := newTaskGateway(t, taskHost(b, legacy), nil)
	o := own("b")
	o.Session = "s-1"
	g.put(t, "t-1", o)
	if a := g.ask(t, request{version: legacy, method: "tasks/cancel", params: `{"taskId":"t-1"}`}); !strings.Contains(a.body, "no such task") {
		t.Errorf("%s, want the backend's own error", a.body)
	}
	if n := len(b.calls("tasks/cancel")); n != 1 {
		t.Errorf("%d requests, want one", n)
	}
}

// A poll that tells of a longer life prolongs the record, and none is ever shortened.
func TestAPollProlongsTheRecord(t *testing.T) {
	ttl := "null"
	b := newBackend(t, func(w http.ResponseWriter, r seen) {
		answerJSON(w, 200, r.id, `"result":{"resultType":"complete","taskId":"t-1","status":"completed","ttlMs":`+ttl+`,"result":{"content":[],"ttlMs":1}}`)
	})
	g := newTaskGateway(t, taskHost(b, modern), nil)
	g.put(t, "t-1", own("b"))
	get := request{method: "tasks/get", params: `{"taskId":"t-1"}`, tasks: true}
	g.must(t, get)
	for deadline := time.Now().Add(30 * time.Second); g.record(t, "t-1")[0].Life != routes.MaxTaskLife; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("record %+v, want the longer life", g.record(t, "t-1"))
		}
	}
	ttl = "1000"
	g.must(t, get)
	if life := g.record(t, "t-1")[0].Life; life != routes.MaxTaskLife {
		t.Errorf("life %v after a shorter ttl", life)
	}
}

// A blocking tasks/result is answered by a stream or by a JSON document that takes its time; both pass.
func TestTasksResultStreams(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r seen) {
		stream(w, func(send func(string)) {
			send(`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t-1","status":"completed"}}`)
			send(`{"jsonrpc":"2.0","id":` + r.id + `,"result":{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t-1"}}}}`)
		})
	})
	g := newTaskGateway(t, taskHost(b, legacy), nil)
	g.put(t, "t-1", own("b"))
	resp, err := g.open(t.Context(), request{version: legacy, method: "tasks/result", params: `{"taskId":"t-1"}`})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), `"io.modelcontextprotocol/related-task":{"taskId":"t-1"}`) || strings.Contains(string(body), "notifications") {
		t.Errorf("%v %s", err, body)
	}
}
