package egress

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-mcp/weir/routes"
)

// announcer is a server of the official SDK with something to subscribe to.
type announcer struct {
	*mcp.Server
	*backend
}

func newAnnouncer(t *testing.T, stateless bool) *announcer {
	a := &announcer{}
	a.Server = mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler: func(_ context.Context, r *mcp.SubscribeRequest) error {
			if r.Params.URI == "bad://x" {
				return mcp.ResourceNotFoundError(r.Params.URI)
			}
			return nil
		},
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	a.tool("first")
	a.AddResource(&mcp.Resource{Name: "r", URI: "res://one"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{}, nil
	})
	a.backend = newBackend(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return a.Server }, &mcp.StreamableHTTPOptions{Stateless: stateless}))
	return a
}

func (a *announcer) tool(name string) {
	a.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	})
}

// until calls announce again and again, as a server tells only those whose stream it knows already, until want was received.
func until(t *testing.T, s *Subscription, want Notification, announce func()) {
	t.Helper()
	got := make(chan error, 1)
	go func() {
		for {
			n, err := s.Next()
			if err != nil || n == want {
				got <- err
				return
			}
		}
	}()
	tick, end := time.NewTicker(50*time.Millisecond), time.After(30*time.Second)
	defer tick.Stop()
	for {
		announce()
		select {
		case err := <-got:
			if err != nil {
				t.Fatalf("waiting for %v: %v", want, err)
			}
			return
		case <-end:
			t.Fatalf("no %v", want)
		case <-tick.C:
		}
	}
}

func TestListenHearsBothEras(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		version string
		methods []string // that must be seen
	}{
		"modern": {"2026-07-28", []string{"subscriptions/listen"}},
		"legacy": {"2025-11-25", []string{"initialize", "GET", "resources/subscribe"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAnnouncer(t, tt.version == "2026-07-28")
			c := newClient(t, Options{})
			b := &routes.Backend{URL: a.URL, Protocol: tt.version}
			want := Filter{Tools: true, URIs: []string{"res://one"}}
			asked := want
			if tt.version == "2025-11-25" {
				asked.TaskIDs = []string{"t1"} // which is not its way
			}
			s, err := c.Listen(t.Context(), "b", b, asked)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, s.Agreed); diff != "" || !s.Agreed.Has("res://one") {
				t.Errorf("agreed (-want +got):\n%s", diff)
			}
			n := 0
			until(t, s, Notification{Method: ToolsChanged}, func() { n++; a.tool("new" + string(rune('a'+n%26))) })
			until(t, s, Notification{Method: ResourceUpdated, URI: "res://one"}, func() {
				if err := a.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "res://one"}); err != nil {
					t.Error(err)
				}
			})
			s.Close()
			if _, err := s.Next(); err == nil {
				t.Error("a closed subscription goes on")
			}
			c.Close()
			for _, m := range tt.methods {
				if !slices.Contains(a.methods(), m) {
					t.Errorf("the backend saw no %s: %v", m, a.methods())
				}
			}
			if tt.version == "2025-11-25" && !slices.Contains(a.methods(), "DELETE") {
				t.Errorf("the session was left behind: %v", a.methods())
			}
		})
	}
}

func TestListenIsRefused(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			io.WriteString(w, body)
		})
	}
	for name, tt := range map[string]struct {
		server  http.Handler
		version string
		uri     string
		want    func(error) bool
	}{
		"a modern backend without the method": {
			server: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				echoID(w, r, 404, `"error":{"code":-32601,"message":"no"}`)
			}),
			version: "2026-07-28", want: func(err error) bool { return errors.Is(err, ErrNoStream) },
		},
		"a modern backend that ends at once": {
			server:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { echoID(w, r, 200, `"result":{}`) }),
			version: "2026-07-28", want: func(err error) bool { return errors.Is(err, ErrNoStream) },
		},
		"a broken proxy": {server: answer(502, "{}"), version: "2026-07-28", want: func(err error) bool {
			f, ok := errors.AsType[*Failure](err)
			return ok && f.Status == 502
		}},
		"a legacy backend without a stream": {
			server: &legacyServer{refuse: map[string]int{"GET": 405}}, version: "2025-11-25",
			want: func(err error) bool { return errors.Is(err, ErrNoStream) },
		},
		"a legacy backend that fails": {
			server: &legacyServer{refuse: map[string]int{"GET": 500}}, version: "2025-11-25",
			want: func(err error) bool { f, ok := errors.AsType[*Failure](err); return ok && f.Status == 500 },
		},
		"a resource that the backend does not know": {
			server: newAnnouncer(t, true).Config.Handler, version: "2026-07-28", uri: "bad://x",
			want: func(err error) bool { return err != nil && !errors.Is(err, ErrNoStream) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, tt.server)
			f := Filter{Tools: true}
			if tt.uri != "" {
				f.URIs = []string{tt.uri}
			}
			s, err := newClient(t, Options{}).Listen(t.Context(), "b", &routes.Backend{URL: b.URL, Protocol: tt.version}, f)
			if s != nil || !tt.want(err) {
				t.Errorf("got %v, %v", s, err)
			}
		})
	}
}

// echoID answers with the id of the request.
func echoID(w http.ResponseWriter, r *http.Request, status int, member string) {
	var m struct{ ID json.RawMessage }
	_ = json.NewDecoder(r.Body).Decode(&m) // without an id the answer is refused, which the test shows
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,`+member+`}`)
}

// A modern backend is told that the plane knows tasks, and what it says of one comes whole.
func TestListenHearsOfTasks(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	const task = `{"taskId":"t1","status":"completed","result":{"content":[],"big":9007199254740993}}`
	b := newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct{ Params json.RawMessage }
		_ = json.NewDecoder(r.Body).Decode(&m) // shown below
		asked <- string(m.Params)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, doc := range []string{
			`"notifications/subscriptions/acknowledged","params":{"notifications":{"taskIds":["t1"]}}`,
			`"notifications/tasks"`, `"notifications/tasks","params":[]`, // broken: left out
			`"notifications/tasks","params":` + task,
		} {
			io.WriteString(w, `data: {"jsonrpc":"2.0","method":`+doc+"}\n\n")
		}
	}))
	c := newClient(t, Options{})
	s, err := c.Listen(t.Context(), "b", &routes.Backend{URL: b.URL, Protocol: "2026-07-28"}, Filter{TaskIDs: []string{"t1", "t\"2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var params struct {
		Notifications struct{ TaskIDs []string }
		Meta          map[string]json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal([]byte(<-asked), &params); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(params.Notifications.TaskIDs, []string{"t1", "t\"2"}) {
		t.Errorf("asked for %q", params.Notifications.TaskIDs)
	}
	if got := string(params.Meta["io.modelcontextprotocol/clientCapabilities"]); got != TaskCapabilities {
		t.Errorf("clientCapabilities %s", got)
	}
	if !s.Agreed.HasTask("t1") || s.Agreed.HasTask("t\"2") {
		t.Errorf("agreed to %v", s.Agreed)
	}
	n, err := s.Next()
	if want := (Notification{Method: TaskUpdated, Task: task}); n != want || err != nil {
		t.Errorf("heard %v, %v", n, err)
	}
}
