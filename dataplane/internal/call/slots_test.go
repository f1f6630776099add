package call

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
)

func TestCallsAtOnceAreBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		perPrincipal, perBackend int
		second                   string // who makes the second call
		status                   int
	}{
		"one caller has too many":       {1, -1, "alice", 429},
		"another caller may go on":      {1, -1, "bob", 200},
		"one backend has too many":      {-1, 1, "bob", 200}, // with an error in it
		"without bounds there are none": {-1, -1, "alice", 200},
	} {
		t.Run(name, func(t *testing.T) {
			running, release := make(chan struct{}, 2), make(chan struct{})
			b := newBackend(t, func(w http.ResponseWriter, r seen) {
				if strings.Contains(r.body, "slow") {
					running <- struct{}{}
					select {
					case <-release:
					case <-r.ctx.Done():
					}
				}
				answerJSON(w, 200, r.id, `"result":{"resultType":"complete","content":[]}`)
			})
			g := newGateway(t, host(b, modern), func(o *Options) { o.CallsPerPrincipal, o.CallsPerBackend = tt.perPrincipal, tt.perBackend })
			first := make(chan error, 1)
			go func() {
				resp, err := g.open(t.Context(), request{method: "tools/call", params: `{"name":"b__echo","arguments":{"slow":1}}`})
				if err == nil {
					resp.Body.Close()
				}
				first <- err
			}()
			<-running
			a := g.ask(t, request{token: tt.second, method: "tools/call", params: `{"name":"b__echo"}`})
			if a.status != tt.status {
				t.Errorf("status %d, want %d: %s", a.status, tt.status, a.body)
			}
			full := tt.perPrincipal == 1 && tt.second == "alice" || tt.perBackend == 1
			if got := a.reason() == "overloaded" && strings.Contains(string(a.rpc.Error.Data), `"retryAfterMs":1000`); got != full {
				t.Errorf("overloaded: %v, want %v: %s", got, full, a.body)
			}
			if after := a.header.Get("Retry-After"); (after == "1") != (tt.status == 429) {
				t.Errorf("Retry-After %q", after)
			}
			close(release)
			if err := <-first; err != nil {
				t.Error(err)
			}
			eventually(t, "the slots are free", func() bool {
				g.handler.slots.mu.Lock()
				defer g.handler.slots.mu.Unlock()
				return len(g.handler.slots.principals)+len(g.handler.slots.backends) == 0
			})
			g.must(t, request{method: "tools/call", params: `{"name":"b__echo"}`})
		})
	}
}

func TestSlots(t *testing.T) {
	s := newSlots(2, 3)
	take := func(p access.Principal, b routes.BackendID, want full) {
		t.Helper()
		if got := s.enter(p, b); got != want {
			t.Errorf("enter(%q, %q) = %v, want %v", p, b, got, want)
		}
	}
	take("a", "x", free)
	take("a", "x", free)
	take("a", "y", principalFull)
	take("b", "x", free)
	take("b", "x", backendFull)
	take("b", "", free) // the control plane
	take("b", "", principalFull)
	s.leave("b", "")
	s.leave("a", "x")
	take("b", "x", free)
}
