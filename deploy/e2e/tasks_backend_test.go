package e2e

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// tasksExtension is what clients and servers of 2026-07-28 declare.
const tasksExtension = "io.modelcontextprotocol/tasks"

// taskBackend is a backend of either era that makes tasks as a test says, and remembers what it was asked. Its tool "start" takes
// startArguments; its tool "plain" makes no task. A task is at work until finish says otherwise. A legacy one knows a task only in
// the session in which it was made.
type taskBackend struct {
	name, version, url string

	mu       sync.Mutex // guards the rest
	tasks    map[string]*madeTask
	sessions map[string]bool
	requests []taskRequest
	gone     map[string]bool // tools that are not listed any more
	hold     chan struct{}   // follow-ups wait until it is closed; nil: they don't
	failing  int             // the HTTP status of all follow-ups; 0: they are answered
	slow     func() time.Duration
}

// startArguments are those of the tool "start".
type startArguments struct {
	ID        string          // of the task; empty: a random one
	Ask       bool            // it needs input
	Advertise bool            // the result is complete, and tells of the task in _meta
	TTL       json.RawMessage // of the task, in ms or null; none: an hour
}

type madeTask struct {
	id, session string
	status      string
	ttl         string
	answer      string // to what was asked
}

// taskRequest is what a backend was asked.
type taskRequest struct {
	method, id string // id is the task's; empty: none
	session    string
	header     http.Header
	body       string
}

func newTaskBackend(t *testing.T, name, version string) *taskBackend {
	t.Helper()
	b := &taskBackend{name: name, version: version, tasks: map[string]*madeTask{}, sessions: map[string]bool{}, gone: map[string]bool{}}
	hs := httptest.NewServer(b)
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	b.url = hs.URL + "/mcp"
	return b
}

func (b *taskBackend) legacy() bool { return b.version < modernVersion }

// taskMessage is a request as the backend reads it.
type taskMessage struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Arguments startArguments
		TaskID    string
		Cursor    string
		Task      json.RawMessage
		Answers   map[string]struct{ Content map[string]string } `json:"inputResponses"`
		Meta      struct {
			Capabilities struct{ Extensions map[string]any } `json:"io.modelcontextprotocol/clientCapabilities"`
		} `json:"_meta"`
	}
}

func (b *taskBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m taskMessage
	_ = json.Unmarshal(body, &m) // a GET or DELETE has no message
	session := r.Header.Get("Mcp-Session-Id")
	b.mu.Lock()
	method := m.Method
	if r.Method != http.MethodPost {
		method = r.Method
	}
	b.requests = append(b.requests, taskRequest{method: method, id: m.Params.TaskID, session: session, header: r.Header.Clone(), body: string(body)})
	b.mu.Unlock()
	switch {
	case r.Method == http.MethodDelete && b.legacy():
		b.endSession(session)
		w.WriteHeader(http.StatusOK)
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.Method == "initialize" && b.legacy():
		b.initialize(w, m)
	case b.legacy() && session == "":
		http.Error(w, "no session", http.StatusBadRequest)
	case b.legacy() && !b.hasSession(session):
		http.Error(w, "session gone", http.StatusNotFound)
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "server/discover":
		b.respond(w, m, strings.Replace(discoverResult(b.name, "tools"), `"tools":{}`, `"tools":{},"extensions":{"`+tasksExtension+`":{}}`, 1))
	case m.Method == "tools/list":
		b.respond(w, m, b.list())
	case m.Method == "tools/call":
		b.call(w, m, session)
	default:
		b.follow(w, r, m, session)
	}
}

func (b *taskBackend) respond(w http.ResponseWriter, m taskMessage, result string) {
	writeResult(w, message{ID: m.ID}, result)
}

func (b *taskBackend) refuse(w http.ResponseWriter, m taskMessage, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	if !b.legacy() {
		w.WriteHeader(map[int]int{-32601: 404, -32602: 400, -32021: 400}[code])
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, m.ID, code, text)
}

func (b *taskBackend) initialize(w http.ResponseWriter, m taskMessage) {
	id := rand.Text()
	b.mu.Lock()
	b.sessions[id] = true
	b.mu.Unlock()
	w.Header().Set("Mcp-Session-Id", id)
	b.respond(w, m, `{"protocolVersion":"`+b.version+`","capabilities":{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}},`+
		`"serverInfo":{"name":"`+b.name+`","version":"1"}}`)
}

func (b *taskBackend) hasSession(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions[id]
}

func (b *taskBackend) endSession(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, id)
	maps.DeleteFunc(b.tasks, func(_ string, t *madeTask) bool { return t.session == id })
}

func (b *taskBackend) list() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var tools []string
	for _, name := range []string{"start", "plain"} {
		execution := ""
		if b.legacy() && name == "start" {
			execution = `,"execution":{"taskSupport":"optional"}`
		}
		if !b.gone[name] {
			tools = append(tools, `{"name":"`+name+`","inputSchema":{"type":"object"}`+execution+`}`)
		}
	}
	more := `,"resultType":"complete","ttlMs":0,"cacheScope":"public"}`
	if b.legacy() {
		more = "}"
	}
	return `{"tools":[` + strings.Join(tools, ",") + `]` + more
}

func (b *taskBackend) call(w http.ResponseWriter, m taskMessage, session string) {
	args := m.Params.Arguments
	if m.Params.Name == "plain" || b.legacy() && m.Params.Task == nil {
		result := `{"resultType":"complete","content":[{"type":"text","text":"` + b.name + `"}]}`
		if b.legacy() {
			result = strings.Replace(result, `"resultType":"complete",`, "", 1)
		}
		b.respond(w, m, result)
		return
	}
	t := &madeTask{id: args.ID, status: "working", ttl: "3600000"}
	if t.id == "" {
		t.id = rand.Text()
	}
	if args.Ask {
		t.status = "input_required"
	}
	if args.TTL != nil {
		t.ttl = string(args.TTL)
	}
	if b.legacy() {
		t.session = session
	}
	b.mu.Lock()
	b.tasks[t.id] = t
	b.mu.Unlock()
	switch {
	case args.Advertise:
		b.respond(w, m, `{"resultType":"complete","content":[{"type":"text","text":"started"}],"_meta":{"task":{"taskId":`+strconv.Quote(t.id)+`}}}`)
	case b.legacy():
		b.respond(w, m, `{"task":`+b.describe(t)+`}`)
	default:
		started := strings.Replace(b.describe(t), `"status":"input_required"`, `"status":"working"`, 1)
		b.respond(w, m, `{"resultType":"task",`+started[1:])
	}
}

// describe is a task in the backend's era, without what only tasks/get shows.
func (b *taskBackend) describe(t *madeTask) string {
	ttl, poll := "ttlMs", "pollIntervalMs"
	if b.legacy() {
		ttl, poll = "ttl", "pollInterval"
	}
	return fmt.Sprintf(`{"taskId":%q,"status":%q,"createdAt":"2026-11-30T10:00:00Z","lastUpdatedAt":"2026-11-30T10:00:00Z",%q:%s,%q:500}`,
		t.id, t.status, ttl, t.ttl, poll)
}

// follow answers what comes after a task was made.
func (b *taskBackend) follow(w http.ResponseWriter, r *http.Request, m taskMessage, session string) {
	b.mu.Lock()
	hold, failing, slow := b.hold, b.failing, b.slow
	b.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	if slow != nil {
		time.Sleep(slow())
	}
	if failing != 0 {
		http.Error(w, "out of order", failing)
		return
	}
	if m.Method == "tasks/list" && b.legacy() {
		b.respond(w, m, b.page(session, m.Params.Cursor))
		return
	}
	if !slices.Contains(map[bool][]string{false: {"tasks/get", "tasks/update", "tasks/cancel"}, true: {"tasks/get", "tasks/result", "tasks/cancel"}}[b.legacy()], m.Method) {
		b.refuse(w, m, -32601, "no such method")
		return
	}
	b.mu.Lock()
	t, ok := b.tasks[m.Params.TaskID]
	ok = ok && t.session == map[bool]string{true: session}[b.legacy()]
	b.mu.Unlock()
	if !ok {
		b.refuse(w, m, -32602, "Failed to retrieve task: Task not found at "+b.name)
		return
	}
	result, err := b.act(m, t)
	if err != "" {
		b.refuse(w, m, -32602, err)
		return
	}
	b.respond(w, m, result)
}

// act does what a follow-up asks for.
func (b *taskBackend) act(m taskMessage, t *madeTask) (result, refusal string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	answer := `{"content":[{"type":"text","text":"` + b.name + ` has done it` + t.answer + `"}]}`
	switch {
	case m.Method == "tasks/cancel" && slices.Contains([]string{"completed", "cancelled"}, t.status) && b.legacy():
		return "", "Cannot cancel task: already in terminal status"
	case m.Method == "tasks/cancel" && b.legacy():
		t.status = "cancelled"
		return b.describe(t), ""
	case m.Method == "tasks/cancel":
		t.status = "cancelled"
		return `{"resultType":"complete"}`, ""
	case m.Method == "tasks/update":
		if given, ok := m.Params.Answers["name"]; ok && t.status == "input_required" {
			t.status, t.answer = "completed", " for "+given.Content["name"]
		}
		return `{"resultType":"complete"}`, ""
	case m.Method == "tasks/result":
		if t.status != "completed" {
			return "", "the test did not finish the task"
		}
		return answer[:len(answer)-1] + `,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":` + strconv.Quote(t.id) + `}}}`, ""
	case b.legacy():
		return b.describe(t), ""
	}
	state := `{"resultType":"complete",` + b.describe(t)[1:]
	switch t.status {
	case "input_required":
		state = state[:len(state)-1] + `,"inputRequests":{"name":{"method":"elicitation/create","params":{"mode":"form","message":"who\u003f","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}}}`
	case "completed":
		state = state[:len(state)-1] + `,"result":` + answer + `}`
	}
	return state, ""
}

// page is a page of two of a session's tasks.
func (b *taskBackend) page(session, cursor string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var mine []string
	for _, id := range slices.Sorted(maps.Keys(b.tasks)) {
		if t := b.tasks[id]; t.session == session {
			mine = append(mine, b.describe(t))
		}
	}
	from, _ := strconv.Atoi(cursor) // none: 0
	to := min(from+2, len(mine))
	next := ""
	if to < len(mine) {
		next = fmt.Sprintf(`,"nextCursor":"%d"`, to)
	}
	return `{"tasks":[` + strings.Join(mine[min(from, to):to], ",") + `]` + next + `}`
}

// finish completes a task.
func (b *taskBackend) finish(t *testing.T, id string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	made, ok := b.tasks[id]
	if !ok {
		t.Fatalf("%s knows no task %q", b.name, id)
	}
	made.status = "completed"
}

// asked returns what it was asked about tasks, in the order in which it was asked; id "": about all.
func (b *taskBackend) asked(method, id string) []taskRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []taskRequest
	for _, r := range b.requests {
		if r.method == method && (id == "" || r.id == id) {
			out = append(out, r)
		}
	}
	return out
}

// set changes how it behaves from now on.
func (b *taskBackend) set(change func(b *taskBackend)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}
