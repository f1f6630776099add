package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-mcp/weir/routes/routestest"
)

// launchControl runs a control plane alone and does not wait for it: its addresses are known before it is ready.
func launchControl(t *testing.T, redis *routestest.RedisServer, publicKey, rest string) *process {
	t.Helper()
	listen, admin, ops := freeAddress(t), freeAddress(t), freeAddress(t)
	p := launch(t, "weir-controlplane", "--config", file(t, "controlplane.yaml", fmt.Sprintf(`redis: %q
listen: %s
admin_listen: %s
ops_listen: %s
admin: {token: "${env:WEIR_ADMIN_TOKEN}"}
auth: {issuers: [{issuer: "https://idp.test", audiences: [weir], algorithms: [ES256], public_key_file: %q}]}
%s`, redis.URL(), listen, admin, ops, publicKey, rest)))
	p.ready = map[string]string{"listen": listen, "admin": admin, "ops": ops}
	return p
}

// discovered waits until a control plane has discovered n backends, and returns when it had.
func discovered(t *testing.T, control *process, n int) time.Time {
	t.Helper()
	eventually(t, fmt.Sprintf("%d backends are discovered", n), func() error {
		var v struct{ Backends []struct{ Health string } }
		if err := (&pair{control: control}).admin(http.MethodGet, "/api/v1/backends", &v); err != nil {
			return err
		}
		up := 0
		for _, b := range v.Backends {
			if b.Health == "up" {
				up++
			}
		}
		if up < n {
			return fmt.Errorf("%d are up", up)
		}
		return nil
	})
	return time.Now()
}

// 50 backends of which one hangs and one is dead are discovered as fast as 48: two control planes look at the same time, so that the
// machine's load is the same for both.
func TestAHangingAndADeadBackendDelayNobody(t *testing.T) {
	t.Parallel()
	const healthy, pause = 48, 300 * time.Millisecond
	b := newPagedBackend(t, 100)
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(pause) // what a backend needs for an answer: it makes the order of the looks matter
		b.ServeHTTP(w, r)
	}))
	t.Cleanup(slow.Close)
	released := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-released:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(released) })
	dead := freeAddress(t) // nobody listens there

	var yaml strings.Builder
	hosts := "virtual_hosts:\n"
	for i := range healthy {
		server := strconv.Itoa(i)
		b.offer(server, []string{toolOf("whoami", server)})
		fmt.Fprintf(&yaml, "  b%d: {url: \"%s/%d\"}\n", i, slow.URL, i)
		hosts += fmt.Sprintf("  h%d: {backends: [{name: b%d}]}\n", i, i)
	}
	_, publicKey := keyPair(t)
	all := "backends:\n  hangs: {url: \"" + hanging.URL + "\"}\n  dead: {url: \"http://" + dead + "\"}\n" + yaml.String()
	without := routestest.StartRedis(t, routestest.RedisOptions{})
	with := routestest.StartRedis(t, routestest.RedisOptions{})
	began := time.Now()
	good := launchControl(t, without, publicKey, "backends:\n"+yaml.String()+hosts)
	mixed := launchControl(t, with, publicKey, all+hosts+"  both: {backends: [{name: hangs}, {name: dead}, {name: b0}]}\n")
	times := make(chan time.Duration, 1)
	go func() { times <- discovered(t, good, healthy).Sub(began) }()
	took := discovered(t, mixed, healthy).Sub(began)
	alone := <-times
	t.Logf("48 backends alone: %v; beside one that hangs and one that is dead: %v", alone.Round(time.Millisecond), took.Round(time.Millisecond))
	// Each look takes two answers, of 16 backends at once. One that hangs has a place for its 10 s.
	if took > 3*alone+2*time.Second {
		t.Errorf("48 backends beside a hanging and a dead one took %v, alone %v", took, alone)
	}
	// Hosts that do not need the two are published without waiting for them.
	eventually(t, "48 hosts are published", func() error {
		if n := with.Do("HLEN", "weir:{routes}:index"); n != "48" && n != "49" {
			return fmt.Errorf("%s hosts", n)
		}
		return nil
	})
	p := pair{control: mixed}
	eventually(t, "both are reported", func() error {
		var v struct {
			Problems []struct{ Code, Backend string }
		}
		if err := p.admin(http.MethodGet, "/api/v1/problems", &v); err != nil {
			return err
		}
		down := map[string]bool{}
		for _, problem := range v.Problems {
			if problem.Code == "backend_down" {
				down[problem.Backend] = true
			}
		}
		if len(down) != 2 || !down["hangs"] || !down["dead"] {
			return fmt.Errorf("down: %v", down)
		}
		return nil
	})
}

// cpuOf is the processor time that a process has used.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		t.Skipf("no /proc on this machine: a process' time can't be read: %v", err)
	}
	// The name, in brackets, may hold spaces; utime and stime are the 14th and 15th field, in hundredths of a second on Linux.
	fields := strings.Fields(string(doc[strings.LastIndexByte(string(doc), ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100)
}

// metricOf is a metric without labels, as a process shows it.
func metricOf(t *testing.T, p *process, name string) float64 {
	t.Helper()
	resp, err := httpClient.Get("http://" + p.ready["ops"] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("%s has no metric %s", p.name, name)
	return 0
}

// 200 backends of 50 tools: how much processor time their hosts cost, and how a host of 10,000 tools is listed.
func TestTenThousandTools(t *testing.T) {
	t.Parallel()
	const servers, each, page = 200, 50, 100
	b := newPagedBackend(t, each)
	var backends, all, some strings.Builder
	for i := range servers {
		var tools []string
		for n := range each {
			tools = append(tools, toolOf(fmt.Sprintf("tool_%02d", n), strings.Repeat("What the tool does, in some words. ", 8)))
		}
		b.offer(strconv.Itoa(i), tools)
		fmt.Fprintf(&backends, "  b%d: {url: \"%s/%d\"}\n", i, b.url, i)
		fmt.Fprintf(&all, "      - {name: b%d, prefix: b%d__}\n", i, i)
		if i < 20 {
			fmt.Fprintf(&some, "      - {name: b%d, prefix: b%d__}\n", i, i)
		}
	}
	p := newPair(t, backends.String(), "  large:\n    backends:\n"+all.String()+"  small:\n    backends:\n"+some.String()+
		fmt.Sprintf("listing: {page_size: %d}\n", page))
	pid := p.control.cmd.Process.Pid
	large, small := p.client(t, 0, "large", "2026-07-28"), p.client(t, 0, "small", "2026-07-28")
	eventually(t, "the host is served", func() error { return serves(large, "b199__tool_49", "199") })
	t.Logf("from its start on, discovery included, the control plane has used %v", cpuOf(t, pid))
	// What follows is measured without the rounds of the interval.
	doc, err := os.ReadFile(p.controlCfg)
	if err != nil {
		t.Fatal(err)
	}
	doc = bytes.Replace(doc, []byte("interval: 1s"), []byte("interval: 1h"), 1)
	if err := os.WriteFile(p.controlCfg, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.control.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rounds have ended", func() error {
		before := b.walked("0") + b.walked("199")
		time.Sleep(1500 * time.Millisecond) // longer than the interval of before
		if b.walked("0")+b.walked("199") != before {
			return errNotYet
		}
		return nil
	})

	t.Run("compile and publish", func(t *testing.T) {
		// Every name changes, and nothing has to be discovered: what it costs is compiling and publishing 10,000 tools (and 1,000 in
		// the small host), and reading them back for the lists.
		if err := os.WriteFile(p.controlCfg, []byte(strings.ReplaceAll(string(doc), "__}", "_x_}")), 0o600); err != nil {
			t.Fatal(err)
		}
		before, began := cpuOf(t, pid), time.Now()
		if err := p.control.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the new names are served", func() error { return serves(large, "b199_x_tool_49", "199") })
		eventually(t, "and listed", func() error {
			got, err := client{url: p.control.url(), token: large.token, version: large.version}.page("")
			if err == nil && (len(got.names) != page || got.names[0] != "b0_x_tool_00") {
				err = errNotYet
			}
			return err
		})
		used := cpuOf(t, pid) - before
		t.Logf("11,000 new names: %v of processor time, served and listed after %v", used, time.Since(began).Round(time.Millisecond))
		if used > 2*time.Second && !raceEnabled { // the race detector makes it five to ten times as much
			t.Errorf("compiling and publishing took %v of processor time, want under 2s", used)
		}
	})

	t.Run("a page costs what is on it", func(t *testing.T) {
		direct := func(c client) client { return client{url: p.control.url(), token: c.token, version: c.version} }
		// The first request of a host builds what later ones use.
		cost := func(c client) float64 {
			t.Helper()
			deep, err := c.page("")
			for range 5 { // somewhere in the midst
				if err == nil {
					deep, err = c.page(deep.next)
				}
			}
			if err != nil || len(deep.names) != page {
				t.Fatalf("%+v, %v", deep, err)
			}
			const requests = 200
			before := metricOf(t, p.control, "go_memstats_alloc_bytes_total")
			for range requests {
				if got, err := c.page(deep.next); err != nil || len(got.names) != page {
					t.Fatalf("%+v, %v", got, err)
				}
			}
			return (metricOf(t, p.control, "go_memstats_alloc_bytes_total") - before) / requests
		}
		of1000, of10000 := cost(direct(small)), cost(direct(large))
		t.Logf("a page of %d costs %.0f KiB of memory in a host of 1,000 tools, %.0f KiB in one of 10,000", page, of1000/1024, of10000/1024)
		if of10000 > 2*of1000+64<<10 && !raceEnabled {
			t.Errorf("a page costs %.0f bytes in a host of 10,000 tools, %.0f in one of 1,000", of10000, of1000)
		}
		before := residentKiB(t, pid)
		for range 3 {
			names, pages, err := direct(large).walk()
			if err != nil || len(names) != servers*each || pages != servers*each/page {
				t.Fatalf("%d names on %d pages, %v", len(names), pages, err)
			}
		}
		if grown := residentKiB(t, pid) - before; grown > 64<<10 && !raceEnabled {
			t.Errorf("reading 10,000 tools three times, page by page, grew the process by %d KiB", grown)
		}
	})
}
