package controlplane

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap/zaptest"

	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/routestest"
)

const adminToken = "admin-token-0123456789-0123456789"

// plane is a running control plane with everything around it.
type plane struct {
	*Server
	t       *testing.T
	redis   *miniredis.Miniredis
	backend *mcp.Server
	key     *ecdsa.PrivateKey
	file    string // the config's
	addr    map[string]string
	stop    func()
}

// backend starts an MCP server of the SDK with one tool.
func backend(t *testing.T, tool string) (*mcp.Server, string) {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	addTool(s, tool)
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return s, srv.URL
}

func addTool(s *mcp.Server, name string) {
	s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
}

// config is the file: %[1]s Redis, %[2]s key, %[3]s backend.
const configFile = `redis: %[1]q
listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
ops_listen: 127.0.0.1:0
admin: {token: "${env:WEIR_T_ADMIN}"}
discovery: {interval: 1h, timeout: 5s}
auth: {issuers: [{issuer: "https://idp.test", audiences: [weir], algorithms: [ES256], public_key_file: %[2]q}]}
backends:
  a: {url: %[3]q}
virtual_hosts:
  acme: {backends: [{name: a, prefix: "a__"}]}
`

// newPlane prepares a config and what it refers to.
func newPlane(t *testing.T) (p *plane, config string) {
	t.Helper()
	t.Setenv("WEIR_T_ADMIN", adminToken)
	p = &plane{t: t, redis: routestest.StartMiniredis(t)}
	var err error
	if p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&p.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	keyFile := filepath.Join(dir, "idp.pub")
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600); err != nil {
		t.Fatal(err)
	}
	var url string
	p.backend, url = backend(t, "echo")
	p.file = filepath.Join(dir, "weir.yaml")
	config = fmt.Sprintf(configFile, "redis://"+p.redis.Addr(), keyFile, url)
	p.write(config)
	return p, config
}

func (p *plane) write(config string) {
	p.t.Helper()
	if err := os.WriteFile(p.file, []byte(config), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// start runs the plane until the test ends, or stop is called.
func (p *plane) start() {
	p.t.Helper()
	cfg, warnings, err := LoadConfig(p.t.Context(), p.file)
	if err != nil {
		p.t.Fatal(err)
	}
	stderr := new(lockedBuffer)
	p.Server, err = New(cfg, Options{Log: zaptest.NewLogger(p.t), ConfigPath: p.file, Warnings: warnings, Stderr: stderr})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	var once sync.Once
	p.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				p.t.Errorf("Run: %v", err)
			}
		})
	}
	p.t.Cleanup(p.stop)
	p.addr = map[string]string{}
	soon(p.t, "ready line", func() error {
		line, ok := strings.CutPrefix(stderr.String(), "ready ")
		if !ok {
			return errors.New("not written")
		}
		for kv := range strings.FieldsSeq(line) {
			k, v, _ := strings.Cut(kv, "=")
			p.addr[k] = v
		}
		return nil
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func soon(t *testing.T, what string, done func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		err := done()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// do sends one request and returns status and body.
func do(t *testing.T, r *http.Request) (int, []byte) {
	t.Helper()
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

func get(t *testing.T, url string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	return do(t, r)
}

// tools lists a host's tools with a fresh token.
func (p *plane) tools(host string) (status int, names []string) {
	p.t.Helper()
	token, err := access.Mint(access.MintOptions{
		Algorithm: "ES256", Key: p.key, Issuer: "https://idp.test", Subject: "alice", Audience: []string{"weir"}, Hosts: []string{host}, TTL: time.Minute,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return listTools(p.t, "http://"+p.addr["listen"]+"/mcp", token)
}

func listTools(t *testing.T, url, token string) (status int, names []string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/list"},
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	status, body := do(t, r)
	var doc struct {
		Result struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal(body, &doc); err != nil && status == 200 {
		t.Fatalf("%v in %s", err, body)
	}
	for _, tool := range doc.Result.Tools {
		names = append(names, tool.Name)
	}
	return status, names
}

func (p *plane) wantTools(host string, want ...string) {
	p.t.Helper()
	soon(p.t, "tools of "+host, func() error {
		if status, got := p.tools(host); status != 200 || !slices.Equal(got, want) {
			return fmt.Errorf("%d %v, want %v", status, got, want)
		}
		return nil
	})
}

func (p *plane) problemCodes() []string {
	p.t.Helper()
	_, body := get(p.t, "http://"+p.addr["admin"]+"/api/v1/problems")
	var doc struct{ Problems []struct{ Code string } }
	if err := json.Unmarshal(body, &doc); err != nil {
		p.t.Fatalf("%v in %s", err, body)
	}
	codes := []string{}
	for _, problem := range doc.Problems {
		codes = append(codes, problem.Code)
	}
	return codes
}

func TestServesWhatItDiscovered(t *testing.T) {
	p, _ := newPlane(t)
	p.start()
	// Ready means that everything is published and listed: no wait.
	if status, names := p.tools("acme"); status != 200 || !slices.Equal(names, []string{"a__echo"}) {
		t.Errorf("tools at ready: %d %v", status, names)
	}
	if status, _ := p.tools("nobody"); status != 404 {
		t.Errorf("unknown host: %d, want 404", status)
	}
	if status, _ := listTools(t, "http://"+p.addr["listen"]+"/mcp", ""); status != 401 {
		t.Errorf("no token: %d, want 401", status)
	}
	for path, want := range map[string]string{
		"/healthz": "ok", "/readyz": `"leading":true`, "/metrics": "weir_publish_leading 1",
	} {
		if status, body := get(t, "http://"+p.addr["ops"]+path); status != 200 || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d, want 200 with %s:\n%.500s", path, status, want, body)
		}
	}
	select {
	case <-p.Ready():
	default:
		t.Error("the ready line was written before Ready was closed")
	}

	addTool(p.backend, "more")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.addr["admin"]+"/api/v1/backends/a/refresh", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	if status, body := do(t, r); status != 202 {
		t.Fatalf("refresh: %d %s", status, body)
	}
	p.wantTools("acme", "a__echo", "a__more")
}

func TestReload(t *testing.T) {
	p, config := newPlane(t)
	p.start()
	_, other := backend(t, "ping")
	hangup := func() {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	wantProblems := func(want ...string) {
		t.Helper()
		soon(t, "problems", func() error {
			if got := p.problemCodes(); !slices.Equal(got, want) {
				return fmt.Errorf("%v, want %v", got, want)
			}
			return nil
		})
	}
	wantProblems()

	p.write(config + "  broken: [}\n")
	hangup()
	wantProblems("config_not_reloaded")
	p.wantTools("acme", "a__echo")

	// A file that is fine by itself, and names a key file that is not there: nothing of it comes into force.
	p.write(strings.Replace(strings.Replace(config, "idp.pub", "none.pub", 1), `prefix: "a__"`, `prefix: "b__"`, 1))
	hangup()
	wantProblems("config_not_reloaded")
	p.wantTools("acme", "a__echo")

	more := strings.Replace(config, "backends:\n", fmt.Sprintf("backends:\n  b: {url: %q}\n", other), 1) + "  globex: {backends: [{name: b}]}\n"
	p.write(more)
	hangup()
	wantProblems()
	p.wantTools("globex", "ping")
	p.wantTools("acme", "a__echo")

	p.write(strings.Replace(config, "ops_listen: 127.0.0.1:0", "ops_listen: 127.0.0.1:1", 1))
	hangup()
	wantProblems("restart_needed")
	soon(t, "globex is gone", func() error {
		if status, _ := p.tools("globex"); status != 404 {
			return fmt.Errorf("%d, want 404", status)
		}
		return nil
	})
}

func TestASecondOneTakesOverWhatStands(t *testing.T) {
	p, _ := newPlane(t)
	p.start()
	p.wantTools("acme", "a__echo")
	p.stop()
	if _, err := os.Stat(p.file); err != nil {
		t.Fatal(err)
	}
	next := &plane{t: t, redis: p.redis, key: p.key, file: p.file}
	next.start()
	if status, names := next.tools("acme"); status != 200 || !slices.Equal(names, []string{"a__echo"}) {
		t.Errorf("tools at ready: %d %v", status, names)
	}
}

func TestRedisMayBeAwayAtTheStart(t *testing.T) {
	p, _ := newPlane(t)
	addr := p.redis.Addr()
	p.redis.Close()
	cfg, _, err := LoadConfig(t.Context(), p.file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(cfg, Options{Log: zaptest.NewLogger(t), NoListeners: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/mcp", nil))
	if w.Code != 405 {
		t.Errorf("GET without Redis: %d, want 405", w.Code)
	}
	soon(t, "it notices", func() error {
		if s.publisher.State().Leading {
			return errors.New("leads without Redis")
		}
		if _, err := s.readiness(); err == nil {
			return errors.New("ready without Redis")
		}
		return nil
	})
	if err := p.redis.StartAddr(addr); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatalf("Run ended: %v", err)
	case <-time.After(60 * time.Second):
		t.Fatal("never ready after Redis came")
	}
}

func TestWithoutAuthOnSomebodyElsesListener(t *testing.T) {
	p, _ := newPlane(t)
	cfg, _, err := LoadConfig(t.Context(), p.file)
	if err != nil {
		t.Fatal(err)
	}
	cfg.NoAuth = true
	s, err := New(cfg, Options{NoListeners: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	front := httptest.NewServer(s.Handler())
	if status, names := listTools(t, front.URL+"/mcp", ""); status != 200 || !slices.Equal(names, []string{"a__echo"}) {
		t.Errorf("tools without a token: %d %v", status, names)
	}
	front.Close()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestALoadedPortIsAnError(t *testing.T) {
	p, config := newPlane(t)
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	p.write(strings.Replace(config, "admin_listen: 127.0.0.1:0", "admin_listen: "+strings.TrimPrefix(taken.URL, "http://"), 1))
	cfg, _, err := LoadConfig(t.Context(), p.file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "admin_listen") {
		t.Errorf("Run = %v, want an error that names admin_listen", err)
	}
}

// A reload that leaves auth alone must not forget keys: the identity provider may be away just now.
func TestAReloadKeepsTheKeysOfAnUnchangedAuth(t *testing.T) {
	p, config := newPlane(t)
	load := func(text string) *Config {
		t.Helper()
		p.write(text)
		cfg, _, err := LoadConfig(t.Context(), p.file)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	s, err := New(load(config), Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := s.front.Load().verifier
	if err := s.Reload(load(config + "  more: {backends: [{name: a}]}\n")); err != nil {
		t.Fatal(err)
	}
	if s.front.Load().verifier != before {
		t.Error("another verifier, for the same auth")
	}
	if err := s.Reload(load(strings.Replace(config, "audiences: [weir]", "audiences: [other]", 1))); err != nil {
		t.Fatal(err)
	}
	if s.front.Load().verifier == before {
		t.Error("the old verifier, for another auth")
	}
}
