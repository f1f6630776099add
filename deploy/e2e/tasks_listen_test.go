package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-mcp/weir/deploy/taskserver"
)

// listen asks for tasks and waits for the acknowledgment of those that are the caller's.
func (c taskClient) listen(t *testing.T, ask, own []string) *ear {
	t.Helper()
	filter := func(ids []string) string {
		if len(ids) == 0 {
			return "{}"
		}
		raw, err := json.Marshal(map[string][]string{"taskIds": ids})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	slices.Sort(own)
	return c.hear(t, declared(c.body("1", "subscriptions/listen", `{"notifications":`+filter(ask)+`}`)), filter(own))
}

// tells waits for a task's state and checks that it is what tasks/get answers at that moment.
func (e *ear) tells(t *testing.T, c taskClient, id, status string) {
	t.Helper()
	eventually(t, "the task is "+status, func() error { return c.get(id, status) })
	want := strings.Replace(string(c.must(t, "tasks/get", taskParams(id))), `"resultType":"complete",`, "", 1)
	want = strings.Replace(want, `,"resultType":"complete"`, "", 1)
	e.hears(t, "notifications/tasks", ","+want[1:len(want)-1])
}

// Tasks are told to those who own them, on a control plane and through a dataplane, and asked for at their backend once for all; what
// is another's is not to be told from what nobody has.
func TestTasksAreToldToTheirOwners(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	alice, bob := p.as(t, "alice", 0, modernVersion), p.as(t, "bob", 0, modernVersion)
	own, second, theirs := alice.start(t, "a__start", `{"ask":true}`), alice.start(t, "b__start", `{}`), bob.start(t, "a__start", `{}`)
	direct := alice
	direct.url = p.control.url()
	ask := []string{own, second, theirs, "nobody's"}
	ears := []*ear{direct.listen(t, ask, []string{own, second}), p.as(t, "alice", 1, modernVersion).listen(t, ask, []string{own, second})}
	for _, e := range ears {
		e.tells(t, alice, own, "input_required")
		e.tells(t, alice, second, "working")
	}
	alice.must(t, "tasks/update", taskParams(own, `,"inputResponses":{"name":{"content":{"name":"Zoë"}}}`))
	for _, e := range ears {
		e.tells(t, alice, own, "completed")
	}
	p.beta.finish(t, second)
	for _, e := range ears {
		e.tells(t, alice, second, "completed")
		e.ends(t, "nothing more will come")
	}
	for _, id := range []string{own, "nobody's either"} {
		e := bob.listen(t, []string{id}, nil)
		e.ends(t, "there is nothing to listen to")
	}
	bobs := bob.listen(t, ask, []string{theirs})
	bobs.tells(t, bob, theirs, "working")
	eventually(t, "one task is followed", func() error {
		_, body, err := get("http://" + p.control.ready["ops"] + "/metrics")
		if err == nil && !strings.Contains(body, "\nweir_watch_tasks 1\n") {
			err = errNotYet
		}
		return err
	})
}

// While Redis stands still what was agreed to goes on, and nothing else is agreed to.
func TestTasksAreToldWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	alice := p.as(t, "alice", 0, modernVersion)
	id, other := alice.start(t, "a__start", `{}`), alice.start(t, "a__start", `{}`)
	direct := alice
	direct.url = p.control.url()
	e := direct.listen(t, []string{id}, []string{id})
	e.hearsOf(t, id, "working")
	p.redis.Pause()
	defer p.redis.Resume()
	direct.listen(t, []string{other}, nil)
	p.alpha.finish(t, id)
	e.hearsOf(t, id, "completed")
	e.ends(t, "nothing more will come")
}

// hearsOf waits for a task's state.
func (e *ear) hearsOf(t *testing.T, id, status string) {
	t.Helper()
	e.until(t, id+" is "+status, func(msgs []string, _ bool) bool {
		return slices.ContainsFunc(msgs, func(m string) bool {
			return strings.Contains(m, `"notifications/tasks"`) && strings.Contains(m, `"taskId":"`+id+`"`) && strings.Contains(m, `"status":"`+status+`"`)
		})
	})
}

// A task that nobody recorded is looked for, and many cost backends no more than the budget allows.
func TestListeningLooksForTasksWithinTheBudget(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	alice := p.as(t, "alice", 0, modernVersion)
	alice.url = p.control.url()
	p.alpha.set(func(b *taskBackend) { b.tasks["found"] = &madeTask{id: "found", status: "working", ttl: "null"} })
	eventually(t, "the host is served", func() error { _, err := alice.tools(); return err })
	e := alice.listen(t, []string{"found"}, []string{"found"})
	e.hearsOf(t, "found", "working")
	mallory := p.as(t, "mallory", 0, modernVersion)
	mallory.url = alice.url
	var junk []string
	for i := range 64 {
		junk = append(junk, fmt.Sprint("junk", i))
	}
	began := time.Now()
	mallory.listen(t, append(junk[:63:63], "found"), nil)
	asked := 0
	for _, b := range p.backends() {
		for _, id := range junk {
			asked += len(b.asked("tasks/get", id))
		}
	}
	// 10 at once and one a second after that, each of two modern backends; decoys of the same length count with neither.
	if most := 2 * (10 + int(time.Since(began)/time.Second) + 1); asked > most {
		t.Errorf("63 unknown ids and another's: backends were asked for %d, want at most %d", asked, most)
	}
	if n := len(p.alpha.asked("tasks/cancel", "")) + len(p.alpha.asked("tasks/update", "")); n != 0 {
		t.Errorf("%d mutating requests", n)
	}
}

// A backend that tells of its tasks by itself is listened to, and no end is missed while the stream to it is broken.
func TestTasksThatTheirBackendTellsOf(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	backend := taskserver.New(taskserver.Options{Name: "jobs", Poll: time.Hour, Tools: []taskserver.Tool{{
		Name: "job", Task: taskserver.TaskRequired,
		Run: func(ctx context.Context, j *taskserver.Job) (taskserver.Result, error) {
			answers, err := j.Ask(ctx, map[string]taskserver.Request{"name": {Method: "elicitation/create", Params: map[string]string{"message": "who?"}}})
			if err != nil {
				return taskserver.Result{}, err
			}
			j.Say("asked")
			select {
			case <-goOn:
			case <-ctx.Done():
				return taskserver.Result{}, ctx.Err()
			}
			return taskserver.Result{Text: string(answers["name"])}, nil
		},
	}}})
	hs := httptest.NewServer(backend)
	t.Cleanup(func() {
		backend.Close()
		hs.CloseClientConnections()
		hs.Close()
	})
	p := newPair(t, fmt.Sprintf("  jobs: {url: %q}\n", hs.URL), "  acme:\n    backends: [{name: jobs}]\n")
	c := taskClient{client{url: p.data[0].url(), token: p.mint(t, "alice", ""), version: modernVersion}}
	eventually(t, "the tool is there", func() error {
		tools, err := c.tools()
		if err == nil && !slices.Contains(tools, "job") {
			err = errNotYet
		}
		return err
	})
	id := c.start(t, "job", `{}`)
	e := c.listen(t, []string{id}, []string{id})
	e.hearsOf(t, id, "input_required")
	began := time.Now()
	c.must(t, "tasks/update", taskParams(id, `,"inputResponses":{"name":{"action":"accept","content":{}}}`))
	e.hearsOf(t, id, "working") // before the next poll, which is a minute away
	t.Logf("from the update to the notification: %v", time.Since(began).Round(time.Millisecond))
	hs.CloseClientConnections()
	close(goOn)
	began = time.Now()
	e.hearsOf(t, id, "completed")
	t.Logf("from the break of the stream to the end: %v", time.Since(began).Round(time.Millisecond))
	e.ends(t, "nothing more will come")
	msgs := e.take()
	for _, m := range msgs {
		var n struct{ Params map[string]any }
		if err := json.Unmarshal([]byte(m), &n); err != nil || n.Params["resultType"] != nil { // but the task's result has one
			t.Errorf("a notification with a resultType: %s, %v", m, err)
		}
	}
	var last struct {
		Params struct {
			Result struct{ Content []struct{ Text string } }
		}
	}
	if err := json.Unmarshal([]byte(msgs[len(msgs)-2]), &last); err != nil || len(last.Params.Result.Content) != 1 {
		t.Errorf("the last state %s, %v; want it with the result", msgs[len(msgs)-2], err)
	}
}

// A legacy client's list is of what its backends still know: a session that is gone, and a backend that is, take nothing else away.
func TestLegacyTasksAreListedWithoutWhatIsGone(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	c := p.as(t, "alice", 0, legacyVersion)
	kept, lost := c.start(t, "g__start", `{"id":"kept"}`), c.start(t, "g__start", `{"id":"lost"}`)
	p.gamma.mu.Lock()
	session := p.gamma.tasks[lost].session
	p.gamma.mu.Unlock()
	p.gamma.endSession(session)
	if got, err := c.names("tasks/list", "tasks", "taskId"); err != nil || !slices.Equal(got, []string{kept}) {
		t.Errorf("without a session: %q, %v", got, err)
	}
	p.gamma.set(func(b *taskBackend) { b.failing = http.StatusServiceUnavailable })
	if got := string(c.must(t, "tasks/list", "{}")); got != `{"tasks":[],"_meta":{"weir/partialFailure":{"backends":["gamma"]}}}` {
		t.Errorf("a backend that fails: %s", got)
	}
	if a, err := c.call("1", "tasks/list", `{"cursor":"nonsense"}`); err != nil || a.rpc.Error == nil || a.rpc.Error.Code != -32602 {
		t.Errorf("a cursor that is none: %+v, %v", a, err)
	}
	narrow := c
	narrow.token = p.mint(t, "alice", "mcp:tools")
	if a, err := narrow.call("1", "tasks/list", "{}"); err != nil || a.status != 403 {
		t.Errorf("without mcp:tasks: %+v, %v", a, err)
	}
}
