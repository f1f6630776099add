package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ear is a client that listens.
type ear struct {
	cancel func()

	mu    sync.Mutex // guards what follows
	msgs  []string
	ended bool
}

// listen opens a stream and waits for its acknowledgment, which must say what want says.
func (c client) listen(t *testing.T, notifications, want string) *ear {
	t.Helper()
	return c.hear(t, c.body("1", "subscriptions/listen", `{"notifications":`+notifications+`}`), want)
}

// hear is listen with the whole request.
func (c client) hear(t *testing.T, body, want string) *ear {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = c.headers("subscriptions/listen", "{}")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		t.Fatalf("listen on %s: %d %s", c.url, resp.StatusCode, body)
	}
	e := &ear{cancel: cancel}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer resp.Body.Close()
		for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
			if doc, ok := strings.CutPrefix(sc.Text(), "data: "); ok {
				e.mu.Lock()
				e.msgs = append(e.msgs, doc)
				e.mu.Unlock()
			}
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.ended = true
	}()
	t.Cleanup(func() { cancel(); <-done })
	e.until(t, "acknowledged", func(msgs []string, _ bool) bool { return len(msgs) > 0 })
	ack := `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1},"notifications":` + want + `}}`
	e.mu.Lock()
	got := e.msgs[0]
	e.msgs = e.msgs[1:]
	e.mu.Unlock()
	if got != ack {
		t.Fatalf("first message on %s:\n%s\nwant\n%s", c.url, got, ack)
	}
	return e
}

func (e *ear) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	msgs := e.msgs
	e.msgs = nil
	return msgs
}

func (e *ear) until(t *testing.T, what string, ok func(msgs []string, ended bool) bool) {
	t.Helper()
	eventually(t, what, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !ok(e.msgs, e.ended) {
			return fmt.Errorf("%d messages, ended %t: %v", len(e.msgs), e.ended, e.msgs)
		}
		return nil
	})
}

// hears waits for a notification with its parameters beside _meta.
func (e *ear) hears(t *testing.T, method, more string) {
	t.Helper()
	want := `{"jsonrpc":"2.0","method":"` + method + `","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}` + more + `}}`
	e.until(t, want, func(msgs []string, _ bool) bool { return slices.Contains(msgs, want) })
}

// ends waits for the end that the specification wants of a server.
func (e *ear) ends(t *testing.T, why string) {
	t.Helper()
	const want = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`
	e.until(t, why, func(msgs []string, ended bool) bool { return ended && len(msgs) > 0 && msgs[len(msgs)-1] == want })
}

// slowly makes the interval of discovery so long that only what backends announce is found, and starts a second control plane.
func (p *pair) slowly(t *testing.T) (second *process) {
	t.Helper()
	doc, err := os.ReadFile(p.controlCfg)
	if err != nil {
		t.Fatal(err)
	}
	slow := strings.Replace(string(doc), "interval: 1s", "interval: 1h", 1)
	if err := os.WriteFile(p.controlCfg, []byte(slow), 0o600); err != nil {
		t.Fatal(err)
	}
	p.control.terminate(t)
	p.restartControl(t)
	return start(t, "weir-controlplane", "--config", file(t, "second.yaml", slow))
}

// listening waits until a control plane listens to backends.
func listening(t *testing.T, control *process, backends ...string) {
	t.Helper()
	eventually(t, "backends are listened to", func() error {
		_, body, err := get("http://" + control.ready["ops"] + "/metrics")
		if err != nil {
			return err
		}
		for _, b := range backends {
			if !strings.Contains(body, `weir_discovery_listening{backend="`+b+`"} 1`) {
				return fmt.Errorf("not to %s", b)
			}
		}
		return nil
	})
}

func TestListChangesReachListenersOnEveryReplica(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	second := p.slowly(t)
	for _, control := range []*process{p.control, second} {
		listening(t, control, "alpha", "beta", "gamma")
	}
	token := p.token(t, "acme")
	modern := func(url string) client { return client{url: url, token: token, version: "2026-07-28"} }
	const ask = `{"toolsListChanged":true,"promptsListChanged":true}`
	ears := map[string]*ear{
		"first":     modern(p.control.url()).listen(t, ask, ask),
		"second":    modern(second.url()).listen(t, ask, ask),
		"dataplane": modern(p.data[0].url()).listen(t, ask, ask),
	}
	deaf := modern(second.url()).listen(t, `{"promptsListChanged":true}`, `{"promptsListChanged":true}`)
	for _, b := range []*sdkBackend{p.alpha, p.gamma} { // one of either era
		began := time.Now()
		b.addTool("announced")
		for name, e := range ears {
			e.hears(t, "notifications/tools/list_changed", "")
			t.Logf("%s → %s: %v", b.name, name, time.Since(began).Round(time.Millisecond))
			e.take()
		}
	}
	tools, err := modern(second.url()).tools()
	if err != nil || !slices.Contains(tools, "a__announced") || !slices.Contains(tools, "g__announced") {
		t.Errorf("the list after the notification: %v, %v", tools, err)
	}
	if msgs := deaf.take(); len(msgs) != 0 {
		t.Errorf("a listener that did not ask for tools heard %v", msgs)
	}
	legacy := client{url: second.url(), token: token, version: "2025-11-25"}
	init := string(legacy.must(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}`))
	if strings.Contains(init, "listChanged") || strings.Contains(init, "subscribe") {
		t.Errorf("a legacy client is promised what it can't have: %s", init)
	}
	if code := second.terminate(t); code != 0 {
		t.Errorf("exit status %d", code)
	}
	ears["second"].ends(t, "a control plane that stops")
}

// noticeBackend is a modern server made by hand that has one resource and counts the streams about it.
type noticeBackend struct {
	url string

	mu      sync.Mutex // guards what follows
	streams map[chan string]bool
	ever    int
}

func newNoticeBackend(t *testing.T) *noticeBackend {
	b := &noticeBackend{streams: map[chan string]bool{}}
	raw := newRawBackend(t, map[string]string{
		"server/discover":          strings.Replace(discoverResult("notice", "resources"), `"resources":{}`, `"resources":{"subscribe":true}`, 1),
		"resources/list":           `{"resultType":"complete","resources":[{"uri":"note://1","name":"one"}],"ttlMs":1,"cacheScope":"public"}`,
		"resources/templates/list": `{"resultType":"complete","resourceTemplates":[],"ttlMs":1,"cacheScope":"public"}`,
	})
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") != "subscriptions/listen" {
			raw.ServeHTTP(w, r)
			return
		}
		b.serve(w, r)
	}))
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	b.url = hs.URL
	return b
}

func (b *noticeBackend) serve(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Params struct{ Notifications json.RawMessage }
	}
	if json.NewDecoder(r.Body).Decode(&m) != nil {
		return
	}
	say := make(chan string, 10)
	b.mu.Lock()
	b.streams[say] = true
	b.ever++
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.streams, say)
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(method, more string) {
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":%q,\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":%s},%s}}\n\n", method, m.ID, more)
		_ = http.NewResponseController(w).Flush() // a client that left is noticed below
	}
	send("notifications/subscriptions/acknowledged", `"notifications":`+string(m.Params.Notifications))
	for {
		select {
		case <-r.Context().Done():
			return
		case uri := <-say:
			send("notifications/resources/updated", `"uri":"`+uri+`"`)
		}
	}
}

func (b *noticeBackend) announce(uri string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.streams {
		s <- uri
	}
}

func (b *noticeBackend) counts() (open, ever int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.streams), b.ever
}

func TestResourceUpdatesFanIn(t *testing.T) {
	t.Parallel()
	b := newNoticeBackend(t)
	p := newPair(t, fmt.Sprintf("  notice: {url: %q}\n", b.url), "  acme:\n    backends: [{name: notice}]\n  other:\n    backends: [{name: notice}]\n")
	const ask, agreed = `{"resourceSubscriptions":["note://1","none://2"]}`, `{"resourceSubscriptions":["note://1"]}`
	through := func(url, host string) client { return client{url: url, token: p.token(t, host), version: "2026-07-28"} }
	eventually(t, "the host is served", func() error {
		_, err := through(p.data[1].url(), "acme").names("resources/list", "resources", "uri")
		return err
	})
	ears := []*ear{
		through(p.control.url(), "acme").listen(t, ask, agreed),
		through(p.data[1].url(), "acme").listen(t, ask, agreed),
		through(p.control.url(), "other").listen(t, ask, agreed),
	}
	b.announce("note://1")
	for _, e := range ears {
		e.hears(t, "notifications/resources/updated", `,"uri":"note://1"`)
		e.take()
	}
	ears[0].cancel()
	ears[2].cancel()
	ears[0].until(t, "gone", func(_ []string, ended bool) bool { return ended })
	b.announce("note://1")
	ears[1].hears(t, "notifications/resources/updated", `,"uri":"note://1"`)
	if open, ever := b.counts(); open != 1 || ever != 1 {
		t.Errorf("three listeners: %d streams are open, %d ever were; want 1 and 1", open, ever)
	}
	ears[1].cancel()
	eventually(t, "the last listener's end is the subscription's", func() error {
		if open, _ := b.counts(); open != 0 {
			return fmt.Errorf("%d open", open)
		}
		return nil
	})
}

func TestStreamsEndWithTheirToken(t *testing.T) {
	t.Parallel()
	b := newModernBackend(t, "alpha")
	p := newPair(t, fmt.Sprintf("  alpha: {url: %q}\n", b.url), "  acme:\n    backends: [{name: alpha}]\n")
	const ask = `{"toolsListChanged":true}`
	var short, revoked, other []*ear
	for _, url := range []string{p.control.url(), p.data[0].url()} {
		as := func(more ...string) client {
			return client{url: url, token: p.token(t, "acme", more...), version: "2026-07-28"}
		}
		short = append(short, as("--ttl", "20s").listen(t, ask, ask))
		revoked = append(revoked, as("--subject", "mallory").listen(t, ask, ask))
		other = append(other, as().listen(t, ask, ask))
	}
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	began := mustRevoke(t, p.control, `"subject":"mallory","until":"`+until+`"`)
	for _, e := range revoked {
		e.until(t, "the token is revoked", func(msgs []string, ended bool) bool { return ended && len(msgs) == 1 })
		t.Logf("ended %v after the revocation", time.Since(began).Round(time.Millisecond))
	}
	for _, e := range short {
		e.ends(t, "the token has expired")
	}
	for _, e := range other {
		if msgs := e.take(); len(msgs) != 0 {
			t.Errorf("a stream of another token: %v", msgs)
		}
	}
}

func TestStreamsEndWithTheirDataplane(t *testing.T) {
	t.Parallel()
	b := newModernBackend(t, "alpha")
	p := newPair(t, fmt.Sprintf("  alpha: {url: %q}\n", b.url), "  acme:\n    backends: [{name: alpha}]\n")
	const ask = `{"toolsListChanged":true}`
	e := p.client(t, 0, "acme", "2026-07-28").listen(t, ask, ask)
	if err := p.data[0].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	e.ends(t, "the dataplane stops")
	if code := p.data[0].wait(t); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

func TestListenThroughStandalone(t *testing.T) {
	t.Parallel()
	b := newModernBackend(t, "alpha")
	s := startStandalone(t, "--backend", b.url)
	const ask = `{"toolsListChanged":true}`
	e := s.client("2026-07-28").listen(t, ask, ask)
	began := time.Now()
	b.addTool("announced")
	e.hears(t, "notifications/tools/list_changed", "")
	t.Logf("heard after %v", time.Since(began).Round(time.Millisecond))
	if code := s.terminate(t); code != 0 {
		t.Errorf("exit status %d", code)
	}
	e.ends(t, "the process stops")
}
