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

// Redis is emptied, again and again, under two control planes and while things change: one of them leads on, nobody else writes,
// and no revision goes backwards.
func TestAnEmptiedRedisHasOneWriter(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	first := p.control
	second := start(t, "weir-controlplane", "--config", p.controlCfg)
	l := newChronicle(t, p.pair)
	for n := range p.data { // warm
		c := p.client(t, n, "acme", "2026-07-28")
		eventually(t, "a host is served", func() error { return serves(c, "a__whoami", "alpha") })
	}
	for i := range 4 {
		l.agree(t, p.pair, "acme", first, second)
		tool := fmt.Sprintf("change%d", i)
		p.alpha.addTool(tool) // announced: a round of publishing is on its way when the data goes
		if i%2 == 1 {
			p.control = p.leader(t, first, second)
			p.refresh(t, "alpha")
		}
		p.redis.Do("FLUSHALL")
		emptied := time.Now()
		for n := range p.data {
			c := p.client(t, n, "acme", "2026-07-28")
			if err := serves(c, "a__whoami", "alpha"); err != nil {
				t.Errorf("warm, after Redis was emptied: %v", err)
			}
			eventually(t, tool+" is served", func() error { return serves(c, "a__"+tool, "alpha") })
		}
		t.Logf("published again, with a change, %v after Redis was emptied", time.Since(emptied).Round(time.Millisecond))
		p.control = p.leader(t, first, second)
	}
	l.agree(t, p.pair, "acme", first, second)
	l.agree(t, p.pair, "globex", first, second)
}

// leaseReason is why a control plane does not lead; empty: it does, or has not tried.
func leaseReason(control *process) (string, error) {
	var v struct{ Leases []struct{ Reason string } }
	if err := (&pair{control: control}).admin(http.MethodGet, "/api/v1/leases", &v); err != nil || len(v.Leases) == 0 {
		return "", fmt.Errorf("leases %+v: %w", v, err)
	}
	return v.Leases[0].Reason, nil
}

// A replica with an older config_version does not lead, even if nobody else does; it says so, and takes over with a newer one.
func TestAnOlderConfigVersionDoesNotLead(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	versioned := func(version int) string {
		doc, err := os.ReadFile(p.controlCfg)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("config_version: %d\n%s", version, doc)
	}
	rewrite := func(path, doc string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	oldCfg := file(t, "older.yaml", strings.Replace(versioned(1), "prefix: a__", "prefix: old__", 1))
	newest := versioned(2)
	rewrite(p.controlCfg, newest)
	if err := p.control.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the fence has the config's version", func() error {
		if got := p.redis.Do("HGET", "weir:{routes}:fence", "config"); got != "2" {
			return fmt.Errorf("config is %q", got)
		}
		return nil
	})
	p.leads(t, p.control, true)
	l := newChronicle(t, p.pair)
	p.tellsBoth(t, "newest")
	older := start(t, "weir-controlplane", "--config", oldCfg)
	if got, err := leaseReason(older); err != nil || got != "held" {
		t.Errorf("beside the leader: %q, %v; want held", got, err)
	}
	p.control.kill()
	eventually(t, "the older one says why it does not lead", func() error {
		got, err := leaseReason(older)
		if err == nil && got != "config_outdated" {
			err = fmt.Errorf("reason %q", got)
		}
		return err
	})
	if !strings.Contains(older.log(), "config_version") {
		t.Errorf("the log of the older one does not speak of config_version:\n%s", tail(older.log(), 20))
	}
	before := l.newest("acme")
	p.alpha.addTool("while-nobody-leads")
	for n := range p.data {
		for range 3 {
			if err := serves(p.client(t, n, "acme", "2026-07-28"), "a__newest", "alpha"); err != nil {
				t.Errorf("while nobody leads: %v", err)
			}
		}
	}
	if got, err := leaseReason(older); err != nil || got != "config_outdated" || l.newest("acme") != before {
		t.Errorf("reason %q, %v; acme at %+v after %+v", got, err, l.newest("acme"), before)
	}
	rewrite(oldCfg, strings.Replace(newest, "config_version: 2", "config_version: 3", 1))
	if err := older.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.control = older
	p.leads(t, older, true)
	for n := range p.data {
		c := p.client(t, n, "acme", "2026-07-28")
		eventually(t, "what changed meanwhile is served", func() error { return serves(c, "a__while-nobody-leads", "alpha") })
	}
}

// Somebody deletes or edits keys by hand. It is noticed, and what was written stands again, under a newer revision.
func TestKeysThatAHandChangedAreWrittenAgain(t *testing.T) {
	t.Parallel()
	const keys = "weir:{routes}:"
	edit := func(key, old, new string) func(*pair) {
		return func(p *pair) {
			doc := p.redis.Do("GET", keys+key)
			if !strings.Contains(doc, old) {
				t.Errorf("%s has no %q: %s", key, old, doc)
			}
			p.redis.Do("SET", keys+key, strings.ReplaceAll(doc, old, new))
		}
	}
	// Each change has a host of its own; all are made at once.
	hosts := map[string]func(*pair){
		"h-table-gone":    func(p *pair) { p.redis.Do("DEL", keys+"host:h-table-gone") },
		"h-table-edited":  edit("host:h-table-edited", `"whoami"`, `"hijacked"`),
		"h-table-garbage": func(p *pair) { p.redis.Do("SET", keys+"host:h-table-garbage", "not JSON") },
		"h-list-gone":     func(p *pair) { p.redis.Do("DEL", keys+"list:h-list-gone") },
		"h-list-edited":   edit("list:h-list-edited", `"whoami"`, `"hijacked"`),
		"h-index-gone":    func(p *pair) { p.redis.Do("HDEL", keys+"index", "h-index-gone") },
		"h-index-edited": func(p *pair) {
			line := strings.Fields(p.redis.Do("HGET", keys+"index", "h-index-edited"))
			line[4] = "1" // removed
			p.redis.Do("HSET", keys+"index", "h-index-edited", strings.Join(line, " "))
		},
		"h-all-gone": func(p *pair) {
			p.redis.Do("DEL", keys+"host:h-all-gone", keys+"list:h-all-gone")
			p.redis.Do("HDEL", keys+"index", "h-all-gone")
		},
	}
	alpha, gamma, delta := newModernBackend(t, "alpha"), newLegacyBackend(t, "gamma"), newModernBackend(t, "delta")
	var yaml strings.Builder
	for host := range hosts {
		fmt.Fprintf(&yaml, "  %s: {backends: [{name: alpha}]}\n", host)
	}
	p := newPair(t, fmt.Sprintf("  alpha: {url: %q}\n  gamma: {url: %q}\n  delta: {url: %q}\n", alpha.url, gamma.url, delta.url),
		yaml.String()+"  catalogs: {backends: [{name: gamma, prefix: g__}, {name: delta, prefix: d__}]}\n")
	l := newChronicle(t, p)
	p.listsNow(t, "catalogs", "d__whoami", "g__whoami")
	stood := map[string]string{}
	for host := range hosts {
		c := p.client(t, 0, host, "2026-07-28")
		eventually(t, "it is served", func() error { return serves(c, "whoami", "alpha") }) // warm on the first dataplane only
		stood[host] = p.redis.Do("GET", keys+"list:"+host)
	}
	catalog := map[string]string{"gamma": p.redis.Do("GET", keys+"catalog:gamma"), "delta": p.redis.Do("GET", keys+"catalog:delta")}

	for _, change := range hosts {
		change(p)
	}
	p.redis.Do("DEL", keys+"catalog:gamma")
	edit("catalog:delta", `"type":"object"`, `"type":"array"`)(p)

	for host := range hosts {
		if err := serves(p.client(t, 0, host, "2026-07-28"), "whoami", "alpha"); err != nil {
			t.Errorf("%s, warm: %v", host, err)
		}
		eventually(t, host+" stands again", func() error {
			if got := p.redis.Do("GET", keys+"list:"+host); got != stood[host] {
				return fmt.Errorf("its list is %s, was %s", got, stood[host])
			}
			doc := p.redis.Do("GET", keys+"host:"+host)
			if strings.Contains(doc, "hijacked") || !strings.Contains(doc, `"whoami"`) {
				return fmt.Errorf("its table is %s", doc)
			}
			if line := strings.Fields(p.redis.Do("HGET", keys+"index", host)); len(line) != 6 || line[4] != "0" {
				return fmt.Errorf("its line of the index is %v", line)
			}
			return nil
		})
		for n := range p.data {
			c := p.client(t, n, host, "2026-07-28")
			eventually(t, host+" is served everywhere", func() error { return serves(c, "whoami", "alpha") })
		}
		l.agree(t, p, host, p.control)
	}
	for id, want := range catalog {
		eventually(t, "the catalog of "+id+" stands again", func() error {
			got := p.redis.Do("GET", keys+"catalog:"+id)
			if strings.Contains(got, `"type":"array"`) || len(got) != len(want) {
				return fmt.Errorf("it is %s, was %s", got, want)
			}
			return nil
		})
	}
	if !strings.Contains(p.control.log(), "writing them again") {
		t.Error("the log says nothing of it")
	}
}
