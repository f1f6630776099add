package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// aheadByAnHour builds a control plane from the very sources whose wall clock is an hour ahead, and returns its name in bin.
//
// From outside a clock can't be moved for one process: Go asks the kernel, not libc, and a time namespace moves no wall clock. So
// the build puts another time.Now into the standard library; timers and durations stay those of the machine, as after somebody
// set the clock.
func aheadByAnHour(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	now := []byte("func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n")
	if !bytes.Contains(text, now) {
		t.Skip("this version of Go has another time.Now than the one that the test knows how to move")
	}
	moved := file(t, "time.go", string(bytes.Replace(text, now, append(now, "\tsec += 60 * 60\n"...), 1)))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: moved}})
	if err != nil {
		t.Fatal(err)
	}
	const name = "weir-controlplane-ahead"
	build := exec.Command("go", "build", "-overlay", file(t, "overlay.json", string(overlay)), "-o", filepath.Join(bin, name),
		"../../controlplane/cmd/weir-controlplane")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build a control plane that is ahead: %v\n%s", err, out)
	}
	return name
}

// clockOf is what a process takes for now, as its admin API says it.
func clockOf(t *testing.T, control *process) time.Time {
	t.Helper()
	resp, err := httpClient.Get("http://" + control.ready["admin"] + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Two control planes whose clocks are an hour apart lead in turn, whoever dies, sleeps or loses the data.
func TestClocksAnHourApart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: another standard library has to be built")
	}
	aheadName := aheadByAnHour(t)
	p := newThreeBackends(t)
	right := p.control
	ahead := start(t, aheadName, "--config", p.controlCfg)
	if by := clockOf(t, ahead).Sub(clockOf(t, right)); by < 59*time.Minute || by > 61*time.Minute {
		t.Fatalf("the second clock is %v ahead, want an hour", by)
	}
	l := newChronicle(t, p.pair)
	alice := p.token(t, "acme", "--ttl", "24h") // one of an hour has expired by the clock that is ahead, and rightly so
	tells := func(tool string) {
		t.Helper()
		p.alpha.addTool(tool)
		p.refresh(t, "alpha")
		for n := range p.data {
			c := client{url: p.data[n].url(), token: alice, version: "2026-07-28"}
			eventually(t, tool+" is served", func() error { return serves(c, "a__"+tool, "alpha") })
		}
	}
	p.leads(t, right, true)
	tells("right")

	// A revocation of half an hour has ended by the clock that is ahead. It stays in force on all that know better.
	mallory := p.token(t, "acme", "--ttl", "24h", "--subject", "mallory")
	mustRevoke(t, right, fmt.Sprintf(`"subject":"mallory","until":%q`, time.Now().Add(30*time.Minute).UTC().Format(time.RFC3339)))
	stillRevoked := func(when string) {
		t.Helper()
		for n := range p.data {
			c := client{url: p.data[n].url(), token: mallory, version: "2026-07-28"}
			a, err := c.call("1", "tools/call", `{"name":"a__whoami","arguments":{}}`)
			if err != nil || a.status != 401 {
				t.Errorf("%s, a revoked token on dataplane %d: %+v, %v; want 401", when, n, a, err)
			}
		}
		if n := p.redis.Do("HLEN", "weir:{routes}:revocations"); n != "1" {
			t.Errorf("%s, Redis has %s revocations, want 1", when, n)
		}
	}
	eventually(t, "the revocation is in force", func() error {
		for n := range p.data {
			a, err := client{url: p.data[n].url(), token: mallory, version: "2026-07-28"}.call("1", "tools/call", `{"name":"a__whoami","arguments":{}}`)
			if err != nil || a.status != 401 {
				return fmt.Errorf("%+v, %w", a, err)
			}
		}
		return nil
	})

	pause := func(sleeper, successor *process, tool string) {
		t.Helper()
		if err := sleeper.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sleeper.cmd.Process.Signal(syscall.SIGCONT) }) // it may be gone
		p.control = successor
		p.leads(t, successor, true)
		tells(tool)
		if err := sleeper.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		p.leads(t, sleeper, false)
		p.leads(t, successor, true)
		tells(tool + "-awake")
		l.agree(t, p.pair, "acme", right, ahead)
		stillRevoked(tool)
	}
	pause(right, ahead, "ahead")
	pause(ahead, right, "right-again")

	right.kill()
	p.control = ahead
	p.leads(t, ahead, true)
	tells("ahead-after-a-kill")
	l.agree(t, p.pair, "acme", ahead)
	stillRevoked("after a kill")

	// Who starts anew, and who lost the data: Redis' clock orders what they write.
	right = start(t, "weir-controlplane", "--config", p.controlCfg)
	l.agree(t, p.pair, "acme", ahead, right)
	p.redis.Do("FLUSHALL")
	eventually(t, "somebody leads", func() error {
		if p.redis.Do("EXISTS", "weir:{routes}:lease") == "0" {
			return errNotYet
		}
		return nil
	})
	p.control = p.leader(t, right, ahead)
	tells("after-the-loss")
	l.agree(t, p.pair, "acme", ahead, right)
	eventually(t, "the revocation stands again", func() error {
		if p.redis.Do("HLEN", "weir:{routes}:revocations") != "1" {
			return errNotYet
		}
		return nil
	})
	stillRevoked("after the loss")

	ahead.kill()
	p.control = right
	p.leads(t, right, true)
	tells("right-in-the-end")
	l.agree(t, p.pair, "acme", right)
	stillRevoked("in the end")
}

// leader waits until exactly one of the control planes leads, and returns it.
func (p *pair) leader(t *testing.T, controls ...*process) *process {
	t.Helper()
	var leader *process
	eventually(t, "one leads", func() error {
		leader = nil
		for _, c := range controls {
			var v struct{ Leases []struct{ Self bool } }
			if err := (&pair{control: c}).admin(http.MethodGet, "/api/v1/leases", &v); err != nil {
				return err
			}
			if len(v.Leases) > 0 && v.Leases[0].Self {
				if leader != nil {
					return fmt.Errorf("two lead")
				}
				leader = c
			}
		}
		if leader == nil {
			return errNotYet
		}
		return nil
	})
	return leader
}
