package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// seen is what a backend saw of one HTTP request.
type seen struct {
	Method, MCP string // HTTP method; the body's method
	Header      http.Header
	Body        string
}

// backend is an HTTP server that remembers its requests.
type backend struct {
	*httptest.Server
	mu  sync.Mutex
	log []seen
}

func newBackend(t *testing.T, h http.Handler) *backend {
	t.Helper()
	b := &backend{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct{ Method string }
		_ = json.Unmarshal(body, &m)
		b.mu.Lock()
		b.log = append(b.log, seen{r.Method, m.Method, r.Header.Clone(), string(body)})
		b.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *backend) requests() []seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]seen(nil), b.log...)
}

// methods lists what was asked for: the MCP method, else the HTTP method.
func (b *backend) methods() []string {
	var out []string
	for _, s := range b.requests() {
		if s.MCP != "" {
			out = append(out, s.MCP)
		} else {
			out = append(out, s.Method)
		}
	}
	return out
}

// newSDKServer is a real server with a few tools.
func newSDKServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	type in struct {
		Text string `json:"text"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, a in) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Text}}}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "slow"}, func(ctx context.Context, r *mcp.CallToolRequest, _ in) (*mcp.CallToolResult, any, error) {
		for i := range 2 {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: r.Params.GetProgressToken(), Progress: float64(i),
			}); err != nil {
				return nil, nil, err
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
	})
	return s
}

func newClient(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// callTool is a tools/call as a plane hands it over.
func callTool(url, version, tool, arguments string, token string) Call {
	meta := wire.Object{}
	if wire.EraOf(version) == wire.Modern {
		meta = wire.Object{
			{Name: wire.MetaProtocolVersion, Value: wire.Quote(version)},
			{Name: wire.MetaClientInfo, Value: json.RawMessage(`{"name":"test","version":"1"}`)},
			{Name: wire.MetaClientCapabilities, Value: json.RawMessage(`{}`)},
		}
	}
	if token != "" {
		meta = meta.With("progressToken", json.RawMessage(token))
	}
	params := wire.Object{{Name: "name", Value: wire.Quote(tool)}, {Name: "arguments", Value: json.RawMessage(arguments)}}
	if len(meta) > 0 {
		raw, _ := meta.MarshalJSON()
		params = params.With("_meta", raw)
	}
	return Call{
		ID: "b", Backend: &routes.Backend{URL: url, Protocol: version},
		RPCID: json.RawMessage(`9007199254740993`), Method: "tools/call", Name: tool, Params: params,
	}
}

// docOf is a message as a document.
func docOf(m Message) string { return string(bytes.Join(m.Parts(), nil)) }

// collect reads an answer to its end.
func collect(t *testing.T, c *Client, call Call) ([]Message, bool, error) {
	t.Helper()
	a, err := c.Do(t.Context(), call)
	if err != nil {
		return nil, false, err
	}
	defer a.Close()
	var out []Message
	for {
		m, err := a.Next()
		if errors.Is(err, io.EOF) {
			return out, a.Streaming(), nil
		}
		if err != nil {
			return out, a.Streaming(), err
		}
		out = append(out, m)
	}
}

func TestRealServers(t *testing.T) {
	const text = `{"text":"grüße"}`
	for name, tt := range map[string]struct {
		opts    mcp.StreamableHTTPOptions
		version string
		none    bool // no handshake
		methods []string
	}{
		"modern, one request": {
			opts: mcp.StreamableHTTPOptions{Stateless: true}, version: "2026-07-28",
			methods: []string{"tools/call"},
		},
		"modern, JSON answer": {
			opts: mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}, version: "2026-07-28",
			methods: []string{"tools/call"},
		},
		"legacy with a session, which is deleted": {
			version: "2025-11-25",
			methods: []string{"initialize", "notifications/initialized", "tools/call", "DELETE"},
		},
		"legacy with a session, JSON answer": {
			opts: mcp.StreamableHTTPOptions{JSONResponse: true}, version: "2025-06-18",
			methods: []string{"initialize", "notifications/initialized", "tools/call", "DELETE"},
		},
		"legacy without a session": {
			opts: mcp.StreamableHTTPOptions{Stateless: true}, version: "2025-11-25",
			methods: []string{"initialize", "notifications/initialized", "tools/call"},
		},
		"legacy without a handshake": {
			opts: mcp.StreamableHTTPOptions{Stateless: true}, version: "2025-11-25", none: true,
			methods: []string{"tools/call"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := newSDKServer()
			b := newBackend(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &tt.opts))
			c := newClient(t, Options{})
			call := callTool(b.URL, tt.version, "echo", text, "")
			if tt.none {
				call.Backend.Handshake = routes.HandshakeNone
			}
			call.Header = http.Header{"X-Team": {"platform"}, "Mcp-Session-Id": {"forged"}, "Host": {"forged"}}
			msgs, streaming, err := collect(t, c, call)
			if err != nil {
				t.Fatal(err)
			}
			c.Close() // waits for the session's end
			if diff := cmp.Diff(tt.methods, b.methods()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			last := b.requests()[len(tt.methods)-1]
			if last.Method == http.MethodDelete {
				last = b.requests()[len(tt.methods)-2]
			}
			if got := last.Header.Get(headerVersion); got != tt.version {
				t.Errorf("MCP-Protocol-Version %q, want %q", got, tt.version)
			}
			for _, s := range b.requests() {
				if s.Header.Get("X-Team") != "platform" || s.Header.Get(headerSession) == "forged" {
					t.Errorf("%s %s: headers %v", s.Method, s.MCP, s.Header)
				}
			}
			if streaming == tt.opts.JSONResponse {
				t.Errorf("streaming %t, JSONResponse %t", streaming, tt.opts.JSONResponse)
			}
			if len(msgs) != 1 || !msgs[0].Final {
				t.Fatalf("messages %+v", msgs)
			}
			var doc struct {
				ID     json.RawMessage
				Result struct{ Content []struct{ Text string } }
			}
			if err := json.Unmarshal([]byte(docOf(msgs[0])), &doc); err != nil {
				t.Fatal(err)
			}
			if string(doc.ID) != "9007199254740993" || len(doc.Result.Content) != 1 || doc.Result.Content[0].Text != "grüße" {
				t.Errorf("answer %s", docOf(msgs[0]))
			}
			if !strings.Contains(docOf(msgs[0]), string(msgs[0].Result)) {
				t.Errorf("Result %s is no part of Doc", msgs[0].Result)
			}
		})
	}
}

func TestProgressKeepsTheCallersToken(t *testing.T) {
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		for token, want := range map[string]int{`"tok"`: 2, `7`: 2} {
			t.Run(fmt.Sprintf("%s, token %s", version, token), func(t *testing.T) {
				server := newSDKServer()
				b := newBackend(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
					&mcp.StreamableHTTPOptions{Stateless: version == "2026-07-28"}))
				msgs, streaming, err := collect(t, newClient(t, Options{}), callTool(b.URL, version, "slow", `{"text":""}`, token))
				if err != nil {
					t.Fatal(err)
				}
				if !streaming || len(msgs) != want+1 {
					t.Fatalf("streaming %t, messages %+v", streaming, msgs)
				}
				for _, m := range msgs[:want] {
					if m.Method != "notifications/progress" || !strings.Contains(docOf(m), `"progressToken":`+token) {
						t.Errorf("message %s: %s", m.Method, docOf(m))
					}
				}
			})
		}
	}
}

// Many callers share one client, one backend and one progress token: nobody gets another's messages.
func TestCallersNeverCross(t *testing.T) {
	server := newSDKServer()
	b := newBackend(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	c := newClient(t, Options{})
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			version := []string{"2026-07-28", "2025-11-25"}[i%2]
			text := fmt.Sprintf("caller %d", i)
			echo := callTool(b.URL, version, "echo", fmt.Sprintf(`{"text":%q}`, text), `"tok"`)
			msgs, _, err := collect(t, c, echo)
			if err != nil || len(msgs) != 1 || !strings.Contains(string(msgs[0].Result), `"`+text+`"`) {
				t.Errorf("%s: %+v, %v", text, msgs, err)
			}
			msgs, _, err = collect(t, c, callTool(b.URL, version, "slow", `{"text":""}`, `"tok"`))
			if err != nil || len(msgs) != 3 {
				t.Errorf("%s: %d messages, %v", text, len(msgs), err)
			}
		})
	}
	wg.Wait()
}
