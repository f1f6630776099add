package publish

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

func TestPublishesWhatDiscoveryFound(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		r := start(t, m, "one", parse(t, 0, "a b", "acme: a b", "globex: b"), newSource().learn("a", "ping").learn("b", "pong").settled())
		after(time.Second)
		if diff := cmp.Diff(map[string]string{"ping": "a/ping", "pong": "b/pong"}, tools(t, m, "acme")); diff != "" {
			t.Errorf("acme (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"pong": "b/pong"}, tools(t, m, "globex")); diff != "" {
			t.Errorf("globex (-want +got):\n%s", diff)
		}
		meta, err := m.Meta(t.Context())
		if err != nil || !meta.Complete {
			t.Errorf("meta = %+v, %v; want complete", meta, err)
		}
		if !isClosed(r.Complete()) || !r.State().Leading || r.State().Epoch == 0 {
			t.Errorf("state = %+v, complete %v", r.State(), isClosed(r.Complete()))
		}
		cats, err := m.Catalogs(t.Context())
		if err != nil || len(cats) != 2 {
			t.Errorf("catalogs = %v, %v; want both", cats, err)
		}
	})
}

func TestAChangeIsPublishedWithin250Milliseconds(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		r := start(t, m, "one", parse(t, 0, "a", "acme: a"), newSource().learn("a", "ping").settled())
		after(time.Second)
		for n, changes := range []int{1, 10} { // at once, and while changes go on arriving
			before := document(t, m, "acme").Revision
			begin := time.Now()
			for i := range changes {
				r.learn("a", "ping", string(rune('a'+10*n+i)))
				time.Sleep(20 * time.Millisecond)
			}
			for synctest.Wait(); document(t, m, "acme").Revision == before; synctest.Wait() {
				time.Sleep(5 * time.Millisecond)
			}
			if took := time.Since(begin); took > 250*time.Millisecond {
				t.Errorf("%d changes: first publish after %v", changes, took)
			}
			after(time.Second)
			if _, ok := document(t, m, "acme").Tools[string(rune('a'+10*n+changes-1))]; !ok {
				t.Errorf("%d changes: the last one is missing", changes)
			}
		}
	})
}

func TestOnlyWhatChangedIsWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		r := start(t, m, "one", parse(t, 0, "a b", "acme: a", "globex: b"), newSource().learn("a", "ping").learn("b", "pong").settled())
		after(time.Second)
		acme, globex := document(t, m, "acme").Version(), document(t, m, "globex").Version()
		meta, _ := m.Meta(t.Context())

		r.learn("a", "ping") // found anew, the same: times differ only
		after(time.Second)
		if again, _ := m.Meta(t.Context()); again != meta {
			t.Errorf("meta after no change = %+v, want %+v", again, meta)
		}

		r.learn("a", "ping", "more")
		after(time.Second)
		if got := document(t, m, "acme").Version(); got.Revision != acme.Revision+1 || got.Epoch != acme.Epoch {
			t.Errorf("acme at %+v, want one revision after %+v", got, acme)
		}
		if got := document(t, m, "globex").Version(); got != globex {
			t.Errorf("globex moved from %+v to %+v", globex, got)
		}
	})
}

func TestARemovedHostLeavesATombstone(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		r := start(t, m, "one", parse(t, 0, "a b", "acme: a", "globex: b"), newSource().learn("a", "ping").learn("b", "pong").settled())
		after(time.Second)
		r.Configure(parse(t, 0, "a", "acme: a"))
		after(time.Second)
		if _, err := m.Host(t.Context(), "globex"); !errors.Is(err, routes.ErrUnknownHost) {
			t.Errorf("globex: %v, want ErrUnknownHost", err)
		}
		cats, _ := m.Catalogs(t.Context())
		if _, stands := cats["b"]; stands || len(cats) != 1 {
			t.Errorf("catalogs = %v, want a's only", cats)
		}
		r.Configure(parse(t, 0, "a b", "acme: a", "globex: b"))
		after(time.Second)
		if doc := document(t, m, "globex"); doc == nil || doc.Revision < 3 {
			t.Errorf("globex came back as %+v, want a revision above its tombstone's", doc)
		}
	})
}

// Until discovery had its chance, a host would be published without its names, and clients told that they do not exist.
func TestAHostWaitsForItsBackendsFirstRound(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		src := newSource().learn("a", "ping")
		r := start(t, m, "one", parse(t, 0, "a slow", "acme: a", "globex: a slow"), src)
		after(5 * time.Second)
		if document(t, m, "acme") == nil {
			t.Error("acme waits for a backend that it does not use")
		}
		if doc := document(t, m, "globex"); doc != nil {
			t.Errorf("globex was published without slow: %v", doc.Tools)
		}
		if meta, _ := m.Meta(t.Context()); meta.Complete || isClosed(r.Complete()) {
			t.Error("complete before everything was published")
		}
		after(11 * time.Second) // 16 s in all
		if diff := cmp.Diff(map[string]string{"ping": "a/ping"}, tools(t, m, "globex")); diff != "" {
			t.Errorf("globex after 15 s (-want +got):\n%s", diff)
		}
		if meta, _ := m.Meta(t.Context()); !meta.Complete {
			t.Error("not complete after 15 s")
		}
		r.learn("slow", "late")
		after(time.Second)
		if _, ok := tools(t, m, "globex")["late"]; !ok {
			t.Error("the late backend's tool is missing")
		}
	})
}

func TestASuccessorPublishesWithin15Seconds(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		cfg := parse(t, 0, "a", "acme: a")
		// The leader is one that dies without giving its lease back.
		if _, err := m.Acquire(t.Context(), "dead", 10*time.Second, 0); err != nil {
			t.Fatal(err)
		}
		r := start(t, m, "two", cfg, newSource().learn("a", "ping").settled())
		after(9 * time.Second)
		if r.State().Leading {
			t.Fatal("leads beside a living lease")
		}
		after(6 * time.Second)
		if document(t, m, "acme") == nil {
			t.Error("nothing published 15 s after the leader died")
		}
	})
}

func TestALeaseIsGivenBackAtTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		cfg := parse(t, 0, "a", "acme: a")
		one := start(t, m, "one", cfg, newSource().learn("a", "ping").settled())
		two := start(t, m, "two", cfg, newSource().learn("a", "ping", "new").settled())
		after(30 * time.Second)
		leader, other := one, two
		if two.State().Leading {
			leader, other = two, one
		}
		if !leader.State().Leading || other.State().Leading {
			t.Fatalf("leading: %v and %v, want exactly one", one.State().Leading, two.State().Leading)
		}
		leader.stop()
		after(2 * time.Second)
		if !other.State().Leading {
			t.Error("the follower does not lead 2 s after an orderly end")
		}
	})
}

// A successor keeps what stands: names, revisions above the old ones, and the catalog of a backend that is down just now.
func TestASuccessorContinuesWhatStands(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		cfg := parse(t, 0, "a b", "acme: a b")
		// a holds "ping" although b stands... last in the list, and both offer it.
		one := start(t, m, "one", cfg, newSource().learn("a", "other").learn("b", "ping").settled())
		after(time.Second)
		one.learn("a", "other", "ping")
		after(time.Second)
		want := map[string]string{"other": "a/other", "ping": "b/ping"}
		if diff := cmp.Diff(want, tools(t, m, "acme")); diff != "" {
			t.Fatalf("before (-want +got):\n%s", diff)
		}
		stood := document(t, m, "acme").Version()
		one.stop()

		two := start(t, m, "two", cfg, newSource().learn("a", "other", "ping").settled()) // b is down
		after(3 * time.Second)
		if diff := cmp.Diff(want, tools(t, m, "acme")); diff != "" {
			t.Errorf("after (-want +got):\n%s", diff)
		}
		if got := document(t, m, "acme").Version(); got != stood {
			t.Errorf("an unchanged document moved from %+v to %+v", stood, got)
		}
		if diff := cmp.Diff([]routes.BackendID{"b"}, two.source.seeded); diff != "" {
			t.Errorf("seeded (-want +got):\n%s", diff)
		}
		two.learn("a", "other", "ping", "new")
		after(time.Second)
		got := document(t, m, "acme").Version()
		if !got.Supersedes(stood) || got.Revision != stood.Revision+1 || got.Epoch == stood.Epoch {
			t.Errorf("at %+v after %+v, want the next revision under a new epoch", got, stood)
		}
	})
}

func TestLostDataIsPublishedAgainWithin10Seconds(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		cfg := parse(t, 0, "a b", "acme: a b")
		src := newSource().learn("a", "other").learn("b", "ping").settled()
		warm := map[routes.HostID]*routes.VirtualHost{}
		r := start(t, m, "one", cfg, src, func(o *Options) {
			o.Warm = func() map[routes.HostID]*routes.VirtualHost { return warm }
		})
		after(time.Second)
		r.learn("a", "other", "ping") // b holds ping
		after(time.Second)
		warm["acme"] = document(t, m, "acme")
		before := warm["acme"].Version()
		m.Flush()
		after(10 * time.Second)
		doc := document(t, m, "acme")
		if doc == nil {
			t.Fatal("not published again")
		}
		if got := doc.Version(); got.Incarnation == before.Incarnation || !got.Supersedes(before) {
			t.Errorf("version %+v after %+v, want a new incarnation", got, before)
		}
		if diff := cmp.Diff(map[string]string{"other": "a/other", "ping": "b/ping"}, tools(t, m, "acme")); diff != "" {
			t.Errorf("names moved with the data (-want +got):\n%s", diff)
		}
		meta, _ := m.Meta(t.Context())
		cats, _ := m.Catalogs(t.Context())
		if !meta.Complete || len(cats) != 2 {
			t.Errorf("meta %+v, catalogs %v; want complete with both", meta, cats)
		}
	})
}

func TestRedisMayBeAwayAtTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		m.SetDown(true)
		r := start(t, m, "one", parse(t, 0, "a", "acme: a"), newSource().learn("a", "ping").settled())
		after(time.Minute)
		if r.State().Leading || isClosed(r.Complete()) {
			t.Error("leads, or claims to have published, without a store")
		}
		m.SetDown(false)
		after(5 * time.Second)
		if document(t, m, "acme") == nil || !isClosed(r.Complete()) {
			t.Error("nothing published 5 s after Redis came back")
		}
	})
}

func TestRedisMayGoAwayWhileLeading(t *testing.T) {
	for name, away := range map[string]time.Duration{"shorter than the lease": 5 * time.Second, "longer than the lease": time.Minute} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *routestest.Memory) {
				r := start(t, m, "one", parse(t, 0, "a", "acme: a"), newSource().learn("a", "ping").settled())
				after(time.Second)
				m.SetDown(true)
				after(time.Second)
				r.learn("a", "ping", "new")
				after(away)
				if s := r.State(); away < 10*time.Second && (s.Error == nil || !cmp.Equal(codes(s), []string{"not_published"})) {
					t.Errorf("state while away = %+v, want not_published", s)
				}
				m.SetDown(false)
				after(5 * time.Second)
				if diff := cmp.Diff(map[string]string{"ping": "a/ping", "new": "a/new"}, tools(t, m, "acme")); diff != "" {
					t.Errorf("5 s after Redis came back (-want +got):\n%s", diff)
				}
				if s := r.State(); s.Error != nil || len(s.Problems) != 0 {
					t.Errorf("state = %+v, want no problem left", s)
				}
			})
		})
	}
}

// fencing lets a test take the lease over behind a leader's back, at the moment of a write.
type fencing struct {
	*routestest.Memory
	strike bool
}

func (f *fencing) Publish(ctx context.Context, l routes.Lease, b routes.Batch) error {
	if f.strike {
		f.strike = false
		return routes.ErrFenced
	}
	return f.Memory.Publish(ctx, l, b)
}

func TestAFencedLeaderStepsDownAtOnceAndCampaignsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fencing{Memory: routestest.NewMemory()}
		r := start(t, f, "one", parse(t, 0, "a", "acme: a"), newSource().learn("a", "ping").settled())
		after(time.Second)
		epoch := r.State().Epoch
		f.strike = true
		r.learn("a", "ping", "new")
		after(150 * time.Millisecond)
		if r.State().Leading && r.State().Epoch == epoch {
			t.Error("still leads after it was fenced")
		}
		after(15 * time.Second)
		if s := r.State(); !s.Leading || s.Epoch == epoch {
			t.Errorf("state = %+v, want a new term after epoch %d", s, epoch)
		}
		if _, ok := tools(t, f, "acme")["new"]; !ok {
			t.Error("the change was lost with the lease")
		}
	})
}

// deaf is a store whose answers are lost: what it is asked is done all the same, but for Release.
type deaf struct {
	*routestest.Memory
	lost atomic.Bool
}

func (d *deaf) Renew(ctx context.Context, l routes.Lease, ttl time.Duration) error {
	err := d.Memory.Renew(ctx, l, ttl)
	if d.lost.Load() {
		return routes.ErrUnavailable
	}
	return err
}

func (d *deaf) Release(ctx context.Context, l routes.Lease) error {
	if d.lost.Load() {
		return routes.ErrUnavailable
	}
	return d.Memory.Release(ctx, l)
}

// A leader that gave up while its renewals came through would wait for its own lease to run out.
func TestALeaseThatCouldNotBeGivenBackIsGivenBackLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deaf{Memory: routestest.NewMemory()}
		r := start(t, d, "one", parse(t, 0, "a", "acme: a"), newSource().learn("a", "ping").settled())
		after(time.Second)
		epoch := r.State().Epoch
		d.lost.Store(true)
		for r.State().Leading {
			after(100 * time.Millisecond)
		}
		d.lost.Store(false)
		after(2 * time.Second)
		if s := r.State(); !s.Leading || s.Epoch <= epoch {
			t.Errorf("2 s after the answers came again: %+v, want another term after epoch %d", s, epoch)
		}
	})
}

func TestAnOlderConfigVersionDoesNotLead(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		newer := start(t, m, "newer", parse(t, 2, "a", "acme: a"), newSource().learn("a", "new").settled())
		after(time.Second)
		newer.stop()
		older := start(t, m, "older", parse(t, 1, "a", "acme: a"), newSource().learn("a", "old").settled())
		after(time.Minute)
		if older.State().Leading {
			t.Error("leads with an older config_version")
		}
		if diff := cmp.Diff(map[string]string{"new": "a/new"}, tools(t, m, "acme")); diff != "" {
			t.Errorf("what stands (-want +got):\n%s", diff)
		}
		older.Configure(parse(t, 3, "a", "acme: a")) // a reload
		after(3 * time.Second)
		if diff := cmp.Diff(map[string]string{"old": "a/old"}, tools(t, m, "acme")); diff != "" {
			t.Errorf("after the reload (-want +got):\n%s", diff)
		}
	})
}

func TestAFollowerKnowsItsProblems(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		if _, err := m.Acquire(t.Context(), "other", time.Hour, 0); err != nil {
			t.Fatal(err)
		}
		src := newSource().learn("a", "ping").learn("b", "ping").settled()
		src.health["b"] = catalog.Health{Checked: time.Now(), LastError: "connection refused"}
		r := start(t, m, "one", parse(t, 0, "a b", "acme: a b"), src)
		after(time.Second)
		if diff := cmp.Diff([]string{"backend_down", "name_taken"}, codes(r.State())); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
	})
}

// A document that can't be valid must not replace one that is, nor stop other hosts.
func TestAnInvalidDocumentIsNotPublished(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		src := newSource().learn("a", "ping").learn("bad", "pong").settled()
		src.cats["bad"].Protocol = "nonsense"
		r := start(t, m, "one", parse(t, 0, "a bad", "acme: a", "globex: bad"), src)
		after(time.Second)
		if document(t, m, "acme") == nil || document(t, m, "globex") != nil {
			t.Error("want acme published and globex not")
		}
		if diff := cmp.Diff([]string{"document_invalid"}, codes(r.State())); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
	})
}

// A document is encoded once; with its version put in front it must be what encoding it whole gives.
func TestVersionedIsTheEncoding(t *testing.T) {
	for name, host := range map[string]*routestest.HostBuilder{
		"empty": routestest.Host("acme"),
		"full": routestest.Host("acme").Tool("x", "a", "y").Template("doc:///{id}", "a").Edit(func(vh *routes.VirtualHost) {
			vh.Instructions = `"incarnation":"","epoch":0,"revision":0`
		}),
	} {
		plain := host.Document()
		encoded, err := routes.EncodeHost(plain)
		if err != nil {
			t.Fatal(err)
		}
		doc := *plain
		doc.Incarnation, doc.Epoch, doc.Revision = "i", 1764460800000, 9
		want, err := routes.EncodeHost(&doc)
		if err != nil {
			t.Fatal(err)
		}
		got, err := versioned(encoded, plain, &doc)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: %v, got %s, want %s", name, err, got, want)
		}
	}
}
