package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A backend that announces nothing and offers no stream is seen on the interval.
func TestAChangeThatNobodyAnnounces(t *testing.T) {
	t.Parallel()
	b := newPagedBackend(t, 10)
	b.offer("1", []string{toolOf("first", "")})
	p := newPair(t, fmt.Sprintf("  silent: {url: %q}\n", b.url+"/1"), "  acme:\n    backends: [{name: silent}]\n")
	p.listsNow(t, "acme", "first")
	b.offer("1", []string{toolOf("second", "")})
	p.listsNow(t, "acme", "second")
	for n := range p.data {
		c := p.client(t, n, "acme", "2026-07-28")
		eventually(t, "the new tool is served", func() error { return serves(c, "second", "1") })
		eventually(t, "the old one is not", func() error { return misses(c, "first") })
	}
}

// A list that has no end, goes in circles or breaks off is a failed list: its last good items stay, and it is said why.
func TestAListThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	var mode atomic.Value
	mode.Store("good")
	var n atomic.Int64
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var req struct {
			ID     json.RawMessage
			Method string
			Params struct{ Cursor string }
		}
		if r.Method != http.MethodPost || json.Unmarshal(body, &req) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		result := discoverResult("endless", "tools")
		if req.Method == "tools/list" {
			next, name := "", `"kept"`
			switch mode.Load() {
			case "endless":
				next, name = fmt.Sprintf(`,"nextCursor":"%d"`, n.Add(1)), fmt.Sprintf(`"t%d"`, n.Load())
			case "circle":
				next = `,"nextCursor":"again"`
			case "torn":
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(req.ID)+`,"result":{"tools":[{"name":`)
				return
			case "no list":
				next = `,"tools":{}`
				name = `"x"`
			}
			result = `{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":` + name + `,"inputSchema":{"type":"object"}}]` + next + `}`
			if mode.Load() == "empty" {
				result = `{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[]}`
			}
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(req.ID)+`,"result":`+result+`}`)
	}))
	t.Cleanup(hs.Close)
	p := newPair(t, fmt.Sprintf("  endless: {url: %q}\n", hs.URL), "  acme:\n    backends: [{name: endless}]\n")
	p.listsNow(t, "acme", "kept")
	for _, tt := range []struct{ mode, reason string }{
		{"circle", "cursor loop"}, {"endless", "too many pages"}, {"torn", "bad_response"}, {"no list", "bad_response"},
	} {
		mode.Store(tt.mode)
		p.refresh(t, "endless")
		eventually(t, tt.mode+" is reported", func() error { return p.hasProblem("list_stale", tt.reason) })
		c := p.client(t, 1, "acme", "2026-07-28")
		eventually(t, tt.mode+": the last good tool is listed, and marked", func() error {
			a, err := c.call("1", "tools/list", "{}")
			if err == nil && (!strings.Contains(a.body, `"kept"`) || !strings.Contains(a.body, `"weir/partialFailure":{"backends":["endless"]}`)) {
				err = errors.New(a.body)
			}
			return err
		})
		mode.Store("good")
		p.refresh(t, "endless")
		eventually(t, "it is whole again", func() error {
			got, err := p.problems()
			if err != nil {
				return err
			}
			return none(got)
		})
	}
	// A complete list without it is another thing.
	mode.Store("empty")
	p.refresh(t, "endless")
	p.listsNow(t, "acme")
	a, err := p.client(t, 0, "acme", "2025-11-25").call("1", "tools/list", "{}")
	if err != nil || strings.Contains(a.body, "partialFailure") {
		t.Errorf("an empty list: %v, %v; want no marker", a, err)
	}
}

// A backend that is replaced by one of the other era, at the same URL, is found out, and called as it wants to be.
func TestABackendOfAnotherEra(t *testing.T) {
	t.Parallel()
	handler := func(name string, stateless bool, versions ...string) http.Handler {
		srv := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ServerOptions{SupportedProtocolVersions: versions})
		srv.AddTool(&mcp.Tool{Name: "whoami", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name}}}, nil
			})
		t.Cleanup(func() {
			for session := range srv.Sessions() {
				_ = session.Close() // it is gone either way
			}
		})
		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, &mcp.StreamableHTTPOptions{Stateless: stateless})
	}
	modern := handler("modern", true, "2026-07-28")
	legacy := handler("legacy", false, "2025-11-25")
	open := handler("open", true, "2025-06-18")
	var now atomic.Pointer[http.Handler]
	now.Store(&modern)
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*now.Load()).ServeHTTP(w, r) }))
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	p := newPair(t, fmt.Sprintf("  changing: {url: %q}\n", hs.URL), "  acme:\n    backends: [{name: changing}]\n")
	for _, tt := range []struct {
		name      string
		handler   *http.Handler
		protocol  string
		handshake string
	}{
		{"modern", &modern, "2026-07-28", ""},
		{"legacy", &legacy, "2025-11-25", "required"},
		{"open", &open, "2025-06-18", "none"},
		{"modern", &modern, "2026-07-28", ""},
	} {
		now.Store(tt.handler)
		p.refresh(t, "changing")
		eventually(t, "it is known as "+tt.name, func() error {
			var b struct{ Protocol, Handshake string }
			if err := p.admin(http.MethodGet, "/api/v1/backends/changing", &b); err != nil {
				return err
			}
			if b.Protocol != tt.protocol || b.Handshake != tt.handshake {
				return fmt.Errorf("%+v", b)
			}
			return nil
		})
		for n := range p.data {
			for _, version := range []string{"2026-07-28", "2025-11-25"} {
				c := p.client(t, n, "acme", version)
				eventually(t, "it is called as "+tt.name, func() error { return serves(c, "whoami", tt.name) })
			}
		}
	}
}

// What a backend says of itself and of its tools is watched where it is pinned: another version, other capabilities, another tool.
func TestAPinnedBackendThatBecomesAnother(t *testing.T) {
	t.Parallel()
	b := newPinnedBackend(t)
	p := newPair(t, fmt.Sprintf("  pinned: {url: %q, pin: block}\n", b.url), "  acme:\n    backends: [{name: pinned}]\n")
	p.listsNow(t, "acme", "read", "send")
	say := func(result string) {
		b.mu.Lock()
		b.results["server/discover"] = result
		b.mu.Unlock()
		p.refresh(t, "pinned")
	}
	was := discoverResult("pinned", "tools")
	for name, tt := range map[string]struct{ says, words string }{
		"another version":     {strings.Replace(was, `"version":"1"`, `"version":"2"`, 1), `version "2"`},
		"another name":        {discoverResult("evil", "tools"), `"evil"`},
		"other capabilities":  {discoverResult("pinned", "tools", "logging"), "other capabilities"},
		"fewer of them again": {strings.Replace(was, `"tools":{}`, `"tools":{"listChanged":true}`, 1), "other capabilities"},
	} {
		say(tt.says)
		eventually(t, name+" is reported", func() error { return p.hasProblem("backend_changed", tt.words) })
		if err := serves(p.client(t, 0, "acme", "2026-07-28"), "send", "pinned"); err != nil {
			t.Errorf("%s: %v; want it served all the same", name, err)
		}
		say(was)
		eventually(t, "it is who it was", func() error {
			got, err := p.problems()
			if err != nil {
				return err
			}
			if slices.Contains(got, "backend_changed") {
				return fmt.Errorf("problems %v", got)
			}
			return nil
		})
	}
	var d struct {
		Pin      string
		Problems []struct{ Code string }
		Hosts    []string `json:"virtualHosts"`
	}
	if err := p.admin(http.MethodGet, "/api/v1/backends/pinned", &d); err != nil || d.Pin != "block" || len(d.Problems) != 0 || !slices.Equal(d.Hosts, []string{"acme"}) {
		t.Errorf("the backend: %+v, %v", d, err)
	}
}

// What no client could use, or two clients would read in two ways, is left out alone, and it is said why.
func TestDefinitionsThatAreNone(t *testing.T) {
	t.Parallel()
	b := newPinnedBackend(t)
	const schema = `"inputSchema":{"type":"object"}`
	b.define(`{"name":"good",`+schema+`}`, `{"name":"array","inputSchema":{"type":"array"}}`, `{"name":"bell\u0007",`+schema+`}`,
		`{"name":"two","NAME":"faces",`+schema+`}`, `{"name":"none"}`, `{"name":"also good",`+schema+`,"x":{"Name":1}}`)
	b.mu.Lock()
	b.results["server/discover"] = discoverResult("odd", "tools", "resources")
	b.results["resources/list"] = `{"resultType":"complete","ttlMs":0,"cacheScope":"private","resources":[` +
		`{"uri":"/etc/passwd","name":"a"},{"uri":"file:///a\nb","name":"b"},{"uri":"file:///good","name":"c"}]}`
	b.mu.Unlock()
	p := newPair(t, fmt.Sprintf("  odd: {url: %q}\n", b.url), "  acme:\n    backends: [{name: odd}]\n")
	p.listsNow(t, "acme", "also good", "good")
	uris, err := p.client(t, 0, "acme", "2025-11-25").names("resources/list", "resources", "uri")
	if err != nil || !slices.Equal(uris, []string{"file:///good"}) {
		t.Errorf("resources %v, %v", uris, err)
	}
	got, err := p.problems()
	slices.Sort(got)
	want := []string{"item_rejected /etc/passwd", "item_rejected array", "item_rejected bell\a", "item_rejected file:///a\nb", "item_rejected none", "item_rejected two"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("problems %q, %v; want %q", got, err, want)
	}
	for _, name := range []string{"array", "two", "none"} {
		if err := misses(p.client(t, 1, "acme", "2026-07-28"), name); err != nil {
			t.Error(err)
		}
	}
}
