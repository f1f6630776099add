package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
)

func newContext() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

// newSDKServer has five of everything, on pages of two.
func newSDKServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{PageSize: 2, Instructions: "use <well>"})
	for i := range 5 {
		n := fmt.Sprint(i)
		s.AddTool(&mcp.Tool{Name: "t" + n, InputSchema: json.RawMessage(`{"type":"object","$defs":{"d` + n + `":{"type":"string"}},"x-unknown":[1.0,{"a":null}]}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{}, nil
			})
		s.AddPrompt(&mcp.Prompt{Name: "p" + n}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{}, nil
		})
		read := func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{}, nil
		}
		s.AddResource(&mcp.Resource{Name: "r" + n, URI: "file:///r" + n}, read)
		s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "m" + n, URITemplate: "file:///m" + n + "/{x}"}, read)
	}
	return s
}

// recorder keeps what a handler answered, and can hide server/discover, as servers of before 2026-07-28 do.
type recorder struct {
	http.Handler
	legacy bool

	mu   sync.Mutex
	sent strings.Builder
}

func (c *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if c.legacy && strings.Contains(string(body), `"server/discover"`) {
		http.Error(w, "Bad Request: no such method", http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	c.Handler.ServeHTTP(&tee{w, c}, r)
}

type tee struct {
	http.ResponseWriter
	to *recorder
}

func (t *tee) Write(b []byte) (int, error) {
	t.to.mu.Lock()
	t.to.sent.Write(b)
	t.to.mu.Unlock()
	return t.ResponseWriter.Write(b)
}
func (t *tee) Unwrap() http.ResponseWriter { return t.ResponseWriter }
func (t *tee) Flush()                      { _ = http.NewResponseController(t.ResponseWriter).Flush() }

func TestRealServers(t *testing.T) {
	tests := map[string]struct {
		opts      mcp.StreamableHTTPOptions
		legacy    bool
		protocol  string
		handshake routes.Handshake
	}{
		"modern, event streams":                 {opts: mcp.StreamableHTTPOptions{Stateless: true}, protocol: "2026-07-28"},
		"modern, JSON":                          {opts: mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}, protocol: "2026-07-28"},
		"legacy with sessions":                  {legacy: true, protocol: "2025-11-25", handshake: routes.HandshakeRequired},
		"legacy without":                        {opts: mcp.StreamableHTTPOptions{Stateless: true}, legacy: true, protocol: "2025-11-25", handshake: routes.HandshakeNone},
		"legacy without, and with JSON answers": {opts: mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}, legacy: true, protocol: "2025-11-25", handshake: routes.HandshakeNone},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server := newSDKServer()
			endSessions(t, server)
			rec := &recorder{Handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &tt.opts), legacy: tt.legacy}
			s := httptest.NewServer(rec)
			t.Cleanup(s.Close)
			d := run(t, Options{}, seldom, map[string]string{"b": s.URL})
			receive(t, d.FirstRound(), "first round")
			c := d.awaitUp("b")
			if c.Protocol != tt.protocol || c.Handshake != tt.handshake || c.Instructions != "use <well>" || !strings.Contains(string(c.ServerInfo), `"sdk"`) {
				t.Errorf("catalog %q, %q, %q, %s", c.Protocol, c.Handshake, c.Instructions, c.ServerInfo)
			}
			want := map[string][]string{
				"tools": {"t0", "t1", "t2", "t3", "t4"}, "prompts": {"p0", "p1", "p2", "p3", "p4"},
				"resources":         {"file:///r0", "file:///r1", "file:///r2", "file:///r3", "file:///r4"},
				"resourceTemplates": {"file:///m0/{x}", "file:///m1/{x}", "file:///m2/{x}", "file:///m3/{x}", "file:///m4/{x}"},
			}
			got := map[string][]string{}
			rec.mu.Lock()
			sent := rec.sent.String()
			rec.mu.Unlock()
			for _, l := range lists {
				list := c.List(l.kind)
				got[l.kind.String()] = names(list)
				for _, it := range list.Items {
					if !strings.Contains(sent, string(it.Raw)) {
						t.Errorf("%s is not what the server sent", it.Raw)
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestItemsStayRaw(t *testing.T) {
	odd := "{ \"name\" : \"odd\" ,\"inputSchema\":{\"$defs\":{\"a\":{\"type\":[\"string\",\"null\"]}},\"type\":\"object\"},\"future\":{\"n\":1.0e+2,\"big\":9007199254740993,\"u\":\"\\u0041<é>\"}}"
	annotated := `{"name":"ann","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"}}}}`
	s := handmade(t, modern(`{"tools":{}}`, func(r request) reply {
		return reply{result: tools(odd, annotated,
			`{"name":"bad","inputSchema":{"type":"object","properties":{"r":{"type":"number","x-mcp-header":"Region"}}}}`,
			`{"name":"twice","inputSchema":{"type":"object","type":"object"}}`,
			tool("odd"))}
	}))
	c := run(t, Options{}, seldom, map[string]string{"b": s.URL}).awaitUp("b")
	type brief struct {
		Name      string
		Annotated bool
		Rejected  bool
	}
	var got []brief
	for _, it := range c.Tools.Items {
		got = append(got, brief{it.Name, it.Annotated, it.Reject != ""})
	}
	want := []brief{{"odd", false, false}, {"ann", true, false}, {"bad", false, true}, {"twice", false, true}, {"odd", false, true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if string(c.Tools.Items[0].Raw) != odd {
		t.Errorf("got %s", c.Tools.Items[0].Raw)
	}
	if c.Tools.TTL == nil || *c.Tools.TTL != 1000 || c.Instructions != "mind the gap" || string(c.ServerInfo) != `{"name":"hand","version":"1"}` {
		t.Errorf("ttl %v, %q, %s", c.Tools.TTL, c.Instructions, c.ServerInfo)
	}
	if len(c.Prompts.Items) != 0 || c.Prompts.Stale {
		t.Errorf("an undeclared list: %+v", c.Prompts)
	}
}

func TestPaging(t *testing.T) {
	tests := map[string]struct {
		pages map[string]string // by cursor; "-" is the first
		want  []string
		ttl   int64 // -1: none
	}{
		"null ends it":                      {map[string]string{"-": `{"tools":[` + tool("a") + `],"nextCursor":null}`}, []string{"a"}, -1},
		"an empty cursor is a cursor":       {map[string]string{"-": `{"tools":[` + tool("a") + `],"nextCursor":""}`, "": `{"tools":[` + tool("b") + `]}`}, []string{"a", "b"}, -1},
		"an empty page may lead on":         {map[string]string{"-": `{"tools":[],"nextCursor":"x"}`, "x": `{"tools":[` + tool("b") + `]}`}, []string{"b"}, -1},
		"the shortest ttl counts":           {map[string]string{"-": `{"tools":[],"nextCursor":"x","ttlMs":9}`, "x": `{"tools":[],"ttlMs":7}`}, []string{}, 7},
		"a page without is stale at once":   {map[string]string{"-": `{"tools":[],"nextCursor":"x","ttlMs":9}`, "x": `{"tools":[]}`}, []string{}, 0},
		"so is one with a negative ttl":     {map[string]string{"-": `{"tools":[],"ttlMs":-5}`}, []string{}, 0},
		"one that is no number says none":   {map[string]string{"-": `{"tools":[],"ttlMs":"long"}`}, []string{}, -1},
		"a cursor of odd characters":        {map[string]string{"-": `{"tools":[],"nextCursor":"ü\"\\\n"}`, "ü\"\\\n": `{"tools":[` + tool("b") + `]}`}, []string{"b"}, -1},
		"resultType complete":               {map[string]string{"-": tools(tool("a"))}, []string{"a"}, 1000},
		"unknown members are nobody's pain": {map[string]string{"-": `{"tools":[` + tool("a") + `],"x":{"y":1},"Tools":3}`}, []string{"a"}, -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := handmade(t, modern(`{"tools":{}}`, func(r request) reply {
				cursor := "-"
				if r.Cursor != nil {
					cursor = *r.Cursor
				}
				return reply{result: tt.pages[cursor]}
			}))
			c := run(t, Options{}, seldom, map[string]string{"b": s.URL}).awaitUp("b")
			if diff := cmp.Diff(tt.want, names(&c.Tools)); diff != "" || c.Tools.Stale {
				t.Errorf("stale %v, reason %q (-want +got):\n%s", c.Tools.Stale, c.Tools.Reason, diff)
			}
			if got := c.Tools.TTL; (got == nil) != (tt.ttl < 0) || got != nil && *got != tt.ttl {
				t.Errorf("ttl %v, want %d", got, tt.ttl)
			}
		})
	}
}

func TestFailedListsKeepTheLastGoodOne(t *testing.T) {
	hijack := func(w http.ResponseWriter) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = c.Close()
		}
	}
	page := func(n int) string {
		return `{"tools":[` + tool(fmt.Sprint("x", n)) + `],"nextCursor":"` + fmt.Sprint(n) + `"}`
	}
	tests := map[string]struct {
		then   func(n int, r request) reply // n-th request of the second round, from 1
		reason string
	}{
		"a cursor that leads to itself": {func(int, request) reply { return reply{result: page(1)} }, "cursor loop"},
		"cursors in a circle":           {func(n int, _ request) reply { return reply{result: page(n % 3)} }, "cursor loop"},
		"pages without end":             {func(n int, _ request) reply { return reply{result: page(n)} }, "too many pages"},
		"items without number": {func(int, request) reply {
			return reply{result: tools(slices.Repeat([]string{tool("x")}, 101)...)}
		}, "too many items"},
		"pages beyond the bound": {func(n int, _ request) reply {
			return reply{result: `{"tools":[],"pad":"` + strings.Repeat("x", 300<<10) + `","nextCursor":"` + fmt.Sprint(n) + `"}`}
		}, "too large"},
		"death on the second page": {func(n int, _ request) reply {
			if n == 1 {
				return reply{result: page(1)}
			}
			return reply{write: hijack}
		}, "reset"},
		"a refusal on the second page": {func(n int, _ request) reply {
			if n == 1 {
				return reply{result: page(1)}
			}
			return reply{error: `{"code":-32602,"message":"cursor expired"}`}
		}, "error -32602"},
		"100 MB": {func(int, request) reply {
			return reply{write: func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"tools":[`)
				chunk := strings.Repeat(tool("x")+",", 1000)
				for sent := 0; sent < 100<<20; sent += len(chunk) {
					if _, err := io.WriteString(w, chunk); err != nil {
						return
					}
				}
			}}
		}, "too_large"},
		"broken JSON": {func(int, request) reply {
			return reply{write: func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":`)
			}}
		}, "bad_response"},
		"HTML": {func(int, request) reply {
			return reply{write: func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>") }}
		}, "bad_response"},
		"no array":                     {func(int, request) reply { return reply{result: `{"tools":{}}`} }, "bad_response"},
		"null for an array":            {func(int, request) reply { return reply{result: `{"tools":null}`} }, "bad_response"},
		"another list":                 {func(int, request) reply { return reply{result: `{"prompts":[]}`} }, "bad_response"},
		"a cursor that is no string":   {func(int, request) reply { return reply{result: `{"tools":[],"nextCursor":7}`} }, "bad_response"},
		"another type of result":       {func(int, request) reply { return reply{result: `{"resultType":"input_required","tools":[]}`} }, "bad_response"},
		"a declared list that is none": {func(int, request) reply { return reply{error: methodNotFound} }, "error -32601"},
		"a status":                     {func(int, request) reply { return reply{status: http.StatusUnauthorized} }, "auth_failed (HTTP 401)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var bad atomic.Bool
			var n atomic.Int64
			s := handmade(t, modern(`{"tools":{},"prompts":{}}`, func(r request) reply {
				switch {
				case r.Method == "prompts/list":
					return reply{result: `{"prompts":[{"name":"p"}]}`}
				case bad.Load():
					return tt.then(int(n.Add(1)), r)
				}
				return reply{result: tools(tool("good"), tool("fine"))}
			}))
			d := run(t, Options{Limits: Limits{Pages: 20, Items: 100, Bytes: 1 << 20}}, seldom, map[string]string{"b": s.URL})
			good := d.awaitUp("b")
			bad.Store(true)
			if !d.Refresh("b") {
				t.Fatal("b is unknown")
			}
			c := d.await("b", "stale", func(c *catalog.Catalog, h catalog.Health) bool { return c.Tools.Stale })
			if diff := cmp.Diff([]string{"good", "fine"}, names(&c.Tools)); diff != "" {
				t.Errorf("the last good items (-want +got):\n%s", diff)
			}
			if c.Tools.Reason != tt.reason || !c.Tools.Since.Equal(good.Tools.Since) || !c.Taken.Equal(good.Taken) {
				t.Errorf("reason %q, want %q; since %v, want %v", c.Tools.Reason, tt.reason, c.Tools.Since, good.Tools.Since)
			}
			if c.Prompts.Stale || len(c.Prompts.Items) != 1 {
				t.Errorf("the other list suffered: %+v", c.Prompts)
			}
			_, healths := d.Snapshot()
			if h := healths["b"]; !h.Up || !strings.HasPrefix(h.LastError, "tools/list: ") || len(h.LastError) > maxDescription+4 {
				t.Errorf("health %+v", h)
			}
			bad.Store(false)
			d.Refresh("b")
			d.await("b", "fresh", func(c *catalog.Catalog, h catalog.Health) bool { return !c.Tools.Stale && h.LastError == "" })
		})
	}
}

func TestTemplatesMayBeUnknown(t *testing.T) {
	s := handmade(t, modern(`{"resources":{}}`, func(r request) reply {
		if r.Method == "resources/list" {
			return reply{result: `{"resources":[{"uri":"file:///a","name":"a"}]}`}
		}
		return reply{error: methodNotFound}
	}))
	c := run(t, Options{}, seldom, map[string]string{"b": s.URL}).awaitUp("b")
	if c.ResourceTemplates.Stale || c.Resources.Stale || len(c.Resources.Items) != 1 {
		t.Errorf("%+v\n%+v", c.Resources, c.ResourceTemplates)
	}
}

func TestAnEmptyCursorEndsALegacyList(t *testing.T) {
	s := handmade(t, legacy(`{"tools":{}}`, func(r request) reply { return reply{result: `{"tools":[` + tool("a") + `],"nextCursor":""}`} }))
	c := run(t, Options{}, seldom, map[string]string{"b": s.URL}).awaitUp("b")
	if c.Tools.Stale || len(c.Tools.Items) != 1 || c.Protocol != "2025-11-25" || string(c.ServerInfo) != `{"name":"old","version":"1"}` {
		t.Errorf("%+v", c)
	}
}
