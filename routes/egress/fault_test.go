package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

// rawBackend is a TCP listener whose connections a test serves by hand.
type rawBackend struct {
	url string
	wg  sync.WaitGroup

	mu    sync.Mutex
	conns int // accepted
	calls int // whole requests with a body, as noted by call
}

// serve starts a raw backend. handle gets every connection, counted from 0, and closes it by returning.
func serve(t *testing.T, handle func(b *rawBackend, conn net.Conn, n int)) *rawBackend {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &rawBackend{url: "http://" + ln.Addr().String() + "/mcp"}
	done := make(chan struct{})
	b.wg.Go(func() {
		for n := 0; ; n++ {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.conns++
			b.mu.Unlock()
			b.wg.Go(func() {
				defer conn.Close()
				stop := context.AfterFunc(t.Context(), func() { conn.Close() })
				defer stop()
				handle(b, conn, n)
			})
		}
	})
	t.Cleanup(func() { close(done); ln.Close(); b.wg.Wait() })
	return b
}

func (b *rawBackend) counts() (conns, calls int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conns, b.calls
}

// readCall reads one whole request and counts it.
func (b *rawBackend) readCall(r *bufio.Reader) (*http.Request, []byte, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	b.calls++
	b.mu.Unlock()
	return req, body, nil
}

const okDoc = `{"jsonrpc":"2.0","id":7,"result":{"content":[],"resultType":"complete"}}`

func httpAnswer(status, contentType, body string, headers ...string) string {
	return "HTTP/1.1 " + status + "\r\nContent-Type: " + contentType + "\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n" +
		strings.Join(append(headers, ""), "\r\n") + "\r\n" + body
}

func simpleCall(url string) Call {
	call := callTool(url, "2026-07-28", "echo", `{"text":"x"}`, "")
	call.RPCID = []byte("7")
	return call
}

// failure makes the call and wants it to fail.
func failure(t *testing.T, c *Client, call Call) *Failure {
	t.Helper()
	msgs, _, err := collect(t, c, call)
	f, ok := errors.AsType[*Failure](err)
	if !ok {
		t.Fatalf("got %+v, %v; want a *Failure", msgs, err)
	}
	return f
}

// A backend that reads k bytes of a call and closes must see it once, for every k.
func TestRequestCutAtEachByte(t *testing.T) {
	t.Parallel()
	var size int
	probe := serve(t, func(b *rawBackend, conn net.Conn, _ int) {
		var buf bytes.Buffer
		if _, _, err := b.readCall(bufio.NewReader(io.TeeReader(conn, &buf))); err == nil {
			size = buf.Len()
			io.WriteString(conn, httpAnswer("200 OK", "application/json", okDoc))
		}
	})
	if _, _, err := collect(t, newClient(t, Options{}), simpleCall(probe.url)); err != nil {
		t.Fatal(err)
	}
	for k := 1; k <= size; k++ {
		b := serve(t, func(b *rawBackend, conn net.Conn, _ int) {
			n, _ := io.CopyN(io.Discard, conn, int64(k))
			b.mu.Lock()
			if int(n) == size {
				b.calls++
			}
			b.mu.Unlock()
		})
		f := failure(t, newClient(t, Options{}), simpleCall(b.url))
		conns, calls := b.counts()
		if !f.Sent || f.Reason != ReasonReset || conns != 1 || calls > 1 {
			t.Fatalf("closed after %d of %d bytes: %v, sent %t, %d connections, %d calls", k, size, f, f.Sent, conns, calls)
		}
	}
}

// The same on a connection that has served a call before, where a careless client tries again.
func TestReusedConnectionCutAtEachByte(t *testing.T) {
	t.Parallel()
	for k := 1; k <= 420; k += 7 {
		b := serve(t, func(b *rawBackend, conn net.Conn, n int) {
			r := bufio.NewReader(conn)
			if n > 0 {
				b.readCall(r) // a second connection is a call sent twice
				return
			}
			if _, _, err := b.readCall(r); err != nil {
				return
			}
			io.WriteString(conn, httpAnswer("200 OK", "application/json", okDoc))
			io.CopyN(io.Discard, r, int64(k))
		})
		c := newClient(t, Options{})
		if _, _, err := collect(t, c, simpleCall(b.url)); err != nil {
			t.Fatal(err)
		}
		call := simpleCall(b.url)
		call.Header = http.Header{"Idempotency-Key": {"k1"}, "X-Idempotency-Key": {"k2"}}
		f := failure(t, c, call)
		conns, calls := b.counts()
		if !f.Sent || f.Reason != ReasonReset || conns != 1 || calls != 1 {
			t.Fatalf("closed after %d bytes: %v, sent %t, %d connections, %d whole calls", k, f, f.Sent, conns, calls)
		}
	}
}

func TestAnswerCutAtEachByte(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"json": httpAnswer("200 OK", "application/json", okDoc),
		"stream": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" +
			fmt.Sprintf("%x\r\ndata: %s\n\n\r\n0\r\n\r\n", len(okDoc)+8, okDoc),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := strings.Index(answer, okDoc) + len(okDoc)
			for k := 0; k < whole; k++ {
				b := serve(t, func(b *rawBackend, conn net.Conn, _ int) {
					if _, _, err := b.readCall(bufio.NewReader(conn)); err == nil {
						io.WriteString(conn, answer[:k])
					}
				})
				f := failure(t, newClient(t, Options{}), simpleCall(b.url))
				conns, calls := b.counts()
				if !f.Sent || f.Reason != ReasonReset && f.Reason != ReasonBadResponse || conns != 1 || calls != 1 {
					t.Fatalf("cut after %d bytes: %v, sent %t, %d connections, %d calls", k, f, f.Sent, conns, calls)
				}
			}
		})
	}
}

// The backend closes a kept connection just as the next call is on its way: there is an answer, or the client is told that
// the call may have run; never two calls.
func TestKeepAliveRace(t *testing.T) {
	t.Parallel()
	for range 200 {
		var served [2]int
		var mu sync.Mutex
		b := serve(t, func(b *rawBackend, conn net.Conn, _ int) {
			_, body, err := b.readCall(bufio.NewReader(conn))
			if err != nil {
				return
			}
			mu.Lock()
			if bytes.Contains(body, []byte(`"text":"second"`)) {
				served[1]++
			} else {
				served[0]++
			}
			mu.Unlock()
			io.WriteString(conn, httpAnswer("200 OK", "application/json", okDoc)) // looks kept alive, and is closed
		})
		c := newClient(t, Options{})
		if _, _, err := collect(t, c, simpleCall(b.url)); err != nil {
			t.Fatal(err)
		}
		call := callTool(b.url, "2026-07-28", "echo", `{"text":"second"}`, "")
		call.RPCID = []byte("7")
		_, _, err := collect(t, c, call)
		mu.Lock()
		got := served
		mu.Unlock()
		if f, ok := errors.AsType[*Failure](err); ok && f.Sent && got[1] == 0 {
			continue // lost, and said so
		}
		if err != nil || got != [2]int{1, 1} {
			t.Fatalf("served %v, error %v", got, err)
		}
	}
}

// brokenConn fails its writes from the second request on, before a byte leaves.
type brokenConn struct {
	net.Conn
	broken func() bool
}

func (c *brokenConn) Write(p []byte) (int, error) {
	if c.broken() {
		return 0, &net.OpError{Op: "write", Err: syscall.EPIPE}
	}
	return c.Conn.Write(p)
}

func TestNothingWrittenIsSentAgainOnce(t *testing.T) {
	t.Parallel()
	b := serve(t, func(b *rawBackend, conn net.Conn, _ int) {
		r := bufio.NewReader(conn)
		for {
			if _, _, err := b.readCall(r); err != nil {
				return
			}
			if _, err := io.WriteString(conn, httpAnswer("200 OK", "application/json", okDoc)); err != nil {
				return
			}
		}
	})
	for name, tt := range map[string]struct {
		freshBroken bool
		calls       int
	}{
		"the fresh connection works":     {calls: 2},
		"the fresh connection fails too": {freshBroken: true, calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, Options{})
			call := simpleCall(b.url)
			p, err := c.pools.get(call.ID, call.Backend)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			broken := false
			isBroken := func() bool { mu.Lock(); defer mu.Unlock(); return broken }
			breakable := func(tr *http.Transport, broken func() bool) {
				dial := tr.DialContext
				tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := dial(ctx, network, addr)
					if err != nil {
						return nil, err
					}
					return &meteredConn{Conn: &brokenConn{conn, broken}}, nil
				}
			}
			breakable(p.current.Load(), isBroken)
			breakable(p.fresh, func() bool { return tt.freshBroken })
			_, before := b.counts()
			if _, _, err := collect(t, c, call); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			broken = true
			mu.Unlock()
			msgs, _, err := collect(t, c, call)
			_, after := b.counts()
			if after-before != tt.calls {
				t.Errorf("%d calls arrived, want %d", after-before, tt.calls)
			}
			if !tt.freshBroken {
				if err != nil || len(msgs) != 1 {
					t.Fatalf("%v, %v", msgs, err)
				}
				return
			}
			if f, ok := errors.AsType[*Failure](err); !ok || f.Sent {
				t.Errorf("got %v, want a failure that sent nothing", err)
			}
		})
	}
}

// net/http may ask for another connection by itself; what may have left goes no further.
func TestASecondConnectionForWhatMayHaveLeft(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		headers, written, cancelled bool
	}{
		"written":                             {headers: true, written: true, cancelled: true},
		"buffered only":                       {headers: true},
		"others wrote on the same connection": {written: true},
		"nothing":                             {},
	} {
		t.Run(name, func(t *testing.T) {
			x := newExchange(t.Context(), limits{defaultResponse, defaultIdle, defaultTotal})
			defer x.finish()
			x.once = true
			a, b := net.Pipe()
			defer a.Close()
			defer b.Close()
			conn := &meteredConn{Conn: a}
			x.gotConn(httptrace.GotConnInfo{Conn: conn})
			if tt.headers {
				x.wroteHeaders()
			}
			if tt.written {
				conn.writes.Add(1)
			}
			x.gotConn(httptrace.GotConnInfo{Conn: &meteredConn{Conn: b}})
			if got := context.Cause(x.ctx) == errWouldRepeat; got != tt.cancelled {
				t.Errorf("cancelled %t, want %t", got, tt.cancelled)
			}
		})
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		for _, status := range []string{"301 Moved", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"} {
			target := serve(t, func(b *rawBackend, conn net.Conn, _ int) { b.readCall(bufio.NewReader(conn)) })
			b := serve(t, func(b *rawBackend, conn net.Conn, _ int) {
				if _, _, err := b.readCall(bufio.NewReader(conn)); err == nil {
					io.WriteString(conn, httpAnswer(status, "text/plain", "", "Location: "+target.url))
				}
			})
			call := simpleCall(b.url)
			call.Backend.Protocol = version
			f := failure(t, newClient(t, Options{}), call)
			conns, _ := target.counts()
			_, calls := b.counts()
			if f.Reason != ReasonBadResponse || conns != 0 || calls != 1 {
				t.Errorf("%s, %s: %v; %d connections to the target, %d calls", version, status, f, conns, calls)
			}
		}
	}
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	const short = 100 * time.Millisecond
	hang := func(b *rawBackend, conn net.Conn, _ int) {
		b.readCall(bufio.NewReader(conn))
		io.Copy(io.Discard, conn)
	}
	stall := func(parts ...string) func(*rawBackend, net.Conn, int) {
		return func(b *rawBackend, conn net.Conn, _ int) {
			r := bufio.NewReader(conn)
			if _, _, err := b.readCall(r); err != nil {
				return
			}
			for _, p := range parts {
				io.WriteString(conn, p)
			}
			io.Copy(io.Discard, r)
		}
	}
	stream := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
	for name, tt := range map[string]struct {
		handle   func(*rawBackend, net.Conn, int)
		timeouts routes.Timeouts
		scheme   string
		want     string
	}{
		"TLS handshake that never ends": {handle: hang, timeouts: routes.Timeouts{Connect: short}, scheme: "https"},
		"no answer":                     {handle: hang, timeouts: routes.Timeouts{Response: short}, want: phaseResponse.Error()},
		"JSON that stops":               {handle: stall("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"), timeouts: routes.Timeouts{Idle: short}, want: phaseIdle.Error()},
		"stream that stops":             {handle: stall(stream, ": hello\n\n"), timeouts: routes.Timeouts{Idle: short}, want: phaseIdle.Error()},
		"total":                         {handle: stall(stream), timeouts: routes.Timeouts{Total: short}, want: phaseTotal.Error()},
		"total, before any answer":      {handle: hang, timeouts: routes.Timeouts{Total: short}, want: phaseTotal.Error()},
	} {
		for _, version := range []string{"2026-07-28", "2025-11-25"} {
			t.Run(name+", "+version, func(t *testing.T) {
				t.Parallel()
				b := serve(t, tt.handle)
				call := simpleCall(b.url)
				call.Backend.Protocol, call.Backend.Timeouts = version, tt.timeouts
				call.Backend.Handshake = routes.HandshakeNone
				if tt.scheme != "" {
					call.Backend.URL = strings.Replace(b.url, "http:", tt.scheme+":", 1)
				}
				f := failure(t, newClient(t, Options{}), call)
				if f.Reason != ReasonTimeout || tt.want != "" && f.Err.Error() != tt.want {
					t.Errorf("got %v, want timeout: %s", f, tt.want)
				}
				_, calls := b.counts() // none, if the machine was too busy to send in time
				if tt.scheme == "https" && f.Sent || calls > 0 && !f.Sent {
					t.Errorf("sent %t, and the backend saw %d calls", f.Sent, calls)
				}
			})
		}
	}
}

// sleepyReader gives a byte after each pause.
type sleepyReader struct{ pauses []time.Duration }

func (r *sleepyReader) Read(p []byte) (int, error) {
	if len(r.pauses) == 0 {
		return 0, io.EOF
	}
	time.Sleep(r.pauses[0])
	r.pauses = r.pauses[1:]
	p[0] = ':'
	return 1, nil
}

func TestIdleTimeRunsOnlyWhileSomebodyReads(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		pauses []time.Duration
		slow   time.Duration // the reader's own pause before each read
		want   error
	}{
		"a lively stream outlives the response and idle timeouts": {pauses: slices.Repeat([]time.Duration{9 * s}, 60)},
		"a slow client is not the backend's silence":              {pauses: slices.Repeat([]time.Duration{9 * s}, 10), slow: 15 * s},
		"silence":                       {pauses: []time.Duration{9 * s, 11 * s}, want: phaseIdle},
		"total":                         {pauses: slices.Repeat([]time.Duration{9 * s}, 70), want: phaseTotal},
		"total, though nobody reads":    {pauses: []time.Duration{s}, slow: 601 * s, want: phaseTotal},
		"total is nearer than the idle": {pauses: []time.Duration{s, s, s, 9 * s}, slow: 198 * s, want: phaseTotal},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newExchange(t.Context(), limits{response: 10 * s, idle: 10 * s, total: 600 * s})
				defer x.finish()
				x.disarm() // the headers are there
				body := &answerBody{ReadCloser: io.NopCloser(&sleepyReader{tt.pauses}), x: x}
				for range len(tt.pauses) {
					time.Sleep(tt.slow)
					if _, err := body.Read(make([]byte, 8)); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				if got := context.Cause(x.ctx); got != tt.want {
					t.Errorf("ended by %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestCancellationClosesUpstream(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"before the answer":  "",
		"within a stream":    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n",
		"within a JSON body": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, closed := make(chan struct{}), make(chan struct{})
			b := serve(t, func(b *rawBackend, conn net.Conn, _ int) {
				r := bufio.NewReader(conn)
				if _, _, err := b.readCall(r); err != nil {
					return
				}
				io.WriteString(conn, answer)
				close(arrived)
				io.Copy(io.Discard, r) // until the other side closes
				close(closed)
			})
			c := newClient(t, Options{})
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-arrived; cancel() }()
			a, err := c.Do(ctx, simpleCall(b.url))
			if err == nil {
				for err == nil {
					_, err = a.Next()
				}
				defer a.Close()
			}
			f, ok := errors.AsType[*Failure](err)
			if !ok || f.Reason != ReasonCanceled || !f.Sent || !errors.Is(f, context.Canceled) {
				t.Errorf("got %v", err)
			}
			<-closed
		})
	}
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"json": httpAnswer("200 OK", "application/json", okDoc),
		"stream whose end comes later": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" +
			fmt.Sprintf("%x\r\ndata: %s\n\n\r\n", len(okDoc)+8, okDoc) + "|0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serve(t, func(b *rawBackend, conn net.Conn, _ int) {
				r := bufio.NewReader(conn)
				for {
					if _, _, err := b.readCall(r); err != nil {
						return
					}
					for part := range strings.SplitSeq(answer, "|") {
						io.WriteString(conn, part)
					}
				}
			})
			c := newClient(t, Options{})
			for range 20 {
				a, err := c.Do(t.Context(), simpleCall(b.url))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := a.Next(); err != nil {
					t.Fatal(err)
				}
				a.Close()
				c.waitBackground()
			}
			if conns, calls := b.counts(); conns != 1 || calls != 20 {
				t.Errorf("%d connections for %d calls", conns, calls)
			}
		})
	}
}

// waitBackground waits until nothing runs in the background.
func (c *Client) waitBackground() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.running > 0 {
		c.finished.Wait()
	}
}

func TestIdleTimeFollowsThePeer(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{})
	p, err := c.pools.get("b", &routes.Backend{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	var got []time.Duration
	for _, v := range []string{"", "max=5", "timeout=5", "timeout=9", "timeout=3, max=100", "timeout=0", "timeout=x"} {
		p.learn(v)
		got = append(got, p.current.Load().IdleConnTimeout)
	}
	want := []time.Duration{4 * time.Second, 4 * time.Second, 4 * time.Second, 4 * time.Second, 2 * time.Second, 500 * time.Millisecond, 500 * time.Millisecond}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	longer, _ := c.pools.get("c", &routes.Backend{URL: "http://127.0.0.1:1"})
	longer.learn("timeout=30")
	if got := longer.current.Load().IdleConnTimeout; got != 29*time.Second {
		t.Errorf("timeout=30 gives %v", got)
	}
}
