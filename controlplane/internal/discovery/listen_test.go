package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
)

// announcing is a server of the official SDK; open is how many streams of announcements it has.
func announcing(t *testing.T, versions []string, stateless bool) (srv *mcp.Server, url string, open *atomic.Int64) {
	srv = mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{SupportedProtocolVersions: versions})
	addTool(srv, "first")
	endSessions(t, srv)
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, &mcp.StreamableHTTPOptions{Stateless: stateless})
	open = new(atomic.Int64)
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen" {
			open.Add(1)
			defer open.Add(-1)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	return srv, hs.URL, open
}

func addTool(srv *mcp.Server, name string) {
	srv.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	})
}

func hasTool(name string) func(*catalog.Catalog) bool {
	return func(c *catalog.Catalog) bool {
		return slices.ContainsFunc(c.Tools.Items, func(it catalog.Item) bool { return it.Name == name })
	}
}

func TestAnnouncedChangesAreDiscovered(t *testing.T) {
	for name, tt := range map[string]struct {
		versions  []string
		stateless bool
	}{
		"modern": {[]string{"2026-07-28"}, true},
		"legacy": {[]string{"2025-11-25"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			srv, url, open := announcing(t, tt.versions, tt.stateless)
			reg := prometheus.NewRegistry()
			d := run(t, Options{Registry: reg}, seldom, map[string]string{"b": url})
			d.awaitRound("b", func(*catalog.Catalog) bool { return testutil.ToFloat64(d.metrics.listening.WithLabelValues("b")) == 1 })
			addTool(srv, "second") // the next round by the clock is an hour away
			d.awaitRound("b", hasTool("second"))
			srv.RemoveTools("first")
			d.awaitRound("b", func(c *catalog.Catalog) bool { return !hasTool("first")(c) })

			d.configure(seldom, nil)
			for deadline := time.Now().Add(patience); open.Load() != 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%d streams to a removed backend are open", open.Load())
				}
			}
		})
	}
}

func TestBackendsWithoutAStreamAreLeftAlone(t *testing.T) {
	var rounds, asked atomic.Int64
	declaring := func(r request) reply {
		if r.Method == "subscriptions/listen" {
			asked.Add(1)
			return reply{error: methodNotFound}
		}
		rounds.Add(1)
		return reply{result: tools(tool("a"))}
	}
	s := handmade(t, modern(`{"tools":{"listChanged":true}}`, declaring))
	d := run(t, Options{}, config.Discovery{Interval: time.Millisecond, Timeout: patience, Parallel: 2}, map[string]string{"b": s.URL})
	d.awaitRound("b", func(*catalog.Catalog) bool { return asked.Load() > 0 })
	before := rounds.Load()
	d.awaitRound("b", func(*catalog.Catalog) bool { return rounds.Load() >= before+50 })
	if n := asked.Load(); n != 1 {
		t.Errorf("a backend without a stream was asked %d times for one", n)
	}
}

func TestAHungStreamDelaysNoRound(t *testing.T) {
	var rounds atomic.Int64
	s := handmade(t, modern(`{"tools":{"listChanged":true}}`, func(r request) reply {
		if r.Method == "subscriptions/listen" {
			return reply{write: func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "text/event-stream")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(200 * time.Millisecond) // nothing is ever said
			}}
		}
		rounds.Add(1)
		return reply{result: tools(tool("a"))}
	}))
	d := run(t, Options{}, config.Discovery{Interval: time.Millisecond, Timeout: patience, Parallel: 1}, map[string]string{"b": s.URL})
	d.awaitRound("b", func(*catalog.Catalog) bool { return rounds.Load() >= 20 })
}

// A backend that announces without end is walked now and then, not without end.
func TestAnnouncementsAreCollected(t *testing.T) {
	var rounds, said atomic.Int64
	s := handmade(t, modern(`{"tools":{"listChanged":true}}`, func(r request) reply {
		if r.Method != "subscriptions/listen" {
			rounds.Add(1)
			return reply{result: tools(tool("a"))}
		}
		return reply{write: func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			say := func(method, params string) bool {
				_, err := fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":%q,\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":%s}%s}}\n\n", method, r.ID, params)
				return err == nil && http.NewResponseController(w).Flush() == nil
			}
			say("notifications/subscriptions/acknowledged", `,"notifications":{"toolsListChanged":true}`)
			for said.Load() < 2000 && say("notifications/tools/list_changed", "") {
				said.Add(1)
			}
		}}
	}))
	d := run(t, Options{}, seldom, map[string]string{"b": s.URL})
	d.awaitRound("b", func(*catalog.Catalog) bool { return said.Load() >= 2000 && rounds.Load() >= 2 })
	if n := rounds.Load(); n > 200 {
		t.Errorf("%d rounds for %d announcements", n, said.Load())
	}
}
