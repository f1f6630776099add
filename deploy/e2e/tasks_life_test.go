package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A task from its beginning to its end, with input on the way. Each step is made on the other dataplane, by a new connection, and
// each reaches the one backend alone.
func TestTheWholeLifeOfATask(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	c := [2]taskClient{p.as(t, "alice", 0, modernVersion), p.as(t, "alice", 1, modernVersion)}
	id := c[0].start(t, "b__start", `{"ask":true,"id":"straße 7"}`)
	if id != "straße 7" {
		t.Fatalf("the task's id is %q: it was rewritten", id)
	}
	asking := string(c[1].must(t, "tasks/get", taskParams(id)))
	const want = `{"resultType":"complete","taskId":"straße 7","status":"input_required","createdAt":"2026-11-30T10:00:00Z","lastUpdatedAt":"2026-11-30T10:00:00Z",` +
		`"ttlMs":3600000,"pollIntervalMs":500,"inputRequests":{"name":{"method":"elicitation/create","params":{"mode":"form","message":"who\u003f",` +
		`"requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}}}`
	if diff := cmp.Diff(want, asking); diff != "" {
		t.Errorf("tasks/get, which must come verbatim (-want +got):\n%s", diff)
	}
	const answers = `,"inputResponses":{"name":{"action":"accept","content":{"name":"Zoë"}}}`
	if got := string(c[0].must(t, "tasks/update", taskParams(id, answers))); got != `{"resultType":"complete"}` {
		t.Errorf("tasks/update answered %s", got)
	}
	if got := string(c[1].must(t, "tasks/get", taskParams(id))); !strings.Contains(got, `"status":"completed"`) || !strings.Contains(got, `"beta has done it for Zoë"`) {
		t.Errorf("in the end: %s", got)
	}
	if got := string(c[0].must(t, "tasks/cancel", taskParams(id))); got != `{"resultType":"complete"}` {
		t.Errorf("tasks/cancel answered %s", got)
	}
	p.onlyAt(t, p.beta, "tasks/update", id)
	p.onlyAt(t, p.beta, "tasks/cancel", id)
	for _, b := range []*taskBackend{p.alpha, p.gamma} {
		if n := len(b.asked("tasks/get", "")); n != 0 {
			t.Errorf("%s was asked for tasks %d times", b.name, n)
		}
	}
	update := p.beta.asked("tasks/update", id)[0]
	if got := update.header["Mcp-Name"]; !slices.Equal(got, []string{"=?base64?c3RyYcOfZSA3?="}) {
		t.Errorf("Mcp-Name upstream is %q, want the task's id", got)
	}
	if got := update.header["Mcp-Method"]; !slices.Equal(got, []string{"tasks/update"}) {
		t.Errorf("Mcp-Method upstream is %q", got)
	}
	if !strings.Contains(update.body, answers) {
		t.Errorf("the answers arrived as %s", update.body)
	}
}

// A backend's own errors about a task that it made come verbatim.
func TestErrorsAboutAnOwnTaskAreTheBackends(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	for tool, b := range map[string]*taskBackend{"a__start": p.alpha, "g__start": p.gamma} {
		c := p.as(t, "alice", 0, b.version)
		id := c.start(t, tool, `{}`)
		b.set(func(b *taskBackend) { delete(b.tasks, id) })
		a, err := c.steady("tasks/get", taskParams(id))
		want := map[bool]int{true: 400, false: 200}[c.modern()]
		if err != nil || a.rpc.Error == nil || a.rpc.Error.Message != "Failed to retrieve task: Task not found at "+b.name || a.status != want {
			t.Errorf("%s: %+v, %v; want the backend's own error", tool, a, err)
		}
	}
}

// Cancelling reaches one backend, once, whatever it answers: a mutating method is neither fanned out nor repeated.
func TestACancelIsSeenByOneBackend(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	for n, tool := range []string{"a__start", "g__start"} {
		b := []*taskBackend{p.alpha, p.gamma}[n]
		c := p.as(t, "alice", n, b.version)
		for _, failing := range []int{0, http.StatusServiceUnavailable, http.StatusInternalServerError} {
			id := c.start(t, tool, `{}`)
			b.set(func(b *taskBackend) { b.failing = failing })
			a, err := c.steady("tasks/cancel", taskParams(id))
			if err != nil || (a.rpc.Result != nil) != (failing == 0) {
				t.Errorf("%s, status %d: %+v, %v", tool, failing, a, err)
			}
			b.set(func(b *taskBackend) { b.failing = 0 })
			p.onlyAt(t, b, "tasks/cancel", id)
		}
		// Of an id that nobody made, no backend sees it at all.
		if err := c.refused("tasks/cancel", taskParams("nobody's"), -32602, ""); err != nil {
			t.Error(err)
		}
		for _, each := range p.backends() {
			if n := len(each.asked("tasks/cancel", "nobody's")); n != 0 {
				t.Errorf("%s saw %d cancels of an unknown task", each.name, n)
			}
		}
	}
}

// The task that a backend only tells of in _meta is followed like any other.
func TestAnAdvertisedTaskIsFollowed(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "{unrecorded: deny}") // so that only what was recorded at mint is found
	for tool, b := range map[string]*taskBackend{"a__start": p.alpha, "g__start": p.gamma} {
		c := p.as(t, "alice", 0, b.version)
		id := "told-of-by-" + b.name
		params := `{"name":"` + tool + `","arguments":{"advertise":true,"id":"` + id + `"}`
		if !c.modern() {
			params += `,"task":{}`
		}
		if got := string(c.must(t, "tools/call", params+"}")); !strings.Contains(got, `"_meta":{"task":{"taskId":"`+id+`"}}`) {
			t.Errorf("%s answered %s", tool, got)
		}
		if err := p.as(t, "alice", 1, b.version).get(id, "working"); err != nil {
			t.Error(err)
		}
		if err := p.as(t, "bob", 1, b.version).refused("tasks/get", taskParams(id), -32602, ""); err != nil {
			t.Errorf("another principal: %v", err)
		}
	}
}

// Whoever does not declare the extension sees neither tasks nor answers about them.
func TestTasksNeedTheExtension(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	knows := p.as(t, "alice", 0, modernVersion)
	id := knows.start(t, "a__start", `{}`)
	for method, params := range map[string]string{
		"tools/call": `{"name":"a__start","arguments":{"id":"hidden"}}`, "tasks/get": taskParams(id), "tasks/cancel": taskParams(id),
		"tasks/update": taskParams(id, `,"inputResponses":{}`), "subscriptions/listen": `{"notifications":{"taskIds":["` + id + `"]}}`,
	} {
		a, err := knows.client.call("1", method, params)
		if err != nil || a.status != 400 || a.rpc.Error == nil || a.rpc.Error.Code != -32021 ||
			string(a.rpc.Error.Data) != `{"requiredCapabilities":{"extensions":{"`+tasksExtension+`":{}}}}` || strings.Contains(a.body, "hidden") {
			t.Errorf("%s without the extension: %+v, %v; want -32021", method, a, err)
		}
	}
	if n := len(p.alpha.asked("tasks/cancel", id)); n != 0 {
		t.Errorf("the backend saw %d cancels", n)
	}
	var d struct {
		Capabilities struct{ Extensions map[string]any }
	}
	if err := json.Unmarshal(knows.must(t, "server/discover", "{}"), &d); err != nil || d.Capabilities.Extensions[tasksExtension] == nil {
		t.Errorf("server/discover offers %v, %v; want the tasks extension", d.Capabilities.Extensions, err)
	}
}

// The methods that an era does not have.
func TestMethodsOfTheOtherEraAreUnknown(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	for version, methods := range map[string][]string{
		modernVersion: {"tasks/list", "tasks/result"}, legacyVersion: {"tasks/update"}, "2025-06-18": {"tasks/get", "tasks/result", "tasks/cancel"},
	} {
		for _, method := range methods {
			a, err := p.as(t, "alice", 0, version).call("1", method, taskParams("x"))
			if want := map[bool]int{true: 404, false: 200}[version == modernVersion]; err != nil || a.status != want || a.rpc.Error == nil || a.rpc.Error.Code != -32601 {
				t.Errorf("%s of %s: %+v, %v; want -32601", method, version, a, err)
			}
		}
	}
}

// A legacy task lives in its session, which is kept for it: followed by any dataplane, listed, and no other's.
func TestTheWholeLifeOfALegacyTask(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	c := [2]taskClient{p.as(t, "alice", 0, legacyVersion), p.as(t, "alice", 1, legacyVersion)}
	init := string(c[0].must(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}`))
	if !strings.Contains(init, `"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`) {
		t.Errorf("initialize does not offer tasks: %s", init)
	}
	if got := string(c[0].must(t, "tools/list", "{}")); !strings.Contains(got, `"execution":{"taskSupport":"optional"}`) {
		t.Errorf("tools/list keeps no execution: %s", got)
	}
	if got := string(c[0].must(t, "tools/call", `{"name":"g__start","arguments":{}}`)); !strings.Contains(got, `"text":"gamma"`) {
		t.Errorf("a call that wants no task: %s", got)
	}
	var ids []string
	for i := range 5 {
		ids = append(ids, c[i%2].start(t, "g__start", fmt.Sprintf(`{"id":"task-%d"}`, i)))
	}
	foreign := p.as(t, "bob", 0, legacyVersion).start(t, "g__start", `{"id":"bobs"}`)
	if err := c[1].get(ids[0], "working"); err != nil {
		t.Error(err)
	}
	p.gamma.finish(t, ids[0])
	want := `{"content":[{"type":"text","text":"gamma has done it"}],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"task-0"}}}`
	if diff := cmp.Diff(want, string(c[1].must(t, "tasks/result", taskParams(ids[0])))); diff != "" {
		t.Errorf("tasks/result (-want +got):\n%s", diff)
	}
	if got := statusOf(c[1].must(t, "tasks/cancel", taskParams(ids[1]))); got != "cancelled" {
		t.Errorf("tasks/cancel answered a task that is %q", got)
	}
	if err := c[0].refused("tasks/cancel", taskParams(ids[1]), -32602, ""); err != nil {
		t.Errorf("cancelled twice: %v", err)
	}
	for _, method := range followUps(legacyVersion) {
		if err := c[0].refused(method, taskParams(foreign), -32602, ""); err != nil {
			t.Errorf("another's task: %v", err)
		}
	}
	for n := range c {
		listed, err := c[n].names("tasks/list", "tasks", "taskId")
		slices.Sort(listed)
		if err != nil || !slices.Equal(listed, ids) {
			t.Errorf("tasks/list on dataplane %d: %v, %v; want %v", n, listed, err, ids)
		}
	}
	// Every request for a task came in the session in which it was made, and that was not ended.
	for _, id := range ids {
		var about []taskRequest
		for _, method := range followUps(legacyVersion) {
			about = append(about, p.gamma.asked(method, id)...)
		}
		p.gamma.mu.Lock()
		session := p.gamma.tasks[id].session
		p.gamma.mu.Unlock()
		if got := sessionsOf(about); len(about) > 0 && !slices.Equal(got, []string{session}) {
			t.Errorf("%s was asked for in sessions %v, want %q alone", id, got, session)
		}
	}
}

// A task of one generation is not shown to a client of the other.
func TestATaskOfTheOtherGeneration(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	modern, legacy := p.as(t, "alice", 0, modernVersion), p.as(t, "alice", 1, legacyVersion)
	newer, older := modern.start(t, "a__start", `{}`), legacy.start(t, "g__start", `{}`)
	for _, method := range []string{"tasks/get", "tasks/cancel"} {
		if err := modern.refused(method, taskParams(older), -32603, "needs_legacy_client"); err != nil {
			t.Error(err)
		}
		if err := legacy.refused(method, taskParams(newer), -32603, "needs_modern_client"); err != nil {
			t.Error(err)
		}
	}
	for _, b := range p.backends() {
		if n := len(b.asked("tasks/cancel", "")); n != 0 {
			t.Errorf("%s saw %d cancels", b.name, n)
		}
	}
}
