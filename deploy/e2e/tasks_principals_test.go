package e2e

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// Two principals whose tasks have one id, at two backends: each reaches its own.
func TestTwoPrincipalsWithOneID(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	alice, bob := p.as(t, "alice", 0, modernVersion), p.as(t, "bob", 1, modernVersion)
	alice.start(t, "a__start", `{"id":"same"}`)
	bob.start(t, "b__start", `{"id":"same"}`)
	for n := range p.data {
		for subject, b := range map[string]*taskBackend{"alice": p.alpha, "bob": p.beta} {
			before := [2]int{len(p.alpha.asked("tasks/get", "same")), len(p.beta.asked("tasks/get", "same"))}
			if err := p.as(t, subject, n, modernVersion).get("same", "working"); err != nil {
				t.Errorf("%s: %v", subject, err)
			}
			after := [2]int{len(p.alpha.asked("tasks/get", "same")), len(p.beta.asked("tasks/get", "same"))}
			want := map[*taskBackend][2]int{p.alpha: {before[0] + 1, before[1]}, p.beta: {before[0], before[1] + 1}}[b]
			if after != want {
				t.Errorf("%s on dataplane %d: the backends were asked %v times, want %v", subject, n, after, want)
			}
		}
	}
	bob.must(t, "tasks/cancel", taskParams("same"))
	p.onlyAt(t, p.beta, "tasks/cancel", "same")
	if err := alice.get("same", "working"); err != nil {
		t.Errorf("after bob cancelled his own: %v", err)
	}
}

// One principal with one id at two backends: nobody can know which one is meant, and nothing is sent.
func TestOnePrincipalWithOneIDTwice(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	alice := p.as(t, "alice", 0, modernVersion)
	alice.start(t, "a__start", `{"id":"same"}`)
	p.as(t, "alice", 1, modernVersion).start(t, "b__start", `{"id":"same"}`)
	for n := range p.data {
		for _, method := range followUps(modernVersion) {
			if err := p.as(t, "alice", n, modernVersion).refused(method, taskParams("same", `,"inputResponses":{}`), -32603, "ambiguous_task"); err != nil {
				t.Error(err)
			}
		}
	}
	for _, b := range p.backends() {
		for _, method := range followUps(modernVersion) {
			if n := len(b.asked(method, "same")); n != 0 {
				t.Errorf("%s was asked %s %d times, want none", b.name, method, n)
			}
		}
	}
}

// Whose task it is not, whoever may not follow it, and whatever task there is none, get the same bytes from every method.
func TestADenialIsAMissByteForByte(t *testing.T) {
	t.Parallel()
	for policy, code := range map[string]string{"": "-32602", "{unrecorded: probe, not_found: -32002}": "-32002", "{unrecorded: deny}": "-32602"} {
		t.Run("policy "+policy, func(t *testing.T) {
			p := newTaskPair(t, policy)
			for n, version := range []string{modernVersion, legacyVersion} {
				tool := map[string]string{modernVersion: "a__start", legacyVersion: "g__start"}[version]
				owner := p.as(t, "alice", 0, version)
				foreign := owner.start(t, tool, `{}`)
				for _, method := range followUps(version) {
					seen := map[string][]string{}
					for _, who := range []struct{ subject, scope, id string }{
						{"bob", "", "nobody's"}, {"bob", "", foreign}, {"carol", "", foreign}, {"carol", "", "nobody's"},
						{"alice", "mcp:tasks mcp:tools:other", foreign}, // the owner, with a token that does not cover the tool
						{"dave", "", strings.Repeat("long ", 1000)},
					} {
						c := taskClient{client{url: p.data[n].url(), token: p.mint(t, who.subject, who.scope), version: version}}
						a, err := c.steady(method, taskParams(who.id, `,"inputResponses":{}`))
						if err != nil {
							t.Fatal(err)
						}
						h := a.header.Clone()
						h.Del("Date")
						whole := fmt.Sprint(a.status, h, a.body)
						seen[whole] = append(seen[whole], who.subject+" "+who.id[:min(9, len(who.id))])
					}
					if len(seen) != 1 {
						t.Errorf("%s, %s: %d different answers: %q", version, method, len(seen), seen)
					}
					want := code
					if version == modernVersion {
						want = "-32602" // the older convention is for older clients
					}
					for whole := range seen {
						if !strings.Contains(whole, `"code":`+want+`,"message":"task not found"}`) {
							t.Errorf("%s, %s: %s, want %s", version, method, whole, want)
						}
					}
				}
				if err := owner.get(foreign, "working"); err != nil {
					t.Errorf("its owner: %v", err)
				}
			}
			for _, b := range p.backends() {
				for _, method := range []string{"tasks/update", "tasks/cancel", "tasks/result"} {
					if n := len(b.asked(method, "")); n != 0 {
						t.Errorf("%s saw %d %s", b.name, n, method)
					}
				}
			}
		})
	}
}

func TestScopesOfFollowUps(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	id := p.as(t, "alice", 0, modernVersion).start(t, "a__start", `{}`)
	for scope, want := range map[string]int{
		"":                                 200, // no mcp: scope at all: everything
		"mcp:tasks mcp:tools":              200,
		"mcp:tasks mcp:tools:a__*":         200,
		"mcp:tasks mcp:tools:b__* mcp:all": 400, // a miss
		"mcp:tasks":                        400,
		"mcp:tools":                        403,
		"mcp:resources":                    403,
	} {
		c := taskClient{client{url: p.data[1].url(), token: p.mint(t, "alice", scope), version: modernVersion}}
		a, err := c.steady("tasks/get", taskParams(id))
		if err != nil || a.status != want {
			t.Errorf("scope %q: %+v, %v; want %d", scope, a, err, want)
			continue
		}
		challenge := a.header.Get("Www-Authenticate")
		if want == 403 && (!strings.Contains(challenge, `error="insufficient_scope"`) || !strings.Contains(challenge, `mcp:tasks`)) {
			t.Errorf("scope %q: WWW-Authenticate is %q, want insufficient_scope and mcp:tasks", scope, challenge)
		}
	}
}

// A task outlives its tool: it stays readable and cancellable by its owner. It does not outlive its backend's place in the host.
func TestATaskWhoseToolIsGone(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	alice := p.as(t, "alice", 0, modernVersion)
	id, other := alice.start(t, "a__start", `{}`), alice.start(t, "a__start", `{}`)
	p.alpha.set(func(b *taskBackend) { b.gone["start"] = true })
	p.refresh(t, "alpha")
	eventually(t, "the tool is gone", func() error { return misses(alice.client, "a__start") })
	for n := range p.data {
		c := p.as(t, "alice", n, modernVersion)
		eventually(t, "and on the other dataplane", func() error { return misses(c.client, "a__start") })
		if err := c.get(id, "working"); err != nil {
			t.Errorf("dataplane %d: %v", n, err)
		}
	}
	alice.must(t, "tasks/cancel", taskParams(id))
	p.onlyAt(t, p.alpha, "tasks/cancel", id)

	doc, err := os.ReadFile(p.controlCfg)
	if err != nil {
		t.Fatal(err)
	}
	without := strings.Replace(string(doc), "{name: alpha, prefix: a__}, ", "", 1)
	if err := os.WriteFile(p.controlCfg, []byte(without), 0o600); err != nil {
		t.Fatal(err)
	}
	p.control.terminate(t)
	p.restartControl(t)
	for n := range p.data {
		c := p.as(t, "alice", n, modernVersion)
		eventually(t, "a removed backend's task is a miss", func() error { return c.refused("tasks/get", taskParams(other), -32602, "") })
	}
}

// A task belongs to a principal in a host: one that may use two of them has it in the one in which it was made, also where both have
// the backend, and nobody of the other host can claim it. The control plane looks in the host that was asked.
func TestATaskBelongsToItsHost(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	token := p.mint(t, "alice", "", "acme", "globex")
	in := func(dataplane int, host string) taskClient {
		return taskClient{client{url: strings.TrimSuffix(p.data[dataplane].url(), "/mcp") + "/servers/" + host + "/mcp", token: token, version: modernVersion}}
	}
	id := in(0, "acme").start(t, "a__start", `{}`)
	p.beta.set(func(b *taskBackend) { b.tasks["found"] = &madeTask{id: "found", status: "working", ttl: "null"} })
	for n := range p.data {
		for _, task := range []string{id, "found"} {
			if err := in(n, "acme").get(task, "working"); err != nil {
				t.Error(err)
			}
			if err := in(n, "globex").refused("tasks/get", taskParams(task), -32602, ""); err != nil {
				t.Errorf("in the other host: %v", err)
			}
			stranger := taskClient{client{url: in(n, "globex").url, token: p.mint(t, "mallory", "", "globex"), version: modernVersion}}
			for _, method := range []string{"tasks/get", "tasks/cancel"} {
				if err := stranger.refused(method, taskParams(task), -32602, ""); err != nil {
					t.Errorf("%s by a stranger of the other host: %v", method, err)
				}
			}
		}
	}
	for _, b := range p.backends() {
		if n := len(b.asked("tasks/cancel", "")); n != 0 {
			t.Errorf("%s saw %d tasks/cancel", b.url, n)
		}
	}
	if err := p.as(t, "alice", 1, modernVersion).get(id, "working"); err != nil { // a token of hers for this host alone
		t.Error(err)
	}
}

// What becomes of a task that nobody recorded, under each policy. It was made at the backend by other means.
func TestPoliciesForTasksThatNobodyRecorded(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]map[string]string{
		"claim": {"alice": "working", "bob": ""},
		"probe": {"alice": "working", "bob": "working"},
		"deny":  {"alice": "", "bob": ""},
	} {
		t.Run(policy, func(t *testing.T) {
			p := newTaskPair(t, "{unrecorded: "+policy+"}")
			p.beta.set(func(b *taskBackend) { b.tasks["found"] = &madeTask{id: "found", status: "working", ttl: "null"} })
			for _, subject := range []string{"alice", "bob", "alice"} {
				for n := range p.data {
					c := p.as(t, subject, n, modernVersion)
					if status := want[subject]; status != "" {
						if err := c.get("found", status); err != nil {
							t.Errorf("%s: %v", subject, err)
						}
					} else if err := c.refused("tasks/get", taskParams("found"), -32602, ""); err != nil {
						t.Errorf("%s: %v", subject, err)
					}
				}
			}
			// One probe at each modern backend; what follows is the owner's alone, and no other generation's backend is asked.
			probes := len(p.alpha.asked("tasks/get", "found"))
			if most := map[string]int{"claim": 2, "probe": 1, "deny": 0}[policy]; probes > most { // bob's too: beta holds it, alpha may be asked
				t.Errorf("alpha was asked %d times, want at most %d", probes, most)
			}
			if n := len(p.gamma.asked("tasks/get", "")); n != 0 {
				t.Errorf("a legacy backend was probed %d times for a modern client", n)
			}
			if policy != "deny" {
				c := p.as(t, "alice", 0, modernVersion)
				c.must(t, "tasks/cancel", taskParams("found"))
				p.onlyAt(t, p.beta, "tasks/cancel", "found")
			}
		})
	}
}

// A cancel of a task that nobody recorded finds it by reading, and is then sent to that backend alone.
func TestACancelIsNotAProbe(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	p.beta.set(func(b *taskBackend) { b.tasks["found"] = &madeTask{id: "found", status: "working", ttl: "null"} })
	p.as(t, "alice", 0, modernVersion).must(t, "tasks/cancel", taskParams("found"))
	p.onlyAt(t, p.beta, "tasks/cancel", "found")
	for _, b := range []*taskBackend{p.alpha, p.beta} {
		for _, r := range b.asked("tasks/get", "found") {
			if auth := r.header.Get("Authorization"); auth != "" {
				t.Errorf("a probe carried the header Authorization %q", auth)
			}
		}
	}
}

// The operator sees who has how many tasks where, by digests alone; the log tells each miss.
func TestTheOperatorSeesOwnersByDigest(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	alice := p.as(t, "alice", 0, modernVersion)
	id := alice.start(t, "a__start", `{"id":"a-very-secret-id"}`)
	alice.start(t, "b__start", `{}`)
	p.as(t, "bob", 1, legacyVersion).start(t, "g__start", `{}`)
	if err := p.as(t, "bob", 1, modernVersion).refused("tasks/get", taskParams(id), -32602, ""); err != nil {
		t.Fatal(err)
	}
	var view any
	if err := p.admin(http.MethodGet, "/api/v1/tasks?host=acme", &view); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(view)
	for _, want := range []string{"alpha", "beta", "gamma", "mint", "a__start"} {
		if !strings.Contains(text, want) {
			t.Errorf("the operator's view does not show %q: %s", want, text)
		}
	}
	logs := text + p.control.log() + p.data[0].log() + p.data[1].log()
	if strings.Contains(logs, id) || strings.Contains(logs, "alice") {
		t.Error("a raw task id or a subject is shown or logged")
	}
	eventually(t, "the miss is in the log", func() error {
		for line := range strings.Lines(p.control.log() + p.data[1].log()) {
			if strings.Contains(line, "task_miss") && strings.Contains(line, "foreign") && strings.Contains(line, "acme") {
				return nil
			}
		}
		return errNotYet
	})
	// Nothing in Redis holds the id either.
	if keys := redisDump(t, p); slices.ContainsFunc(keys, func(v string) bool { return strings.Contains(v, id) }) {
		t.Error("Redis holds a raw task id")
	}
}
