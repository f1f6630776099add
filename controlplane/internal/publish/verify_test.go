package publish

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

func TestAKeyThatVanishedIsWrittenAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		start(t, m, "one", parse(t, 0, "a b", "acme: a", "beta: b"), newSource().learn("a", "x").learn("b", "y").settled())
		after(time.Second)
		before, beta := document(t, m, "acme").Version(), document(t, m, "beta").Version()
		m.Lose("acme")
		after(31 * time.Second)
		if diff := cmp.Diff(map[string]string{"x": "a/x"}, tools(t, m, "acme")); diff != "" {
			t.Fatalf("what stands (-want +got):\n%s", diff)
		}
		got := document(t, m, "acme").Version()
		if !got.Supersedes(before) {
			t.Errorf("version %+v after %+v", got, before)
		}
		after(5 * time.Minute)
		if again := document(t, m, "acme").Version(); again != got || document(t, m, "beta").Version() != beta {
			t.Errorf("written again without need: %+v after %+v, beta %+v after %+v", again, got, document(t, m, "beta").Version(), beta)
		}
	})
}

func TestWhyAReplicaDoesNotLead(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		newer := start(t, m, "newer", parse(t, 2, "a", "acme: a"), newSource().learn("a", "x").settled())
		after(time.Second)
		older := start(t, m, "older", parse(t, 1, "a", "acme: a"), newSource().learn("a", "x").settled())
		after(2 * time.Second)
		if err := older.NotLeading(); !errors.Is(err, routes.ErrNotLeader) || errors.Is(err, routes.ErrConfigOutdated) {
			t.Errorf("while another one leads: %v", err)
		}
		if err := newer.NotLeading(); err != nil {
			t.Errorf("the leader: %v", err)
		}
		newer.stop()
		after(2 * time.Second)
		if err := older.NotLeading(); !errors.Is(err, routes.ErrConfigOutdated) {
			t.Errorf("with an older config_version: %v", err)
		}
	})
}
