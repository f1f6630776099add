package dataplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/weir-mcp/weir/routes/redisstore.(*gate).probeUntilBack")) // ends with its client, a moment later
}

const hmac = "0123456789abcdef0123456789abcdef"

// plane is a running dataplane before a Redis in memory.
type plane struct {
	t      *testing.T
	redis  *miniredis.Miniredis
	writer *redisstore.Writer
	lease  routes.Lease
	server *Server
	listen string
	ops    string

	sigterm context.CancelFunc
	ended   chan error
}

// readyLine takes the ready line and tells when it is there.
type readyLine struct {
	mu   sync.Mutex
	text bytes.Buffer
	got  chan struct{}
}

func (r *readyLine) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.Write(p)
	if bytes.HasSuffix(p, []byte("\n")) {
		close(r.got)
	}
	return len(p), nil
}

// start starts a dataplane. more is added to its config file.
func start(t *testing.T, more string) *plane {
	t.Helper()
	p := &plane{t: t, redis: miniredis.RunT(t)}
	client, err := redisstore.Open(redisstore.Config{URL: "redis://" + p.redis.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if p.writer, err = redisstore.NewWriter(redisstore.Options{Client: client}); err != nil {
		t.Fatal(err)
	}
	if p.lease, err = p.writer.Acquire(t.Context(), "test", time.Hour, 0); err != nil {
		t.Fatal(err)
	}
	if err := p.writer.MarkComplete(t.Context(), p.lease); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(more, "drain:") {
		more += "drain: {delay: 0s}\n"
	}
	path := filepath.Join(t.TempDir(), "dataplane.yaml")
	if err := os.WriteFile(path, []byte(`redis: redis://`+p.redis.Addr()+`
listen: 127.0.0.1:0
ops_listen: 127.0.0.1:0
auth: {issuers: [{issuer: "https://idp.test", audiences: [weir], algorithms: [HS256], hmac_secret: "`+hmac+`"}]}
`+more), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := LoadConfig(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	line := &readyLine{got: make(chan struct{})}
	if p.server, err = New(cfg, Options{Stderr: line}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.sigterm, p.ended = cancel, make(chan error, 1)
	go func() { p.ended <- p.server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-p.ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("Run did not end")
		}
	})
	select {
	case <-line.got:
	case err := <-p.ended:
		p.ended <- err
		t.Fatalf("Run ended early: %v", err)
	}
	if _, err := fmt.Sscanf(line.text.String(), "ready listen=%s ops=%s\n", &p.listen, &p.ops); err != nil {
		t.Fatalf("ready line %q: %v", line.text.String(), err)
	}
	return p
}

// publish publishes the host acme with one tool on a backend.
func (p *plane) publish(revision uint64, tool, url string) {
	p.t.Helper()
	change := routestest.Host("acme").Backend("b", routes.Backend{URL: url, Protocol: "2026-07-28"}).
		Tool(tool, "b", "up").Change(p.t, p.lease, revision)
	if err := p.writer.Publish(p.t.Context(), p.lease, routes.Batch{Hosts: []routes.HostChange{change}}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *plane) token(host string) string {
	p.t.Helper()
	token, err := access.Mint(access.MintOptions{
		Algorithm: "HS256", Key: []byte(hmac), Issuer: "https://idp.test", Subject: "alice", Audience: []string{"weir"},
		Hosts: []string{host}, TTL: time.Hour,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return token
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// call calls a tool and returns the answer, whose body is unread.
func (p *plane) call(ctx context.Context, host, tool string) (*http.Response, error) {
	return client.Do(p.request(ctx, host, tool))
}

func (p *plane) request(ctx context.Context, host, tool string) *http.Request {
	p.t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","_meta":{"progressToken":1,` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.listen+"/mcp", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2026-07-28"},
		"Mcp-Method": {"tools/call"}, "Mcp-Name": {tool}, "Authorization": {"Bearer " + p.token(host)},
	}
	return req
}

// outcome calls a tool and returns status and body.
func (p *plane) outcome(host, tool string) (int, string, http.Header) {
	p.t.Helper()
	resp, err := p.call(p.t.Context(), host, tool)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

// ready asks /readyz.
func (p *plane) ready() (int, map[string]any) {
	p.t.Helper()
	resp, err := client.Get("http://" + p.ops + "/readyz")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var detail map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&detail); err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, detail
}

// eventually waits for what happens soon.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: never", what)
		}
	}
}

// echo is a modern backend that gives every call the same result.
func echo(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`)
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}

func TestACallFromEndToEnd(t *testing.T) {
	p := start(t, "")
	status, body, _ := p.outcome("acme", "one")
	if status != 404 || strings.TrimSpace(body) != `{"detail":"Server not found"}` {
		t.Errorf("a host that nobody published: %d %s", status, body)
	}
	url := echo(t)
	p.publish(1, "one", url)
	eventually(t, "the host is served", func() bool { status, _, _ := p.outcome("acme", "one"); return status == 200 })
	p.publish(2, "two", url)
	eventually(t, "the new tool is there", func() bool { status, _, _ := p.outcome("acme", "two"); return status == 200 })
	if status, body, _ = p.outcome("acme", "one"); status != 400 || !strings.Contains(body, "-32602") {
		t.Errorf("a tool that is gone: %d %s", status, body)
	}
	resp, err := client.Get("http://" + p.ops + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	metrics, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`weir_calls_total{backend="b",method="tools/call",outcome="ok"}`, "weir_call_duration_seconds_bucket", "weir_snapshot_hosts 1",
		"weir_snapshot_age_seconds 0", `weir_snapshot_loads_total{result="unknown"}`, "weir_snapshot_refresh_seconds_count",
		`weir_dataplane_requests_total{era="modern",status="200"}`, `weir_dataplane_requests_total{era="",status="404"}`,
		"weir_dataplane_redis_seconds_bucket", "go_goroutines",
	} {
		if !strings.Contains(string(metrics), want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// A backend that is gone is not asked again and again.
func TestTheCircuitOpens(t *testing.T) {
	p := start(t, "")
	p.publish(1, "one", "http://127.0.0.1:1/mcp")
	eventually(t, "the circuit opens", func() bool {
		_, body, _ := p.outcome("acme", "one")
		return strings.Contains(body, `"reason":"circuit_open"`) && strings.Contains(body, `"sent":false`)
	})
	if got := testutil.ToFloat64(p.server.metrics.circuit.WithLabelValues("b")); got != 1 {
		t.Errorf("weir_dataplane_circuit_open %v, want 1", got)
	}
}

func TestRedisGoesAway(t *testing.T) {
	p := start(t, "")
	p.publish(1, "one", echo(t))
	eventually(t, "the host is served", func() bool { status, _, _ := p.outcome("acme", "one"); return status == 200 })
	if status, detail := p.ready(); status != 200 || detail["redis"] != "reachable" {
		t.Errorf("readyz %d %v", status, detail)
	}
	p.redis.Close()
	eventually(t, "it is noticed", func() bool { _, detail := p.ready(); return detail["redis"] == "unreachable" })
	if status, detail := p.ready(); status != 200 || detail["snapshotAgeSeconds"] == nil {
		t.Errorf("readyz without Redis: %d %v", status, detail)
	}
	if status, body, _ := p.outcome("acme", "one"); status != 200 {
		t.Errorf("a warm host: %d %s", status, body)
	}
	status, body, header := p.outcome("globex", "one")
	if status != 503 || header.Get("Retry-After") == "" {
		t.Errorf("a cold host: %d %v %s", status, header, body)
	}
	if err := p.redis.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is followed again", func() bool { _, detail := p.ready(); return detail["redis"] == "reachable" })
}

func TestNotReadyBeforeRedisWasReached(t *testing.T) {
	cfg, err := ParseConfig([]byte("redis: redis://127.0.0.1:1\nlisten: 127.0.0.1:0\nops_listen: 127.0.0.1:0\n" +
		"auth: {issuers: [{issuer: \"https://idp.test\", audiences: [weir], algorithms: [HS256], hmac_secret: " + hmac + "}]}\ndrain: {delay: 0s}\n"))
	if err != nil {
		t.Fatal(err)
	}
	line := &readyLine{got: make(chan struct{})}
	s, err := New(cfg, Options{Stderr: line})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-line.got
	p := &plane{t: t}
	if _, err := fmt.Sscanf(line.text.String(), "ready listen=%s ops=%s\n", &p.listen, &p.ops); err != nil {
		t.Fatal(err)
	}
	if status, detail := p.ready(); status != 503 || detail["redis"] != "not reached yet" {
		t.Errorf("readyz %d %v", status, detail)
	}
	if status, body, _ := p.outcome("acme", "one"); status != 503 {
		t.Errorf("a call: %d %s", status, body)
	}
	select {
	case <-s.Ready():
		t.Error("ready without Redis")
	default:
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The control plane's admin API shows what each dataplane serves, and what it refuses.
func TestStatusIsReported(t *testing.T) {
	p := start(t, "")
	p.publish(1, "one", echo(t))
	eventually(t, "the host is served", func() bool { status, _, _ := p.outcome("acme", "one"); return status == 200 })
	broken := routestest.Host("acme").Tool("x", "b", "up").Change(t, p.lease, 2)
	broken.Document = []byte(`{"schema":99,"id":"acme"}`)
	if err := p.writer.Publish(t.Context(), p.lease, routes.Batch{Hosts: []routes.HostChange{broken}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the refusal is reported", func() bool {
		statuses, err := p.server.reader.Statuses(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var s routes.DataplaneStatus
		if err := json.Unmarshal(statuses[p.server.name], &s); err != nil {
			return false // not there yet
		}
		host := s.Hosts["acme"]
		return s.ID == p.server.name && s.Version != "" && !s.Started.IsZero() &&
			host.Applied != nil && host.Applied.Revision == 1 && host.Refused != nil && host.Refused.Version.Revision == 2 && host.Refused.Reason != ""
	})
	if status, body, _ := p.outcome("acme", "one"); status != 200 {
		t.Errorf("the last good one: %d %s", status, body)
	}
}
