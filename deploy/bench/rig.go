package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/redisstore"
)

// rig is everything that runs while one kind of backend is measured.
type rig struct {
	era     string
	redis   *miniredis.Miniredis
	backend *child
	proxy   *child
	weir    *child
	ops     string // the dataplane's ops listener
	token   string
	dir     string
}

func newRig(ctx context.Context, p plan, era string) (_ *rig, err error) {
	r := &rig{era: era}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	backend := []string{era + "-backend"}
	if p.stream {
		backend = append(backend, "stream")
	}
	if r.backend, err = startChild(ctx, false, `^(\S+:\d+)$`, self, backend...); err != nil {
		return nil, err
	}
	if r.proxy, err = startChild(ctx, false, `^(\S+:\d+)$`, self, "proxy", "http://"+r.backend.addr); err != nil {
		return nil, err
	}
	if r.redis, err = miniredis.Run(); err != nil {
		return nil, err
	}
	if err := r.publish(ctx); err != nil {
		return nil, err
	}
	config, err := r.writeConfig()
	if err != nil {
		return nil, err
	}
	if r.weir, err = startChild(ctx, true, `^ready listen=(\S+)`, p.dataplane, "--config", config); err != nil {
		return nil, err
	}
	if m := regexp.MustCompile(`ops=(\S+)`).FindStringSubmatch(r.weir.line); m != nil {
		r.ops = m[1]
	}
	return r, nil
}

// publish writes what a control plane would: one host with one backend and one tool.
func (r *rig) publish(ctx context.Context) error {
	client, err := redisstore.Open(redisstore.Config{URL: "redis://" + r.redis.Addr()})
	if err != nil {
		return err
	}
	defer client.Close()
	w, err := redisstore.NewWriter(redisstore.Options{Client: client})
	if err != nil {
		return err
	}
	lease, err := w.Acquire(ctx, "bench", time.Hour, 0)
	if err != nil {
		return err
	}
	backend := routes.Backend{URL: "http://" + r.backend.addr + "/mcp", Protocol: "2026-07-28"}
	if r.era == "legacy" {
		backend.Protocol, backend.Handshake = "2025-11-25", routes.HandshakeRequired
	}
	vh := &routes.VirtualHost{
		Schema: routes.SchemaVersion, ID: "bench", Incarnation: lease.Incarnation, Epoch: lease.Epoch, Revision: 1,
		Order: []routes.BackendID{"echo"}, Backends: map[routes.BackendID]routes.Backend{"echo": backend},
		Tools: map[string]routes.ServiceRoute{"b__echo": {Backend: "echo", Upstream: "echo"}},
	}
	doc, err := routes.EncodeHost(vh)
	if err != nil {
		return err
	}
	batch := routes.Batch{Hosts: []routes.HostChange{{ID: vh.ID, Revision: 1, Digest: routes.Digest(doc), Document: doc, List: []byte("{}")}}}
	if err := w.Publish(ctx, lease, batch); err != nil {
		return err
	}
	return w.MarkComplete(ctx, lease)
}

// writeConfig makes the dataplane's file: tokens are checked, with a key of their own.
func (r *rig) writeConfig() (path string, err error) {
	if r.dir, err = os.MkdirTemp("", "weir-bench-"); err != nil {
		return "", err
	}
	secret := rand.Text() + rand.Text()
	keyFile := filepath.Join(r.dir, "hmac")
	if err := os.WriteFile(keyFile, []byte(secret), 0o600); err != nil {
		return "", err
	}
	r.token, err = access.Mint(access.MintOptions{
		Algorithm: "HS256", Key: []byte(secret), Issuer: "bench", Subject: "load", Audience: []string{"weir"}, Hosts: []string{"bench"}, TTL: time.Hour,
	})
	if err != nil {
		return "", err
	}
	path = filepath.Join(r.dir, "dataplane.yaml")
	return path, os.WriteFile(path, fmt.Appendf(nil, `redis: "redis://%s"
listen: 127.0.0.1:0
ops_listen: 127.0.0.1:0
log_level: warn
auth:
  issuers: [{issuer: bench, audiences: [weir], algorithms: [HS256], hmac_secret: "${file:%s}"}]
drain: {delay: 0s, deadline: 1s}
limits: {calls_per_principal: -1, calls_per_backend: -1}
`, r.redis.Addr(), keyFile), 0o600)
}

func (r *rig) close() error {
	var errs []error
	for _, c := range []*child{r.weir, r.proxy, r.backend} {
		if c != nil {
			errs = append(errs, c.stop())
		}
	}
	if r.redis != nil {
		r.redis.Close()
	}
	if r.dir != "" {
		errs = append(errs, os.RemoveAll(r.dir))
	}
	return errors.Join(errs...)
}

// compare measures both ways in turns and returns a row of the table.
func (r *rig) compare(ctx context.Context, p plan, size, conns int) (string, error) {
	message := strings.Repeat("x", size)
	want := `"text":"xxx`
	proxyPath, proxyVersion := "/mcp", "2026-07-28"
	if r.era == "legacy" {
		proxyPath, proxyVersion = "/stateless", "2025-11-25"
	}
	viaProxy := request(r.proxy.addr, proxyPath, "", proxyVersion, "echo", message)
	viaWeir := request(r.weir.addr, "/mcp", r.token, "2026-07-28", "b__echo", message)
	var proxy, weir sample
	var proxyCPU, weirCPU time.Duration
	var allocs float64
	for round := -1; round < p.rounds; round++ {
		d := p.round
		if round < 0 {
			d = p.round / 4 // warms both up, and is not counted
		}
		cpu0, err := r.proxy.cpu()
		if err != nil {
			return "", err
		}
		s, err := hammer(ctx, r.proxy.addr, viaProxy, want, conns, d)
		if err != nil {
			return "", fmt.Errorf("bare proxy: %w", err)
		}
		cpu1, err := r.proxy.cpu()
		if err != nil {
			return "", err
		}
		m0, err := r.mallocs(ctx)
		if err != nil {
			return "", err
		}
		cpu2, err := r.weir.cpu()
		if err != nil {
			return "", err
		}
		w, err := hammer(ctx, r.weir.addr, viaWeir, want, conns, d)
		if err != nil {
			return "", fmt.Errorf("weir: %w", err)
		}
		cpu3, err := r.weir.cpu()
		if err != nil {
			return "", err
		}
		m1, err := r.mallocs(ctx)
		if err != nil {
			return "", err
		}
		if round < 0 {
			continue
		}
		proxy.add(s)
		weir.add(w)
		proxyCPU += cpu1 - cpu0
		weirCPU += cpu3 - cpu2
		allocs += m1 - m0
	}
	perProxy, perWeir := proxyCPU/time.Duration(max(1, proxy.calls)), weirCPU/time.Duration(max(1, weir.calls))
	return fmt.Sprintf("| %s | %d | %v | %v | **%.2f** | %.0f | %.0f | %v | %v | %v | %v | %.0f |",
		sizeText(size), conns, perProxy.Round(100*time.Nanosecond), perWeir.Round(100*time.Nanosecond), float64(perWeir)/float64(perProxy),
		proxy.perSecond(), weir.perSecond(), micro(proxy.quantile(.5)), micro(weir.quantile(.5)), micro(proxy.quantile(.99)), micro(weir.quantile(.99)),
		allocs/float64(max(1, weir.calls))), nil
}

func micro(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

func sizeText(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + " MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + " KiB"
	}
	return strconv.Itoa(n) + " B"
}

// request is one HTTP request as bytes. A legacy version leaves the modern parts out.
func request(addr, path, token, version, tool, message string) []byte {
	meta, headers := "", ""
	if version >= "2026-07-28" {
		meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + version + `","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},`
		headers = "Mcp-Method: tools/call\r\nMcp-Name: " + tool + "\r\n"
	}
	if token != "" {
		headers += "Authorization: Bearer " + token + "\r\n"
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + meta + `"name":"` + tool + `","arguments":{"message":"` + message + `"}}}`
	return []byte("POST " + path + " HTTP/1.1\r\nHost: " + addr + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" +
		"MCP-Protocol-Version: " + version + "\r\n" + headers + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}

// mallocs is how many objects the dataplane has ever allocated.
func (r *rig) mallocs(ctx context.Context) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.ops+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	doc, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^go_memstats_mallocs_total (\S+)$`).FindSubmatch(doc)
	if m == nil {
		return 0, errors.New("the dataplane's /metrics has no go_memstats_mallocs_total")
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// child is a process of this run.
type child struct {
	cmd  *exec.Cmd
	addr string
	line string // that told the address
}

// startChild runs a program and waits for a line, on stderr or stdout, whose first group is its address.
func startChild(ctx context.Context, onStderr bool, ready, name string, args ...string) (*child, error) {
	c := &child{cmd: exec.Command(name, args...)}
	pipe, other := c.cmd.StdoutPipe, &c.cmd.Stderr
	if onStderr {
		pipe, other = c.cmd.StderrPipe, &c.cmd.Stdout
	}
	*other = os.Stderr
	in, err := pipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	pattern := regexp.MustCompile(ready)
	found := make(chan bool, 1)
	go func() {
		defer close(found)
		sc := bufio.NewScanner(in)
		for sc.Scan() {
			if m := pattern.FindStringSubmatch(sc.Text()); m != nil {
				c.addr, c.line = m[1], sc.Text()
				found <- true
				break
			}
			fmt.Fprintln(os.Stderr, sc.Text())
		}
		_, _ = io.Copy(os.Stderr, in) // what it says later; it ends with the process
	}()
	select {
	case ok := <-found:
		if !ok {
			return nil, errors.Join(fmt.Errorf("%s ended before it was ready", name), c.cmd.Wait())
		}
		return c, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), c.stop())
	}
}

func (c *child) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// cpu is the user and system time that the kernel has counted for the process so far. Source: proc(5), /proc/pid/stat fields
// 14 and 15, in ticks of 10 ms.
func (c *child) cpu() (time.Duration, error) {
	doc, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(c.cmd.Process.Pid), "stat"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(doc[strings.LastIndexByte(string(doc), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("stat: %q", doc)
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err1, err2)
}
