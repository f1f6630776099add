package dataplane

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-mcp/weir/dataplane/internal/config"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/redisstore"
)

// minter is a modern backend: each tools/call makes a task, which tasks/get finds.
type minter struct {
	url string

	mu   sync.Mutex // guards made
	made int
}

func newMinter(t *testing.T) *minter {
	t.Helper()
	m := &minter{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID     json.RawMessage
			Method string
			Params struct{ TaskID string }
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		result := fmt.Sprintf(`{"resultType":"complete","taskId":%q,"status":"working","ttlMs":60000}`, req.Params.TaskID)
		if req.Method == "tools/call" {
			m.mu.Lock()
			m.made++
			result = fmt.Sprintf(`{"resultType":"task","taskId":"task-%d","status":"working","ttlMs":60000}`, m.made)
			m.mu.Unlock()
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, req.ID, result)
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	m.url = srv.URL
	return m
}

// ask makes a request of a client that declares the tasks extension, and returns the answer's body.
func (p *plane) ask(method, name string) string {
	p.t.Helper()
	member := "name"
	if strings.HasPrefix(method, "tasks/") {
		member = "taskId"
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%q:%q,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`, method, member, name)
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, "http://"+p.listen+"/mcp", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2026-07-28"},
		"Mcp-Method": {method}, "Mcp-Name": {name}, "Authorization": {"Bearer " + p.token("acme")},
	}
	resp, err := client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	doc, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(doc)
}

// owners reads what stands in the plane's Redis.
func (p *plane) owners() *redisstore.Owners {
	p.t.Helper()
	c, err := redisstore.Open(redisstore.Config{URL: "redis://" + p.redis.Addr()})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	o, err := redisstore.NewOwners(redisstore.Options{Client: c})
	if err != nil {
		p.t.Fatal(err)
	}
	return o
}

func TestATaskFromEndToEnd(t *testing.T) {
	asked := make(chan *routes.LocateRequest, 10)
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		q, err := routes.DecodeLocateRequest(body)
		if err != nil || r.Header.Get("Authorization") != "Bearer "+hmac {
			t.Errorf("%v, %v", err, r.Header)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		asked <- q
		io.WriteString(w, `{"outcome":"miss","cause":"unknown"}`)
	}))
	defer control.Close()
	p := start(t, "control_plane: {admin_url: \""+control.URL+"\", token: "+hmac+"}\n")
	p.publish(1, "run", newMinter(t).url)
	eventually(t, "the host is served", func() bool { status, _, _ := p.outcome("acme", "nope"); return status == 400 })
	if got := p.ask("tools/call", "run"); !strings.Contains(got, `"taskId":"task-1"`) {
		t.Fatalf("no task: %s", got)
	}
	record, err := p.owners().TaskRecord(t.Context(), "acme", "task-1", "nobody")
	if err != nil || len(record) != 1 || record[0].Principal != string(access.PrincipalOf("https://idp.test", "alice", "")) || record[0].Tool != "run" {
		t.Errorf("record %+v, %v", record, err)
	}
	if got := p.ask("tasks/get", "task-1"); !strings.Contains(got, `"status":"working"`) {
		t.Errorf("not followed: %s", got)
	}
	if got := p.ask("tasks/get", "somebody's"); !strings.Contains(got, "task not found") {
		t.Errorf("a miss: %s", got)
	}
	q := <-asked
	if q.TaskID != "somebody's" || q.Host != "acme" || q.Resource != "http://"+p.listen+"/mcp" || q.Token == "" {
		t.Errorf("the control plane was asked %+v", q)
	}
	if len(asked) > 0 {
		t.Error("the control plane was asked for a recorded task")
	}
}

// Records that are held at SIGTERM are written when Redis comes back within the drain.
func TestADrainWritesWhatIsHeld(t *testing.T) {
	p := start(t, "drain: {delay: 0s, deadline: 30s}\n")
	p.publish(1, "run", newMinter(t).url)
	eventually(t, "the host is served", func() bool { status, _, _ := p.outcome("acme", "nope"); return status == 400 })
	owners := p.owners()
	p.redis.Close()
	if got := p.ask("tools/call", "run"); !strings.Contains(got, `"taskId":"task-1"`) {
		t.Fatalf("no task while Redis is away: %s", got)
	}
	if got := p.ask("tasks/get", "task-1"); !strings.Contains(got, `"status":"working"`) {
		t.Errorf("not followed while Redis is away: %s", got)
	}
	if got := p.ask("tasks/get", "task-2"); !strings.Contains(got, `"reason":"unavailable"`) {
		t.Errorf("an unknown id while Redis is away: %s", got)
	}
	if n, err := testutil.GatherAndCount(p.server.o.Registry, "weir_tasks_unwritten"); err != nil || n != 1 {
		t.Errorf("weir_tasks_unwritten: %d, %v", n, err)
	}
	p.sigterm()
	eventually(t, "it drains", func() bool { return p.server.draining.Load() })
	if err := p.redis.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := <-p.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	p.ended <- nil
	eventually(t, "the record stands", func() bool {
		record, err := owners.TaskRecord(t.Context(), "acme", "task-1", "nobody")
		return err == nil && len(record) == 1
	})
}

// The control plane is asked over TLS by control_plane.tls, or in the same process.
func TestWaysToTheControlPlane(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/internal/v1/tasks/locate" || r.Header.Get("Authorization") != "Bearer "+hmac {
			t.Errorf("%s, %v", r.URL.Path, r.Header)
		}
		io.WriteString(w, `{"outcome":"miss","cause":"unknown"}`)
	})
	secure := httptest.NewTLSServer(answer)
	t.Cleanup(func() {
		secure.CloseClientConnections()
		secure.Close()
	})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		plane    config.ControlPlane
		internal http.Handler
		fails    bool
	}{
		"TLS, its authority known": {config.ControlPlane{AdminURL: secure.URL, Token: hmac, TLS: routes.TLS{CAFile: ca}}, nil, false},
		"TLS, its authority not":   {config.ControlPlane{AdminURL: secure.URL, Token: hmac}, nil, true},
		"in the same process":      {config.ControlPlane{Token: hmac}, answer, false},
		"none":                     {config.ControlPlane{}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Redis = redisstore.Config{URL: "redis://127.0.0.1:1"}
			cfg.NoAuth, cfg.ControlPlane = true, tt.plane
			s, err := New(cfg, Options{NoListeners: true, Internal: tt.internal})
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			locator, err := s.newTasks(redisstore.Options{Client: s.redis}, prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			a, err := locator.Locate(t.Context(), &routes.LocateRequest{Host: "acme", TaskID: "t", Era: routes.LocateModern})
			if (err != nil) != tt.fails || err == nil && a.Outcome != routes.LocateMiss {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
}

func TestWhatTheConfigLacksIsToldAtTheStart(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*Config)
		want []string // words of each line
	}{
		"nobody to ask":   {func(*Config) {}, []string{"control_plane.admin_url"}},
		"no token for it": {func(c *Config) { c.ControlPlane.AdminURL = "http://127.0.0.1:1" }, []string{"control_plane.token"}},
		"complete": {func(c *Config) {
			c.ControlPlane.AdminURL, c.ControlPlane.Token = "http://127.0.0.1:1", hmac
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Redis = redisstore.Config{URL: "redis://127.0.0.1:1"}
			cfg.Auth = access.Config{Issuers: []access.Issuer{{Issuer: "i", Audiences: []string{"a"}, Algorithms: []string{"HS256"}, HMACSecret: hmac}}}
			tt.edit(cfg)
			core, log := observer.New(zap.WarnLevel)
			s, err := New(cfg, Options{NoListeners: true, Log: zap.New(core)})
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			s.warn()
			var got []string
			for _, line := range log.All() {
				got = append(got, line.Message)
			}
			if len(got) != len(tt.want) || !slices.EqualFunc(got, tt.want, strings.Contains) {
				t.Errorf("warnings %q, want them to name %q", got, tt.want)
			}
		})
	}
}
