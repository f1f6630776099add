package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes/access"
)

// taskPair is an installation before three backends that make tasks: alpha and beta are modern, gamma is legacy. All of them stand
// behind the host acme, which the test's policy is for; alpha stands behind globex too.
type taskPair struct {
	*pair
	alpha, beta, gamma *taskBackend
}

// newTaskPair starts it. policy is the host's tasks block in YAML; empty: the defaults.
func newTaskPair(t *testing.T, policy string) *taskPair {
	t.Helper()
	p := &taskPair{
		alpha: newTaskBackend(t, "alpha", modernVersion), beta: newTaskBackend(t, "beta", modernVersion), gamma: newTaskBackend(t, "gamma", legacyVersion),
	}
	if policy != "" {
		policy = "    tasks: " + policy + "\n"
	}
	p.pair = newPair(t, fmt.Sprintf("  alpha: {url: %q}\n  beta: {url: %q}\n  gamma: {url: %q}\n", p.alpha.url, p.beta.url, p.gamma.url),
		"  acme:\n    backends: [{name: alpha, prefix: a__}, {name: beta, prefix: b__}, {name: gamma, prefix: g__}]\n"+policy+
			"  globex:\n    backends: [{name: alpha}]\n")
	return p
}

func (p *taskPair) backends() []*taskBackend { return []*taskBackend{p.alpha, p.beta, p.gamma} }

// mint makes a token without a process: some tests need many.
func (p *pair) mint(t *testing.T, subject, scope string, hosts ...string) string {
	t.Helper()
	if hosts == nil {
		hosts = []string{"acme"}
	}
	token, err := access.Mint(access.MintOptions{
		Algorithm: "ES256", KeyFile: p.keyFile, Issuer: "https://idp.test", Audience: []string{"weir"}, Subject: subject, Hosts: hosts, Scope: scope,
	})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// as is a client of a dataplane. A modern one declares the tasks extension.
func (p *taskPair) as(t *testing.T, subject string, dataplane int, version string) taskClient {
	t.Helper()
	return taskClient{client{url: p.data[dataplane].url(), token: p.mint(t, subject, ""), version: version}}
}

// taskClient is a client that declares the tasks extension, if it is modern.
type taskClient struct{ client }

func (c taskClient) call(id, method, params string) (*answer, error) {
	return c.post(declared(c.body(id, method, params)), c.headers(method, params))
}

// declared adds the tasks extension to a request.
func declared(body string) string {
	return strings.Replace(body, `/clientCapabilities":{}`, `/clientCapabilities":{"extensions":{"`+tasksExtension+`":{}}}`, 1)
}

// steady is call, again and again while the answer is that whose task it is can't be told now: on a busy machine Redis may be slow
// enough to count as away. Nothing was sent to a backend then.
func (c taskClient) steady(method, params string) (*answer, error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		a, err := c.call("1", method, params)
		if err != nil || reasonOf(a.rpc.Error) != "unavailable" || time.Now().After(deadline) {
			return a, err
		}
	}
}

// must is steady where anything but a result is a failure.
func (c taskClient) must(t *testing.T, method, params string) json.RawMessage {
	t.Helper()
	a, err := c.steady(method, params)
	if err != nil {
		t.Fatalf("%s %s: %v", method, params, err)
	}
	if a.rpc.Result == nil {
		t.Fatalf("%s %s: status %d: %s", method, params, a.status, a.body)
	}
	return a.rpc.Result
}

// start calls a tool and returns the id of the task that it made.
func (c taskClient) start(t *testing.T, tool, arguments string) string {
	t.Helper()
	params := `{"name":"` + tool + `","arguments":` + arguments
	if !c.modern() {
		params += `,"task":{"ttl":3600000}`
	}
	result := c.must(t, "tools/call", params+"}")
	var r struct {
		ResultType string
		TaskID     string
		Task       struct{ TaskID string }
	}
	if err := json.Unmarshal(result, &r); err != nil {
		t.Fatal(err)
	}
	if id := r.TaskID + r.Task.TaskID; id != "" && (r.ResultType == "task") == c.modern() {
		return id
	}
	t.Fatalf("%s answered %s, want a task", tool, result)
	return ""
}

// get is tasks/get where anything but the given status is an error.
func (c taskClient) get(id, status string) error {
	a, err := c.steady("tasks/get", taskParams(id))
	if err != nil {
		return err
	}
	if got := statusOf(a.rpc.Result); got != status {
		return fmt.Errorf("tasks/get %s on %s: status %d: %s, want a task that is %s", id, c.url, a.status, a.body, status)
	}
	return nil
}

func statusOf(result json.RawMessage) string {
	var task struct{ Status string }
	_ = json.Unmarshal(result, &task) // no result: no status
	return task.Status
}

// taskParams are the parameters of a follow-up; more are members after the id, each with its comma in front.
func taskParams(id string, more ...string) string {
	return fmt.Sprintf(`{"taskId":%q%s}`, id, strings.Join(more, ""))
}

// refused checks the error of a follow-up: its code, and the reason if it has one.
func (c taskClient) refused(method, params string, code int, reason string) error {
	ask := c.steady
	if reason == "unavailable" {
		ask = func(method, params string) (*answer, error) { return c.call("1", method, params) }
	}
	a, err := ask(method, params)
	if err != nil {
		return err
	}
	if a.rpc.Error == nil || a.rpc.Error.Code != code || reasonOf(a.rpc.Error) != reason {
		return fmt.Errorf("%s %s on %s: status %d: %s, want %d %s", method, params, c.url, a.status, a.body, code, reason)
	}
	return nil
}

// onlyAt checks that exactly one request of a method for a task arrived, at one backend.
func (p *taskPair) onlyAt(t *testing.T, b *taskBackend, method, id string) {
	t.Helper()
	for _, each := range p.backends() {
		want := 0
		if each == b {
			want = 1
		}
		if got := len(each.asked(method, id)); got != want {
			t.Errorf("%s was asked %s of %s %d times, want %d", each.name, method, id, got, want)
		}
	}
}

// names of the methods that follow a task, by version.
func followUps(version string) []string {
	if version < modernVersion {
		return []string{"tasks/get", "tasks/result", "tasks/cancel"}
	}
	return []string{"tasks/get", "tasks/update", "tasks/cancel"}
}

// sessionsOf are the sessions in which a legacy backend was asked something, without repetition.
func sessionsOf(requests []taskRequest) []string {
	var out []string
	for _, r := range requests {
		out = append(out, r.session)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// redisDump is everything that Redis holds about tasks: the names of keys, and what is in them.
func redisDump(t *testing.T, p *taskPair) []string {
	t.Helper()
	db := redis.NewClient(&redis.Options{Addr: p.redis.Addr()})
	defer db.Close()
	var out []string
	keys := db.Scan(t.Context(), 0, "*task*", 1000).Iterator()
	for keys.Next(t.Context()) {
		key := keys.Val()
		out = append(out, key)
		kind, err := db.Type(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		switch kind {
		case "hash":
			for field, value := range db.HGetAll(t.Context(), key).Val() {
				out = append(out, field, value)
			}
		case "zset":
			out = append(out, db.ZRange(t.Context(), key, 0, -1).Val()...)
		default:
			t.Fatalf("%s is a %s: not read here", key, kind)
		}
	}
	if err := keys.Err(); err != nil || len(out) == 0 {
		t.Fatalf("%d keys about tasks, %v", len(out), err)
	}
	return out
}
