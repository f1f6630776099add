package taskserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// caller is a client of a test server; answers come decoded.
type caller struct {
	t   *testing.T
	url string
}

func serve(t *testing.T, o Options) caller {
	t.Helper()
	s := New(o)
	hs := httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close()
		hs.CloseClientConnections()
		hs.Close()
	})
	return caller{t, hs.URL}
}

type reply struct {
	status int
	Result map[string]any
	Error  *struct {
		Code    int
		Message string
		Data    any
	}
}

// send makes one request. extensions is JSON; params is the members before _meta, each with its comma.
func (c caller) send(method, name, params, extensions string, edit ...func(http.Header)) *http.Response {
	c.t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + Version +
		`","io.modelcontextprotocol/clientCapabilities":{"extensions":` + extensions + `}}}}`
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header = http.Header{"Mcp-Method": {method}, "Mcp-Protocol-Version": {Version}}
	if name != "" {
		req.Header.Set("Mcp-Name", name)
	}
	for _, e := range edit {
		e(req.Header)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return resp
}

const declared = `{"` + Extension + `":{}}`

func (c caller) ask(method, name, params, extensions string, edit ...func(http.Header)) reply {
	c.t.Helper()
	resp := c.send(method, name, params, extensions, edit...)
	defer resp.Body.Close()
	doc, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	r := reply{status: resp.StatusCode}
	if err := json.Unmarshal(doc, &r); err != nil {
		c.t.Fatalf("%s: %s: %v", method, doc, err)
	}
	return r
}

// start calls a tool and returns its task.
func (c caller) start(tool string) string {
	c.t.Helper()
	r := c.ask("tools/call", tool, `"name":"`+tool+`",`, declared)
	id, _ := r.Result["taskId"].(string)
	if id == "" || r.Result["resultType"] != "task" {
		c.t.Fatalf("%s answered %+v, want a task", tool, r)
	}
	return id
}

func (c caller) follow(method, id, more string) reply {
	c.t.Helper()
	return c.ask(method, id, `"taskId":"`+id+`",`+more, declared)
}

// until asks for a task until it has a status.
func (c caller) until(id, status string) map[string]any {
	c.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if r := c.follow("tasks/get", id, ""); r.Result["status"] == status {
			return r.Result
		}
	}
	c.t.Fatalf("the task did not become %s", status)
	return nil
}

func blocked(ctx context.Context, j *Job) (Result, error) {
	j.Say("at it")
	<-ctx.Done()
	return Result{}, ctx.Err()
}

func TestTasksEndAsTheirWorkDoes(t *testing.T) {
	c := serve(t, Options{Tools: []Tool{
		{Name: "good", Task: TaskOptional, Run: func(context.Context, *Job) (Result, error) { return Result{Text: "fine"}, nil }},
		{Name: "bad", Task: TaskOptional, Run: func(context.Context, *Job) (Result, error) { return Result{}, errors.New("no luck") }},
		{Name: "broken", Task: TaskOptional, Run: func(context.Context, *Job) (Result, error) {
			return Result{}, &Error{Code: -32603, Message: "broke"}
		}},
	}})
	content := func(text string, isError bool) map[string]any {
		return map[string]any{"resultType": "complete", "content": []any{map[string]any{"type": "text", "text": text}}, "isError": isError}
	}
	for tool, want := range map[string]map[string]any{
		"good":   {"status": "completed", "result": content("fine", false)},
		"bad":    {"status": "completed", "result": content("no luck", true)},
		"broken": {"status": "failed", "statusMessage": "broke", "error": map[string]any{"code": -32603.0, "message": "broke"}},
	} {
		got := c.until(c.start(tool), want["status"].(string))
		maps.DeleteFunc(got, func(k string, _ any) bool {
			return slices.Contains([]string{"resultType", "taskId", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}, k)
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tool, diff)
		}
	}
}

func TestAnInputIsAskedForUntilItIsGiven(t *testing.T) {
	c := serve(t, Options{Tools: []Tool{{Name: "ask", Task: TaskRequired, Run: func(ctx context.Context, j *Job) (Result, error) {
		answers, err := j.Ask(ctx, map[string]Request{"a": {Method: "elicitation/create"}, "b": {Method: "elicitation/create"}})
		return Result{Text: string(answers["a"]) + string(answers["b"])}, err
	}}}})
	id := c.start("ask")
	keys := func() []string {
		asked, _ := c.until(id, "input_required")["inputRequests"].(map[string]any)
		return slices.Sorted(maps.Keys(asked))
	}
	if got := keys(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("asked: %v", got)
	}
	for _, update := range []string{`"b":1`, `"b":2,"nobody-asked":3`} {
		if r := c.follow("tasks/update", id, `"inputResponses":{`+update+`},`); r.Error != nil || len(r.Result) != 1 {
			t.Errorf("update %s: %+v", update, r)
		}
		if got := keys(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("after %s still asked: %v", update, got)
		}
	}
	c.follow("tasks/update", id, `"inputResponses":{"a":0},`)
	content := c.until(id, "completed")["result"].(map[string]any)["content"]
	if diff := cmp.Diff([]any{map[string]any{"type": "text", "text": "01"}}, content); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestACancelledTaskStaysSo(t *testing.T) {
	c := serve(t, Options{Tools: []Tool{{Name: "block", Task: TaskOptional, Run: blocked}}})
	id := c.start("block")
	for range 2 {
		if r := c.follow("tasks/cancel", id, ""); r.Error != nil || len(r.Result) != 1 {
			t.Errorf("cancel: %+v", r)
		}
		c.until(id, "cancelled")
	}
}

func TestRefusals(t *testing.T) {
	c := serve(t, Options{Tools: []Tool{{Name: "must", Task: TaskRequired, Run: blocked}, {Name: "never", Run: func(context.Context, *Job) (Result, error) {
		return Result{Text: "now"}, nil
	}}}})
	set := func(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }
	for name, tt := range map[string]struct {
		got    reply
		status int
		code   int
	}{
		"an unknown task":         {c.follow("tasks/get", "nobody", ""), 400, -32602},
		"tasks/list":              {c.ask("tasks/list", "", "", declared), 404, -32601},
		"another name":            {c.ask("tasks/get", "b", `"taskId":"a",`, declared), 400, -32020},
		"another method":          {c.ask("tasks/get", "a", `"taskId":"a",`, declared, set("Mcp-Method", "tasks/cancel")), 400, -32020},
		"another version":         {c.ask("tools/list", "", "", declared, set("Mcp-Protocol-Version", "2025-11-25")), 400, -32020},
		"an undeclared follow-up": {c.undeclared(), 400, -32021},
		"an undeclared call":      {c.ask("tools/call", "must", `"name":"must",`, `{}`), 400, -32021},
		"an undeclared listen":    {c.ask("subscriptions/listen", "", `"notifications":{"taskIds":["a"]},`, `{}`), 400, -32021},
	} {
		if tt.got.status != tt.status || tt.got.Error == nil || tt.got.Error.Code != tt.code {
			t.Errorf("%s: %+v, want %d and %d", name, tt.got, tt.status, tt.code)
		}
	}
	if r := c.ask("tools/call", "never", `"name":"never","task":{"ttl":1},`, declared); r.Result["resultType"] != "complete" {
		t.Errorf("a tool that makes no tasks: %+v", r)
	}
	if r := c.ask("tasks/get", "=?base64?w7w=?=", `"taskId":"ü",`, declared); r.Error == nil || r.Error.Code != -32602 {
		t.Errorf("an encoded name: %+v, want -32602", r)
	}
}

// undeclared is a follow-up without the extension.
func (c caller) undeclared() reply {
	c.t.Helper()
	return c.ask("tasks/get", "a", `"taskId":"a",`, `{}`)
}

func TestListenersHearOfEachChange(t *testing.T) {
	c := serve(t, Options{Tools: []Tool{{Name: "block", Task: TaskOptional, Run: blocked}}})
	id := c.start("block")
	resp := c.send("subscriptions/listen", "", `"notifications":{"taskIds":["`+id+`","nobody"]},`, declared)
	defer resp.Body.Close()
	dec := reader(resp.Body)
	ack := dec(t)
	if diff := cmp.Diff(map[string]any{"taskIds": []any{id}}, ack["params"].(map[string]any)["notifications"]); diff != "" {
		t.Errorf("acknowledged (-want +got):\n%s", diff)
	}
	c.follow("tasks/cancel", id, "")
	for {
		m := dec(t)
		params, _ := m["params"].(map[string]any)
		if m["method"] != "notifications/tasks" || params["taskId"] != id || params["_meta"].(map[string]any)[subscription] != 1.0 {
			t.Fatalf("a notification: %v", m)
		}
		if params["status"] == "cancelled" {
			return
		}
	}
}

// reader returns what reads the next event of a stream.
func reader(r io.Reader) func(t *testing.T) map[string]any {
	var buf []byte
	return func(t *testing.T) map[string]any {
		t.Helper()
		for {
			if i := strings.Index(string(buf), "\n\n"); i >= 0 {
				doc := strings.TrimPrefix(string(buf[:i]), "data: ")
				buf = buf[i+2:]
				var m map[string]any
				if err := json.Unmarshal([]byte(doc), &m); err != nil {
					t.Fatalf("%q: %v", doc, err)
				}
				return m
			}
			more := make([]byte, 4096)
			n, err := r.Read(more)
			if err != nil {
				t.Fatal(err)
			}
			buf = append(buf, more[:n]...)
		}
	}
}
