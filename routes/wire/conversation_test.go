package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
)

var update = flag.Bool("update", false, "write the responses of testdata/*.txtar anew")

// tokens is an Authenticator whose tokens say what they are for.
type tokens struct{}

func (tokens) Verify(_ context.Context, token, resource string) (*access.Identity, error) {
	id := &access.Identity{Subject: "alice", HostClaim: true}
	switch token {
	case "nokeys":
		return nil, fmt.Errorf("issuer x: %w", access.ErrNoKeys)
	case "nohost":
		id.HostClaim = false
	case "several":
		id.Hosts = []routes.HostID{"acme", "beta"}
	case "acme", "gone", "cold", "down", "broken":
		id.Hosts = []routes.HostID{routes.HostID(token)}
	case "resource:" + resource:
		id.Hosts = []routes.HostID{"acme"}
	default:
		return nil, fmt.Errorf("%w: bad token", access.ErrUnauthorized)
	}
	return id, nil
}

// resolve knows the host acme, and hosts that fail in each way.
func resolve(_ context.Context, host routes.HostID) (*routes.Index, error) {
	switch host {
	case "gone":
		return nil, fmt.Errorf("host: %w", routes.ErrUnknownHost)
	case "cold":
		return nil, routes.ErrNotPublished
	case "down":
		return nil, routes.ErrUnavailable
	case "broken":
		return nil, errors.New("schema 99")
	}
	return routes.NewIndex(&routes.VirtualHost{Schema: routes.SchemaVersion, ID: host, Incarnation: "i", Epoch: 1, Revision: 1})
}

// fakeDispatch answers as the name of the tool asks.
func fakeDispatch(w *Response, r *Request) {
	switch {
	case r.ID == nil:
		w.Accepted()
	case r.Method == "tools/call":
		fakeCall(w, r)
	case r.Method == "resources/read":
		w.Fail(UnknownName(routes.KindResource, r.Era, r.Name))
	case r.Method == "prompts/get":
		w.Fail(UnknownName(routes.KindPrompt, r.Era, r.Name))
	case r.Method == "tasks/get":
		w.Fail(MissingCapability([]byte(`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)))
	case r.Method == "initialize", r.Method == "tools/list":
		w.Result([]byte(`{"era":"` + r.Era.String() + `","version":"` + r.Version + `"}`))
	default:
		w.Fail(MethodNotFound())
	}
}

func fakeCall(w *Response, r *Request) {
	progress := func(n int) error {
		return w.Event(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":%d}}`, n))
	}
	switch r.Name {
	case "echo":
		w.Result(append(append([]byte(`{"arguments":`), r.Arguments()...), '}'))
	case "stream":
		_, _ = progress(1), progress(2)
		w.Raw(0, []byte("{\"jsonrpc\":\"2.0\",\n\"id\":1,\r\n\"result\":{}}\n"))
	case "stream-result":
		_ = progress(1)
		w.Result([]byte(`{"a":1}`))
	case "stream-fail":
		_ = w.Begin()
		w.Fail(Internal(ReasonReset, ""))
	case "stream-cut":
		_ = progress(1) // and no answer
	case "stream-panic":
		_ = progress(1)
		panic("boom")
	case "raw-404":
		w.Note(CodeMethodNotFound, "")
		w.Raw(404, []byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"theirs"}}`))
	case "twice":
		w.Result([]byte(`{"first":true}`))
		w.Fail(Internal("", ""))
		w.Result([]byte(`{"second":true}`))
		_ = progress(1)
	case "silent":
	case "panic":
		panic("boom")
	case "scope":
		w.Fail(InsufficientScope("mcp:tools"))
	case "denied":
		w.Fail(Denied(0, "denied by policy"))
	case "unreachable":
		w.Fail(Internal(ReasonUnreachable, ""))
	case "retry":
		w.Fail(InternalRetry(ReasonRateLimited, "", 1500_000_000))
	case "busy":
		w.Fail(&Error{Code: CodeInternal, Message: "busy", Status: 429, RetryAfter: 1})
	default:
		w.Fail(UnknownName(routes.KindTool, r.Era, r.Name))
	}
}

// summaries collects what OnDone is told.
type summaries struct {
	mu  sync.Mutex
	all []Summary
}

func (s *summaries) add(sum Summary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, sum)
}

func conversationOptions(public string) Options {
	return Options{
		Auth: tokens{}, Resolve: resolve, Dispatch: fakeDispatch, PublicURL: public,
		AllowedOrigins: []string{"https://app.example", "http://localhost:3000"},
		AuthServers:    []string{"https://idp.example"},
		Limits:         Limits{Body: 64 << 10},
	}
}

// TestConversations plays every testdata/*.txtar: raw HTTP requests, and the responses they must get.
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { playFile(t, file, nil) })
	}
}

// playFile plays one file; done is told of every request, nil is fine.
func playFile(t *testing.T, file string, done func(Summary)) {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := conversationOptions("https://mcp.example/gw")
	o.OnDone = done
	o.OnPanic = func(any, []byte) {}
	switch comment := string(archive.Comment); {
	case strings.Contains(comment, "no public URL"):
		o.PublicURL = ""
	case strings.Contains(comment, "loopback listener"):
		o.PublicURL, o.AllowedOrigins, o.Loopback = "", nil, true
	case strings.Contains(comment, "without auth"):
		o.Auth, o.Anonymous = nil, access.Anonymous("acme")
	case strings.Contains(comment, "draining"):
		o.Draining = func() bool { return true }
	}
	e, err := NewEndpoint(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(e)
	defer server.Close()

	var out []txtar.File
	for i := 0; i < len(archive.Files); i++ {
		name, ok := strings.CutSuffix(archive.Files[i].Name, " >")
		if !ok {
			continue
		}
		out = append(out, archive.Files[i])
		got := exchangeRaw(t, server.Listener.Addr().String(), string(archive.Files[i].Data))
		out = append(out, txtar.File{Name: name + " <", Data: []byte(got)})
		if i+1 < len(archive.Files) && archive.Files[i+1].Name == name+" <" && !*update {
			if diff := cmp.Diff(string(archive.Files[i+1].Data), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		} else if !*update {
			t.Errorf("%s: no response to compare with; run with -update", name)
		}
	}
	if *update {
		archive.Files = out
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const triple = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`

// expand turns the shorthand of a request into its bytes: @json, @legacy [VERSION], @modern METHOD [NAME] and @token T are
// header lines, TRIPLE stands for what a modern _meta must have, and Content-Length is added where nobody said otherwise.
func expand(text string) []byte {
	head, body, _ := strings.Cut(text, "\n\n")
	body = strings.ReplaceAll(strings.TrimSuffix(body, "\n"), "TRIPLE", triple)
	head, body = fill(head), fill(body)
	const json = "Content-Type: application/json\nAccept: application/json, text/event-stream"
	var b strings.Builder
	host, length := true, true
	for i, line := range strings.Split(strings.TrimRight(head, "\n"), "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case i == 0:
			line += " HTTP/1.1"
		case word == "@json":
			line = json
		case word == "@legacy":
			line = json + "\nMCP-Protocol-Version: " + rest
		case word == "@modern":
			method, name, named := strings.Cut(rest, " ")
			line = json + "\nMCP-Protocol-Version: 2026-07-28\nMcp-Method: " + method
			if named {
				line += "\nMcp-Name: " + name
			}
		case word == "@token":
			line = "Authorization: Bearer " + rest
		case strings.EqualFold(word, "Host:"):
			host = false
		case strings.EqualFold(word, "Content-Length:"), strings.EqualFold(word, "Transfer-Encoding:"):
			length = false
			body = strings.ReplaceAll(body, "\n", "\r\n") // chunks
		}
		b.WriteString(strings.ReplaceAll(line, "\n", "\r\n") + "\r\n")
	}
	if host {
		b.WriteString("Host: weir.test\r\n")
	}
	if length {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	return []byte(b.String() + "\r\n" + body)
}

// fill replaces FILL70000 by as many letters.
func fill(s string) string {
	before, rest, ok := strings.Cut(s, "FILL")
	if !ok {
		return s
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	n, _ := strconv.Atoi(rest[:end])
	return before + strings.Repeat("x", n) + rest[end:]
}

// exchangeRaw sends a request as it stands and returns the response, headers sorted and without Date.
func exchangeRaw(t *testing.T, addr, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(expand(request)); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n", resp.Status)
	var lines []string
	for name, values := range resp.Header {
		for _, v := range values {
			if name != "Date" && name != "Content-Length" {
				lines = append(lines, name+": "+v)
			}
		}
	}
	if resp.Close {
		lines = append(lines, "Connection: close")
	}
	slices.Sort(lines)
	for _, l := range lines {
		fmt.Fprintln(&b, l)
	}
	if len(body) > 0 {
		b.WriteString("\n" + string(body))
		if !bytes.HasSuffix(body, []byte("\n")) {
			b.WriteByte('\n')
		}
	}
	return b.String()
}
