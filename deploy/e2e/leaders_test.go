package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"
)

// leads waits until a control plane holds the lease, or does not.
func (p *pair) leads(t *testing.T, control *process, want bool) {
	t.Helper()
	asked := pair{control: control}
	eventually(t, fmt.Sprintf("leads: %v", want), func() error {
		var v struct{ Leases []struct{ Self bool } }
		if err := asked.admin(http.MethodGet, "/api/v1/leases", &v); err != nil {
			return err
		}
		if got := len(v.Leases) > 0 && v.Leases[0].Self; got != want {
			return errNotYet
		}
		return nil
	})
}

// A leader that is paused for longer than its lease is replaced, and writes nothing when it wakes.
func TestAPausedLeaderIsFencedOff(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	first := p.control
	second := start(t, "weir-controlplane", "--config", p.controlCfg)
	p.leads(t, first, true)

	if err := first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.cmd.Process.Signal(syscall.SIGCONT) }) // it may be gone
	paused := time.Now()
	p.control = second
	p.leads(t, second, true)
	t.Logf("the second one led %v after the pause began", time.Since(paused).Round(100*time.Millisecond))
	p.tellsBoth(t, "while-paused")

	before, err := p.revisionsOf("acme")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.leads(t, first, false)
	p.leads(t, second, true)
	p.tellsBoth(t, "after-the-wake")
	after, err := p.revisionsOf("acme")
	if err != nil {
		t.Fatal(err)
	}
	newest := after.Revisions[0]
	for _, r := range after.Revisions {
		if r.Epoch > newest.Epoch || r.Epoch == newest.Epoch && r.Revision > newest.Revision {
			t.Errorf("the newest revision is %+v, but %+v stands too", newest, r)
		}
	}
	if newest.Epoch != before.Revisions[0].Epoch {
		t.Errorf("the newest revision is of epoch %d, the second leader's is %d: the woken one wrote", newest.Epoch, before.Revisions[0].Epoch)
	}
}

// tellsBoth adds a tool at alpha, has the current control plane look, and waits until both dataplanes serve it.
func (p *threeBackends) tellsBoth(t *testing.T, tool string) {
	t.Helper()
	p.alpha.addTool(tool)
	p.refresh(t, "alpha")
	for n := range p.data {
		c := p.client(t, n, "acme", "2026-07-28")
		eventually(t, tool+" is served", func() error { return serves(c, "a__"+tool, "alpha") })
	}
}

// A leader that is killed is replaced within its lease, and what the second one publishes is served.
func TestAKilledLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	second := start(t, "weir-controlplane", "--config", p.controlCfg)
	p.control.kill()
	killed := time.Now()
	p.control = second
	p.leads(t, second, true)
	t.Logf("the second one led %v after the kill", time.Since(killed).Round(100*time.Millisecond))
	p.tellsBoth(t, "after-the-kill")
}

// How long a published change takes to both dataplanes, over 200 changes. It is told, not asserted: the machine may be busy.
func TestTwoHundredChangesArrive(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: 200 changes take half a minute")
	}
	p := newThreeBackends(t)
	var c [2]client
	for n := range c {
		c[n] = p.client(t, n, "acme", "2026-07-28")
	}
	var took []time.Duration
	for i := range 200 {
		tool := fmt.Sprintf("change%03d", i)
		p.alpha.addTool(tool)
		began := time.Now()
		p.refresh(t, "alpha")
		for n := range c {
			eventually(t, tool+" is served", func() error { return serves(c[n], "a__"+tool, "alpha") })
		}
		took = append(took, time.Since(began))
		p.alpha.removeTool(tool)
	}
	slices.Sort(took)
	t.Logf("from the refresh to both dataplanes: p50 %v, p99 %v, longest %v", took[100].Round(time.Millisecond), took[198].Round(time.Millisecond),
		took[199].Round(time.Millisecond))
}
