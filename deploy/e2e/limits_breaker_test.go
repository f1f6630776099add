package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

const anyCall = `{"name":"b__run","arguments":{}}`

// reason of one call's failure; "" for a result.
func (c client) reason(t *testing.T) string {
	t.Helper()
	a, err := c.call("1", "tools/call", anyCall)
	if err != nil {
		t.Fatal(err)
	}
	if a.rpc.Error == nil {
		return ""
	}
	return reasonOf(a.rpc.Error)
}

// A backend that dies is left alone after a while, for a while: connect errors need no second caller to count. When it is back it
// is called again without anybody's help. Another backend never notices.
func TestADeadBackendTripsItsBreakerAndComesBack(t *testing.T) {
	t.Parallel()
	b, other := okBackend(t), okBackend(t)
	door := newDoor(t, b.url)
	g := startGateway(t, fmt.Sprintf("  b: {url: %q}\n", door.url)+other.yaml("other", ""), "")
	c := g.client(t, "alice", modernVersion)
	if r := c.reason(t); r != "" {
		t.Fatalf("the first call: %s", r)
	}
	door.shut()
	var reasons []string
	for len(reasons) < 60 {
		reasons = append(reasons, c.reason(t))
		if reasons[len(reasons)-1] == "circuit_open" {
			break
		}
	}
	first := reasons[0] // it may have met the pooled connection while that died
	if n := len(reasons); reasons[n-1] != "circuit_open" || n < 20 || first != "reset" && first != "unreachable" ||
		strings.Count(strings.Join(reasons[1:], " "), "unreachable") != n-2 {
		t.Fatalf("%d calls: %v; want at least 18 times unreachable, then circuit_open", n, reasons)
	}
	a, err := c.call("1", "tools/call", anyCall)
	if err != nil || a.status != http.StatusOK || !strings.Contains(string(a.rpc.Error.Data), `"retryAfterMs":`) || !strings.Contains(string(a.rpc.Error.Data), `"sent":false`) {
		t.Errorf("circuit_open: %+v, %v", a, err)
	}
	if got := text(t, c.must(t, "tools/call", `{"name":"other__run","arguments":{}}`)); got != "ok" {
		t.Errorf("the other backend answered %q", got)
	}
	door.open(t)
	eventually(t, "the backend is called again", func() error {
		if r := c.reason(t); r != "" {
			return fmt.Errorf("%s", r)
		}
		return nil
	})
}

// What is no fault of a backend never closes it to anybody, however often it happens.
func TestWhatNeverTripsABreaker(t *testing.T) {
	t.Parallel()
	const times = 60
	waiting := make(chan struct{}, 1)
	for name, tt := range map[string]struct {
		do     func(w http.ResponseWriter, r *http.Request, m message)
		reason string
	}{
		"a tool's own error": {do: func(w http.ResponseWriter, _ *http.Request, m message) {
			writeResult(w, m, `{"resultType":"complete","content":[],"isError":true}`)
		}},
		"a JSON-RPC error": {do: document(`{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"no"}}`)},
		"401":              {do: status(401), reason: "auth_failed"},
		"403":              {do: status(403), reason: "auth_failed"},
		"404":              {do: status(404), reason: "bad_response"},
		"429":              {do: status(429), reason: "rate_limited"},
		"too large":        {do: document(`{"jsonrpc":"2.0","id":ID,"result":{"x":"` + strings.Repeat("x", 70<<10) + `"}}`), reason: "too_large"},
		"the client's cancel": {do: func(w http.ResponseWriter, r *http.Request, _ message) {
			waiting <- struct{}{}
			<-r.Context().Done()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var well atomic.Bool
			b := newScripted(t, modernVersion, func(w http.ResponseWriter, r *http.Request, m message) {
				if well.Load() {
					writeResult(w, m, done("ok"))
					return
				}
				tt.do(w, r, m)
			})
			// A breaker of its own: the answers of another case would dilute this one's.
			g := startGateway(t, b.yaml("b", ""), "  limits: {response: 64KiB}\n")
			alice, bob := g.client(t, "alice", modernVersion), g.client(t, "bob", legacyVersion)
			for i := range times {
				c := []client{alice, bob}[i%2]
				if name == "the client's cancel" {
					conn := dial(t, c)
					sendOn(t, conn, c, anyCall)
					soon(t, "the call at the backend", waiting)
					conn.Close()
					continue
				}
				if got := c.reason(t); got != tt.reason {
					t.Fatalf("call %d: reason %q, want %q", i, got, tt.reason)
				}
			}
			well.Store(true)
			if got := alice.reason(t); got != "" {
				t.Errorf("after %d of them: %s", times, got)
			}
		})
	}
}

// Failures other than connect errors need two callers: one caller can't close a backend to the others.
func TestOneCallerClosesNoBackend(t *testing.T) {
	t.Parallel()
	var fail atomic.Bool
	b := newScripted(t, modernVersion, func(w http.ResponseWriter, r *http.Request, m message) {
		if fail.Load() {
			status(500)(w, r, m)
			return
		}
		writeResult(w, m, done("ok"))
	})
	g := startGateway(t, b.yaml("b", ""), "")
	alice, bob := g.client(t, "alice", modernVersion), g.client(t, "bob", modernVersion)
	fail.Store(true)
	for range 60 {
		if r := alice.reason(t); r != "bad_response" {
			t.Fatalf("alice: %s", r)
		}
	}
	fail.Store(false)
	if r := bob.reason(t); r != "" {
		t.Fatalf("after alice's 60 failures bob gets %s", r)
	}
	fail.Store(true)
	tripped := false
	for i := 0; i < 60 && !tripped; i++ {
		tripped = []client{alice, bob}[i%2].reason(t) == "circuit_open"
	}
	if !tripped {
		t.Error("60 more failures of two callers did not trip the breaker")
	}
}

// door is the address of a backend that can be shut, as if its process had died, and opened again.
type door struct {
	url, addr, target string

	mu    sync.Mutex // guards the rest
	ln    net.Listener
	conns map[net.Conn]bool
}

func newDoor(t *testing.T, backend string) *door {
	t.Helper()
	d := &door{addr: "127.0.0.1:0", target: strings.TrimSuffix(strings.TrimPrefix(backend, "http://"), "/mcp"), conns: map[net.Conn]bool{}}
	d.open(t)
	d.url = "http://" + d.addr + "/mcp"
	return d
}

func (d *door) open(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.ln, d.addr = ln, ln.Addr().String()
	d.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", d.target)
			if err != nil {
				in.Close()
				continue
			}
			d.mu.Lock()
			d.conns[in], d.conns[out] = true, true
			d.mu.Unlock()
			wg.Go(func() { pipe(in, out) })
			wg.Go(func() { pipe(out, in) })
		}
	})
	t.Cleanup(func() { d.shut(); wg.Wait() })
}

// pipe copies until one side ends, and then ends the other.
func pipe(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
}

func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ln.Close()
	for c := range d.conns {
		c.Close()
		delete(d.conns, c)
	}
}
