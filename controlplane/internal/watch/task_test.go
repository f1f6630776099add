package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// taskBackend holds one task, t1.
type taskBackend struct {
	route  routes.Backend
	opened chan string // streams
	closed chan string

	mu      sync.Mutex // guards what follows
	state   string     // members of the task; empty: there is none
	status  int        // of HTTP, where it is not 200
	mute    bool       // it does not answer
	deaf    bool       // it offers no stream
	gets    int
	streams map[chan string]bool
	meta    string // the _meta of the last tasks/get
	name    string // its Mcp-Name
}

func newTaskBackend(t *testing.T, members string) *taskBackend {
	b := &taskBackend{state: members, streams: map[chan string]bool{}, opened: make(chan string, 100), closed: make(chan string, 100)}
	hs := httptest.NewServer(b)
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	b.route = routes.Backend{URL: hs.URL, Protocol: "2026-07-28"}
	return b
}

func (b *taskBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			TaskID string
			Meta   json.RawMessage `json:"_meta"`
		}
	}
	if json.NewDecoder(r.Body).Decode(&m) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	state, status, mute, deaf := b.state, b.status, b.mute, b.deaf
	if m.Method == "tasks/get" {
		b.gets++
		b.meta, b.name = string(m.Params.Meta), r.Header.Get("Mcp-Name")
	}
	b.mu.Unlock()
	if mute {
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case status != 0:
		w.WriteHeader(status)
	case m.Method == "subscriptions/listen" && !deaf:
		b.stream(w, r)
	case m.Method == "subscriptions/listen":
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
	case state == "" || m.Params.TaskID != "t1":
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such task"}}`, m.ID)
	default:
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}}`, m.ID, state)
	}
}

func (b *taskBackend) stream(w http.ResponseWriter, r *http.Request) {
	say := make(chan string, 10)
	b.mu.Lock()
	b.streams[say] = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.streams, say)
		b.mu.Unlock()
		b.closed <- "t1"
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(method, more string) {
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":%q,\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":5},%s}}\n\n", method, more)
		_ = http.NewResponseController(w).Flush() // a client that left is noticed below
	}
	send("notifications/subscriptions/acknowledged", `"notifications":{"taskIds":["t1"]}`)
	b.opened <- "t1"
	for {
		select {
		case <-r.Context().Done():
			return
		case members := <-say:
			if members == "" {
				return
			}
			send("notifications/tasks", members)
		}
	}
}

// set changes what the backend says from now on.
func (b *taskBackend) set(f func(*taskBackend)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b)
}

// push changes the task and tells who listens; "" ends their streams instead.
func (b *taskBackend) push(members string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if members != "" {
		b.state = members
	}
	for say := range b.streams {
		say <- members
	}
}

func (b *taskBackend) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gets
}

func (b *taskBackend) task() Task { return Task{Backend: "b", Route: &b.route, ID: "t1"} }

// follow follows t1 and returns what is heard of it: its document, with an exclamation mark when it is over.
func (b *taskBackend) follow(t *testing.T, h *Hub) (heard chan string, release func()) {
	t.Helper()
	heard = make(chan string, 100)
	release, err := h.Follow(t.Context(), b.task(), func(s State) {
		text := string(s.Task)
		if s.Over {
			text += "!"
		}
		heard <- text
	})
	if err != nil {
		t.Fatal(err)
	}
	return heard, release
}

const (
	working = `"taskId":"t1","status":"working","ttlMs":null,"pollIntervalMs":1`
	asking  = `"taskId":"t1","status":"input_required","ttlMs":null,"pollIntervalMs":1,"inputRequests":{"k":{"method":"elicitation/create"}}`
	done    = `"taskId":"t1","status":"completed","ttlMs":null,"result":{"content":[],"big":9007199254740993}`
)

func TestATaskIsHeardOfAsItsBackendTells(t *testing.T) {
	b := newTaskBackend(t, working)
	h := newHub(t, 0)
	one, _ := b.follow(t, h)
	receive(t, one, "{"+working+"}", "at once")
	receive(t, b.opened, "t1", "a stream")
	two, release := b.follow(t, h)
	receive(t, two, "{"+working+"}", "at once, to the second")
	b.push(asking)
	receive(t, one, "{"+asking+"}", "told")
	receive(t, two, "{"+asking+"}", "told to the second")
	release()
	release() // again does no harm
	b.push(`"status":"input_required","inputRequests":{"k":{"method":"elicitation/create"}},"ttlMs":null,"pollIntervalMs":1.0,"taskId":"t1"`)
	b.push(`"taskId":"t2","status":"completed"`) // somebody else's, and nonsense
	b.push(`"status":"completed"`)
	b.push(done)
	receive(t, one, "{"+done+"}!", "the end, and nothing before it")
	receive(t, b.closed, "t1", "the stream is closed")
	if len(one)+len(two) != 0 || len(b.opened) != 0 {
		t.Errorf("heard %d and %d more, %d streams", len(one), len(two), len(b.opened))
	}

	late, _ := b.follow(t, h)
	receive(t, late, "{"+done+"}!", "how it ended")
	if b.mu.Lock(); !strings.Contains(b.meta, `"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`) || b.name != "t1" {
		t.Errorf("asked with _meta %s and Mcp-Name %s", b.meta, b.name)
	}
	b.mu.Unlock()
}

func TestATaskIsPolledWhereThereIsNoStream(t *testing.T) {
	b := newTaskBackend(t, working)
	b.deaf = true
	h := newHub(t, 0)
	heard, release := b.follow(t, h)
	receive(t, heard, "{"+working+"}", "at once")
	for before := b.count(); b.count() < before+2; { // nothing new
		time.Sleep(10 * time.Millisecond)
	}
	b.set(func(b *taskBackend) { b.state = asking })
	receive(t, heard, "{"+asking+"}", "another state")
	b.set(func(b *taskBackend) { b.status = http.StatusBadGateway })
	for before := b.count(); b.count() < before+1; { // nothing can be told of it
		time.Sleep(10 * time.Millisecond)
	}
	b.set(func(b *taskBackend) { b.status, b.state = 0, "" })
	receive(t, heard, "!", "the backend forgot it")
	release()
	if len(heard) != 0 {
		t.Errorf("and %d more", len(heard))
	}
}

// The task ends while the stream about it is broken: the end is not missed, whether the stream comes back or not.
func TestNoEndIsMissedInAGap(t *testing.T) {
	for name, again := range map[string]bool{"the stream comes back": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			b := newTaskBackend(t, strings.Replace(working, `"pollIntervalMs":1`, `"pollIntervalMs":60000`, 1))
			h := newHub(t, 0)
			heard, _ := b.follow(t, h)
			<-heard
			receive(t, b.opened, "t1", "a stream")
			for b.count() < 2 { // since it was opened
				time.Sleep(10 * time.Millisecond)
			}
			b.set(func(b *taskBackend) { b.state, b.deaf = done, !again })
			b.push("")
			receive(t, b.closed, "t1", "broken")
			receive(t, heard, "{"+done+"}!", "the end")
		})
	}
}

func TestABackendThatIsAwayIsAskedAgain(t *testing.T) {
	b := newTaskBackend(t, working)
	b.status = http.StatusBadGateway
	h := newHub(t, 0)
	heard, _ := b.follow(t, h)
	b.set(func(b *taskBackend) { b.status = 0 })
	receive(t, heard, "{"+working+"}", "once it is back")
}

func TestTasksThatCannotBeFollowed(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*taskBackend)
		task func(*Task)
	}{
		"one that the backend does not know":    {edit: func(b *taskBackend) { b.state = "" }},
		"one of a backend that refuses Weir":    {edit: func(b *taskBackend) { b.status = http.StatusUnauthorized }},
		"one of a backend that tells of others": {edit: func(b *taskBackend) { b.state = strings.Replace(working, "t1", "t2", 1) }},
		"one of a legacy backend":               {task: func(t *Task) { t.Route.Protocol = "2025-11-25" }},
		"one too many":                          {task: func(t *Task) { t.ID = "t2" }},
	} {
		t.Run(name, func(t *testing.T) {
			b, other := newTaskBackend(t, working), newTaskBackend(t, working)
			h := newHub(t, 1)
			if name == "one too many" {
				other.follow(t, h)
			}
			if tt.edit != nil {
				tt.edit(b)
			}
			task := b.task()
			if tt.task != nil {
				tt.task(&task)
			}
			if release, err := h.Follow(t.Context(), task, func(State) { t.Error("heard something") }); err == nil {
				release()
				t.Error("followed")
			}
		})
	}
	b := newTaskBackend(t, working)
	b.mute = true
	h := newHub(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for b.count() == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := h.Follow(ctx, b.task(), nil); err == nil {
		t.Error("the backend said nothing, and still")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.tasks) != 0 {
		t.Errorf("%d feeds that nobody wants", len(h.tasks))
	}
}

func TestPace(t *testing.T) {
	failed := func(n int) func(*pace) {
		return func(p *pace) {
			for range n {
				p.read(io.EOF)
			}
		}
	}
	for name, tt := range map[string]struct {
		do   func(*pace)
		want time.Duration
	}{
		"as the backend wishes":             {func(p *pace) { p.learned(State{poll: 3 * time.Second}) }, 3 * time.Second},
		"it says nothing":                   {func(p *pace) { p.learned(State{}) }, 5 * time.Second},
		"not as often as that":              {func(p *pace) { p.learned(State{poll: time.Millisecond}) }, 500 * time.Millisecond},
		"it tells by itself":                {func(p *pace) { p.pushed = true }, time.Minute},
		"after a failure":                   {failed(1), time.Second},
		"after many":                        {failed(1000), time.Minute},
		"after another":                     {failed(2), 2 * time.Second},
		"one that tells, and can't be read": {func(p *pace) { p.pushed = true; failed(1)(p) }, time.Second},
		"after it could be read again":      {func(p *pace) { failed(5)(p); p.read(nil) }, 5 * time.Second},
		"as it asked when it was busy":      {func(p *pace) { p.failures, p.after = 1, time.Hour }, time.Hour},
	} {
		p := pace{interval: unsaid}
		tt.do(&p)
		if got := p.next(); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestStates(t *testing.T) {
	for name, tt := range map[string]struct{ doc, task, meta string }{
		"a result of tasks/get": {
			`{"resultType":"complete","taskId":"t","status":"failed","error":{"code":-32603,"message":"\u0000"},"_meta":{"a":1}}`,
			`{"taskId":"t","status":"failed","error":{"code":-32603,"message":"\u0000"}}`, `{"a":1}`,
		},
		"a notification":                {`{"_meta":{"io.modelcontextprotocol/subscriptionId":1},"taskId":"t","x":[ 1 ]}`, `{"taskId":"t","x":[ 1 ]}`, "{}"},
		"what is odd further down":      {`{"taskId":"t","result":{"a":1,"a":"\ud800"}}`, `{"taskId":"t","result":{"a":1,"a":"\ud800"}}`, "{}"},
		"another task":                  {`{"taskId":"u"}`, "", ""},
		"no id":                         {`{"status":"working"}`, "", ""},
		"an id that is there twice":     {`{"taskId":"t","taskId":"t"}`, "", ""},
		"no object":                     {`[]`, "", ""},
		"broken":                        {`{"taskId":"t"`, "", ""},
		"a _meta that is none":          {`{"taskId":"t","_meta":7}`, `{"taskId":"t"}`, "{}"},
		"an interval that is none":      {`{"taskId":"t","pollIntervalMs":"NaN"}`, `{"taskId":"t","pollIntervalMs":"NaN"}`, "{}"},
		"an interval beyond all bounds": {`{"taskId":"t","pollIntervalMs":1e999}`, `{"taskId":"t","pollIntervalMs":1e999}`, "{}"},
	} {
		s, err := stateOf([]byte(tt.doc), "t")
		if (err != nil) != (tt.task == "") || string(s.Task) != tt.task || err == nil && string(s.Meta.Append(nil)) != tt.meta {
			t.Errorf("%s: %s %s, %v", name, s.Task, s.Meta.Append(nil), err)
		}
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"resultType":"complete","taskId":"t","status":"working","pollIntervalMs":1e3,"_meta":{"a":{}}}`))
	f.Add([]byte(`{"taskId":"t","taskId":"t"}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		s, err := stateOf(doc, "t")
		if err != nil {
			return
		}
		again, err := stateOf(s.Task, "t")
		if err != nil || again.digest != s.digest || again.Over != s.Over || s.poll < 0 || s.poll > slowest {
			t.Errorf("%s: %v, %v", doc, again, err)
		}
	})
}
