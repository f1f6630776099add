package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const withProgress = `{"name":"b__run","arguments":{"who":"%s"},"_meta":{"progressToken":"p"}}`

// The backend writes an event only when the client has the one before: whatever gathers events on the way hangs here.
func TestProgressArrivesAsItIsWritten(t *testing.T) {
	t.Parallel()
	const steps = 20
	got, wrote := make(chan struct{}), make(chan time.Time, 1)
	inEachCell(t, func(w http.ResponseWriter, r *http.Request, m message) {
		stream(w)
		for i := range steps {
			wrote <- time.Now()
			write(w, event(progress(`"p"`, i)))
			select {
			case <-got:
			case <-r.Context().Done():
				return
			}
		}
		write(w, event(resultOf(m, done("end"))))
	}, func(t *testing.T, c client, b *scripted) {
		o := c.open(t, "1", "tools/call", fmt.Sprintf(withProgress, "a"))
		var worst time.Duration
		for i := range steps {
			if diff := cmp.Diff(progress(`"p"`, i), o.mustNext(t)); diff != "" {
				t.Fatalf("event %d (-want +got):\n%s", i, diff)
			}
			worst = max(worst, time.Since(<-wrote))
			got <- struct{}{}
		}
		if last := o.mustNext(t); !strings.Contains(last, `"text":"end"`) {
			t.Errorf("the last event is %s", last)
		}
		if _, err := o.next(); err != io.EOF {
			t.Errorf("after the response: %v, want the end", err)
		}
		want := http.Header{"Content-Type": {"text/event-stream"}, "Cache-Control": {"no-cache, no-transform"}, "X-Accel-Buffering": {"no"},
			"Date": o.resp.Header["Date"], "Vary": {"Origin"}}
		if diff := cmp.Diff(want, o.resp.Header); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
		t.Logf("slowest of %d events from write to read: %v", steps, worst)
	})
}

// Callers choose their tokens themselves, so two of them may choose the same one; and a backend may mix its calls up.
func TestProgressNeverCrosses(t *testing.T) {
	t.Parallel()
	const steps = 50
	const callers = 4
	var begun sync.WaitGroup
	handle := func(w http.ResponseWriter, r *http.Request, m message) {
		who := m.argument("who")
		begun.Done()
		begun.Wait() // all of them run at once
		stream(w)
		for i := range steps {
			for _, token := range []string{`"p"`, `"q"`, `"` + who + `"`, `7`, `null`} { // only the first is the caller's
				write(w, event(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":%q}}`, token, i, who)))
			}
		}
		write(w, event(resultOf(m, done(who))))
	}
	inEachCell(t, handle, func(t *testing.T, c client, b *scripted) {
		begun.Add(callers)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				who := fmt.Sprint("caller-", i)
				a, err := c.call("1", "tools/call", fmt.Sprintf(withProgress, who))
				if err != nil {
					t.Error(err)
					return
				}
				var want, got []string
				for n := range steps {
					want = append(want, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":%d,"message":%q}}`, n, who))
				}
				for _, e := range a.events[:len(a.events)-1] {
					got = append(got, string(e))
				}
				if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(string(a.rpc.Result), who) {
					t.Errorf("%s got %s and events (-want +got):\n%s", who, a.rpc.Result, diff)
				}
			})
		}
		wg.Wait()
	})
}

// A caller who asked for no progress gets none, and a token is a number or a string as sent.
func TestProgressNeedsTheExactToken(t *testing.T) {
	t.Parallel()
	inEachCell(t, func(w http.ResponseWriter, _ *http.Request, m message) {
		stream(w)
		for _, token := range []string{`1`, `"1"`, `9007199254740993`, `9007199254740992`} {
			write(w, event(progress(token, 1)))
		}
		write(w, event(resultOf(m, done("end"))))
	}, func(t *testing.T, c client, b *scripted) {
		for meta, want := range map[string]string{
			`{"k":1}`: "", `{"progressToken":1}`: `1`, `{"progressToken":"1"}`: `"1"`, `{"progressToken":9007199254740993}`: `9007199254740993`,
		} {
			a, err := c.call("1", "tools/call", `{"name":"b__run","arguments":{},"_meta":`+meta+`}`)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range a.events[:len(a.events)-1] {
				got = append(got, string(e))
			}
			var wanted []string
			if want != "" {
				wanted = []string{progress(want, 1)}
			}
			if diff := cmp.Diff(wanted, got); diff != "" {
				t.Errorf("_meta %s: events (-want +got):\n%s", meta, diff)
			}
		}
	})
}

// A client that does not read holds back its own call, and nobody else's; what waits for it on the way is bounded.
func TestASlowReaderHoldsBackItsOwnCallOnly(t *testing.T) {
	t.Parallel()
	pad := strings.Repeat("x", 64<<10)
	var written atomic.Int64
	ended := make(chan struct{}, 1)
	inEachCell(t, func(w http.ResponseWriter, r *http.Request, m message) {
		if m.argument("who") != "slow" {
			writeResult(w, m, done("quick"))
			return
		}
		stream(w)
		for i := 0; r.Context().Err() == nil; i++ {
			if _, err := io.WriteString(w, event(fmt.Sprintf(
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":%d,"message":%q}}`, i, pad))); err != nil {
				break
			}
			flush(w)
			written.Add(int64(len(pad)))
		}
		ended <- struct{}{}
	}, func(t *testing.T, c client, b *scripted) {
		written.Store(0)
		o := c.open(t, "1", "tools/call", fmt.Sprintf(withProgress, "slow"))
		var last int64
		eventually(t, "the backend is held back", func() error {
			now := written.Load()
			if still := now == last && now > 0; still {
				return nil
			}
			last = now
			time.Sleep(200 * time.Millisecond) // between two looks
			return errNotYet
		})
		held := written.Load()
		for range 20 {
			if got := text(t, c.must(t, "tools/call", `{"name":"b__run","arguments":{"who":"other"}}`)); got != "quick" {
				t.Errorf("another call answered %q", got)
			}
		}
		t.Logf("held back after %d KiB", held>>10)
		if held > 48<<20 { // of which the kernel's buffers of two connections are the most
			t.Errorf("%d bytes wait on the way", held)
		}
		for i := range int(held / int64(len(pad))) { // nothing is lost or out of order
			if got := o.mustNext(t); !strings.Contains(got[:min(len(got), 120)], fmt.Sprintf(`"progress":%d,`, i)) {
				t.Fatalf("event %d is %.120s", i, got)
			}
		}
		o.close()
		soon(t, "the backend hears that the client left", ended)
	})
}

// A client that leaves takes its call with it: before the answer's headers, and in the middle of a stream.
func TestAClientThatLeavesCancelsUpstream(t *testing.T) {
	t.Parallel()
	arrived, gone := make(chan message, 1), make(chan time.Time, 1)
	inEachCell(t, func(w http.ResponseWriter, r *http.Request, m message) {
		if m.argument("who") == "stream" {
			stream(w)
			write(w, event(progress(`"p"`, 1)))
		}
		arrived <- m
		<-r.Context().Done()
		gone <- time.Now()
	}, func(t *testing.T, c client, b *scripted) {
		for _, who := range []string{"headers", "stream"} {
			ctx, cancel := context.WithCancel(t.Context())
			returned := make(chan error, 1)
			params := fmt.Sprintf(withProgress, who)
			go func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(c.body(`"mine"`, "tools/call", params)))
				if err != nil {
					returned <- err
					return
				}
				req.Header = c.headers("tools/call", params)
				resp, err := httpClient.Do(req)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				returned <- err
			}()
			call := soon(t, "the call", arrived)
			left := time.Now()
			cancel()
			if err := soon(t, "the client", returned); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: the client got %v", who, err)
			}
			took := soon(t, "the backend hears of it", gone).Sub(left)
			t.Logf("%s: cancelled upstream after %v", who, took)
			if took > 10*time.Second { // the promise is one second; this machine may be busy
				t.Errorf("%s: cancelled upstream after %v", who, took)
			}
			if b.version == modernVersion {
				continue
			}
			eventually(t, "notifications/cancelled", func() error {
				for _, m := range b.ofMethod("notifications/cancelled") {
					if strings.Contains(string(m.Params), `"requestId":`+string(call.ID)+`,`) && m.header.Get("Mcp-Session-Id") == sessionID {
						return nil
					}
				}
				return errNotYet
			})
		}
		if b.version == legacyVersion {
			eventually(t, "the end of the sessions", func() error {
				ends := b.all(func(m message) bool { return m.httpMethod == http.MethodDelete })
				if want := len(b.ofMethod("initialize")); len(ends) != want {
					return fmt.Errorf("%d sessions ended of %d", len(ends), want)
				}
				return nil
			})
		} else if n := len(b.ofMethod("notifications/cancelled")); n != 0 {
			t.Errorf("a modern backend got %d notifications/cancelled", n)
		}
	})
}

// A stream of every shape that the standard allows comes out in one shape.
func TestStreamsOfEveryShape(t *testing.T) {
	t.Parallel()
	one, two := progress(`"p"`, 1), progress(`"p"`, 2)
	shapes := map[string]func(response string) string{
		"LF":                func(r string) string { return event(one) + event(two) + event(r) },
		"CRLF":              func(r string) string { return strings.ReplaceAll(event(one)+event(two)+event(r), "\n", "\r\n") },
		"CR":                func(r string) string { return strings.ReplaceAll(event(one)+event(two)+event(r), "\n", "\r") },
		"a byte order mark": func(r string) string { return "\xef\xbb\xbf" + event(one) + event(two) + event(r) },
		"ids, retry times, comments, types, empty events": func(r string) string {
			return ": hello\n\nid: 7\nretry: 1\nevent: message\n" + event(one) + "event: ping\n" + event(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`) +
				"\n\n\ndata\n\ndata:\n\nid: 8\n\n:\n" + "data:" + two + "\nfoo: bar\n\n" + "id\nevent:message\n" + event(r)
		},
		"an event of several lines": func(r string) string {
			return event(one) + event(two) + "data: " + strings.Replace(r, `,"result"`, "\ndata: ,\"result\"", 1) + "\n\n"
		},
		"mixed ends":               func(r string) string { return "data: " + one + "\r\n\ndata: " + two + "\r\r\ndata: " + r + "\n\r\n" },
		"no blank line at the end": func(r string) string { return event(one) + event(two) + "data: " + r },
		"more after the response":  func(r string) string { return event(one) + event(two) + event(r) + event(one) + event(r) },
	}
	shape := new(atomic.Pointer[func(string) string])
	bytewise := new(atomic.Bool)
	inEachCell(t, func(w http.ResponseWriter, _ *http.Request, m message) {
		stream(w)
		doc := (*shape.Load())(resultOf(m, done("end")))
		if !bytewise.Load() {
			write(w, doc)
			return
		}
		for i := range len(doc) {
			write(w, doc[i:i+1])
		}
	}, func(t *testing.T, c client, b *scripted) {
		for name, f := range shapes {
			for _, by := range []bool{false, true} {
				shape.Store(&f)
				bytewise.Store(by)
				a, err := c.call("1", "tools/call", fmt.Sprintf(withProgress, "a"))
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				want := event(one) + event(two)
				if rest, ok := strings.CutPrefix(a.body, want); !ok || a.rpc.Result == nil || strings.Count(rest, "\n\n") != 1 {
					t.Errorf("%s, byte by byte: %v: the client got %q", name, by, a.body)
				}
				for line := range strings.Lines(a.body) {
					if line != "\n" && !strings.HasPrefix(line, "data: ") {
						t.Errorf("%s: the client got the line %q", name, line)
					}
				}
				if bytes.ContainsAny([]byte(a.body), "\r\xef") {
					t.Errorf("%s: the client got %q", name, a.body)
				}
			}
		}
	})
}

// A stream that says nothing yet has its headers, and then signs of life, all the same.
func TestAQuietStreamIsKeptAlive(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: comments come every 15 s")
	}
	alive := make(chan struct{})
	b := newScripted(t, modernVersion, func(w http.ResponseWriter, r *http.Request, m message) {
		stream(w)
		select {
		case <-alive:
			write(w, event(resultOf(m, done("end"))))
		case <-r.Context().Done():
		}
	})
	g := startGateway(t, b.yaml("b", ""), "")
	o := g.client(t, "alice", modernVersion).open(t, "1", "tools/call", fmt.Sprintf(withProgress, "a")) // returns at the headers
	for _, want := range []string{":", ""} {
		if line, err := o.line(); line != want || err != nil {
			t.Fatalf("the quiet stream said %q, %v; want a comment", line, err)
		}
	}
	close(alive)
	if last := o.mustNext(t); !strings.Contains(last, `"text":"end"`) {
		t.Errorf("the response is %s", last)
	}
}
