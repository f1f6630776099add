package tasks

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

// 10,000 junk ids from one principal cost a backend ten requests, and one more each second.
func TestTheBudget(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		junk := 0
		flood := func(who string, n int) (asked int) {
			before, _ := b.askedFor("a", "")
			for range n {
				junk++
				out := b.find(who, fmt.Sprint("junk-", junk))
				if out.Kind != missed || out.Cause != routes.CauseUnknown && out.Cause != routes.CauseBudget {
					t.Fatalf("%+v", out)
				}
			}
			after, _ := b.askedFor("a", "")
			return after - before
		}
		steps := []struct {
			after time.Duration
			who   string
			n     int
			want  int
		}{
			{0, "me", 10_000, 10},
			{0, "other", 5, 5}, // has a budget of its own
			{999 * time.Millisecond, "me", 100, 0},
			{time.Millisecond, "me", 100, 1},
			{3 * time.Second, "me", 2, 2},
			{0, "me", 100, 1},
			{time.Hour, "me", 100, 10},
		}
		for i, s := range steps {
			time.Sleep(s.after)
			if got := flood(s.who, s.n); got != s.want {
				t.Errorf("step %d: %d of %d junk ids reached the backend, want %d", i, got, s.n, s.want)
			}
		}
	})
}

// A whole flood at the rate of a busy client, over an hour.
func TestTheBudgetOverAnHour(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for i := range 10_000 {
			b.find("me", fmt.Sprint("junk-", i))
			time.Sleep(360 * time.Millisecond)
		}
		if asked, _ := b.askedFor("a", ""); asked > 10+3600 || asked < 3600 {
			t.Errorf("a was asked %d times within an hour, want 3,600 and ten", asked)
		}
	})
}

// What is recorded costs no budget, and neither does what is known to be unknown.
func TestWhatCostsNoBudget(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.record("me", "own", "a")
		want(t, b.find("me", "junk"), missed, routes.CauseUnknown)
		for range 100 {
			want(t, b.find("me", "own"), owner, "a")
			want(t, b.find("me", "junk"), missed, routes.CauseNegative)
		}
		for i := range 9 {
			want(t, b.find("me", fmt.Sprint("junk-", i)), missed, routes.CauseUnknown)
		}
		want(t, b.find("me", "junk-9"), missed, routes.CauseBudget)
		want(t, b.find("me", "own"), owner, "a")
	})
}

// Foreign ids cost what unknown ones cost, so that the budget tells nothing either.
func TestForeignIDsCostTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for i := range 20 {
			b.record("other", fmt.Sprint("f", i), "a")
		}
		for i := range 20 {
			wanted := routes.CauseForeign
			if i >= burst {
				wanted = routes.CauseBudget
			}
			want(t, b.find("me", fmt.Sprint("f", i)), missed, wanted)
		}
		for i := range burst {
			want(t, b.find("me", fmt.Sprint("f", i)), missed, routes.CauseNegative)
		}
	})
}

// 100,000 junk ids of 1,000 principals leave nothing behind.
func TestMemoryIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.l.audit = zap.NewNop() // else the observer's lines are what grows
		var most struct{ misses, spenders int }
		for i := range 100 {
			for p := range 1000 {
				b.find(fmt.Sprint("p", p), fmt.Sprint("junk-", i, "-", p))
			}
			most.misses = max(most.misses, b.l.misses.len())
			most.spenders = max(most.spenders, b.l.budget.len())
			if i%10 == 9 {
				time.Sleep(interval)
			}
		}
		if most.misses > 1000*2*burst || most.misses < 1000 {
			t.Errorf("%d misses were remembered at once", most.misses)
		}
		if most.spenders != 1000 {
			t.Errorf("%d budgets were remembered at once, want 1,000", most.spenders)
		}
		time.Sleep(2 * missLife)
		b.find("me", "last")
		b.l.budget.mu.Lock()
		b.l.budget.tidyAt = 0 // as if there were many
		b.l.budget.mu.Unlock()
		b.find("you", "last")
		if m, q, s := b.l.misses.len(), len(b.l.misses.queue), b.l.budget.len(); m != 2 || q != 2 || s != 2 {
			t.Errorf("%d misses (%d queued) and %d budgets are left, want 2", m, q, s)
		}
		if n := len(b.l.flights.running); n != 0 {
			t.Errorf("%d flights are left", n)
		}
	})
}

func TestNobodyMakesTheBudgetsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget()
		taken := 0
		for i := range maxSpenders + 1000 {
			if b.take(access.Principal(fmt.Sprint("p", i))) {
				taken++
			}
		}
		if taken != maxSpenders || b.len() != maxSpenders {
			t.Errorf("%d principals were let through, %d are remembered, want %d", taken, b.len(), maxSpenders)
		}
		if !b.take("p0") {
			t.Error("one that is remembered is not let through")
		}
		time.Sleep(2 * time.Second)
		if !b.take("late") || b.len() != 1 {
			t.Errorf("when all budgets are whole: %d are remembered", b.len())
		}
	})
}

func TestNobodyMakesTheMissesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMisses()
		key := func(i int) missKey { return missKey{host: "acme", principal: "p", task: fmt.Sprint(i)} }
		for i := range maxMisses + 10 {
			m.add(key(i))
		}
		if m.len() != maxMisses || m.has(key(9)) || !m.has(key(10)) {
			t.Errorf("%d are remembered; the oldest %v, want them to give way", m.len(), m.has(key(9)))
		}
		m.add(key(10)) // again: its time stays
		time.Sleep(missLife)
		if m.len() != 0 || m.has(key(10)) || len(m.queue) != 0 {
			t.Errorf("%d are remembered after their time", m.len())
		}
	})
}

func TestDecoys(t *testing.T) {
	for _, id := range []string{
		"786512e2-9e0d-44bd-8f29-789f320fe840", "01HZX3N7Q8V5T2K4M6P9R1S3D5", "a", "7", "-", "///", "job:é:\x00", strings.Repeat("x", routes.MaxLocateID),
	} {
		pattern := "^" + regexp.MustCompile(`[0-9a-fA-Fg-zG-Z]`).ReplaceAllStringFunc(regexp.QuoteMeta(id), func(c string) string {
			return "[" + classes[classOf(c[0])] + "]"
		}) + "$"
		form := regexp.MustCompile(pattern)
		decoys := map[string]bool{}
		for range 50 {
			d := decoyOf(id)
			if d == id || len(d) != len(id) {
				t.Fatalf("%q stands in for %q", d, id)
			}
			if strings.ContainsAny(id, "0123456789abcdefghijklmnopqrstuvwxyz") && !form.MatchString(d) {
				t.Errorf("%q stands in for %q and has another form", d, id)
			}
			decoys[d] = true
		}
		if len(id) > 20 && len(decoys) != 50 {
			t.Errorf("%d different decoys of %q, want 50", len(decoys), id)
		}
	}
}

// A decoy may be somebody's task by chance: that is nobody's business.
func TestADecoyThatIsATask(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.says["a"] = func(context.Context, string) reply { return reply{known, routes.MinTaskLife} }
		b.record("other", "t1", "a")
		want(t, b.find("me", "t1"), missed, routes.CauseForeign)
		if all, one := b.askedFor("a", "t1"); all != 1 || one != 0 {
			t.Errorf("a was asked %d times, %d for the task", all, one)
		}
	})
}

// Other principals' ids reach their backend never, however often they are asked for; decoys do.
func TestForeignIDsNeverReachTheirBackend(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ids := make([]string, 500)
		for i := range ids {
			ids[i] = fmt.Sprintf("786512e2-9e0d-44bd-8f29-%012x", i)
			b.record("other", ids[i], "a")
		}
		for i, id := range ids {
			b.l.Ask(t.Context(), Query{Identity: caller(fmt.Sprint("p", i%100)), Host: b.host, TaskID: id, Era: wire.Modern})
			time.Sleep(time.Duration(i%7) * 100 * time.Millisecond)
		}
		asked := maps.Clone(b.asked)
		for _, id := range asked["a"] {
			if strings.HasPrefix(id, ids[0][:23]) {
				t.Errorf("a was asked for %s", id)
			}
		}
		if len(asked["b"]) != len(ids) {
			t.Errorf("b was asked for %d of %d", len(asked["b"]), len(ids))
		}
		if n := len(asked["a"]); n != len(ids) {
			t.Errorf("a was asked for %d decoys, want one each", n)
		}
	})
}
