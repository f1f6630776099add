package publish

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/controlplane/internal/history"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

// pinned is parse with a pin on backend a.
func pinned(t *testing.T, pin string, hosts ...string) *config.Config {
	cfg := parse(t, 0, "a b", hosts...)
	cfg.Backends[0].Pin = pin
	return cfg
}

// redefine has a backend define its first tool otherwise.
func (r *replica) redefine(id routes.BackendID, description string) {
	r.source.mu.Lock()
	next := *r.source.cats[id]
	next.Tools.Items = slices.Clone(next.Tools.Items)
	raw := json.RawMessage(`{"name":"` + next.Tools.Items[0].Name + `","description":"` + description + `","inputSchema":{}}`)
	next.Tools.Items[0].Raw, next.Tools.Items[0].Digest = raw, routes.Digest(raw)
	r.source.cats[id] = &next
	r.source.mu.Unlock()
	r.Notify()
}

// approve does what the admin API does, on any replica.
func approve(t *testing.T, st store, cat *catalog.Catalog) {
	t.Helper()
	subject := history.PinsSubject(cat.Backend)
	doc, digest, err := st.Decision(t.Context(), subject)
	if err != nil {
		t.Fatal(err)
	}
	pins, err := catalog.DecodePins(doc)
	if err != nil {
		t.Fatal(err)
	}
	next, _ := pins.Approve(cat, nil, true)
	if doc, err = catalog.EncodePins(next); err != nil {
		t.Fatal(err)
	}
	if err := st.Decide(t.Context(), subject, digest, doc); err != nil {
		t.Fatal(err)
	}
}

func TestABlockedToolIsWithheldUntilItIsApproved(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		src := newSource().learn("a", "ping", "other").learn("b", "pong").settled()
		one := start(t, m, "one", pinned(t, config.PinBlock, "acme: a"), src)
		after(time.Second)
		one.redefine("a", "changed")
		after(time.Second)
		if diff := cmp.Diff(map[string]string{"other": "a/other"}, tools(t, m, "acme")); diff != "" {
			t.Errorf("changed and not approved (-want +got):\n%s", diff)
		}
		if got := codes(one.State()); !slices.Contains(got, "tool_withheld") {
			t.Errorf("problems %v, want tool_withheld", got)
		}

		// A new leader, whose discovery knows the changed definition only, remembers what was approved.
		one.stop()
		changed, _ := src.Snapshot()
		fresh := newSource().settled()
		fresh.cats = changed
		two := start(t, m, "two", pinned(t, config.PinBlock, "acme: a"), fresh)
		after(20 * time.Second)
		if _, served := tools(t, m, "acme")["ping"]; served || !two.State().Leading {
			t.Errorf("another leader: served %v, state %+v", served, two.State())
		}
		// Lost data is no approval either.
		m.Flush()
		after(20 * time.Second)
		if _, served := tools(t, m, "acme")["ping"]; served || document(t, m, "acme") == nil {
			t.Errorf("after data loss: the tool is served: %v", served)
		}

		approve(t, m, changed["a"])
		two.Decided()
		after(time.Second)
		if diff := cmp.Diff(map[string]string{"ping": "a/ping", "other": "a/other"}, tools(t, m, "acme")); diff != "" {
			t.Errorf("approved (-want +got):\n%s", diff)
		}
		if got := codes(two.State()); len(got) != 0 {
			t.Errorf("problems %v, want none", got)
		}
	})
}

func TestPinsGoWithThePin(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		r := start(t, m, "one", pinned(t, config.PinWarn, "acme: a"), newSource().learn("a", "ping").learn("b", "x").settled())
		after(time.Second)
		r.redefine("a", "changed")
		after(time.Second)
		if got := codes(r.State()); !slices.Contains(got, "tool_changed") || tools(t, m, "acme")["ping"] == "" {
			t.Errorf("warn: problems %v, tools %v; want tool_changed and the tool", got, tools(t, m, "acme"))
		}
		r.Configure(pinned(t, config.PinOff, "acme: a"))
		after(time.Second)
		if all, _, err := m.Decisions(t.Context()); len(all) != 0 || err != nil || len(codes(r.State())) != 0 {
			t.Errorf("off: decisions %v, %v, problems %v; want none", all, err, codes(r.State()))
		}
	})
}

// The pins of a backend that leaves the config outlive it for thirty days, over a change of leaders.
func TestPinsOfABackendThatLeftAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		src := func() *source { return newSource().learn("a", "ping").learn("b", "x").settled() }
		slow := func(o *Options) { o.LeaseTTL, o.Renew, o.Verify = 10*time.Hour, 3*time.Hour, 5*time.Hour } // days pass
		one := start(t, m, "one", pinned(t, config.PinBlock, "acme: a"), src(), slow)
		after(time.Second)
		without := parse(t, 0, "b", "globex: b")
		one.Configure(without)
		after(15 * 24 * time.Hour)
		one.stop()
		two := start(t, m, "two", without, src(), slow)
		after(14 * 24 * time.Hour)
		two.learn("b", "x", "y") // any round will do
		after(time.Second)
		all, _, err := m.Decisions(t.Context())
		if len(all) != 1 || err != nil {
			t.Errorf("after 29 days: decisions %v, %v; want one", all, err)
		}
		two.Configure(pinned(t, config.PinBlock, "acme: a"))
		two.redefine("a", "changed while it was away")
		after(time.Second)
		if got := codes(two.State()); !slices.Contains(got, "tool_withheld") {
			t.Errorf("back after 29 days: problems %v, want tool_withheld", got)
		}
		two.Configure(without)
		after(31 * 24 * time.Hour)
		two.learn("b", "z")
		after(time.Second)
		if all, _, err := m.Decisions(t.Context()); len(all) != 0 || err != nil {
			t.Errorf("after 31 days: decisions %v, %v; want none", all, err)
		}
	})
}

func TestAHeldHostStaysUntilItIsResumed(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		r := start(t, m, "one", parse(t, 0, "a b", "acme: a", "globex: b"), newSource().learn("a", "ping").learn("b", "pong").settled())
		after(time.Second)
		r.learn("a", "wrong")
		after(time.Second)
		revisions, err := m.History(t.Context(), "acme")
		if err != nil || len(revisions) != 2 || !revisions[1].Time.Before(revisions[0].Time) {
			t.Fatalf("history = %d revisions, %v; want 2, the newer first", len(revisions), err)
		}
		doc, err := json.Marshal(history.Hold{Version: revisions[1].Version, Since: time.Now(), Archive: revisions[1].Archive})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Decide(t.Context(), history.HoldSubject("acme"), "", doc); err != nil {
			t.Fatal(err)
		}
		before := document(t, m, "acme").Revision
		r.Decided()
		after(time.Second)
		held := map[string]string{"ping": "a/ping"}
		if diff := cmp.Diff(held, tools(t, m, "acme")); diff != "" {
			t.Errorf("held (-want +got):\n%s", diff)
		}
		if got := document(t, m, "acme").Revision; got != before+1 {
			t.Errorf("held at revision %d, want a new one after %d", got, before)
		}
		if got := codes(r.State()); !slices.Contains(got, "host_held") {
			t.Errorf("problems %v, want host_held", got)
		}
		r.learn("a", "wrong", "more")
		r.learn("b", "pong", "more")
		after(time.Second)
		if diff := cmp.Diff(held, tools(t, m, "acme")); diff != "" || len(tools(t, m, "globex")) != 2 {
			t.Errorf("a change while held: globex %v, acme (-want +got):\n%s", tools(t, m, "globex"), diff)
		}
		// Lost data resumes nothing.
		m.Flush()
		after(20 * time.Second)
		if diff := cmp.Diff(held, tools(t, m, "acme")); diff != "" {
			t.Errorf("after data loss (-want +got):\n%s", diff)
		}
		if err := m.Decide(t.Context(), history.HoldSubject("acme"), routes.Digest(doc), nil); err != nil {
			t.Fatal(err)
		}
		r.Decided()
		after(time.Second)
		if diff := cmp.Diff(map[string]string{"wrong": "a/wrong", "more": "a/more"}, tools(t, m, "acme")); diff != "" {
			t.Errorf("resumed (-want +got):\n%s", diff)
		}
		if got := codes(r.State()); len(got) != 0 {
			t.Errorf("problems %v, want none", got)
		}
	})
}
