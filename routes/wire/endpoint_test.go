package wire

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weir-mcp/weir/routes/access"
)

func TestNewEndpointChecksItsOptions(t *testing.T) {
	ok := func() Options {
		return Options{Anonymous: access.Anonymous("acme"), Dispatch: func(*Response, *Request) {}}
	}
	if _, err := NewEndpoint(ok()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Options){
		"no dispatch":                    func(o *Options) { o.Dispatch = nil },
		"neither auth nor anonymous":     func(o *Options) { o.Anonymous = nil },
		"a relative public URL":          func(o *Options) { o.PublicURL = "/mcp" },
		"a public URL of another scheme": func(o *Options) { o.PublicURL = "ftp://weir.test" },
		"a public URL without a host":    func(o *Options) { o.PublicURL = "https://" },
		"a public URL with a query":      func(o *Options) { o.PublicURL = "https://weir.test/?a" },
		"a public URL with userinfo":     func(o *Options) { o.PublicURL = "https://a:b@weir.test" },
		"a public URL that is none":      func(o *Options) { o.PublicURL = "https://weir.test:port" },
		"an origin with a path":          func(o *Options) { o.AllowedOrigins = []string{"https://a.test/"} },
		"an origin without a scheme":     func(o *Options) { o.AllowedOrigins = []string{"a.test"} },
		"an origin with a wildcard":      func(o *Options) { o.AllowedOrigins = []string{"https://*.a.test"} },
		"a host with a scheme":           func(o *Options) { o.AllowedHosts = []string{"https://a.test"} },
		"a host with a bad port":         func(o *Options) { o.AllowedHosts = []string{"a.test:http"} },
		"an empty host":                  func(o *Options) { o.AllowedHosts = []string{""} },
	} {
		o := ok()
		spoil(&o)
		_, err := NewEndpoint(o)
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "a:b") {
			t.Errorf("%s: the error shows userinfo: %v", name, err)
		}
	}
}

func TestAllowedHosts(t *testing.T) {
	public, err := parsePublicURL("https://mcp.example/gw/")
	if err != nil {
		t.Fatal(err)
	}
	if public.base != "https://mcp.example/gw" || public.path != "/gw" {
		t.Errorf("public URL: %+v", public)
	}
	g, err := newGate(nil, []string{"a.test", "B.test:8443", "[::1]", "::2", "c.test:443"}, public, false)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"a.test": true, "A.TEST:9999": true, "a.test.": true, "b.test:8443": true, "b.test": false, "b.test:443": false,
		"[::1]": true, "[::1]:80": true, "[::2]:80": true, "[::3]": false, "mcp.example": true, "mcp.example:443": true,
		"c.test": true, "c.test:443": true, "c.test:444": false, "evil.test": false, "": false, "a.test:": false, "a.test:x": false,
		"a.test@evil.test": false, "localhost": false, "evil.test:80:80": false, "[a.test": false, "[::1]x": false,
	} {
		if got := g.allowsHost(host); got != want {
			t.Errorf("host %q allowed: %v, want %v", host, got, want)
		}
	}
	open, err := newGate(nil, nil, public, false)
	if err != nil || !open.allowsHost("anything.test") {
		t.Errorf("without a list: %v", err)
	}
	loopback, err := newGate(nil, nil, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"localhost:1": true, "LOCALHOST": true, "app.localhost": true, "127.0.0.1": true, "127.9.9.9:80": true, "[::1]:80": true,
		"[::ffff:127.0.0.1]": true, "localhost.evil.test": false, "127.0.0.1.evil.test": false, "0.0.0.0": false, "128.0.0.1": false, "evillocalhost": false,
	} {
		if got := loopback.allowsHost(host); got != want {
			t.Errorf("loopback listener, host %q allowed: %v, want %v", host, got, want)
		}
	}
}

func TestAllowedOrigins(t *testing.T) {
	g, err := newGate([]string{"https://App.example:443", "http://b.test:8080", "null", "app://x"}, nil, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	for origin, want := range map[string]bool{
		"https://app.example": true, "HTTPS://app.example": true, "https://app.example:443": true, "https://app.example:80": false,
		"http://app.example": false, "http://b.test:8080": true, "http://b.test": false, "null": true, "app://x": true, "app://y": false,
		"https://app.example/": false, "https://app.example#": false, "https://u@app.example": false, "": false, "https://": false,
		"http://localhost": false, // a list takes the place of the loopback rule
	} {
		if got := g.allowsOrigin(origin); got != want {
			t.Errorf("origin %q allowed: %v, want %v", origin, got, want)
		}
	}
}

func TestSummaries(t *testing.T) {
	var got []Summary
	o := conversationOptions("")
	o.OnDone = func(s Summary) { got = append(got, s) }
	e, err := NewEndpoint(o)
	if err != nil {
		t.Fatal(err)
	}
	send := func(r *http.Request) { e.ServeHTTP(httptest.NewRecorder(), r) }
	authorized := func(token string, r *http.Request) *http.Request {
		r.Header.Set("Authorization", "Bearer "+token)
		return r
	}
	send(authorized("acme", legacyCall(t.Context(), "http://weir.test/mcp", "echo")))
	send(authorized("acme", legacyCall(t.Context(), "http://weir.test/mcp", "unreachable")))
	send(authorized("acme", legacyCall(t.Context(), "http://weir.test/mcp", "stream")))
	send(authorized("acme", legacyCall(t.Context(), "http://weir.test/mcp", "raw-404")))
	send(authorized("nonsense", legacyCall(t.Context(), "http://weir.test/mcp", "echo")))
	send(authorized("down", legacyCall(t.Context(), "http://weir.test/mcp", "echo")))
	send(httptest.NewRequest(http.MethodGet, "http://weir.test/mcp", nil))
	want := []Summary{
		{Host: "acme", Method: "tools/call", Name: "echo", Status: 200},
		{Host: "acme", Method: "tools/call", Name: "unreachable", Status: 200, Code: CodeInternal, Reason: "unreachable"},
		{Host: "acme", Method: "tools/call", Name: "stream", Status: 200},
		{Host: "acme", Method: "tools/call", Name: "raw-404", Status: 404, Code: CodeMethodNotFound},
		{Status: 401, Reason: "unauthorized"},
		{Host: "down", Status: 503, Reason: "unavailable"},
		{Status: 405, Reason: "method"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Summary{}, "Duration", "Err")); diff != "" {
		t.Errorf("summaries (-want +got):\n%s", diff)
	}
	for i, s := range got {
		if s.Duration <= 0 || (s.Err != nil) != (i == 4 || i == 5) {
			t.Errorf("summary %d: took %v, error %v", i, s.Duration, s.Err)
		}
	}
}

func TestRequestIsComplete(t *testing.T) {
	var got Request
	o := conversationOptions("")
	o.ClientInfo = []byte(`{"name":"w"}`)
	o.Dispatch = func(w *Response, r *Request) {
		got = *r
		w.Result([]byte("{}"))
	}
	server := newServer(t, o)
	r := post(t.Context(), server.URL+"/servers/acme/mcp", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{`+triple+`}}}`))
	r.Header.Set("Authorization", "Bearer several")
	r.Header.Set("Mcp-Protocol-Version", LatestModern)
	r.Header.Set("Mcp-Method", "tools/call")
	r.Header.Set("Mcp-Name", "a")
	if resp, body := do(t, server.Client(), r); resp.StatusCode != 200 {
		t.Fatalf("status %d: %s", resp.StatusCode, body)
	}
	if got.Host != "acme" || got.Index == nil || got.Index.Host().ID != "acme" || got.Identity == nil || got.Identity.Subject != "alice" ||
		got.Era != Modern || got.Version != LatestModern || got.Name != "a" || got.HTTP == nil || string(got.ClientInfo) != `{"name":"w"}` {
		t.Errorf("request: %+v", got)
	}
	if caps := string(got.ClientCapabilities()); caps != "{}" {
		t.Errorf("capabilities: %s", caps)
	}
	if got.Era = Legacy; got.ClientCapabilities() != nil {
		t.Error("a legacy request has capabilities in _meta")
	}
}

// A body of 100 MB is refused without being read: by its length, and without one at the limit.
func TestAHugeBodyIsNotRead(t *testing.T) {
	server := newServer(t, Options{Dispatch: func(*Response, *Request) { t.Error("dispatched") }})
	for name, head := range map[string]string{
		"announced": "Content-Length: 100000000\r\n",
		"chunked":   "Transfer-Encoding: chunked\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: */*\r\n%s\r\n", head)
			sent := make(chan int, 1)
			go func() {
				piece, total := strings.Repeat("x", 64<<10), 0
				for total < 100_000_000 {
					s := piece
					if name == "chunked" {
						s = "10000\r\n" + piece + "\r\n"
					}
					n, err := io.WriteString(conn, s)
					if total += n; err != nil {
						break
					}
				}
				sent <- total
			}()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
				t.Errorf("status %d, closing %v", resp.StatusCode, resp.Close)
			}
			_ = conn.SetWriteDeadline(time.Now()) // whatever the kernel still takes, the server does not read
			if n := <-sent; n >= 100_000_000 {
				t.Errorf("%d bytes were taken", n)
			}
		})
	}
}

func TestMetadataOverTLS(t *testing.T) {
	o := conversationOptions("")
	o.Scopes, o.AuthServers = []string{"mcp:tools", "mcp:tasks"}, []string{"https://a.example", "https://b.example"}
	e, err := NewEndpoint(o)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "https://weir.test:443/.well-known/oauth-protected-resource/mcp", nil)
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	want := `{"resource":"https://weir.test/mcp","authorization_servers":["https://a.example","https://b.example"],` +
		`"bearer_methods_supported":["header"],"scopes_supported":["mcp:tools","mcp:tasks"]}`
	if got := w.Body.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
