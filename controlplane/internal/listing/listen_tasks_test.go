package listing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/watch"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

// fakeFollow follows all tasks but those that are refused.
type fakeFollow struct {
	mu      sync.Mutex
	refused map[string]bool
	open    map[string][]func(watch.State) // by backend, URL and id
}

func newFakeFollow() *fakeFollow {
	return &fakeFollow{refused: map[string]bool{}, open: map[string][]func(watch.State){}}
}

func (f *fakeFollow) Follow(_ context.Context, t watch.Task, changed func(watch.State)) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused[t.ID] {
		return nil, errors.New("refused")
	}
	k := string(t.Backend) + " " + t.Route.URL + " " + t.ID
	f.open[k] = append(f.open[k], changed)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.open[k] = f.open[k][1:]; len(f.open[k]) == 0 {
			delete(f.open, k)
		}
	}, nil
}

func (f *fakeFollow) tell(k string, s watch.State) {
	f.mu.Lock()
	all := slices.Clone(f.open[k])
	f.mu.Unlock()
	for _, changed := range all {
		changed(s)
	}
}

func (f *fakeFollow) keys() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.open {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// locate finds what is recorded, and nothing else.
func (e *ears) locate(ctx context.Context, id *access.Identity, vh *routes.VirtualHost, task string) *routes.TaskOwner {
	owner, err := e.server.recorded(ctx, id, vh, task)
	if err != nil {
		return nil
	}
	return owner
}

// mint records a task that a tool of backend a made.
func (e *ears) mint(principal, task string, edit ...func(*routes.TaskOwner)) {
	e.t.Helper()
	o := routes.TaskOwner{Principal: principal, Backend: "a", Tool: "x", Source: routes.TaskMinted, Created: time.Now(), Life: routes.MinTaskLife}
	for _, f := range edit {
		f(&o)
	}
	record := e.RecordTask
	if o.Source != routes.TaskMinted {
		record = func(ctx context.Context, host routes.HostID, id string, o routes.TaskOwner) error {
			_, err := e.ClaimTask(ctx, host, id, o)
			return err
		}
	}
	if err := record(e.t.Context(), "acme", task, o); err != nil {
		e.t.Fatal(err)
	}
}

const (
	withTasks = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	ofT1      = "a http://a.invalid/mcp t1"
	nothing   = `subscriptions/acknowledged","params":{#,"notifications":{}}}`
)

func ack(ids string) string {
	return `subscriptions/acknowledged","params":{#,"notifications":{"taskIds":[` + ids + `]}}}`
}

func at(status string) watch.State {
	return watch.State{Task: json.RawMessage(`{"taskId":"t1","status":"` + status + `"}`), Over: status == "completed"}
}

func told(status string) string {
	return `tasks","params":{#,"taskId":"t1","status":"` + status + `"}}`
}

func TestListenersHearOfTheirTasks(t *testing.T) {
	withEars(t, ListenOptions{}, func(t *testing.T, e *ears) {
		e.publish([]*catalog.Catalog{heardCatalog("x")}, heard())
		e.mint("alice", "t1")
		e.mint("alice", "t2")
		e.mint("bob", "theirs")
		const ask = `{"taskIds":["t1","theirs","t2","nobody's","t1"]}`
		alice, both, bob := e.listenAs("alice+forever", withTasks, ask), e.listenAs("alice+forever", withTasks, `{"taskIds":["t1"],"toolsListChanged":true}`), e.listenAs("bob+forever", withTasks, ask)
		check(t, alice, "acknowledged", ack(`"t1","t2"`))
		check(t, both, "acknowledged", `subscriptions/acknowledged","params":{#,"notifications":{"toolsListChanged":true,"taskIds":["t1"]}}}`)
		check(t, bob, "acknowledged", ack(`"theirs"`))

		e.follow.tell(ofT1, at("working"))
		for _, s := range []*stream{alice, both} {
			check(t, s, "a state", told("working"))
		}
		check(t, bob, "of another's task")
		e.follow.tell(ofT1, watch.State{
			Task: json.RawMessage(`{"taskId":"t1","status":"failed","error":{"code":-32603}}`),
			Meta: wire.Object{{Name: "example/a", Value: json.RawMessage(`[1]`)}},
		})
		want := `tasks","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7,"example/a":[1]},"taskId":"t1","status":"failed","error":{"code":-32603}}}`
		check(t, alice, "with all that was said", want)
		both.got()

		block := make(chan struct{})
		alice.mu.Lock()
		alice.block = block
		alice.mu.Unlock()
		for _, status := range []string{"working", "input_required", "working", "completed"} {
			e.follow.tell(ofT1, at(status))
			synctest.Wait()
		}
		alice.mu.Lock()
		alice.block = nil
		alice.mu.Unlock()
		close(block)
		check(t, alice, "the one that was on its way, and the last", told("working"), told("completed"))
		check(t, both, "each", told("working"), told("input_required"), told("working"), told("completed"))
		if diff := cmp.Diff([]string{"a http://a.invalid/mcp t2", "a http://a.invalid/mcp theirs"}, e.follow.keys()); diff != "" {
			t.Errorf("followed (-want +got):\n%s", diff)
		}

		e.follow.tell("a http://a.invalid/mcp t2", watch.State{Over: true})
		check(t, alice, "its backend forgot the last: nothing more will come", endOf7)
		<-alice.done
		check(t, both, "there are still lists")
		bob.cancel()
		<-bob.done
		if keys := e.follow.keys(); len(keys) != 0 {
			t.Errorf("still followed: %q", keys)
		}
	})
}

// A record that lets the caller through no more ends the task's part in the stream, before anything else is shown.
func TestATaskIsHeardOfWhileItsRecordStands(t *testing.T) {
	withEars(t, ListenOptions{}, func(t *testing.T, e *ears) {
		e.publish([]*catalog.Catalog{heardCatalog("x")}, heard())
		claim := func(o *routes.TaskOwner) { o.Source, o.Tool = routes.TaskClaimed, "" }
		e.mint("alice", "t1", claim)
		s := e.listenAs("alice+forever", withTasks, `{"taskIds":["t1"]}`)
		check(t, s, "a claim", ack(`"t1"`))
		e.follow.tell(ofT1, at("working"))
		check(t, s, "holds", told("working"))
		e.SetDown(true)
		e.follow.tell(ofT1, at("input_required"))
		check(t, s, "while Redis is away too", told("input_required"))
		e.SetDown(false)
		e.mint("bob", "t1")
		e.follow.tell(ofT1, at("completed"))
		check(t, s, "whoever made it turned up", endOf7)

		e.mint("alice", "t2", claim)
		s = e.listenAs("alice+forever", withTasks, `{"taskIds":["t2"]}`)
		check(t, s, "another claim", ack(`"t2"`))
		e.mint("bob", "t2")
		time.Sleep(59 * time.Second)
		check(t, s, "nothing is said of it")
		time.Sleep(2 * time.Second)
		check(t, s, "a minute later it ends all the same", endOf7)
	})
}

// The record of a task lives on while somebody listens.
func TestListeningKeepsARecordAlive(t *testing.T) {
	withEars(t, ListenOptions{}, func(t *testing.T, e *ears) {
		e.publish([]*catalog.Catalog{heardCatalog("x")}, heard())
		const life = 10 * time.Minute
		e.mint("alice", "t1", func(o *routes.TaskOwner) { o.Life = life })
		s := e.listenAs("alice+forever", withTasks, `{"taskIds":["t1"]}`)
		check(t, s, "acknowledged", ack(`"t1"`))
		time.Sleep(2 * life)
		e.follow.tell(ofT1, at("completed"))
		check(t, s, "two lives later", told("completed"), endOf7)
		record, err := e.TaskRecord(t.Context(), "acme", "t1", "alice")
		if err != nil || len(record) != 1 {
			t.Errorf("record %v, %v", record, err)
		}
	})
}

func TestTasksMoveWithTheirBackend(t *testing.T) {
	withEars(t, ListenOptions{}, func(t *testing.T, e *ears) {
		e.publish([]*catalog.Catalog{heardCatalog("x")}, heard())
		e.mint("alice", "t1")
		s := e.listenAs("alice+forever", withTasks, `{"taskIds":["t1"]}`)
		s.got()
		e.publish(nil, heard(func(vh *routes.VirtualHost) {
			a := vh.Backends["a"]
			a.URL = "http://moved.invalid/mcp"
			vh.Backends["a"] = a
		}))
		check(t, s, "moved")
		if diff := cmp.Diff([]string{"a http://moved.invalid/mcp t1"}, e.follow.keys()); diff != "" {
			t.Errorf("followed (-want +got):\n%s", diff)
		}
		e.publish(nil, heard(func(vh *routes.VirtualHost) { delete(vh.Tools, "x") }))
		e.follow.tell(ofT1, at("working"))
		check(t, s, "its tool is gone, which does not matter", told("working"))
		e.publish(nil, heard(func(vh *routes.VirtualHost) {
			a := vh.Backends["a"]
			a.Protocol = "2025-11-25"
			vh.Backends["a"] = a
		}))
		check(t, s, "its backend is of another generation now", endOf7)
		if keys := e.follow.keys(); len(keys) != 0 {
			t.Errorf("still followed: %q", keys)
		}
	})
}

func TestListeningToTasksIsChecked(t *testing.T) {
	withEars(t, ListenOptions{TasksPerPrincipal: 2}, func(t *testing.T, e *ears) {
		legacy := func(vh *routes.VirtualHost) {
			vh.Backends["old"] = routes.Backend{URL: "http://old.invalid/mcp", Protocol: "2025-11-25"}
			vh.Order = append(vh.Order, "old")
		}
		e.publish([]*catalog.Catalog{heardCatalog("x")}, heard(legacy))
		for _, id := range []string{"t1", "t2", "t3"} {
			e.mint("alice", id)
		}
		e.mint("alice", "old", func(o *routes.TaskOwner) { o.Backend = "old" })
		e.mint("alice", "refused")
		e.follow.refused["refused"] = true
		var ids []string
		for i := range maxTaskIDs + 1 {
			ids = append(ids, fmt.Sprintf("%q", fmt.Sprint("t", i)))
		}
		for name, tt := range map[string]struct {
			token, capabilities, notifications string
			status                             int
			want                               string
		}{
			"the extension is not declared":      {"alice+1s", `{"tasks":{},"extensions":{}}`, `{"taskIds":["t1"],"toolsListChanged":true}`, 400, `"code":-32021,"message":"missing required client capability","data":{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`},
			"not declared, and no task asked":    {"alice+1s", `{}`, `{"taskIds":[]}`, 200, `"notifications":{}`},
			"no strings":                         {"alice+1s", withTasks, `{"taskIds":[1]}`, 400, "taskIds is not an array of strings"},
			"too many":                           {"alice+1s", withTasks, `{"taskIds":[` + strings.Join(ids, ",") + `]}`, 400, "over 64 tasks"},
			"without the scope":                  {"alice+1s+mcp:tools", withTasks, `{"taskIds":["t1"]}`, 403, "insufficient scope"},
			"without the scope, and other lists": {"alice+1s+mcp:tools", withTasks, `{"taskIds":["t1"],"toolsListChanged":true}`, 200, `"notifications":{"toolsListChanged":true}}`},
			"without the tool's scope":           {"alice+1s+mcp:tasks+mcp:tools:other", withTasks, `{"taskIds":["t1"]}`, 200, `"notifications":{}`},
			"with the tool's scope":              {"alice+1s+mcp:tasks+mcp:tools:x", withTasks, `{"taskIds":["t1"]}`, 200, `"taskIds":["t1"]`},
			"somebody else":                      {"bob+1s", withTasks, `{"taskIds":["t1","nobody's"]}`, 200, `"notifications":{}`},
			"a task of a legacy backend":         {"alice+1s", withTasks, `{"taskIds":["old"]}`, 200, `"notifications":{}`},
			"one that its backend refuses":       {"alice+1s", withTasks, `{"taskIds":["refused"]}`, 200, `"notifications":{}`},
			"more than the principal may follow": {"alice+1s", withTasks, `{"taskIds":["t1","t2","t3"]}`, 200, `"taskIds":["t1","t2"]`},
		} {
			s := e.listenAs(tt.token, tt.capabilities, tt.notifications)
			time.Sleep(2 * time.Second)
			<-s.done
			if s.status != tt.status || !strings.Contains(s.body.String(), tt.want) {
				t.Errorf("%s: %d %s", name, s.status, s.body.String())
			}
		}
		if keys := e.follow.keys(); len(keys)+len(e.server.listeners.tasks) != 0 {
			t.Errorf("still followed: %q, %v", keys, e.server.listeners.tasks)
		}
		foreign, unknown := e.listenAs("bob+forever", withTasks, `{"taskIds":["t1"]}`), e.listenAs("bob+forever", withTasks, `{"taskIds":["zz"]}`)
		check(t, foreign, "somebody else's", nothing, endOf7)
		check(t, unknown, "unknown", nothing, endOf7)
	})
}
