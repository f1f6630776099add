package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Redis stands still for longer than the lease, with two control planes before it. Afterwards one leads, and the changes of meanwhile
// are published.
func TestARedisThatStandsStill(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	first := p.control
	second := start(t, "weir-controlplane", "--config", p.controlCfg)
	l := newChronicle(t, p.pair)
	p.tellsBoth(t, "before")
	l.agree(t, p.pair, "acme", first, second)
	p.redis.Pause()
	p.alpha.addTool("meanwhile")
	for began := time.Now(); time.Since(began) < 12*time.Second; time.Sleep(500 * time.Millisecond) { // the lease is one of 10 s
		for n := range p.data {
			if err := serves(p.client(t, n, "acme", "2026-07-28"), "a__before", "alpha"); err != nil {
				t.Errorf("while Redis stands still: %v", err)
			}
		}
	}
	p.redis.Resume()
	resumed := time.Now()
	p.control = p.leader(t, first, second)
	t.Logf("one led %v after Redis went on", time.Since(resumed).Round(time.Millisecond))
	for n := range p.data {
		c := p.client(t, n, "acme", "2026-07-28")
		eventually(t, "what changed meanwhile is served", func() error { return serves(c, "a__meanwhile", "alpha") })
	}
	t.Logf("and what changed meanwhile was served after %v", time.Since(resumed).Round(time.Millisecond))
	p.tellsBoth(t, "after")
	l.agree(t, p.pair, "acme", first, second)
}

// A dataplane that can't use what is published goes on with what it has, and says why; the control plane mends it.
func TestADataplaneSaysWhatItRefuses(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	c := p.client(t, 0, "acme", "2026-07-28")
	if err := serves(c, "a__whoami", "alpha"); err != nil {
		t.Fatal(err)
	}
	type status struct {
		Applied *versionOf
		Refused *struct {
			Version versionOf
			Reason  string
		}
	}
	ask := func() ([]status, error) {
		var v struct {
			Dataplanes []struct{ Hosts map[string]status }
		}
		if err := p.admin(http.MethodGet, "/api/v1/dataplanes", &v); err != nil {
			return nil, err
		}
		var out []status
		for _, d := range v.Dataplanes {
			if s, warm := d.Hosts["acme"]; warm {
				out = append(out, s)
			}
		}
		return out, nil
	}
	// Somebody puts a document there that is none, and says so to those who follow.
	const keys = "weir:{routes}:"
	line := strings.Fields(p.redis.Do("HGET", keys+"index", "acme"))
	sequence := p.redis.Do("HINCRBY", keys+"fence", "sequence", "1")
	line[2], line[3] = "999", sequence
	p.redis.Do("SET", keys+"host:acme", "not JSON")
	p.redis.Do("HSET", keys+"index", "acme", strings.Join(line, " "))
	p.redis.Do("XADD", keys+"changes", "*", "kind", "host", "incarnation", line[0], "sequence", sequence, "host", "acme", "epoch", line[1],
		"revision", "999", "removed", "0")
	eventually(t, "it says what it refused", func() error {
		all, err := ask()
		if err != nil {
			return err
		}
		for _, s := range all {
			if s.Refused != nil && s.Refused.Version.Revision == 999 && s.Refused.Reason != "" && s.Applied != nil {
				return nil
			}
		}
		return fmt.Errorf("dataplanes %+v", all)
	})
	if err := serves(c, "a__whoami", "alpha"); err != nil {
		t.Errorf("with the last good one: %v", err)
	}
	// What the control plane writes has a revision above that.
	eventually(t, "it is mended", func() error {
		all, err := ask()
		if err != nil {
			return err
		}
		for _, s := range all {
			if s.Refused != nil || s.Applied == nil || s.Applied.Revision <= 999 {
				return fmt.Errorf("dataplanes %+v", all)
			}
		}
		return nil
	})
	for n := range p.data {
		c := p.client(t, n, "acme", "2026-07-28")
		eventually(t, "it is served", func() error { return serves(c, "a__whoami", "alpha") })
	}
}

// Only what changed is published, a burst of changes as few revisions, and a host that is taken out of the config leaves a tombstone.
func TestOnlyWhatChangedIsPublished(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	l := newChronicle(t, p.pair)
	p.tellsBoth(t, "first")
	l.agree(t, p.pair, "acme", p.control)
	acme, globex := l.newest("acme"), l.newest("globex")
	for range 3 { // looks that find nothing new
		p.refresh(t, "beta")
		p.refresh(t, "alpha")
	}
	for i := range 20 {
		p.alpha.addTool(fmt.Sprintf("burst%02d", i))
	}
	p.tellsBoth(t, "last")
	l.agree(t, p.pair, "acme", p.control)
	l.agree(t, p.pair, "globex", p.control)
	if got := l.newest("globex"); got != globex {
		t.Errorf("globex, of which nothing changed, is at %+v after %+v", got, globex)
	}
	if got := l.newest("acme"); got.revision > acme.revision+15 {
		t.Errorf("21 changes made %d revisions", got.revision-acme.revision)
	}

	c := p.client(t, 0, "acme", "2026-07-28")
	doc, err := os.ReadFile(p.controlCfg)
	if err != nil {
		t.Fatal(err)
	}
	reload := func(doc string) {
		t.Helper()
		if err := os.WriteFile(p.controlCfg, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.control.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	status := func(want int) {
		t.Helper()
		eventually(t, fmt.Sprintf("a call is answered %d", want), func() error {
			a, err := c.call("1", "tools/call", `{"name":"a__whoami","arguments":{}}`)
			if err == nil && a.status != want {
				err = fmt.Errorf("status %d", a.status)
			}
			return err
		})
	}
	status(200)
	reload(strings.Replace(string(doc), "  acme:\n    backends: [{name: alpha, prefix: a__}, {name: gamma, prefix: g__}]\n", "", 1))
	status(404)
	if line := strings.Fields(p.redis.Do("HGET", "weir:{routes}:index", "acme")); len(line) != 5 && len(line) != 6 || line[4] != "1" {
		t.Errorf("its line of the index is %q, want a tombstone", line)
	}
	if n := p.redis.Do("EXISTS", "weir:{routes}:host:acme", "weir:{routes}:list:acme", "weir:{routes}:history:acme", "weir:{routes}:catalog:alpha"); n != "1" {
		t.Errorf("%s keys of it stand, want the catalog of its backend alone", n)
	}
	reload(string(doc))
	status(200)
	l.agree(t, p.pair, "acme", p.control)
}
