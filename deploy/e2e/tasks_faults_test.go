package e2e

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pause is how long Redis stands still in tests. WEIR_E2E_PAUSE makes it longer: 30s is what the project promises to survive, and the
// default is all that it takes to get past every time-out of the planes.
func pause(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv("WEIR_E2E_PAUSE"), "3s"))
	if err != nil {
		t.Fatalf("WEIR_E2E_PAUSE: %v", err)
	}
	return d
}

// kinds of tasks, by the version of who makes them.
var taskTools = map[string]string{modernVersion: "a__start", legacyVersion: "g__start"}

func (p *taskPair) maker(version string) *taskBackend {
	return map[string]*taskBackend{modernVersion: p.alpha, legacyVersion: p.gamma}[version]
}

// kill -9 of the dataplane that made a task, before anybody asks for it.
func TestATaskSurvivesTheDeathOfItsDataplane(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "{unrecorded: deny}") // so that nothing but the record finds it
	ids := map[string]string{}
	for version, tool := range taskTools {
		ids[version] = p.as(t, "alice", 0, version).start(t, tool, `{}`)
	}
	p.data[0].kill()
	for version, id := range ids {
		c := p.as(t, "alice", 1, version)
		if err := c.get(id, "working"); err != nil {
			t.Error(err)
		}
		c.must(t, "tasks/cancel", taskParams(id))
		p.onlyAt(t, p.maker(version), "tasks/cancel", id)
	}
}

// Every process of Weir, and Redis, is killed and started again.
func TestATaskSurvivesTheRestartOfEverything(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "{unrecorded: deny}")
	ids := map[string]string{}
	for version, tool := range taskTools {
		ids[version] = p.as(t, "alice", 0, version).start(t, tool, `{"ask":true}`)
	}
	for _, each := range []*process{p.data[0], p.data[1], p.control} {
		each.kill()
	}
	p.redis.Restart()
	p.restartControl(t)
	for n := range p.data {
		p.data[n] = start(t, "weir-dataplane", "--config", p.dataCfg)
	}
	for version, id := range ids {
		for n := range p.data {
			c := p.as(t, "alice", n, version)
			eventually(t, "the task is found", func() error { return c.get(id, "input_required") })
		}
	}
	p.as(t, "alice", 1, modernVersion).must(t, "tasks/update", taskParams(ids[modernVersion], `,"inputResponses":{"name":{"content":{"name":"me"}}}`))
	if err := p.as(t, "alice", 0, modernVersion).get(ids[modernVersion], "completed"); err != nil {
		t.Error(err)
	}
	p.onlyAt(t, p.alpha, "tasks/update", ids[modernVersion])
}

// Redis is killed and comes back: with its data every task is found, without it they are found again by asking the backends. At no
// moment is a living task said not to exist.
func TestTasksSurviveARedisRestart(t *testing.T) {
	t.Parallel()
	for name, keepData := range map[string]bool{"with its data": true, "without its data": false} {
		t.Run(name, func(t *testing.T) {
			p := newTaskPair(t, "")
			ids := map[string]string{}
			for version, tool := range taskTools {
				ids[version] = p.as(t, "alice", 0, version).start(t, tool, `{}`)
				if err := p.as(t, "alice", 1, version).get(ids[version], "working"); err != nil { // it knows the host
					t.Fatal(err)
				}
			}
			p.redis.Kill()
			for version, id := range ids {
				c := p.as(t, "alice", 1, version)
				if err := c.refused("tasks/get", taskParams(id), -32603, "unavailable"); err != nil {
					t.Errorf("while Redis is away: %v", err)
				}
			}
			if !keepData {
				p.redis.Wipe()
			}
			p.redis.Restart()
			for version, id := range ids {
				if version == legacyVersion && !keepData {
					continue // the session in which it lives is forgotten with the record
				}
				for n := range p.data {
					c := p.as(t, "alice", n, version)
					eventually(t, "the task is found", func() error { return neverUnknown(t, c, id, "working") })
				}
			}
		})
	}
}

// neverUnknown is get, where a miss is a failure at once: the task lives.
func neverUnknown(t *testing.T, c taskClient, id, status string) error {
	t.Helper()
	err := c.get(id, status)
	if err != nil && strings.Contains(err.Error(), "-32602") {
		t.Fatalf("a living task was said not to exist: %v", err)
	}
	return err
}

// Redis stands still while a task is made: the task is returned all the same, is followed by the dataplane that made it, and by the
// other one as soon as Redis is back.
func TestATaskIsMadeWhileRedisStandsStill(t *testing.T) {
	t.Parallel()
	d := pause(t)
	p := newTaskPair(t, "{unrecorded: deny}")
	for version, tool := range taskTools { // the hosts are warm, the tokens known
		for n := range p.data {
			p.as(t, "alice", n, version).start(t, tool, `{}`)
		}
	}
	alice := map[string]taskClient{}
	for version := range taskTools {
		alice[version] = p.as(t, "alice", 0, version)
	}
	p.redis.Pause()
	resumed := false
	t.Cleanup(func() {
		if !resumed {
			p.redis.Resume()
		}
	})
	began := time.Now()
	ids := map[string]string{}
	for version, tool := range taskTools {
		asked := time.Now()
		ids[version] = alice[version].start(t, tool, `{"ask":true}`)
		t.Logf("%s: made in %v while Redis stood still", version, time.Since(asked).Round(time.Millisecond))
	}
	for version, id := range ids {
		if err := alice[version].get(id, "input_required"); err != nil {
			t.Errorf("on the dataplane that made it: %v", err)
		}
		other := p.as(t, "alice", 1, version)
		if err := other.refused("tasks/get", taskParams(id), -32603, "unavailable"); err != nil {
			t.Errorf("on the other one: %v", err)
		}
		if err := p.as(t, "bob", 0, version).refused("tasks/get", taskParams(id), -32603, "unavailable"); err != nil {
			t.Errorf("another principal: %v", err)
		}
	}
	time.Sleep(time.Until(began.Add(d))) // Redis stands still for as long as the test says
	p.redis.Resume()
	resumed = true
	for version, id := range ids {
		c := p.as(t, "alice", 1, version)
		eventually(t, "the record arrives", func() error { return c.get(id, "input_required") })
		c.must(t, "tasks/cancel", taskParams(id))
		p.onlyAt(t, p.maker(version), "tasks/cancel", id)
	}
}

// A dataplane that is told to stop while a record waits in it writes it first. One that is killed takes it along: then the task is
// looked for, and whoever was told its id owns it.
func TestARecordThatWaitsWhenItsDataplaneEnds(t *testing.T) {
	t.Parallel()
	for policy, end := range map[string]func(t *testing.T, p *taskPair){
		"deny": func(t *testing.T, p *taskPair) {
			ended := make(chan int, 1)
			if err := p.data[0].cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			p.redis.Resume()
			go func() { <-p.data[0].ended; ended <- p.data[0].cmd.ProcessState.ExitCode() }()
			if code := soon(t, "the end of the dataplane", ended); code != 0 {
				t.Errorf("exit status %d, want 0", code)
			}
		},
		"claim": func(_ *testing.T, p *taskPair) {
			p.data[0].kill()
			p.redis.Resume()
		},
	} {
		t.Run(policy, func(t *testing.T) {
			p := newTaskPair(t, "{unrecorded: "+policy+"}")
			alice := [2]taskClient{p.as(t, "alice", 0, modernVersion), p.as(t, "alice", 1, modernVersion)}
			for _, c := range alice { // the host is warm, the token known
				c.start(t, "a__start", `{}`)
			}
			p.redis.Pause()
			id := alice[0].start(t, "b__start", `{"ask":true}`)
			end(t, p)
			eventually(t, "the task is found", func() error { return neverUnknown(t, alice[1], id, "input_required") })
			alice[1].must(t, "tasks/cancel", taskParams(id))
			p.onlyAt(t, p.beta, "tasks/cancel", id)
		})
	}
}

// Redis stands still while tasks are followed: each follow-up fails in a way that says to try again, soon, and works afterwards.
// Nothing was sent to a backend meanwhile.
func TestTasksAreFollowedWhileRedisStandsStill(t *testing.T) {
	t.Parallel()
	d := pause(t)
	p := newTaskPair(t, "")
	ids := map[string]string{}
	for version, tool := range taskTools {
		ids[version] = p.as(t, "alice", 0, version).start(t, tool, `{}`)
		for n := range p.data {
			if err := p.as(t, "alice", n, version).get(ids[version], "working"); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := len(p.alpha.asked("tasks/get", "")) + len(p.gamma.asked("tasks/get", ""))
	p.redis.Pause()
	resumed := false
	t.Cleanup(func() {
		if !resumed {
			p.redis.Resume()
		}
	})
	for began := time.Now(); time.Since(began) < d; {
		for version, id := range ids {
			for n := range p.data {
				for _, task := range []string{id, "nobody's"} {
					c := p.as(t, "alice", n, version)
					a, err := c.call("1", "tasks/get", taskParams(task))
					if err != nil || a.rpc.Error == nil || a.rpc.Error.Code != -32603 || reasonOf(a.rpc.Error) != "unavailable" ||
						!strings.Contains(string(a.rpc.Error.Data), `"retryAfterMs":`) {
						t.Fatalf("%s, dataplane %d, task %q: %+v, %v; want -32603 unavailable", version, n, task, a, err)
					}
				}
			}
		}
		time.Sleep(100 * time.Millisecond) // no faster than clients ask
	}
	if after := len(p.alpha.asked("tasks/get", "")) + len(p.gamma.asked("tasks/get", "")); after != before {
		t.Errorf("the backends were asked %d times while Redis stood still", after-before)
	}
	p.redis.Resume()
	resumed = true
	for version, id := range ids {
		for n := range p.data {
			c := p.as(t, "alice", n, version)
			eventually(t, "followed again", func() error { return neverUnknown(t, c, id, "working") })
		}
	}
	// What nobody knows is said to be unknown only some time after the outage: until then a record may be on its way.
	for n := range p.data {
		c := p.as(t, "alice", n, modernVersion)
		eventually(t, "an unknown task is a miss again", func() error { return c.refused("tasks/get", taskParams("nobody's"), -32602, "") })
	}
}

// Without a control plane own tasks are followed. What needs it is an error that says to try again, or on a deny host a miss.
func TestTasksWithoutAControlPlane(t *testing.T) {
	t.Parallel()
	for policy, unknown := range map[string]struct {
		code   int
		reason string
	}{"claim": {-32603, "unavailable"}, "deny": {-32602, ""}} {
		t.Run(policy, func(t *testing.T) {
			p := newTaskPair(t, "{unrecorded: "+policy+"}")
			for n := range p.data { // warm
				if err := p.as(t, "alice", n, modernVersion).refused("tasks/get", taskParams("nobody's"), -32602, ""); err != nil {
					t.Fatal(err)
				}
			}
			p.control.kill()
			for version, tool := range taskTools {
				id := p.as(t, "alice", 0, version).start(t, tool, `{}`)
				for n := range p.data {
					c := p.as(t, "alice", n, version)
					if err := c.get(id, "working"); err != nil {
						t.Error(err)
					}
					for _, miss := range []string{"nobody's", fmt.Sprint("another", n)} {
						if err := c.refused("tasks/get", taskParams(miss), unknown.code, unknown.reason); err != nil {
							t.Error(err)
						}
					}
					if err := p.as(t, "bob", n, version).refused("tasks/cancel", taskParams(id), unknown.code, unknown.reason); err != nil {
						t.Errorf("another's: %v", err)
					}
				}
			}
		})
	}
}

// A backend that hangs, or that fails, costs its own task's caller an error, and nobody else.
func TestATaskOfABackendThatHangs(t *testing.T) {
	t.Parallel()
	p := newTaskPair(t, "")
	alice := p.as(t, "alice", 0, modernVersion)
	atAlpha, atBeta := alice.start(t, "a__start", `{}`), alice.start(t, "b__start", `{}`)
	hold := make(chan struct{})
	p.alpha.set(func(b *taskBackend) { b.hold = hold })
	hung := make(chan error, 1)
	go func() { hung <- alice.get(atAlpha, "working") }()
	if err := p.as(t, "alice", 1, modernVersion).get(atBeta, "working"); err != nil {
		t.Errorf("the other backend's task: %v", err)
	}
	// An unknown id waits for alpha no longer than a probe may, and is not said to be unknown: alpha might know it.
	if err := alice.refused("tasks/get", taskParams("nobody's"), -32603, "unavailable"); err != nil {
		t.Error(err)
	}
	close(hold)
	if err := soon(t, "the call that hung", hung); err != nil {
		t.Errorf("once the backend went on: %v", err)
	}
	p.alpha.set(func(b *taskBackend) { b.hold = nil })
	// Probes that failed have not opened its circuit.
	for range 20 {
		if err := alice.get(atAlpha, "working"); err != nil {
			t.Fatal(err)
		}
	}
}
