package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// cutter serves a scripted backend over HTTP/1.1 by hand, and closes connections where the test says.
type cutter struct {
	url     string
	backend *scripted
	// cut says after how many bytes of a request its connection is closed, without an answer; -1: never. It is asked before a byte
	// of the request has come, unless late is set, with the number of requests that the connection has had.
	cut  atomic.Pointer[func(served int) int]
	late bool

	conns   atomic.Int64 // accepted
	begun   atomic.Int64 // requests that were cut after at least one byte had arrived
	longest atomic.Int64 // bytes of the longest tools/call
}

func newCutter(t *testing.T, version string, late bool) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{url: "http://" + ln.Addr().String() + "/mcp", late: late}
	c.backend = &scripted{version: version, handle: func(w http.ResponseWriter, _ *http.Request, m message) { writeResult(w, m, done("ok")) }}
	c.plan(func(int) int { return -1 })
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			c.conns.Add(1)
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			wg.Go(func() {
				c.serve(conn)
				conn.Close()
				mu.Lock()
				delete(open, conn)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for conn := range open {
			conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return c
}

func (c *cutter) plan(cut func(served int) int) { c.cut.Store(&cut) }

func (c *cutter) serve(conn net.Conn) {
	in := &counted{r: conn}
	br := bufio.NewReaderSize(in, 16) // reads hardly ahead: what it left unread turns the close into a reset
	for served := 0; ; served++ {
		if c.late {
			if _, err := br.Peek(1); err != nil {
				return
			}
		}
		if n := (*c.cut.Load())(served); n >= 0 {
			if got, _ := io.CopyN(io.Discard, br, int64(n)); got > 0 || n == 0 && br.Buffered() > 0 {
				c.begun.Add(1)
			}
			return
		}
		from := in.n - br.Buffered()
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		if bytes.Contains(body, []byte(`"method":"tools/call"`)) {
			c.longest.Store(max(c.longest.Load(), int64(in.n-br.Buffered()-from)))
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		rec := httptest.NewRecorder()
		c.backend.ServeHTTP(rec, req)
		resp := rec.Result()
		resp.ContentLength, resp.Request = int64(rec.Body.Len()), req
		if resp.Write(conn) != nil {
			return
		}
	}
}

type counted struct {
	r io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

const onceParams = `{"name":"b__run","arguments":{"n":"%s"}}`

// unsure is what a client is told of a call that may have run; unsent of one that did not.
const (
	unsure = `{"reason":"reset","sent":true}`
	unsent = `{"reason":"reset","sent":false}`
)

// A backend that takes a connection and closes it at each possible byte of the request: the call is sent once, and the client is
// told that it may have run.
func TestACallCutAtEachByteIsSentOnce(t *testing.T) {
	t.Parallel()
	b := newCutter(t, modernVersion, false)
	g := startGateway(t, fmt.Sprintf("  b: {url: %q}\n", b.url), "")
	c := g.client(t, "alice", modernVersion)
	b.plan(func(served int) int { return -1 + min(served, 1) }) // one request a connection
	c.must(t, "tools/call", fmt.Sprintf(onceParams, "whole"))
	length := int(b.longest.Load())
	if length < 300 {
		t.Fatalf("the request had %d bytes", length)
	}
	for n := range length + 1 {
		b.plan(func(int) int { return n })
		conns, begun := b.conns.Load(), b.begun.Load()
		a, err := c.call("1", "tools/call", fmt.Sprintf(onceParams, "whole"))
		if err != nil {
			t.Fatal(err)
		}
		if a.rpc.Error == nil || a.rpc.Error.Code != -32603 {
			t.Fatalf("cut after %d bytes: %s", n, a.body)
		}
		if data := string(a.rpc.Error.Data); data != unsure && (data != unsent || n > 0) {
			t.Errorf("cut after %d bytes: the client is told %s", n, data)
		}
		conns, begun = b.conns.Load()-conns, b.begun.Load()-begun
		if conns != 1 || begun > 1 {
			t.Errorf("cut after %d bytes: %d connections, %d with a part of the call", n, conns, begun)
		}
	}
	if n := len(b.backend.ofMethod("tools/call")); n != 1 {
		t.Errorf("the backend's log shows %d calls, want the first one alone", n)
	}
	t.Logf("cut at each of %d bytes", length)
}

// The same on a connection that has served a handshake: a pooled one, where net/http would like to try again.
func TestALegacyCallCutOnAPooledConnectionIsSentOnce(t *testing.T) {
	t.Parallel()
	b := newCutter(t, legacyVersion, true)
	g := startGateway(t, fmt.Sprintf("  b: {url: %q}\n", b.url), "")
	c := g.client(t, "alice", legacyVersion)
	c.must(t, "tools/call", fmt.Sprintf(onceParams, "whole"))
	length := int(b.longest.Load())
	for n := 0; n <= length; n += 1 + n/16 {
		eventually(t, "the end of the sessions before", func() error {
			ends := b.backend.all(func(m message) bool { return m.httpMethod == http.MethodDelete })
			if began := b.backend.ofMethod("initialize"); len(ends) != len(began) {
				return fmt.Errorf("%d of %d", len(ends), len(began))
			}
			return nil
		})
		var requests atomic.Int64
		b.plan(func(int) int {
			if requests.Add(1) == 3 { // after initialize and notifications/initialized comes the call
				return n
			}
			return -1
		})
		begun, whole := b.begun.Load(), len(b.backend.ofMethod("tools/call"))
		a, err := c.call("1", "tools/call", fmt.Sprintf(onceParams, "whole"))
		if err != nil {
			t.Fatal(err)
		}
		seen := int(b.begun.Load()-begun) + len(b.backend.ofMethod("tools/call")) - whole
		if a.rpc.Error == nil || string(a.rpc.Error.Data) != unsure || seen != 1 {
			t.Errorf("cut after %d bytes: %s, seen %d times", n, a.body, seen)
		}
	}
}

// Connections that die while they wait for the next call: a call either runs once, or the client hears that it may have run.
func TestCallsOnDyingConnectionsRunOnceAtMost(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		headers string
		cut     func(served int) int
	}{
		"closed at any time":               {cut: func(served int) int { return dieSoon(served) }},
		"closed at the next call's byte":   {cut: func(served int) int { return -1 + 2*min(served, 1) }},
		"with an Idempotency-Key":          {", headers: {passthrough: [Idempotency-Key, X-Idempotency-Key]}", func(served int) int { return -1 + 2*min(served, 1) }},
		"with an Idempotency-Key, at once": {", headers: {passthrough: [Idempotency-Key, X-Idempotency-Key]}", func(served int) int { return dieSoon(served) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newCutter(t, modernVersion, false)
			g := startGateway(t, fmt.Sprintf("  b: {url: %q%s}\n", b.url, tt.headers), "")
			c := g.client(t, "alice", modernVersion)
			b.plan(tt.cut)
			ran, failed := map[string]bool{}, 0
			const calls = 150
			for i := range calls {
				n := fmt.Sprintf("call-%03d", i)
				params := fmt.Sprintf(onceParams, n)
				h := c.headers("tools/call", params)
				h.Set("Idempotency-Key", n)
				h.Set("X-Idempotency-Key", n)
				a, err := c.post(c.body("1", "tools/call", params), h)
				switch {
				case err != nil:
					t.Fatal(err)
				case a.rpc.Result != nil:
					ran[n] = true
				case string(a.rpc.Error.Data) != unsure:
					t.Errorf("%s: %s", n, a.body)
				default:
					failed++
				}
			}
			seen := map[string]int{}
			for _, m := range b.backend.ofMethod("tools/call") {
				n := m.argument("n")
				seen[n]++
				if tt.headers != "" && (m.header.Get("Idempotency-Key") != n || m.header.Get("X-Idempotency-Key") != n) {
					t.Errorf("%s came with the keys %q and %q", n, m.header.Get("Idempotency-Key"), m.header.Get("X-Idempotency-Key"))
				}
			}
			for n, times := range seen {
				if times > 1 {
					t.Errorf("%s ran %d times", n, times)
				}
			}
			for n := range ran {
				if seen[n] != 1 {
					t.Errorf("%s was answered and is not in the backend's log", n)
				}
			}
			if len(ran) == 0 {
				t.Error("no call succeeded")
			}
			if begun := int(b.begun.Load()); begun+len(seen) > calls {
				t.Errorf("the backend saw %d whole calls and parts of %d more, of %d that were made", len(seen), begun, calls)
			}
			t.Logf("%d ran, %d failed", len(ran), failed)
		})
	}
}

// dieSoon closes a connection that has served a request after a moment.
func dieSoon(served int) int {
	if served == 0 {
		return -1
	}
	time.Sleep(rand.N(2 * time.Millisecond)) // around the moment of the next call: the race itself
	return 0
}

// A redirect may repeat the call elsewhere: none is followed.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	defer other.Close()
	for era, version := range eras {
		b := newScripted(t, version, func(w http.ResponseWriter, r *http.Request, m message) {
			var code int
			fmt.Sscan(m.argument("code"), &code)
			http.Redirect(w, r, other.URL+"/mcp", code)
		})
		g := startGateway(t, b.yaml("b", ""), "")
		c := g.client(t, "alice", modernVersion)
		for _, code := range []int{301, 302, 303, 307, 308} {
			a, err := c.call("1", "tools/call", fmt.Sprintf(`{"name":"b__run","arguments":{"code":"%d"}}`, code))
			if err != nil || reasonOf(a.rpc.Error) != "bad_response" || a.status != http.StatusOK || a.header.Get("Location") != "" {
				t.Errorf("%s backend, %d: %+v, %v", era, code, a, err)
			}
		}
		if n := len(b.ofMethod("tools/call")); n != 5 || followed.Load() != 0 {
			t.Errorf("%s backend: %d calls arrived there and %d elsewhere, want 5 and none", era, n, followed.Load())
		}
	}
}
