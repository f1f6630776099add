package httpdoc

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/controlplane/internal/source"
)

// registry is an HTTP server whose answer a test steers.
type registry struct {
	*httptest.Server
	mu       sync.Mutex // guards what follows
	answer   http.HandlerFunc
	requests []*http.Request
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	g := &registry{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		answer := g.answer
		g.requests = append(g.requests, r)
		g.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *registry) answers(h http.HandlerFunc) { g.mu.Lock(); g.answer = h; g.mu.Unlock() }

func (g *registry) last() *http.Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.requests[len(g.requests)-1]
}

func body(status int, etag, doc string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, doc)
	}
}

func newSource(t *testing.T, url string, edit ...func(*config.HTTPSource)) *Source {
	t.Helper()
	conf := &config.HTTPSource{URL: url, Interval: time.Hour, Timeout: 10 * time.Second}
	for _, e := range edit {
		e(conf)
	}
	s, err := New(Options{Config: conf, Expand: func(s string) (string, error) {
		return strings.ReplaceAll(s, "${env:T}", "secret"), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

const one = `[{"name":"a","url":"https://a.example/mcp"}]`

// say is what a report says, in short.
func say(r source.Report) string {
	if r.Err != nil {
		return "error: " + r.Err.Error()
	}
	if r.Unchanged {
		return "unchanged"
	}
	var names []string
	for _, e := range r.Entries {
		names = append(names, e.Name)
	}
	return strings.Join(names, ",")
}

func TestETag(t *testing.T) {
	g := newRegistry(t)
	s := newSource(t, g.URL)
	conditional := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `W/"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		body(200, `W/"1"`, one)(w, r)
	}
	for _, step := range []struct {
		answer          http.HandlerFunc
		condition, want string
	}{
		{body(304, "", ""), "", "error: status 304: redirects are not followed"}, // to what was not asked
		{conditional, "", "a"},
		{conditional, `W/"1"`, "unchanged"},
		{body(200, `"bad"`, `[{`), `W/"1"`, "error: the document is not JSON"},
		{body(503, `"worse"`, one), `W/"1"`, "error: status 503"},
		{conditional, `W/"1"`, "unchanged"}, // of the last good one
		{body(200, "", one), `W/"1"`, "a"},
		{body(200, `"2"`, `[]`), "", ""}, // the one before had no tag
		{body(304, "", ""), `"2"`, "unchanged"},
	} {
		g.answers(step.answer)
		got := say(s.poll(t.Context()))
		if !strings.HasPrefix(got, step.want) || got == "" != (step.want == "") {
			t.Errorf("got %q, want %q", got, step.want)
		}
		if c := g.last().Header.Get("If-None-Match"); c != step.condition {
			t.Errorf("asked with If-None-Match %q, want %q", c, step.condition)
		}
	}
}

func TestFailures(t *testing.T) {
	elsewhere := newRegistry(t)
	elsewhere.answers(body(200, "", one))
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"a redirect":       {http.RedirectHandler(elsewhere.URL, http.StatusFound).ServeHTTP, "status 302: redirects are not followed"},
		"no such document": {body(404, "", "[]"), "status 404"},
		"nothing":          {body(204, "", ""), "status 204"},
		"too large":        {body(200, "", strings.Repeat(" ", maxDocument)+"[]"), "over 4 MiB"},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "[]")
		}, "read the document: unexpected EOF"},
		"compressed, which was not asked for": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			fmt.Fprint(w, "[]")
		}, "Content-Encoding"},
		"broken off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRegistry(t)
			g.answers(tt.answer)
			r := newSource(t, g.URL+"/?key=hunter2").poll(t.Context())
			if r.Err == nil || !strings.Contains(r.Err.Error(), tt.want) || strings.Contains(r.Err.Error(), "hunter2") {
				t.Errorf("%v, want an error with %q that shows no URL", r.Err, tt.want)
			}
		})
	}
	if len(elsewhere.requests) > 0 {
		t.Error("the redirect was followed")
	}
}

func TestAServerThatHangsOrIsGone(t *testing.T) {
	g := newRegistry(t)
	g.answers(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := newSource(t, g.URL, func(c *config.HTTPSource) { c.Timeout = 50 * time.Millisecond })
	if r := s.poll(t.Context()); r.Err == nil {
		t.Error("no error of a server that hangs")
	}
	g.Close()
	if r := s.poll(t.Context()); r.Err == nil || strings.Contains(r.Err.Error(), "http://") {
		t.Errorf("of a server that is gone: %v", r.Err)
	}
	if r := newSource(t, "http://169.254.169.254/").poll(t.Context()); r.Err == nil || !strings.Contains(r.Err.Error(), "refused") {
		t.Errorf("of a metadata service: %v", r.Err)
	}
}

func TestHeadersAreExpandedForEachRequest(t *testing.T) {
	g := newRegistry(t)
	g.answers(body(200, "", one))
	s := newSource(t, g.URL, func(c *config.HTTPSource) { c.Headers = map[string]string{"Authorization": "Bearer ${env:T}"} })
	if got := say(s.poll(t.Context())); got != "a" {
		t.Fatal(got)
	}
	if got := g.last().Header.Get("Authorization"); got != "Bearer secret" {
		t.Errorf("Authorization = %q", got)
	}
	s.o.Expand = func(string) (string, error) { return "", fmt.Errorf("no such file") }
	if got := say(s.poll(t.Context())); got != "error: header Authorization: no such file" {
		t.Error(got)
	}
}

func TestRunPolls(t *testing.T) {
	g := newRegistry(t)
	g.answers(body(200, "", one))
	s := newSource(t, g.URL, func(c *config.HTTPSource) { c.Interval = time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reports := make(chan source.Report)
	done := make(chan error, 1)
	go func() {
		done <- s.Run(ctx, func(r source.Report) {
			select {
			case reports <- r:
			case <-ctx.Done():
			}
		})
	}()
	for range 3 {
		if got := say(<-reports); got != "a" {
			t.Error(got)
		}
	}
	g.answers(body(500, "", ""))
	for say(<-reports) != "error: status 500" {
	}
	g.answers(body(200, "", `[]`))
	for say(<-reports) != "" {
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}
