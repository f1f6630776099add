package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestPairServesEachTenantItsOwn(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	for host, want := range map[string][]string{
		"acme":   {"a__whoami", "g__whoami"},
		"globex": {"b__whoami", "whoami"},
	} {
		for _, version := range []string{"2026-07-28", "2025-11-25"} {
			for n := range p.data {
				got, err := p.client(t, n, host, version).tools()
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%s, %s, dataplane %d: tools = %v, %v; want %v", host, version, n, got, err, want)
				}
			}
		}
	}
	acme, globex := p.token(t, "acme"), p.token(t, "globex")
	for i := range 20 { // alternately over both
		url := p.data[i%2].url()
		for _, check := range []error{
			serves(client{url, acme, "2026-07-28"}, "a__whoami", "alpha"),
			serves(client{url, acme, "2025-11-25"}, "g__whoami", "gamma"),
			serves(client{url, globex, "2025-11-25"}, "b__whoami", "beta"),
			serves(client{url, globex, "2026-07-28"}, "whoami", "gamma"),
			misses(client{url, acme, "2026-07-28"}, "b__whoami"),
			misses(client{url, globex, "2026-07-28"}, "a__whoami"),
		} {
			if check != nil {
				t.Error(check)
			}
		}
	}
	// A token of one tenant is nothing to the other's path.
	a, err := client{strings.TrimSuffix(p.data[0].url(), "/mcp") + "/servers/globex/mcp", acme, "2026-07-28"}.call("1", "tools/call", `{"name":"b__whoami"}`)
	if err != nil || a.status != 404 || strings.TrimSpace(a.body) != `{"detail":"Server not found"}` {
		t.Errorf("another tenant's path: %+v, %v", a, err)
	}
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		c := p.client(t, 1, "acme", version)
		if got := string(c.must(t, "resources/read", `{"uri":"gamma://items/x%20y"}`)); !strings.Contains(got, `"gamma gamma://items/x%20y"`) {
			t.Errorf("%s: a template's resource: %s", version, got)
		}
		if got := string(c.must(t, "resources/read", `{"uri":"alpha://about"}`)); !strings.Contains(got, `"alpha alpha://about"`) {
			t.Errorf("%s: a resource: %s", version, got)
		}
		if got := string(c.must(t, "prompts/get", `{"name":"g__hello"}`)); !strings.Contains(got, `"gamma"`) {
			t.Errorf("%s: a prompt: %s", version, got)
		}
	}
}

func TestPairPublishesChangesQuickly(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	c := [2]client{p.client(t, 0, "acme", "2026-07-28"), p.client(t, 1, "acme", "2026-07-28")}
	for n := range c { // warm
		if err := serves(c[n], "a__whoami", "alpha"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		tool := fmt.Sprintf("extra%d", i)
		p.alpha.addTool(tool)
		p.refresh(t, "alpha")
		began := time.Now()
		for n := range c {
			eventually(t, tool+" appears", func() error { return serves(c[n], "a__"+tool, "alpha") })
		}
		t.Logf("%s was visible on both dataplanes after %v", tool, time.Since(began).Round(time.Millisecond))
		p.alpha.removeTool(tool)
		p.refresh(t, "alpha")
		began = time.Now()
		for n := range c {
			eventually(t, tool+" is gone", func() error { return misses(c[n], "a__"+tool) })
		}
		t.Logf("%s was gone from both after %v", tool, time.Since(began).Round(time.Millisecond))
	}
	if err := serves(c[0], "a__whoami", "alpha"); err != nil {
		t.Errorf("what did not change: %v", err)
	}
}

func TestPairSurvivesTheDeathOfADataplane(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	if err := p.data[1].cmd.Process.Signal(syscall.SIGHUP); err != nil { // means nothing to a dataplane, and must not end it
		t.Fatal(err)
	}
	p.data[0].kill()
	for range 10 {
		if err := serves(p.client(t, 1, "acme", "2026-07-28"), "a__whoami", "alpha"); err != nil {
			t.Error(err)
		}
	}
	p.data[0] = start(t, "weir-dataplane", "--config", p.dataCfg)
	if err := serves(p.client(t, 0, "acme", "2025-11-25"), "g__whoami", "gamma"); err != nil {
		t.Errorf("restarted: %v", err)
	}
}

func TestPairSurvivesTheDeathOfTheControlPlane(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	if err := serves(p.client(t, 0, "acme", "2026-07-28"), "a__whoami", "alpha"); err != nil {
		t.Fatal(err)
	}
	p.control.kill()
	for n := range p.data { // the second dataplane is cold: it loads what stands in Redis
		for range 5 {
			if err := serves(p.client(t, n, "acme", "2026-07-28"), "a__whoami", "alpha"); err != nil {
				t.Errorf("without a control plane: %v", err)
			}
		}
	}
	a, err := p.client(t, 0, "acme", "2026-07-28").call("1", "tools/list", "{}")
	if err != nil || a.rpc.Error == nil || a.rpc.Error.Code != -32603 {
		t.Errorf("a list without a control plane: %+v, %v; want -32603", a, err)
	}
	p.restartControl(t)
	p.changesFlow(t, "after-restart")
}

// changesFlow adds a tool at a backend and waits until both dataplanes serve it and lists show it.
func (p *threeBackends) changesFlow(t *testing.T, tool string) {
	t.Helper()
	p.alpha.addTool(tool)
	for n := range p.data {
		c := p.client(t, n, "acme", "2026-07-28")
		eventually(t, tool+" is served", func() error { return serves(c, "a__"+tool, "alpha") })
		eventually(t, tool+" is listed", func() error {
			got, err := c.tools()
			if err == nil && !slices.Contains(got, "a__"+tool) {
				err = fmt.Errorf("tools = %v", got)
			}
			return err
		})
	}
}

func TestPairSurvivesARedisRestart(t *testing.T) {
	t.Parallel()
	for name, keepData := range map[string]bool{"with its data": true, "without its data": false} {
		t.Run(name, func(t *testing.T) {
			p := newThreeBackends(t)
			for n := range p.data {
				if err := serves(p.client(t, n, "acme", "2026-07-28"), "a__whoami", "alpha"); err != nil {
					t.Fatal(err)
				}
			}
			p.redis.Kill()
			for n := range p.data {
				for range 3 {
					if err := serves(p.client(t, n, "acme", "2026-07-28"), "a__whoami", "alpha"); err != nil {
						t.Errorf("warm, while Redis is away: %v", err)
					}
				}
				a, err := p.client(t, n, "globex", "2026-07-28").call("1", "tools/call", `{"name":"whoami"}`)
				if err != nil || a.status != 503 || a.header.Get("Retry-After") == "" {
					t.Errorf("cold, while Redis is away: %+v, %v; want 503 with Retry-After", a, err)
				}
			}
			if !keepData {
				p.redis.Wipe()
			}
			p.redis.Restart()
			for n := range p.data {
				c := p.client(t, n, "globex", "2026-07-28")
				eventually(t, "a cold host is served again", func() error { return serves(c, "whoami", "gamma") })
			}
			p.changesFlow(t, "after-redis")
		})
	}
}

// Two dataplanes and a control plane may start in any order, before Redis too.
func TestEveryProcessMayStartFirst(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	p.control.kill()
	p.redis.Kill()
	p.redis.Wipe()
	d := launch(t, "weir-dataplane", "--config", p.dataCfg)
	p.redis.Restart()
	select {
	case <-d.readyLine(t):
	case <-time.After(patience):
		t.Fatalf("a dataplane that started before Redis never got ready:\n%s", d.log())
	}
	p.data[0] = d
	a, err := p.client(t, 0, "acme", "2026-07-28").call("1", "tools/call", `{"name":"a__whoami"}`)
	if err != nil || a.status != 503 {
		t.Errorf("before anything was published: %+v, %v; want 503", a, err)
	}
	p.restartControl(t)
	c := p.client(t, 0, "acme", "2026-07-28")
	eventually(t, "the host is served", func() error { return serves(c, "a__whoami", "alpha") })
	a, err = p.client(t, 0, "nobody", "2026-07-28").call("1", "tools/call", `{"name":"x"}`)
	if err != nil || a.status != 404 {
		t.Errorf("a host that nobody published: %+v, %v; want 404", a, err)
	}
}
