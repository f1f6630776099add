package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
)

// parked is a backend whose calls run until the test lets them go; each says when it has begun and when its caller left.
type parked struct {
	*scripted
	begun, left, release chan struct{}
}

const parkParams = `{"name":"b__run","arguments":{"n":"park"}}`

func newParked(t *testing.T, version string) *parked {
	p := &parked{begun: make(chan struct{}, 100), left: make(chan struct{}, 100), release: make(chan struct{})}
	p.scripted = newScripted(t, version, func(w http.ResponseWriter, r *http.Request, m message) {
		if m.argument("n") == "quick" {
			writeResult(w, m, done("quick"))
			return
		}
		p.begun <- struct{}{}
		select {
		case <-p.release:
			writeResult(w, m, done("parked"))
		case <-r.Context().Done():
			p.left <- struct{}{}
		}
	})
	return p
}

// park makes n calls that stay; the returned function waits for their answers, all of which must be results. A refusal is tried
// again: the slot of a call that was answered is free a moment later only.
func (p *parked) park(t *testing.T, c client, n int) (answered func()) {
	t.Helper()
	answers := make(chan error, n)
	for range n {
		go func() {
			a, err := c.call("1", "tools/call", parkParams)
			for err == nil && reasonOf(a.rpc.Error) == "overloaded" && t.Context().Err() == nil {
				a, err = c.call("1", "tools/call", parkParams)
			}
			if err == nil && a.rpc.Result == nil {
				err = fmt.Errorf("status %d: %s", a.status, a.body)
			}
			answers <- err
		}()
	}
	for range n {
		soon(t, "a call at the backend", p.begun)
	}
	return func() {
		t.Helper()
		for range n {
			if err := soon(t, "the answer", answers); err != nil {
				t.Error(err)
			}
		}
	}
}

// Caps count what runs: a caller over its own gets 429, a backend over its own is an error of the call; both say when to come
// again, nobody else is touched, and what ends makes room.
func TestCallsAreCapped(t *testing.T) {
	t.Parallel()
	for era, version := range eras {
		t.Run(era+" client", func(t *testing.T) {
			b := newParked(t, modernVersion)
			other := newScripted(t, legacyVersion, func(w http.ResponseWriter, _ *http.Request, m message) { writeResult(w, m, done("other")) })
			g := startGateway(t, b.yaml("b", "")+other.yaml("other", ""), "  limits: {calls_per_principal: 2, calls_per_backend: 3}\n")
			alice, bob, carol := g.client(t, "alice", version), g.client(t, "bob", version), g.client(t, "carol", version)
			quick := `{"name":"b__run","arguments":{"n":"quick"}}`

			aliceDone := b.park(t, alice, 2)
			a, err := alice.call(`"x"`, "tools/call", quick)
			if err != nil {
				t.Fatal(err)
			}
			want := `{"jsonrpc":"2.0","id":"x","error":{"code":-32603,"message":"too many of your calls are running","data":{"reason":"overloaded","retryAfterMs":1000}}}`
			if a.status != http.StatusTooManyRequests || a.body != want || a.header.Get("Retry-After") != "1" {
				t.Errorf("alice's third call: status %d, Retry-After %q: %s", a.status, a.header.Get("Retry-After"), a.body)
			}
			if got := text(t, bob.must(t, "tools/call", quick)); got != "quick" {
				t.Errorf("bob got %q", got)
			}

			bobDone := b.park(t, bob, 1)
			if a, err = carol.call(`"x"`, "tools/call", quick); err != nil {
				t.Fatal(err)
			}
			want = `{"jsonrpc":"2.0","id":"x","error":{"code":-32603,"message":"too many calls are running","data":{"reason":"overloaded","retryAfterMs":1000}}}`
			if a.status != http.StatusOK || a.body != want {
				t.Errorf("a fourth call to the backend: status %d: %s", a.status, a.body)
			}
			for _, c := range []client{bob, carol} {
				if got := text(t, c.must(t, "tools/call", `{"name":"other__run","arguments":{}}`)); got != "other" {
					t.Errorf("the other backend answered %q", got)
				}
			}
			if n := len(b.begun); n != 0 {
				t.Errorf("%d refused calls reached the backend", n)
			}

			close(b.release)
			aliceDone()
			bobDone()
			for _, c := range []client{alice, bob, carol} {
				eventually(t, "room for more", func() error { // the slot is given back just after the answer
					a, err := c.call("1", "tools/call", quick)
					if err == nil && a.rpc.Result == nil {
						err = fmt.Errorf("status %d: %s", a.status, a.body)
					}
					return err
				})
			}
		})
	}
}

// Who leaves makes room at once, whatever the backend does.
func TestAClientThatLeavesMakesRoom(t *testing.T) {
	t.Parallel()
	b := newParked(t, modernVersion)
	g := startGateway(t, b.yaml("b", ""), "  limits: {calls_per_principal: 1, calls_per_backend: 1}\n")
	alice := g.client(t, "alice", modernVersion)
	for range 20 {
		var conn net.Conn
		eventually(t, "room for a call", func() error {
			conn = dial(t, alice)
			sendOn(t, conn, alice, parkParams)
			answered := make(chan string, 1)
			go func() {
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err == nil {
					answered <- resp.Status
				}
			}()
			select {
			case <-b.begun:
				return nil
			case status := <-answered:
				return errors.New(status)
			}
		})
		conn.Close()
		soon(t, "the end of the call at the backend", b.left)
	}
}
