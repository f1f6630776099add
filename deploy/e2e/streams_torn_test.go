package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An answer that is none: what the backend does, and what the client is told.
type tornAnswer struct {
	do      func(w http.ResponseWriter, r *http.Request, m message)
	reason  string
	modern  bool  // a legacy backend may do this, or the SDK makes sense of it
	retryMs int64 // data.retryAfterMs
}

// leak stands in everything that a backend says; no client may see it.
const leak = "DETAIL-OF-THE-BACKEND"

// cut breaks the connection in the middle of an answer.
func cut(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func status(code int, header ...string) func(http.ResponseWriter, *http.Request, message) {
	return func(w http.ResponseWriter, _ *http.Request, m message) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		if code != http.StatusNoContent && code != http.StatusNotModified {
			io.WriteString(w, `{"detail":"`+leak+`"}`)
		}
	}
}

// streamed begins a stream with one progress event; then happens what the case says.
func streamed(then func(w http.ResponseWriter, r *http.Request, m message)) func(http.ResponseWriter, *http.Request, message) {
	return func(w http.ResponseWriter, r *http.Request, m message) {
		stream(w)
		write(w, event(progress(`"p"`, 1)))
		then(w, r, m)
	}
}

func says(doc string) func(http.ResponseWriter, *http.Request, message) {
	return func(w http.ResponseWriter, _ *http.Request, m message) {
		write(w, strings.ReplaceAll(doc, "ID", string(m.ID)))
	}
}

func document(doc string) func(http.ResponseWriter, *http.Request, message) {
	return func(w http.ResponseWriter, _ *http.Request, m message) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, strings.ReplaceAll(doc, "ID", string(m.ID)))
	}
}

func untilTheClientLeaves(_ http.ResponseWriter, r *http.Request, _ message) { <-r.Context().Done() }

// streamsThatTear begin well: the error is the last event of the client's stream.
var streamsThatTear = map[string]tornAnswer{
	"ends before the response": {do: streamed(func(http.ResponseWriter, *http.Request, message) {}), reason: "bad_response"},
	"breaks off":               {do: streamed(func(w http.ResponseWriter, _ *http.Request, _ message) { cut(w) }), reason: "reset"},
	"breaks off in an event": {do: streamed(func(w http.ResponseWriter, _ *http.Request, m message) {
		write(w, `data: {"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"`+leak)
		cut(w)
	}), reason: "reset"},
	"ends in an event":            {do: streamed(says(`data: {"jsonrpc":"2.0","id":ID,"result":{"` + leak)), reason: "bad_response"},
	"a foreign id":                {do: streamed(says(event(`{"jsonrpc":"2.0","id":"` + leak + `","result":{}}`))), reason: "bad_response"},
	"the id as another type":      {do: streamed(says(event(`{"jsonrpc":"2.0","id":"ID","result":{}}`))), reason: "bad_response"},
	"a server's request":          {do: streamed(says(event(`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"` + leak + `":1}}`))), reason: "bad_response", modern: true},
	"an event that is no JSON":    {do: streamed(says(event(`{"` + leak))), reason: "bad_response"},
	"an event that is no message": {do: streamed(says(event(`{"` + leak + `":1}`))), reason: "bad_response"},
	"a batch":                     {do: streamed(says(event(`[{"jsonrpc":"2.0","id":ID,"result":{}}]`))), reason: "bad_response"},
	"falls silent":                {do: streamed(untilTheClientLeaves), reason: "timeout"},
	"an event over the limit":     {do: streamed(says(event(`{"jsonrpc":"2.0","id":ID,"result":{"x":"` + strings.Repeat("x", 70<<10) + `"}}`))), reason: "too_large"},
}

// answersThatAreNone never become a stream of the client's.
var answersThatAreNone = map[string]tornAnswer{
	"no answer at all":         {do: untilTheClientLeaves, reason: "timeout"},
	"closes without an answer": {do: func(w http.ResponseWriter, _ *http.Request, _ message) { cut(w) }, reason: "reset"},
	"a document without an end": {do: func(w http.ResponseWriter, r *http.Request, m message) {
		document(`{"jsonrpc":"2.0","id":ID,"result":{`)(w, r, m)
		flush(w)
		cut(w)
	}, reason: "reset"},
	"a document cut short":       {do: document(`{"jsonrpc":"2.0","id":ID,"result":{"` + leak), reason: "bad_response"},
	"a document of another id":   {do: document(`{"jsonrpc":"2.0","id":"` + leak + `","result":{}}`), reason: "bad_response"},
	"a document that asks":       {do: document(`{"jsonrpc":"2.0","id":1,"method":"` + leak + `","params":{}}`), reason: "bad_response"},
	"an empty document":          {do: document(``), reason: "bad_response"},
	"a result that is no object": {do: document(`{"jsonrpc":"2.0","id":ID,"result":"` + leak + `"}`), reason: "bad_response"},
	"result and error":           {do: document(`{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"` + leak + `"}}`), reason: "bad_response", modern: true},
	"a document over the limit":  {do: document(`{"jsonrpc":"2.0","id":ID,"result":{"x":"` + strings.Repeat("x", 70<<10) + `"}}`), reason: "too_large"},
	"HTML": {do: func(w http.ResponseWriter, _ *http.Request, _ message) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, leak)
	}, reason: "bad_response"},
	"gzip": {do: func(w http.ResponseWriter, r *http.Request, m message) {
		w.Header().Set("Content-Encoding", "gzip")
		document(`{"jsonrpc":"2.0","id":ID,"result":{}}`)(w, r, m)
	}, reason: "bad_response"},
	"202":                     {do: status(202), reason: "bad_response"},
	"204":                     {do: status(204), reason: "bad_response"},
	"400 without an error":    {do: status(400, "Content-Type", "application/json"), reason: "bad_response"},
	"404 of a web server":     {do: status(404, "Content-Type", "text/html"), reason: "bad_response"},
	"401":                     {do: status(401, "WWW-Authenticate", `Bearer realm="`+leak+`"`), reason: "auth_failed"},
	"403":                     {do: status(403), reason: "auth_failed"},
	"429 with a time":         {do: status(429, "Retry-After", "7"), reason: "rate_limited", retryMs: 7000},
	"429 without":             {do: status(429), reason: "rate_limited"},
	"500":                     {do: status(500), reason: "bad_response"},
	"502 of a proxy":          {do: status(502), reason: "unreachable"},
	"503 with a time":         {do: status(503, "Retry-After", "3"), reason: "overloaded", retryMs: 3000},
	"504 of a proxy":          {do: status(504), reason: "timeout"},
	"a redirect":              {do: status(302, "Location", "http://127.0.0.1:1/"+leak), reason: "bad_response"},
	"a redirect that repeats": {do: status(307, "Location", "http://127.0.0.1:1/"+leak), reason: "bad_response"},
}

// Whatever a backend does, the client gets an answer, in bounded time, that says which kind of failure it was and nothing of the
// backend's own words.
func TestEveryBrokenAnswerIsAnError(t *testing.T) {
	t.Parallel()
	var current atomic.Pointer[tornAnswer]
	for era, version := range eras {
		t.Run(era+" backend", func(t *testing.T) {
			b := newScripted(t, version, func(w http.ResponseWriter, r *http.Request, m message) { current.Load().do(w, r, m) })
			g := startGateway(t, b.yaml("b", ", timeouts: {response: 200ms, idle: 200ms}"), "  limits: {response: 64KiB}\n")
			clients := []client{g.client(t, "alice", modernVersion), g.client(t, "alice", legacyVersion)}
			for name, tt := range streamsThatTear {
				if tt.modern && version != modernVersion {
					continue
				}
				current.Store(&tt)
				for _, c := range clients {
					tt.check(t, name, c, 2)
				}
			}
			for name, tt := range answersThatAreNone {
				if tt.modern && version != modernVersion {
					continue
				}
				current.Store(&tt)
				for _, c := range clients {
					tt.check(t, name, c, 0)
				}
			}
			ok := tornAnswer{do: document(resultOf(message{ID: []byte("ID")}, done("ok")))}
			current.Store(&ok)
			if got := text(t, clients[0].must(t, "tools/call", `{"name":"b__run","arguments":{}}`)); got != "ok" {
				t.Errorf("after it all the backend answers %q", got)
			}
		})
	}
}

// check makes the call; events says how many the client must get.
func (tt tornAnswer) check(t *testing.T, name string, c client, events int) {
	t.Helper()
	a, err := c.call(`"mine"`, "tools/call", fmt.Sprintf(withProgress, "a"))
	if err != nil {
		t.Errorf("%s, client %s: %v", name, c.version, err)
		return
	}
	want := fmt.Sprintf(`{"reason":%q,"sent":true}`, tt.reason)
	if tt.retryMs != 0 {
		want = fmt.Sprintf(`{"reason":%q,"retryAfterMs":%d,"sent":true}`, tt.reason, tt.retryMs)
	}
	switch e := a.rpc.Error; {
	case e == nil || e.Code != -32603 || a.status != http.StatusOK || string(a.rpc.ID) != `"mine"`:
		t.Errorf("%s, client %s: status %d, %s; want 200, -32603 with reason %s", name, c.version, a.status, a.body, tt.reason)
	case cmp.Diff(want, string(e.Data)) != "":
		t.Errorf("%s, client %s: data %s, want %s", name, c.version, e.Data, want)
	case len(a.events) != events:
		t.Errorf("%s, client %s: %d events, want %d: %s", name, c.version, len(a.events), events, a.body)
	case events > 0 && string(a.events[0]) != progress(`"p"`, 1):
		t.Errorf("%s, client %s: the first event is %s", name, c.version, a.events[0])
	}
	if strings.Contains(a.body, leak) || strings.Contains(a.body, "127.0.0.1") || strings.Contains(fmt.Sprint(a.header), leak) {
		t.Errorf("%s, client %s: the client sees the backend's own words: %s", name, c.version, a.body)
	}
}
