package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// gateway is a standalone before backends made by hand, whose signing key the test has, so that several callers can speak.
type gateway struct {
	*process
	keyFile string
	tokens  map[string]string // by subject; of the test's own goroutine
}

// startGateway runs one. backends is the YAML of that key, indented by two; all of them stand behind the host "default", each
// with its name and "__" as the prefix. dataplane is the YAML of the dataplane block, indented by two; it may be empty.
func startGateway(t *testing.T, backends, dataplane string) *gateway {
	t.Helper()
	g := &gateway{tokens: map[string]string{}}
	var public string
	g.keyFile, public = keyPair(t)
	var members []string
	for line := range strings.Lines(backends) {
		if name, _, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(line, "  ") && line[2] != ' ' {
			name = strings.TrimSpace(name)
			members = append(members, fmt.Sprintf("{name: %s, prefix: %s__}", name, name))
		}
	}
	g.process = start(t, "weir-standalone", "--listen", "127.0.0.1:0", "--config", file(t, "weir.yaml", fmt.Sprintf(`auth:
  issuers:
    - {issuer: "https://idp.test", audiences: [weir], algorithms: [ES256], public_key_file: %q}
discovery: {interval: 1h, timeout: 20s}
backends:
%svirtual_hosts:
  default:
    backends: [%s]
dataplane:
  log_level: info
%s`, public, backends, strings.Join(members, ", "), dataplane)))
	return g
}

// client speaks for one subject.
func (g *gateway) client(t *testing.T, subject, version string) client {
	t.Helper()
	if g.tokens[subject] == "" {
		mint := exec.Command(filepath.Join(bin, "weir-controlplane"), "token", "mint", "--key-file", g.keyFile, "--alg", "ES256",
			"--issuer", "https://idp.test", "--audience", "weir", "--subject", subject, "--virtual-host", "default")
		mint.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // the race detector's second before each exit
		out, err := mint.Output()
		if err != nil {
			t.Fatalf("token mint: %v", err)
		}
		g.tokens[subject] = strings.TrimSpace(string(out))
	}
	return client{url: g.url(), token: g.tokens[subject], version: version}
}

// The versions of the two eras, and the names of the tests' cells.
const (
	modernVersion = "2026-07-28"
	legacyVersion = "2025-11-25"
)

var eras = map[string]string{"modern": modernVersion, "legacy": legacyVersion}

// scripted is a backend of either era made by hand: discovery and handshakes are answered, calls are the test's own. It has the
// tools "run" and "mirror", one prompt "ask", one resource "test:doc" and one template "test:item/{id}".
type scripted struct {
	url     string
	version string
	seen    *tap
	handle  func(w http.ResponseWriter, r *http.Request, m message)

	mu       sync.Mutex    // guards the rest
	messages []message     // all that arrived, discovery too
	arrived  chan struct{} // closed when another one arrives; nil: nobody waits
}

// wake returns a channel that is closed when a message arrives; b.mu is held.
func (b *scripted) wake() <-chan struct{} {
	if b.arrived == nil {
		b.arrived = make(chan struct{})
	}
	return b.arrived
}

// message is what a backend was sent.
type message struct {
	ID         json.RawMessage
	Method     string
	Params     json.RawMessage
	Result     json.RawMessage
	Error      *rpcError
	header     http.Header
	httpMethod string
	body       string
}

// argument is a string argument of a tools/call.
func (m message) argument(name string) string {
	var p struct{ Arguments map[string]any }
	_ = json.Unmarshal(m.Params, &p) // no arguments: ""
	return fmt.Sprint(p.Arguments[name])
}

// sessionID is what a scripted legacy backend calls each session.
const sessionID = "session-of-the-backend"

func newScripted(t *testing.T, version string, handle func(w http.ResponseWriter, r *http.Request, m message)) *scripted {
	t.Helper()
	b := &scripted{version: version, handle: handle}
	hs := httptest.NewUnstartedServer(b)
	b.seen = &tap{Listener: hs.Listener}
	hs.Listener = b.seen
	hs.Start()
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	b.url = hs.URL + "/mcp"
	return b
}

func (b *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m := message{header: r.Header.Clone(), httpMethod: r.Method, body: string(body)}
	_ = json.Unmarshal(body, &m) // a GET or DELETE has no message
	b.mu.Lock()
	b.messages = append(b.messages, m)
	if b.arrived != nil {
		close(b.arrived)
		b.arrived = nil
	}
	b.mu.Unlock()
	legacy := b.version < modernVersion
	switch {
	case r.Method == http.MethodDelete && legacy:
		w.WriteHeader(http.StatusOK)
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.Method == "server/discover" && legacy:
		http.Error(w, "no session", http.StatusBadRequest)
	case m.Method == "server/discover":
		writeResult(w, m, discoverResult("scripted", "tools", "prompts", "resources"))
	case m.Method == "initialize" && legacy:
		w.Header().Set("Mcp-Session-Id", sessionID)
		writeResult(w, m, `{"protocolVersion":"`+b.version+`","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"scripted","version":"1"}}`)
	case legacy && r.Header.Get("Mcp-Session-Id") != sessionID:
		http.Error(w, "no session", http.StatusBadRequest)
	case m.ID == nil, m.Method == "": // a notification, or an answer to what the backend asked
		w.WriteHeader(http.StatusAccepted)
	case strings.HasSuffix(m.Method, "/list"):
		writeResult(w, m, b.list(m.Method))
	default:
		b.handle(w, r, m)
	}
}

func (b *scripted) list(method string) string {
	more := `,"resultType":"complete","ttlMs":60000,"cacheScope":"private"}`
	if b.version < modernVersion {
		more = "}"
	}
	return map[string]string{
		"tools/list":               `{"tools":[{"name":"run","inputSchema":{"type":"object"}},` + mirrorTool + `]`,
		"prompts/list":             `{"prompts":[{"name":"ask"}]`,
		"resources/list":           `{"resources":[{"uri":"test:doc","name":"doc"}]`,
		"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"test:item/{id}","name":"item"}]`,
	}[method] + more
}

// mirrorTool mirrors two arguments into headers.
const mirrorTool = `{"name":"mirror","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},` +
	`"deep":{"type":"object","properties":{"count":{"type":"integer","x-mcp-header":"Count"}}}}}}`

// all returns the messages that keep says yes to.
func (b *scripted) all(keep func(message) bool) []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []message
	for _, m := range b.messages {
		if keep(m) {
			out = append(out, m)
		}
	}
	return out
}

// ofMethod returns the messages of one method.
func (b *scripted) ofMethod(method string) []message {
	return b.all(func(m message) bool { return m.Method == method })
}

// yaml is the backend's entry in a config file; more goes into it.
func (b *scripted) yaml(name, more string) string {
	return fmt.Sprintf("  %s: {url: %q%s}\n", name, b.url, more)
}

func writeResult(w http.ResponseWriter, m message, result string) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, resultOf(m, result))
}

func resultOf(m message, result string) string {
	return `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`
}

// done is the result of a tool that says text.
func done(text string) string {
	return `{"resultType":"complete","content":[{"type":"text","text":"` + text + `"}]}`
}

// stream begins an event stream.
func stream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush(w)
}

// write sends what it is given at once.
func write(w http.ResponseWriter, s string) {
	io.WriteString(w, s)
	flush(w)
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// progress is the event of one step.
func progress(token string, step int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, step)
}

func event(doc string) string { return "data: " + doc + "\n\n" }

// tap keeps every byte that a listener's connections were sent.
type tap struct {
	net.Listener
	mu    sync.Mutex // guards bytes
	bytes bytes.Buffer
}

// tapLimit bounds what a tap keeps.
const tapLimit = 1 << 20

func (l *tap) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tappedConn{conn, l}, nil
}

func (l *tap) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes.String()
}

type tappedConn struct {
	net.Conn
	tap *tap
}

func (c tappedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	c.tap.bytes.Write(p[:min(n, tapLimit-min(tapLimit, c.tap.bytes.Len()))])
	return n, err
}

// openCall is a call whose answer is read as it comes.
type openCall struct {
	resp   *http.Response
	lines  *bufio.Reader
	cancel context.CancelFunc
}

// open sends a request and returns once the answer's headers are there. The call ends with the test at the latest.
func (c client) open(t *testing.T, id, method, params string) *openCall {
	t.Helper()
	o, err := c.tryOpen(t, id, method, params)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (c client) tryOpen(t *testing.T, id, method, params string) (*openCall, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(c.body(id, method, params)))
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header = c.headers(method, params)
	resp, err := httpClient.Transport.RoundTrip(req)
	if err != nil {
		cancel()
		return nil, err
	}
	o := &openCall{resp: resp, lines: bufio.NewReaderSize(resp.Body, 4<<10), cancel: cancel}
	t.Cleanup(o.close)
	return o, nil
}

func (o *openCall) close() {
	o.cancel()
	o.resp.Body.Close()
}

// line reads one line of the stream, without its end.
func (o *openCall) line() (string, error) {
	s, err := o.lines.ReadString('\n')
	return strings.TrimSuffix(s, "\n"), err
}

// next reads one event's data; comments are skipped.
func (o *openCall) next() (string, error) {
	for {
		line, err := o.line()
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			blank, err := o.line()
			if blank != "" {
				return "", fmt.Errorf("an event of several lines: %q", blank)
			}
			return data, err
		}
		if err != nil {
			return "", err
		}
	}
}

// mustNext is next where the end is a failure.
func (o *openCall) mustNext(t *testing.T) string {
	t.Helper()
	data, err := o.next()
	if err != nil {
		t.Fatalf("the next event: %v", err)
	}
	return data
}

// reasonOf is data.reason of an error.
func reasonOf(e *rpcError) string {
	var data struct{ Reason string }
	if e != nil {
		_ = json.Unmarshal(e.Data, &data) // no data: no reason
	}
	return data.Reason
}

// soon waits for a channel to be closed or to bring something.
func soon[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
		panic("unreachable")
	}
}

// dial opens a connection to a client's endpoint; it is closed with the test at the latest, and nothing waits on it for ever.
func dial(t *testing.T, c client) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(c.url, "http://"), "/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// readResponse reads the head of an HTTP answer.
func readResponse(t *testing.T, conn net.Conn) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("the answer: %v", err)
	}
	return resp
}

// sendOn writes a tools/call on a connection, with more lines in its head.
func sendOn(t *testing.T, conn net.Conn, c client, params string, more ...string) {
	t.Helper()
	body := c.body("1", "tools/call", params)
	if _, err := io.WriteString(conn, headOf(conn, c, params, len(body), more...)+"\r\n"+body); err != nil {
		t.Fatal(err)
	}
}

// headOf is the head of a tools/call without its blank line.
func headOf(conn net.Conn, c client, params string, length int, more ...string) string {
	var head strings.Builder
	fmt.Fprintf(&head, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", conn.RemoteAddr(), length)
	for name, values := range c.headers("tools/call", params) {
		fmt.Fprintf(&head, "%s: %s\r\n", name, values[0])
	}
	for _, line := range more {
		head.WriteString(line + "\r\n")
	}
	return head.String()
}
