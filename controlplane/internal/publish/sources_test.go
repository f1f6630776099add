package publish

import (
	"testing"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

// Right after a start, a source has not said yet what it has: what stands published of its backends must not be taken for gone.
func TestNothingIsTakenAwayWhileASourceIsAwaited(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		before := start(t, m, "one", parse(t, 0, "a b", "acme: a b", "globex: a"), newSource().learn("a", "ping").learn("b", "pong").settled())
		after(time.Second)
		before.stop()

		cfg := parse(t, 0, "a", "acme: a", "globex: a") // b is a source's
		cfg.Awaiting, cfg.VirtualHosts[0].Awaits = true, true
		r := start(t, m, "two", cfg, newSource().learn("a", "ping", "more").settled())
		after(20 * time.Second) // longer than any grace of the publisher's own
		if got := tools(t, m, "acme"); got["pong"] != "b/pong" || got["more"] != "" {
			t.Errorf("acme = %v, want it as it stood", got)
		}
		if got := tools(t, m, "globex"); got["more"] != "a/more" {
			t.Errorf("globex = %v: it waits for nobody", got)
		}
		if cats, _ := m.Catalogs(t.Context()); cats["b"] == "" {
			t.Errorf("catalogs = %v, want b's too", cats)
		}
		if isClosed(r.Complete()) {
			t.Error("complete while a source is awaited")
		}
		r.Configure(parse(t, 0, "a", "acme: a", "globex: a")) // the source answered, and has it no more
		after(time.Second)
		if got := tools(t, m, "acme"); got["pong"] != "" || got["more"] != "a/more" {
			t.Errorf("acme = %v, want a's tools only", got)
		}
		cats, _ := m.Catalogs(t.Context())
		if _, stands := cats[routes.BackendID("b")]; stands || !isClosed(r.Complete()) {
			t.Errorf("catalogs = %v, want a's only, and everything complete", cats)
		}
	})
}
