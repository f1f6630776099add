package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes/access"
)

var note = []byte(`{"jsonrpc":"2.0","method":"n"}`)

// bothProtocols runs a test in a bubble, over HTTP/1.1 and over HTTP/2.
func bothProtocols(t *testing.T, test func(t *testing.T, http2 bool)) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, http2) })
		})
	}
}

func TestEventsArriveWhileTheCallRuns(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		seen := make(chan struct{})
		p := servePipes(t, Options{Dispatch: func(w *Response, _ *Request) {
			if err := w.Event(note); err != nil {
				t.Errorf("event: %v", err)
			}
			<-seen // the client has it, before there is an answer
			w.Result([]byte("{}"))
		}}, http2)
		resp, err := p.client(t, http2).Do(legacyCall(t.Context(), "http://weir.test/mcp", "a"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		events := NewEventReader(resp.Body, 0)
		for _, want := range []string{string(note), `{"jsonrpc":"2.0","id":1,"result":{}}`} {
			data, err := events.Next()
			if err != nil || string(data) != want {
				t.Fatalf("got %s, %v, want %s", data, err, want)
			}
			if want == string(note) {
				close(seen)
			}
		}
		if data, err := events.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("after the response: %s, %v", data, err)
		}
	})
}

func TestAnAnswerIsSentBeforeDispatchReturns(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		seen := make(chan struct{})
		p := servePipes(t, Options{Dispatch: func(w *Response, _ *Request) {
			w.Result([]byte("{}"))
			<-seen
		}}, http2)
		resp, err := p.client(t, http2).Do(legacyCall(t.Context(), "http://weir.test/mcp", "a"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body := make([]byte, resp.ContentLength)
		if _, err := io.ReadFull(resp.Body, body); err != nil {
			t.Error(err)
		}
		close(seen)
		if got, want := string(body), `{"jsonrpc":"2.0","id":1,"result":{}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestCommentsKeepAQuietStreamAlive(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		p := servePipes(t, Options{
			WriteTimeout: time.Second, // shorter than the silence: a deadline that is left behind would cut the stream
			Dispatch: func(w *Response, _ *Request) {
				_ = w.Begin()
				time.Sleep(50 * time.Second)
				_ = w.Event(note)
				time.Sleep(20 * time.Second)
				w.Result([]byte("{}"))
				time.Sleep(time.Minute) // nothing is sent after the answer
			},
		}, http2)
		_, body := do(t, p.client(t, http2), legacyCall(t.Context(), "http://weir.test/mcp", "a"))
		want := ":\n\n:\n\n:\n\n" + "data: " + string(note) + "\n\n" + ":\n\n" + "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"
		if diff := cmp.Diff(want, body); diff != "" {
			t.Errorf("stream (-want +got):\n%s", diff)
		}
	})
}

// A large answer is given up as soon as less than a piece of it could be written in the time for one.
func TestAReaderThatIsTooSlowIsGivenUp(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		gone := make(chan struct{})
		p := servePipes(t, Options{WriteTimeout: 30 * time.Second, Dispatch: func(w *Response, r *Request) {
			w.Result([]byte(`"` + strings.Repeat("x", 8<<20) + `"`))
			if w.Sent() {
				t.Error("the answer counts as sent")
			}
			close(gone)
		}}, http2)
		start := time.Now()
		resp, err := p.client(t, http2).Do(legacyCall(t.Context(), "http://weir.test/mcp", "a"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for buf := make([]byte, 1<<10); err == nil; time.Sleep(time.Second) { // 30 KiB in 30 s
			_, err = io.ReadFull(resp.Body, buf)
		}
		<-gone
		if took := time.Since(start); took < 30*time.Second || errors.Is(err, io.EOF) {
			t.Errorf("given up after %v: %v", took, err)
		}
	})
}

func TestAReaderThatStopsIsGivenUp(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		gone := make(chan error, 1)
		p := servePipes(t, Options{WriteTimeout: 30 * time.Second, KeepAlive: time.Hour, Dispatch: func(w *Response, r *Request) {
			big := []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
			for {
				if err := w.Event(big); err != nil {
					gone <- err
					<-r.HTTP.Context().Done() // the backend is told as well
					return
				}
			}
		}}, http2)
		start := time.Now()
		resp, err := p.client(t, http2).Do(legacyCall(t.Context(), "http://weir.test/mcp", "a"))
		if err != nil {
			t.Fatal(err)
		}
		err = <-gone // and the body is not read
		if took := time.Since(start); took < 30*time.Second || took > 2*time.Minute {
			t.Errorf("given up after %v: %v", took, err)
		}
		_ = resp.Body.Close()
	})
}

func TestASlowReaderOfALargeAnswerIsNotCut(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		result := `"` + strings.Repeat("x", 1<<20) + `"`
		p := servePipes(t, Options{WriteTimeout: 30 * time.Second, Dispatch: func(w *Response, _ *Request) {
			w.Result([]byte(result))
		}}, http2)
		start := time.Now()
		resp, err := p.client(t, http2).Do(legacyCall(t.Context(), "http://weir.test/mcp", "a"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var n int
		for buf := make([]byte, 64<<10); ; {
			m, err := io.ReadFull(resp.Body, buf)
			n += m
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				break
			}
			if err != nil {
				t.Fatalf("after %d bytes: %v", n, err)
			}
			time.Sleep(20 * time.Second)
		}
		if int64(n) != resp.ContentLength || time.Since(start) < 2*time.Minute {
			t.Errorf("read %d of %d bytes in %v", n, resp.ContentLength, time.Since(start))
		}
	})
}

func TestAClientThatLeavesCancels(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		started, cancelled := make(chan struct{}), make(chan struct{})
		p := servePipes(t, Options{Dispatch: func(_ *Response, r *Request) {
			close(started)
			<-r.HTTP.Context().Done()
			close(cancelled)
		}}, http2)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-started
			cancel()
		}()
		if resp, err := p.client(t, http2).Do(legacyCall(ctx, "http://weir.test/mcp", "a")); err == nil {
			_ = resp.Body.Close()
			t.Error("the cancelled call succeeded")
		}
		<-cancelled
	})
}

func TestABodyThatNeverEndsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got Summary
		p := servePipes(t, Options{
			BodyTimeout: 10 * time.Second,
			Dispatch:    func(*Response, *Request) { t.Error("dispatched") },
			OnDone:      func(s Summary) { got = s },
		}, false)
		pr, pw := io.Pipe()
		defer pw.Close()
		go func() { _, _ = pw.Write([]byte(`{"jsonrpc":`)) }()
		start := time.Now()
		resp, _ := do(t, p.client(t, false), post(t.Context(), "http://weir.test/mcp", pr))
		synctest.Wait()
		if resp.StatusCode != http.StatusRequestTimeout || time.Since(start) != 10*time.Second || !resp.Close {
			t.Errorf("status %d after %v, closing %v", resp.StatusCode, time.Since(start), resp.Close)
		}
		if !errors.Is(got.Err, os.ErrDeadlineExceeded) || got.Reason != "body_timeout" {
			t.Errorf("summary: %+v", got)
		}
	})
}

func TestConcurrentEventsNeverMix(t *testing.T) {
	server := newServer(t, Options{KeepAlive: time.Microsecond, Dispatch: func(w *Response, _ *Request) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 50 {
					_ = w.Event(fmt.Appendf(nil, `{"i":%d,"j":%d}`, i, j))
				}
			})
		}
		wg.Wait()
		w.Result([]byte("{}"))
		_ = w.Event(note)
	}})
	_, body := do(t, server.Client(), legacyCall(t.Context(), server.URL+"/mcp", "a"))
	events, err := readEvents(strings.NewReader(body), 0)
	if len(events) != 401 || !errors.Is(err, io.EOF) {
		t.Fatalf("%d events, %v", len(events), err)
	}
	next := map[string]int{}
	for _, e := range events[:400] {
		var i, j int
		if _, err := fmt.Sscanf(e, `{"i":%d,"j":%d}`, &i, &j); err != nil || next[fmt.Sprint(i)] != j {
			t.Fatalf("event %q: %v; expected number %d", e, err, next[fmt.Sprint(i)])
		}
		next[fmt.Sprint(i)]++
	}
	for s := bufio.NewScanner(strings.NewReader(body)); s.Scan(); {
		if line := s.Text(); line != "" && line != ":" && !strings.HasPrefix(line, "data: {") {
			t.Fatalf("line %q", line)
		}
	}
}

// newServer serves an endpoint on loopback, without auth unless the options have one.
func newServer(t *testing.T, o Options) *httptest.Server {
	t.Helper()
	if o.Auth == nil && o.Anonymous == nil {
		o.Anonymous = access.Anonymous("acme")
	}
	e, err := NewEndpoint(o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	return s
}

func TestPanicsAreReported(t *testing.T) {
	var what any
	var where string
	server := newServer(t, Options{
		Dispatch: func(_ *Response, r *Request) {
			if r.Name == "abort" {
				panic(http.ErrAbortHandler)
			}
			panic("boom")
		},
		OnPanic: func(v any, stack []byte) { what, where = v, string(stack) },
	})
	_, body := do(t, server.Client(), legacyCall(t.Context(), server.URL+"/mcp", "a"))
	if !strings.Contains(body, "-32603") || strings.Contains(body, "boom") {
		t.Errorf("the client sees %s", body)
	}
	if what != "boom" || !strings.Contains(where, "TestPanicsAreReported") {
		t.Errorf("reported %v at %.200s", what, where)
	}
	what = nil
	if resp, err := server.Client().Do(legacyCall(t.Context(), server.URL+"/mcp", "abort")); err == nil {
		_ = resp.Body.Close()
		t.Errorf("http.ErrAbortHandler must cut the connection; got status %d", resp.StatusCode)
	}
	if what != nil {
		t.Errorf("http.ErrAbortHandler was reported: %v", what)
	}
}

func TestResponseStates(t *testing.T) {
	var log []string
	check := func(what string, w *Response) {
		log = append(log, fmt.Sprintf("%s %v %v", what, w.Started(), w.Done()))
	}
	server := newServer(t, Options{Dispatch: func(w *Response, r *Request) {
		check("fresh", w)
		w.Finish() // nothing has begun
		check("finish", w)
		w.Header().Set("X-Test", "yes")
		_ = w.Begin()
		_ = w.Begin()
		check("begun", w)
		w.Accepted() // too late
		_ = w.Event([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
		w.Finish()
		check("finished", w)
		if err := w.Event(note); !errors.Is(err, errFinished) {
			t.Errorf("an event after the end: %v", err)
		}
		if err := w.Begin(); !errors.Is(err, errFinished) {
			t.Errorf("a beginning after the end: %v", err)
		}
	}})
	resp, body := do(t, server.Client(), legacyCall(t.Context(), server.URL+"/mcp", "a"))
	if want := "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"; body != want || resp.Header.Get("X-Test") != "yes" {
		t.Errorf("got %q with %v", body, resp.Header)
	}
	want := []string{"fresh false false", "finish false false", "begun true false", "finished true true"}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

func TestANotificationHasNoResult(t *testing.T) {
	server := newServer(t, Options{Dispatch: func(w *Response, r *Request) {
		if r.Method == "notifications/a" {
			w.Result([]byte("{}"))
		}
	}})
	for _, method := range []string{"notifications/a", "notifications/unanswered"} {
		resp, body := do(t, server.Client(), post(t.Context(), server.URL+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","method":"`+method+`"}`)))
		if resp.StatusCode != http.StatusAccepted || body != "" {
			t.Errorf("%s: status %d, body %q", method, resp.StatusCode, body)
		}
	}
}
