package dataplane

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
)

// As standalone runs it: no listeners, no auth, and the control plane in the same process.
func TestAsALibrary(t *testing.T) {
	mr := miniredis.RunT(t)
	cfg := DefaultConfig()
	cfg.Redis = redisstore.Config{URL: "redis://" + mr.Addr()}
	cfg.NoAuth, cfg.NoAuthHost = true, "acme"
	var delegated string
	control := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		delegated = r.Host + " " + r.URL.Path + " " + string(body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[]}}\n\n")
		if strings.Contains(string(body), "panic") {
			panic("boom")
		}
	})
	s, err := New(cfg, Options{Registry: prometheus.NewRegistry(), NoListeners: true, Delegate: control})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Ready()
	p := &plane{t: t, redis: mr}
	redis, err := redisstore.Open(cfg.Redis)
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	if p.writer, err = redisstore.NewWriter(redisstore.Options{Client: redis}); err != nil {
		t.Fatal(err)
	}
	if p.lease, err = p.writer.Acquire(ctx, "test", 3600e9, 0); err != nil {
		t.Fatal(err)
	}
	p.publish(1, "one", echo(t))

	ask := func(method, params string) (int, string) {
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:8080/mcp",
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`))
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}, "Mcp-Protocol-Version": {"2025-11-25"}}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, req)
		return w.Code, w.Body.String()
	}
	if status, body := ask("tools/call", `{"name":"one"}`); status != 200 || !strings.Contains(body, `"content":[]`) {
		t.Errorf("a call: %d %s", status, body)
	}
	if status, body := ask("tools/list", `{}`); status != 200 || !strings.Contains(body, `{"tools":[]}`) {
		t.Errorf("a list: %d %s", status, body)
	}
	if want := `127.0.0.1:8080 /mcp {"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`; delegated != want {
		t.Errorf("the control plane got %s, want %s", delegated, want)
	}
	ask("tools/list", `{"panic":1}`) // must not bring the process down
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestNewRefusesABadConfig(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"no Redis":       func(c *Config) { c.Redis.URL = "" },
		"no issuers":     func(c *Config) { c.NoAuth = false },
		"a bad origin":   func(c *Config) { c.AllowedOrigins = []string{"not an origin"} },
		"a bad Redis":    func(c *Config) { c.Redis.URL = "http://x" },
		"a bad listener": func(c *Config) { c.Listen = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Redis.URL, cfg.NoAuth = "redis://127.0.0.1:1", true
			edit(cfg)
			if _, err := New(cfg, Options{}); err == nil {
				t.Error("no error")
			}
		})
	}
}

// A port that is taken is a failure of the run, and nothing stays behind.
func TestATakenPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for name, edit := range map[string]func(*Config){
		"listen":     func(c *Config) { c.Listen, c.OpsListen = ln.Addr().String(), "127.0.0.1:0" },
		"ops_listen": func(c *Config) { c.Listen, c.OpsListen = "127.0.0.1:0", ln.Addr().String() },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Redis.URL, cfg.NoAuth = "redis://127.0.0.1:1", true
			edit(cfg)
			s, err := New(cfg, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), name+":") {
				t.Errorf("Run: %v, want it to name %s", err, name)
			}
		})
	}
}

func TestInProcessExchange(t *testing.T) {
	gate := make(chan struct{})
	rt := handlerTransport{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-A", "1")
		switch r.URL.Path {
		case "/stream":
			io.WriteString(w, "one")
			<-gate
			io.WriteString(w, "two")
		case "/silent":
			<-r.Context().Done()
		case "/status":
			w.WriteHeader(418)
			w.Header().Set("X-B", "too late")
		case "/endless":
			for {
				if _, err := io.WriteString(w, "more"); err != nil {
					return
				}
			}
		}
	})}
	get := func(ctx context.Context, path string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return rt.RoundTrip(req)
	}
	resp, err := get(t.Context(), "/stream")
	if err != nil {
		t.Fatal(err)
	}
	var first [3]byte
	if _, err := io.ReadFull(resp.Body, first[:]); err != nil || string(first[:]) != "one" {
		t.Errorf("%q, %v", first, err)
	}
	close(gate)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "two" || resp.Header.Get("X-A") != "1" {
		t.Errorf("%q, %v", rest, err)
	}
	if resp, err := get(t.Context(), "/status"); err != nil || resp.StatusCode != 418 || resp.Header.Get("X-B") != "" {
		t.Errorf("%+v, %v", resp, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := get(ctx, "/silent"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if resp, err = get(t.Context(), "/endless"); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close() // ends the handler: goleak would tell
}

var _ routes.HostID = DefaultConfig().NoAuthHost
