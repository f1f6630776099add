package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// frontDoorDir is where the files of the front doors are, as operators get them.
const frontDoorDir = "../frontdoor"

// fixedPair is a pair whose dataplanes come back on the addresses that they had.
type fixedPair struct {
	*pair
	ledger *ledger
	work   *workBackend
	cfg    [2]string // path of each dataplane's config file
}

// newFixedPair starts a pair with the host acme, which has the tools of a modern backend as m__ and of a legacy one as l__.
// delegated is the dataplanes' delegated_methods.
func newFixedPair(t *testing.T, drain, delegated string) *fixedPair {
	t.Helper()
	led := new(ledger)
	p := &fixedPair{ledger: led, work: newWorkBackend(t, led)}
	legacy := newLegacyWorkBackend(t, led)
	p.pair = newPair(t, fmt.Sprintf("  modern: {url: %q}\n  legacy: {url: %q}\n", p.work.url, legacy.url),
		"  acme: {backends: [{name: modern, prefix: m__}, {name: legacy, prefix: l__}]}\n")
	for i := range p.data {
		if code := p.data[i].terminate(t); code != 0 {
			t.Fatalf("a dataplane without work: exit status %d", code)
		}
		p.cfg[i] = p.dataplaneConfig(t, freeAddress(t), freeAddress(t), drain, delegated)
		p.data[i] = start(t, "weir-dataplane", "--config", p.cfg[i])
	}
	for i := range p.data {
		c := p.client(t, i, "acme", "2026-07-28")
		for _, tool := range []string{"m__echo", "l__echo"} {
			eventually(t, tool+" is served", func() error {
				a, err := c.call("1", "tools/call", `{"name":"`+tool+`","arguments":{"n":"first"}}`)
				if err == nil && a.rpc.Result == nil {
					err = errors.New(a.body)
				}
				return err
			})
		}
	}
	return p
}

// dataplaneConfig writes the config of a dataplane of the pair.
func (p *pair) dataplaneConfig(t *testing.T, listen, ops, drain, delegated string) string {
	t.Helper()
	doc, err := os.ReadFile(p.dataCfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"listen: " + listen, "ops_listen: " + ops, "drain: " + drain, "delegated_methods: " + delegated} {
		key, _, _ := strings.Cut(line, " ")
		was := regexp.MustCompile(`(?m)^` + key + ` .*$`)
		if !was.Match(doc) {
			t.Fatalf("no %s in the config of the pair", key)
		}
		doc = was.ReplaceAllLiteral(doc, []byte(line))
	}
	return file(t, "dataplane.yaml", string(doc)+"log_level: warn\n")
}

// freeAddress is a loopback address that nothing listens on, with a port that no outgoing connection gets by chance.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 15000+rand.IntN(15000)))
		if err != nil {
			continue
		}
		defer ln.Close()
		return ln.Addr().String()
	}
	t.Fatal("no free port")
	return ""
}

func port(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// program finds a front door's program. Without it the test is skipped, or fails where all must be there.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name) // not on everybody's PATH
	}
	if err != nil && os.Getenv("WEIR_REQUIRE_FRONTDOORS") == "1" {
		t.Fatalf("WEIR_REQUIRE_FRONTDOORS=1, and there is no %s: %v", name, err)
	}
	if err != nil {
		t.Skipf("no %s on this machine: nothing is tested behind it", name)
	}
	return path
}

// frontDoors start each front door with the file in deploy/frontdoor and return the URL of the MCP endpoint.
var frontDoors = map[string]func(*testing.T, *fixedPair) string{"nginx": startNginx, "haproxy": startHAProxy}

// delegatedBehind is what each front door's file says that delegated_methods must be.
var delegatedBehind = map[string]string{"nginx": "forward", "haproxy": "reject"}

func startNginx(t *testing.T, p *fixedPair) string {
	path := program(t, "nginx")
	conf, err := os.ReadFile(filepath.Join(frontDoorDir, "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	listen := freeAddress(t)
	filled := strings.NewReplacer("${WEIR_LISTEN}", listen, "${WEIR_CONTROLPLANE}", p.control.ready["listen"],
		"${WEIR_DATAPLANE_1}", p.data[0].ready["listen"], "${WEIR_DATAPLANE_2}", p.data[1].ready["listen"]).Replace(string(conf))
	dir := t.TempDir()
	runFrontDoor(t, listen, exec.Command(path, "-p", dir, "-c", file(t, "nginx.conf", filled),
		"-g", "daemon off; pid "+filepath.Join(dir, "nginx.pid")+";"))
	return "http://" + listen + "/mcp"
}

func startHAProxy(t *testing.T, p *fixedPair) string {
	path := program(t, "haproxy")
	listen := freeAddress(t)
	cmd := exec.Command(path, "-f", filepath.Join(frontDoorDir, "haproxy.cfg"))
	cmd.Env = append(os.Environ(), "WEIR_LISTEN="+listen, "WEIR_STATS="+freeAddress(t),
		"WEIR_DATAPLANE_1="+p.data[0].ready["listen"], "WEIR_DATAPLANE_1_OPS="+port(t, p.data[0].ready["ops"]),
		"WEIR_DATAPLANE_2="+p.data[1].ready["listen"], "WEIR_DATAPLANE_2_OPS="+port(t, p.data[1].ready["ops"]),
		"WEIR_CONTROLPLANE="+p.control.ready["listen"], "WEIR_CONTROLPLANE_OPS="+port(t, p.control.ready["ops"]))
	runFrontDoor(t, listen, cmd)
	return "http://" + listen + "/mcp"
}

// runFrontDoor runs a program until the test ends, and waits until it listens.
func runFrontDoor(t *testing.T, listen string, cmd *exec.Cmd) {
	t.Helper()
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("%s did not end", cmd.Path)
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", cmd.Path, tail(out.String(), 60))
		}
	})
	eventually(t, cmd.Path+" listens", func() error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v\n%s", cmd.Path, err, out.String())
		default:
		}
		conn, err := net.Dial("tcp", listen)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// lockedBuffer keeps what a program writes.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Two dataplanes are restarted in turn under load, and nobody notices.
func TestFrontDoorsLoseNoCallInARollingRestart(t *testing.T) {
	t.Parallel()
	for name, startDoor := range frontDoors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program(t, name)
			p := newFixedPair(t, "{delay: 3s, deadline: 20s}", delegatedBehind[name])
			l := startLoad(t, startDoor(t, p), p.token(t, "acme"), p.ledger)
			for i := range p.data {
				p.waitForTraffic(t, i)
			}
			for range 2 {
				for i := range p.data {
					began := time.Now()
					p.restart(t, i)
					p.waitForTraffic(t, i)
					t.Logf("dataplane %d was restarted in %v", i, time.Since(began).Round(time.Millisecond))
				}
			}
			l.end()
			l.report()
		})
	}
}

// waitForTraffic waits until the front door sends requests to a dataplane.
func (p *fixedPair) waitForTraffic(t *testing.T, i int) {
	t.Helper()
	eventually(t, fmt.Sprintf("dataplane %d gets requests", i), func() error {
		_, body, err := get("http://" + p.data[i].ready["ops"] + "/metrics")
		if err == nil && !regexp.MustCompile(`(?m)^weir_dataplane_requests_total\{.*status="200".*\} `).MatchString(body) {
			err = errNotYet
		}
		return err
	})
}

// restart stops a dataplane and starts it again. From SIGTERM to the end /readyz must say 503.
func (p *fixedPair) restart(t *testing.T, i int) {
	t.Helper()
	old := p.data[i]
	watched := watchReadiness(old)
	if code := old.terminate(t); code != 0 {
		t.Errorf("dataplane %d: exit status %d, want 0\n%s", i, code, tail(old.log(), 20))
	}
	if err := <-watched; err != nil {
		t.Errorf("dataplane %d: %v", i, err)
	}
	p.data[i] = start(t, "weir-dataplane", "--config", p.cfg[i])
}

// watchReadiness watches /readyz until the process has ended: 200, then 503 and nothing else, and an answer to the last.
func watchReadiness(p *process) <-chan error {
	result := make(chan error, 1)
	go func() {
		draining := 0
		for {
			status, body, err := get("http://" + p.ready["ops"] + "/readyz")
			switch {
			case err != nil:
				select {
				case <-p.ended:
				case <-time.After(2 * time.Second): // the ops listener is the last to go; the rest takes no time
					err = fmt.Errorf("the ops listener was gone before the process: %w", err)
					result <- err
					return
				}
				if draining < 10 {
					result <- fmt.Errorf("/readyz said 503 %d times only", draining)
					return
				}
				result <- nil
				return
			case status == http.StatusServiceUnavailable && strings.Contains(body, `"draining"`):
				draining++
			case status != http.StatusOK || draining > 0:
				result <- fmt.Errorf("after %d times 503 /readyz said %d: %s", draining, status, body)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return result
}

func get(url string) (status int, body string, err error) {
	resp, err := httpClient.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// Methods that the control plane answers get there from clients of both eras, and the rest gets to a dataplane.
func TestFrontDoorsSendEachMethodToItsPlane(t *testing.T) {
	t.Parallel()
	for name, startDoor := range frontDoors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program(t, name)
			p := newFixedPair(t, "{delay: 0s, deadline: 1s}", delegatedBehind[name])
			url, token, h := startDoor(t, p), p.token(t, "acme"), keepAliveClient(t)
			for _, version := range []string{"2026-07-28", "2025-11-25"} {
				c := client{url: url, token: token, version: version}
				methods := []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list", "completion/complete",
					"resources/subscribe", "resources/unsubscribe", "logging/setLevel", "tasks/list"}
				for _, method := range methods {
					a, err := c.over(h, method, "{}")
					if err != nil {
						t.Errorf("%s of %s: %v", method, version, err)
						continue
					}
					lists := strings.HasPrefix(method, "tools/") || strings.HasPrefix(method, "prompts/") || strings.HasPrefix(method, "resources/") && strings.HasSuffix(method, "list")
					if lists && a.rpc.Result == nil || strings.Contains(a.body, "served by the control plane") {
						t.Errorf("%s of %s: status %d: %s", method, version, a.status, a.body)
					}
				}
				a, err := c.over(h, "tools/call", `{"name":"m__echo","arguments":{"n":"plain"}}`)
				if err != nil || a.rpc.Result == nil {
					t.Errorf("tools/call of %s: %+v, %v", version, a, err)
				}
				// A body larger than what a front door keeps in memory.
				big := strings.Repeat("x", 1<<20)
				a, err = c.over(h, "tools/call", `{"name":"m__echo","arguments":{"n":"big","pad":"`+big+`"}}`)
				if err != nil || a.rpc.Result == nil {
					t.Errorf("a big tools/call of %s: %v, %v", version, a, err)
				}
			}
			legacy := client{url: url, token: token, version: "2025-11-25"}
			for method, params := range map[string]string{
				"ping":       "{}",
				"initialize": `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}`,
			} {
				if a, err := legacy.over(h, method, params); err != nil || a.rpc.Result == nil {
					t.Errorf("%s: %+v, %v", method, a, err)
				}
			}
			p.cancelsThroughAFrontDoor(t, client{url: url, token: token, version: "2026-07-28"}, h)
		})
	}
}

// cancelsThroughAFrontDoor checks that events come through as they happen, and that who goes away cancels.
func (p *fixedPair) cancelsThroughAFrontDoor(t *testing.T, c client, h *http.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := c.begin(ctx, h, "tools/call", `{"name":"m__hold","arguments":{"n":"cancelled"},"_meta":{"progressToken":"p"}}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, "notifications/progress") {
		t.Errorf("the first event, while the call runs: %q, %v", line, err)
	}
	<-p.work.held
	cancel()
	select {
	case <-p.work.left:
	case <-time.After(patience):
		t.Error("the client went away, and its call ran on")
	}
}
