package discovery

import (
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
)

// TestHandshake finds out whether calls work without a handshake. Each hand-made legacy backend is looked at several times.
func TestHandshake(t *testing.T) {
	const required, none = routes.HandshakeRequired, routes.HandshakeNone
	good := reply{result: `{"tools":[` + tool("a") + `]}`}
	refused := reply{error: `{"code":-32600,"message":"not initialized"}`}
	always := func(r reply) func(int) reply { return func(int) reply { return r } }
	tests := map[string]struct {
		bare   func(n int) reply // the n-th list without a session, from 1
		inside reply             // lists within the session; zero: good
		want   []routes.Handshake
		asked  int // lists without a session, in all rounds
	}{
		"a server without sessions is asked twice, then once a round": {bare: always(good), want: []routes.Handshake{none, none, none}, asked: 4},
		"a strict one is asked once and never again":                  {bare: always(refused), want: []routes.Handshake{required, required, required}, asked: 1},
		"an HTTP refusal is one too":                                  {bare: always(reply{status: http.StatusBadRequest}), want: []routes.Handshake{required, required}, asked: 1},
		"one answer is none":                                          {bare: func(n int) reply { return map[bool]reply{true: good, false: refused}[n == 1] }, want: []routes.Handshake{required, required}, asked: 2},
		"another list than within the session does not count":         {bare: always(reply{result: `{"tools":[` + tool("b") + `]}`}), want: []routes.Handshake{required, required}, asked: 2},
		"an empty list proves nothing":                                {bare: always(good), inside: reply{result: `{"tools":[]}`}, want: []routes.Handshake{required, required}, asked: 0},
		"a server that became strict": {bare: func(n int) reply { return map[bool]reply{true: good, false: refused}[n <= 3] },
			want: []routes.Handshake{none, none, required, required}, asked: 4},
		"an outage says nothing": {bare: func(n int) reply { return map[bool]reply{true: {status: 503}, false: good}[n == 1] },
			want: []routes.Handshake{required, none, none}, asked: 4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			asked, pings := 0, 0
			s := handmade(t, legacy(`{"tools":{}}`, func(r request) reply {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case r.Method == "ping":
					pings++
					return reply{result: `{}`}
				case r.Session == "":
					asked++
					return tt.bare(asked)
				case tt.inside.result != "":
					return tt.inside
				}
				return good
			}))
			d := run(t, Options{}, seldom, map[string]string{"b": s.URL})
			var got []routes.Handshake
			c := d.awaitUp("b")
			for i := range tt.want {
				if i > 0 {
					taken := c.Taken
					d.Refresh("b")
					c = d.awaitRound("b", func(c *catalog.Catalog) bool { return c.Taken.After(taken) })
				}
				got = append(got, c.Handshake)
			}
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("handshakes by round (-want +got):\n%s", diff)
			}
			if asked != tt.asked || pings != 0 {
				t.Errorf("asked %d times without a session, want %d; %d pings", asked, tt.asked, pings)
			}
		})
	}
}
