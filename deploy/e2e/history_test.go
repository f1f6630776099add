package e2e

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// revisionsOf are what the admin API keeps of a host, newest first.
func (p *pair) revisionsOf(host string) (v struct {
	Held *struct {
		Version struct{ Revision uint64 }
	}
	Revisions []struct {
		Revision uint64
		Epoch    uint64
		Time     string
		Counts   struct{ Tools int }
	}
}, err error) {
	err = p.admin(http.MethodGet, "/api/v1/virtual-hosts/"+host+"/revisions", &v)
	return v, err
}

func TestAHostIsRolledBackAndResumed(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	p.listsNow(t, "acme", "a__whoami", "g__whoami")
	first, err := p.revisionsOf("acme")
	if err != nil || len(first.Revisions) == 0 || first.Held != nil || first.Revisions[0].Counts.Tools != 2 {
		t.Fatalf("revisions %+v, %v", first, err)
	}
	good := first.Revisions[0].Revision

	// A config that is wrong: the prefix of alpha changes.
	edit := func(old, new string) {
		t.Helper()
		doc, err := os.ReadFile(p.controlCfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p.controlCfg, []byte(strings.Replace(string(doc), old, new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.control.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	edit("prefix: a__", "prefix: wrong__")
	p.listsNow(t, "acme", "g__whoami", "wrong__whoami")
	var d struct {
		Difference struct {
			Tools struct{ Added, Removed []string }
		}
	}
	if err := p.admin(http.MethodGet, fmt.Sprintf("/api/v1/virtual-hosts/acme/revisions/%d/diff", good), &d); err != nil ||
		!slices.Equal(d.Difference.Tools.Added, []string{"wrong__whoami"}) || !slices.Equal(d.Difference.Tools.Removed, []string{"a__whoami"}) {
		t.Errorf("difference %+v, %v", d, err)
	}

	rollback := func(revision uint64) {
		t.Helper()
		status, answer, err := p.post(p.control, "/api/v1/virtual-hosts/acme/rollback", fmt.Sprintf(`{"revision":%d}`, revision))
		if err != nil || status != 202 {
			t.Fatalf("roll-back to %d: %d %s, %v", revision, status, answer, err)
		}
	}
	rollback(good)
	p.listsNow(t, "acme", "a__whoami", "g__whoami")
	for n := range p.data { // lists are the control plane's; the dataplanes follow on their own
		c := p.client(t, n, "acme", "2026-07-28")
		eventually(t, "the table of then is served", func() error { return serves(c, "a__whoami", "alpha") })
	}
	held, err := p.revisionsOf("acme")
	if err != nil || held.Held == nil || held.Held.Version.Revision != good || held.Revisions[0].Revision <= first.Revisions[0].Revision+1 {
		t.Errorf("revisions %+v, %v; want it held at %d, as a new revision", held, err, good)
	}
	if got, err := p.problems(); err != nil || !slices.Contains(got, "host_held") {
		t.Errorf("problems %v, %v; want host_held", got, err)
	}

	// Neither a backend's change, nor the leader's death, nor an emptied Redis ends the hold.
	p.alpha.addTool("later")
	p.refresh(t, "alpha")
	p.control.kill()
	p.restartControl(t)
	p.listsNow(t, "acme", "a__whoami", "g__whoami")
	p.redis.Do("FLUSHALL")
	eventually(t, "it is published again, and held", func() error {
		v, err := p.revisionsOf("acme")
		if err == nil && v.Held == nil {
			err = errNotYet
		}
		return err
	})
	p.listsNow(t, "acme", "a__whoami", "g__whoami")

	edit("prefix: wrong__", "prefix: a__")
	rollback(0)
	p.listsNow(t, "acme", "a__later", "a__whoami", "g__whoami")
	eventually(t, "no problem is left", func() error {
		got, err := p.problems()
		if err != nil {
			return err
		}
		return none(got)
	})
}
