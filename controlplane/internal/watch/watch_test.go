package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// backend agrees to every resource but bad://x. It counts its streams by resource.
type backend struct {
	target func(uri string) routes.Target
	opened chan string
	closed chan string

	mu  sync.Mutex
	say map[string]chan string // what to send next on the stream of a resource; "" ends it
}

func newBackend(t *testing.T) *backend {
	b := &backend{opened: make(chan string, 100), closed: make(chan string, 100), say: map[string]chan string{}}
	hs := httptest.NewServer(b)
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	route := routes.Backend{URL: hs.URL, Protocol: "2026-07-28"}
	b.target = func(uri string) routes.Target { return routes.Target{ID: "b", Backend: &route, Upstream: uri} }
	return b
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Params struct {
			Notifications struct{ ResourceSubscriptions []string }
		}
	}
	if json.NewDecoder(r.Body).Decode(&m) != nil || len(m.Params.Notifications.ResourceSubscriptions) != 1 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	uri := m.Params.Notifications.ResourceSubscriptions[0]
	agreed := fmt.Sprintf("{\"resourceSubscriptions\":[%q]}", uri)
	if uri == "bad://x" {
		agreed = `{"toolsListChanged":true}`
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(doc string) {
		fmt.Fprintf(w, "data: %s\n\n", doc)
		_ = http.NewResponseController(w).Flush()
	}
	if !strings.HasPrefix(uri, "mute:") {
		send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":` + agreed + `}}`)
	}
	b.mu.Lock()
	if b.say[uri] == nil {
		b.say[uri] = make(chan string, 10)
	}
	say := b.say[uri]
	b.mu.Unlock()
	b.opened <- uri
	defer func() { b.closed <- uri }()
	for {
		select {
		case <-r.Context().Done():
			return
		case changed := <-say:
			if changed == "" {
				return
			}
			send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%q}}`, changed))
		}
	}
}

func (b *backend) announce(uri, changed string) {
	b.mu.Lock()
	say := b.say[uri]
	b.mu.Unlock()
	say <- changed
}

func newHub(t *testing.T, limit int) *Hub {
	client, err := egress.New(egress.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(Options{Upstream: client, Max: limit, MaxTasks: limit})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := h.Subscribe(context.Background(), routes.Target{ID: "b", Backend: &routes.Backend{}}, nil); err == nil {
			t.Error("a stopped hub subscribes")
		}
		if _, err := h.Follow(context.Background(), Task{Backend: "b", Route: &routes.Backend{Protocol: "2026-07-28"}}, nil); err == nil {
			t.Error("a stopped hub follows")
		}
		client.Close()
	})
	return h
}

func receive(t *testing.T, from <-chan string, want, what string) {
	t.Helper()
	select {
	case got := <-from:
		if got != want {
			t.Fatalf("%s: %q, want %q", what, got, want)
		}
	case <-time.After(patience):
		t.Fatalf("%s: nothing within %v", what, patience)
	}
}

// listener subscribes and returns what it hears.
func listener(t *testing.T, h *Hub, target routes.Target) (heard chan string, release func()) {
	t.Helper()
	heard = make(chan string, 10)
	release, err := h.Subscribe(t.Context(), target, func(uri string) { heard <- uri })
	if err != nil {
		t.Fatal(err)
	}
	return heard, release
}

func TestOneSubscriptionForAll(t *testing.T) {
	b := newBackend(t)
	h := newHub(t, 0)
	one, releaseOne := listener(t, h, b.target("r://1"))
	two, releaseTwo := listener(t, h, b.target("r://1"))
	receive(t, b.opened, "r://1", "opened")
	b.announce("r://1", "r://1/below")
	receive(t, one, "r://1/below", "the first")
	receive(t, two, "r://1/below", "the second")

	releaseOne()
	releaseOne() // again does no harm
	b.announce("r://1", "r://1")
	receive(t, two, "r://1", "the one that is left")
	if len(one) != 0 || len(b.opened) != 0 || len(b.closed) != 0 {
		t.Errorf("heard %d, opened %d, closed %d", len(one), len(b.opened), len(b.closed))
	}
	releaseTwo()
	receive(t, b.closed, "r://1", "dropped with the last")

	_, release := listener(t, h, b.target("r://1"))
	receive(t, b.opened, "r://1", "opened anew")
	release()
}

func TestABrokenStreamIsOpenedAgain(t *testing.T) {
	b := newBackend(t)
	h := newHub(t, 0)
	heard, _ := listener(t, h, b.target("r://1"))
	receive(t, b.opened, "r://1", "opened")
	b.announce("r://1", "")
	receive(t, b.closed, "r://1", "ended by the backend")
	receive(t, b.opened, "r://1", "opened again")
	receive(t, heard, "r://1", "what may have been missed")
}

func TestSubscriptionsAreRefused(t *testing.T) {
	b := newBackend(t)
	h := newHub(t, 1)
	if _, err := h.Subscribe(t.Context(), b.target("bad://x"), nil); err == nil {
		t.Error("the backend did not agree, and still")
	}
	receive(t, b.opened, "bad://x", "asked")
	receive(t, b.closed, "bad://x", "let go")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-b.opened; cancel() }()
	if _, err := h.Subscribe(ctx, b.target("mute:x"), nil); err == nil {
		t.Error("the backend said nothing, and still")
	}
	receive(t, b.closed, "mute:x", "nobody waits any more")
	listener(t, h, b.target("r://1"))
	if _, err := h.Subscribe(t.Context(), b.target("r://2"), nil); err == nil {
		t.Error("one too many")
	}
}
