package listing

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/routestest"
)

// keeper is a legacy backend with tasks in sessions.
type keeper struct {
	url string

	mu    sync.Mutex // guards what follows
	tasks map[string][]string
	lost  map[string]bool // sessions
	fails bool
	loops bool
	page  int // tasks a page; 0: all
	fresh int // sessions that began
	asked []string
}

// newKeeper's tasks are by session; those under "" are told in every session.
func newKeeper(t *testing.T, tasks map[string][]string) *keeper {
	k := &keeper{tasks: tasks, lost: map[string]bool{}}
	hs := httptest.NewServer(k)
	t.Cleanup(hs.Close)
	k.url = hs.URL
	return k
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Cursor string }
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	session := r.Header.Get("Mcp-Session-Id")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case m.Method == "initialize":
		k.fresh++
		w.Header().Set("Mcp-Session-Id", fmt.Sprint("fresh", k.fresh))
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tasks":{}},"serverInfo":{"name":"b","version":"1"}}}`, m.ID)
	case m.Method != "tasks/list":
		w.WriteHeader(http.StatusAccepted)
	case k.lost[session]:
		w.WriteHeader(http.StatusNotFound)
	case k.fails:
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
	default:
		k.asked = append(k.asked, strings.TrimRight(session, "0123456789"))
		k.list(w, m.ID, m.Params.Cursor, slices.Concat(k.tasks[""], k.tasks[session]))
	}
}

func (k *keeper) list(w http.ResponseWriter, id json.RawMessage, cursor string, ids []string) {
	from, to := 0, len(ids)
	if cursor != "" {
		from = slices.Index(ids, cursor)
	}
	next := ""
	if k.page > 0 && from+k.page < len(ids) {
		to = from + k.page
		next = fmt.Sprintf(`,"nextCursor":%q`, ids[to])
	}
	if k.loops {
		next = `,"nextCursor":"` + ids[0] + `"`
	}
	var tasks []string
	for _, id := range ids[from:to] {
		tasks = append(tasks, fmt.Sprintf(`{"taskId":%q,"status":"working","ttl":null}`, id))
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tasks":[%s]%s}}`, id, strings.Join(tasks, ","), next)
}

// keeping is a host with legacy backends one and two, and a modern one.
func keeping(one, two *keeper) *routestest.HostBuilder {
	backend := func(url, protocol string) routes.Backend {
		return routes.Backend{URL: url, Protocol: protocol, Capabilities: routes.BackendCapabilities{Tasks: true}}
	}
	return routestest.Host("acme").Backend("one", backend(one.url, "2025-11-25")).Backend("two", backend(two.url, "2025-11-25")).
		Backend("modern", backend("http://modern.invalid/mcp", "2026-07-28")).Tool("x", "one", "x")
}

// own records tasks of principal p, each a second after the one before: "backend/session/task". Anything else is a second without.
func (b *bench) own(names ...string) {
	b.t.Helper()
	for i, name := range names {
		at := strings.Split(name, "/")
		if len(at) < 3 {
			continue
		}
		o := routes.TaskOwner{
			Principal: "p", Backend: routes.BackendID(at[0]), Session: at[1], Tool: "x", Source: routes.TaskMinted,
			Created: time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC), Life: routes.MinTaskLife,
		}
		if err := b.RecordTask(b.t.Context(), "acme", at[2], o); err != nil {
			b.t.Fatal(err)
		}
	}
}

// taskPage is what a page of tasks/list shows.
type taskPage struct {
	Tasks      []struct{ TaskID string }
	NextCursor string
	Meta       struct {
		Partial struct{ Backends []string } `json:"weir/partialFailure"`
	} `json:"_meta"`
}

func (b *bench) listTasks(token, params string) (ids []string, p taskPage) {
	b.t.Helper()
	a := b.legacy(token, "tasks/list", params)
	if a.status != 200 || a.code != 0 {
		b.t.Fatalf("status %d, error %d: %s", a.status, a.code, a.body)
	}
	if err := json.Unmarshal(a.result, &p); err != nil {
		b.t.Fatal(err)
	}
	for _, task := range p.Tasks {
		ids = append(ids, task.TaskID)
	}
	return ids, p
}

func TestTasksAreListedForTheirOwner(t *testing.T) {
	one := newKeeper(t, map[string][]string{"s1": {"t1", "theirs"}, "s2": {"t2"}})
	two := newKeeper(t, map[string][]string{"": {"t3", "t1", "unknown", "claimed", "outranked"}})
	b, _ := still(t, keeping(one, two))
	b.own("one/s1/t1", "one/s2/t2", "two//t3", "modern//t4", "gone//t5", "two//forgotten")
	theirs := routes.TaskOwner{Principal: "q", Backend: "one", Session: "s1", Source: routes.TaskMinted, Life: routes.MinTaskLife}
	outranks := theirs
	outranks.Backend = "two"
	claim := routes.TaskOwner{Principal: "p", Backend: "two", Source: routes.TaskClaimed, Created: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Life: routes.MinTaskLife}
	for id, o := range map[string]routes.TaskOwner{"claimed": claim, "outranked": claim} {
		if _, err := b.ClaimTask(t.Context(), "acme", id, o); err != nil {
			t.Fatal(err)
		}
	}
	for id, o := range map[string]routes.TaskOwner{"theirs": theirs, "outranked": outranks} {
		if err := b.RecordTask(t.Context(), "acme", id, o); err != nil {
			t.Fatal(err)
		}
	}
	ids, p := b.listTasks("acme", "{}")
	if diff := cmp.Diff([]string{"claimed", "t3", "t2", "t1"}, ids); diff != "" || p.NextCursor != "" || p.Meta.Partial.Backends != nil {
		t.Errorf("tasks (-want +got):\n%s\n%+v", diff, p)
	}
	if diff := cmp.Diff([]string{"s", "s"}, one.asked); diff != "" || one.fresh != 0 {
		t.Errorf("the kept sessions (-want +got):\n%s, and %d others", diff, one.fresh)
	}
	if diff := cmp.Diff([]string{"fresh"}, two.asked); diff != "" {
		t.Errorf("a session of the request's own (-want +got):\n%s", diff)
	}
	if ids, _ := b.listTasks("acme+mcp:tasks+mcp:tools:other", "{}"); len(ids) != 0 {
		t.Errorf("without the tool's scope: %q", ids)
	}
	if a := b.legacy("acme+mcp:tools", "tasks/list", "{}"); a.status != 403 || !strings.Contains(a.header.Get("WWW-Authenticate"), `scope="mcp:tasks"`) {
		t.Errorf("without the scope: %d %v", a.status, a.header)
	}
	b.SetDown(true)
	if a := b.legacy("acme", "tasks/list", "{}"); a.code != -32603 || !strings.Contains(a.body, `"reason":"unavailable","retryAfterMs":1000`) {
		t.Errorf("while Redis is away: %s", a.body)
	}
}

func TestTasksAreListedInPages(t *testing.T) {
	one, two := newKeeper(t, map[string][]string{"": {"t1", "t2", "t3", "t4", "t5"}}), newKeeper(t, nil)
	one.page = 2
	b, _ := still(t, keeping(one, two), func(o *ServerOptions) { o.PageSize = func() int { return 2 } })
	b.own("one/s1/t1", "one/s1/t2", "one/s2/t3", "one/s3/t4", "one/s4/t5")
	var got []string
	params := "{}"
	for range 4 {
		ids, p := b.listTasks("acme", params)
		got = append(got, strings.Join(ids, " "))
		if p.NextCursor == "" {
			break
		}
		params = fmt.Sprintf(`{"cursor":%q}`, p.NextCursor)
		b.own("-", "-", "-", "-", "-", "two//new") // a new one comes before them all
	}
	if diff := cmp.Diff([]string{"t5 t4", "t3 t2", "t1"}, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	_, first := b.listTasks("acme", "{}")
	for name, cursor := range map[string]string{
		"torn": `"` + first.NextCursor[1:] + `"`, "no string": `7`, "empty": `""`, "long": `"` + strings.Repeat("A", 300) + `"`,
		"changed": `"` + strings.Map(func(r rune) rune { return r ^ 1 }, first.NextCursor[:4]) + first.NextCursor[4:] + `"`,
	} {
		if a := b.legacy("acme", "tasks/list", `{"cursor":`+cursor+`}`); a.code != -32602 {
			t.Errorf("a cursor that is %s: %d %s", name, a.status, a.body)
		}
	}
}

func TestTasksOfBackendsThatFail(t *testing.T) {
	for name, tt := range map[string]struct {
		edit    func(one *keeper)
		want    string
		partial []string
	}{
		"it answers with an error":         {func(one *keeper) { one.fails = true }, "t3", []string{"one"}},
		"its list does not end":            {func(one *keeper) { one.loops = true }, "t3 t1", []string{"one"}},
		"it can't be reached":              {func(one *keeper) { one.url = "http://127.0.0.1:1/mcp" }, "t3", []string{"one"}},
		"a session is gone":                {func(one *keeper) { one.lost["s1"] = true }, "t3 t2", nil},
		"a session is gone, tasks are not": {func(one *keeper) { one.lost["s1"] = true; one.tasks[""] = []string{"t1"} }, "t3 t2 t1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			one, two := newKeeper(t, map[string][]string{"s1": {"t1"}, "s2": {"t2"}}), newKeeper(t, map[string][]string{"": {"t3"}})
			if name == "its list does not end" {
				one.tasks = map[string][]string{"": {"t1"}}
			}
			tt.edit(one)
			b, _ := still(t, keeping(one, two))
			b.own("one/s1/t1", "one/s2/t2", "two//t3")
			ids, p := b.listTasks("acme", "{}")
			if got := strings.Join(ids, " "); got != tt.want || !slices.Equal(p.Meta.Partial.Backends, tt.partial) {
				t.Errorf("%q, without %q; want %q, without %q", got, p.Meta.Partial.Backends, tt.want, tt.partial)
			}
		})
	}
}

// A list of tasks may cost many requests to backends: few run at once for one principal, and not too many in all.
func TestFewListsOfTasksRunAtOnce(t *testing.T) {
	one, two := newKeeper(t, nil), newKeeper(t, nil)
	b, s := still(t, keeping(one, two))
	var leave []func()
	enter := func(p access.Principal) {
		f, err := s.taskLists.enter(p, "")
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, f)
	}
	for range taskListsPerPrincipal {
		enter("p")
	}
	if a := b.legacy("acme", "tasks/list", "{}"); a.status != 429 || a.header.Get("Retry-After") != "1" || !strings.Contains(a.body, `"reason":"overloaded"`) {
		t.Errorf("one too many for a principal: %d %v %s", a.status, a.header, a.body)
	}
	leave[0]()
	if ids, _ := b.listTasks("acme", "{}"); len(ids) != 0 {
		t.Errorf("tasks of nobody: %q", ids)
	}
	for i := taskListsPerPrincipal - 1; i < taskListsInAll; i++ {
		enter(access.Principal(fmt.Sprint(i)))
	}
	if a := b.legacy("acme", "tasks/list", "{}"); a.code != -32603 || !strings.Contains(a.body, `"reason":"overloaded"`) {
		t.Errorf("one too many: %d %s", a.status, a.body)
	}
}
