package snapshot

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a store in a synctest bubble, on a store in memory whose reads can be counted and held.
type bench struct {
	*routestest.Memory
	t     *testing.T
	store *Store
	lease routes.Lease
	stop  func()

	reads atomic.Int64 // of single hosts
	// hold, when set, is called between the read of a host and its return.
	hold atomic.Pointer[func(routes.HostID)]
	// broken makes reads of several hosts fail.
	broken atomic.Bool
}

func (b *bench) Host(ctx context.Context, id routes.HostID) (routes.HostRecord, error) {
	b.reads.Add(1)
	rec, err := b.Memory.Host(ctx, id)
	if f := b.hold.Load(); f != nil {
		(*f)(id)
	}
	return rec, err
}

func (b *bench) Hosts(ctx context.Context, ids []routes.HostID) (map[routes.HostID]routes.HostRecord, error) {
	if b.broken.Load() {
		return nil, routes.ErrUnavailable
	}
	return b.Memory.Hosts(ctx, ids)
}

// run runs f in a bubble with a store that follows.
func run(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{Memory: routestest.NewMemory(), t: t}
		b.lead()
		var err error
		if b.store, err = New(Options{Reader: b, Registerer: prometheus.NewRegistry()}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.store.Run(ctx) }()
		b.stop = func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
		synctest.Wait()
		f(t, b)
		b.stop()
	})
}

func (b *bench) lead() {
	b.t.Helper()
	var err error
	if b.lease, err = b.Acquire(b.t.Context(), "test", time.Hour, 0); err != nil {
		b.t.Fatal(err)
	}
	if err := b.MarkComplete(b.t.Context(), b.lease); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) publish(changes ...routes.HostChange) {
	b.t.Helper()
	if err := b.Publish(b.t.Context(), b.lease, routes.Batch{Hosts: changes}); err != nil {
		b.t.Fatal(err)
	}
}

// host publishes a host with one tool.
func (b *bench) host(id routes.HostID, revision uint64, tool string) {
	b.t.Helper()
	b.publish(routestest.Host(id).Tool(tool, "b", "up").Change(b.t, b.lease, revision))
}

// settle waits until what was published is served.
func (b *bench) settle() {
	time.Sleep(50 * time.Millisecond)
	synctest.Wait()
}

func (b *bench) serves(id routes.HostID, tool string) {
	b.t.Helper()
	ix, err := b.store.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatalf("Get(%q): %v, want a host with tool %s", id, err, tool)
	}
	if _, ok := ix.Lookup(routes.KindTool, tool); !ok {
		b.t.Errorf("host %q at revision %d lacks tool %s", id, ix.Host().Revision, tool)
	}
}

func (b *bench) fails(id routes.HostID, want error) {
	b.t.Helper()
	if _, err := b.store.Get(b.t.Context(), id); !errors.Is(err, want) {
		b.t.Fatalf("Get(%q): %v, want %v", id, err, want)
	}
}

func (b *bench) wantReads(n int64) {
	b.t.Helper()
	if got := b.reads.Swap(0); got != n {
		b.t.Errorf("%d reads of a cold host, want %d", got, n)
	}
}

func TestAHostIsLoadedOnceAndThenFollowed(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.host("acme", 1, "one")
		b.serves("acme", "one")
		b.serves("acme", "one")
		b.wantReads(1)
		b.host("acme", 2, "two")
		b.settle()
		b.serves("acme", "two")
		b.wantReads(0)
	})
}

func TestAChangeIsVisibleWithinTheJitter(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.host("acme", 1, "t1")
		b.serves("acme", "t1")
		for revision := uint64(2); revision < 20; revision++ {
			b.host("acme", revision, "t")
			began := time.Now()
			for {
				ix, err := b.store.Get(t.Context(), "acme")
				if err != nil {
					t.Fatal(err)
				}
				if ix.Host().Revision == revision {
					break
				}
				time.Sleep(time.Millisecond)
			}
			if took := time.Since(began); took > 60*time.Millisecond {
				t.Errorf("revision %d was visible after %v", revision, took)
			}
		}
	})
}

func TestOneReadServesAllWhoWait(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.host("acme", 1, "one")
		release := make(chan struct{})
		hold := func(routes.HostID) { <-release }
		b.hold.Store(&hold)
		impatient, leave := context.WithCancel(t.Context())
		results := make(chan error, 11)
		for range 10 {
			go func() { _, err := b.store.Get(t.Context(), "acme"); results <- err }()
		}
		go func() { _, err := b.store.Get(impatient, "acme"); results <- err }()
		synctest.Wait()
		leave() // must not end the read of the others
		synctest.Wait()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("who left: %v", err)
		}
		close(release)
		for range 10 {
			if err := <-results; err != nil {
				t.Errorf("who stayed: %v", err)
			}
		}
		b.wantReads(1)
	})
}

func TestOnlyATombstoneRemoves(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.host("acme", 1, "one")
		b.host("globex", 1, "one")
		b.serves("acme", "one")
		b.serves("globex", "one")
		b.publish(routestest.Removal("acme", 2))
		b.settle()
		b.fails("acme", routes.ErrUnknownHost)
		b.host("acme", 3, "again")
		b.settle()
		b.serves("acme", "again")

		b.Flush() // all keys are gone, and a new incarnation is led
		b.lead()
		b.host("initech", 1, "one")
		b.Disconnect()
		time.Sleep(5 * time.Second)
		b.serves("globex", "one")
		b.serves("acme", "again")
		b.serves("initech", "one")
	})
}

func TestANewIncarnationIsTakenWhateverItsNumbers(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.host("acme", 100, "old")
		b.serves("acme", "old")
		b.Flush()
		b.lead()
		b.host("acme", 1, "new")
		b.Disconnect()
		time.Sleep(5 * time.Second)
		b.serves("acme", "new")
	})
}

// undecodable is what a later release might publish.
func (b *bench) undecodable(id routes.HostID, revision uint64) {
	b.t.Helper()
	c := routestest.Host(id).Tool("new", "b", "up").Change(b.t, b.lease, revision)
	c.Document = []byte(strings.Replace(string(c.Document), `"schema":1`, `"schema":99`, 1))
	b.publish(c)
}

func TestWhatCantBeDecodedKeepsTheLastGoodOne(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.host("acme", 1, "good")
		b.host("globex", 1, "good")
		b.serves("acme", "good")
		b.serves("globex", "good")
		b.undecodable("acme", 2)
		b.host("globex", 2, "better")
		b.settle()
		b.serves("acme", "good")
		b.serves("globex", "better") // one bad document is one host's affair
		st := b.store.Status()["acme"]
		if st.Applied == nil || st.Applied.Revision != 1 {
			t.Errorf("applied %+v, want revision 1", st.Applied)
		}
		if st.Refused == nil || st.Refused.Version.Revision != 2 || st.Refused.Reason == "" {
			t.Errorf("refused %+v, want revision 2 with a reason", st.Refused)
		}
		if warm, refused := b.store.count(); warm != 2 || refused != 1 {
			t.Errorf("%d warm, %d refused; want 2 and 1", warm, refused)
		}
		b.host("acme", 3, "fixed")
		b.settle()
		b.serves("acme", "fixed")
		if st := b.store.Status()["acme"]; st.Refused != nil || st.Applied.Revision != 3 {
			t.Errorf("status %+v, want revision 3 and no refusal", st)
		}
	})
}

func TestAColdHostThatCantBeDecodedIsUnavailable(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.undecodable("acme", 1)
		b.settle()
		b.fails("acme", routes.ErrUnavailable)
		b.fails("acme", routes.ErrUnavailable)
		b.wantReads(1) // remembered for a while
		if st := b.store.Status()["acme"]; st.Applied != nil || st.Refused == nil {
			t.Errorf("status %+v, want a refusal alone", st)
		}
		b.host("acme", 2, "fixed")
		b.settle()
		b.serves("acme", "fixed")
	})
}

func TestUnknownIsRememberedForTwoSeconds(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.fails("nobody", routes.ErrUnknownHost)
		b.fails("nobody", routes.ErrUnknownHost)
		b.wantReads(1)
		time.Sleep(2 * time.Second)
		b.fails("nobody", routes.ErrUnknownHost)
		b.wantReads(1)
		b.host("nobody", 1, "now") // falls at once
		synctest.Wait()
		b.serves("nobody", "now")
	})
}

func TestUnknownIsForgottenAfterAReset(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.fails("nobody", routes.ErrUnknownHost)
		b.wantReads(1)
		b.Disconnect()
		time.Sleep(time.Second)
		b.fails("nobody", routes.ErrUnknownHost)
		b.wantReads(1)
	})
}

func TestUnknownIsBounded(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.store.mu.Lock()
		for i := range maxAbsent {
			b.store.absent[routes.HostID(rune('a'+i%26))+routes.HostID(time.Duration(i).String())] = absence{routes.ErrUnknownHost, time.Now().Add(time.Second)}
		}
		full := len(b.store.absent)
		b.store.mu.Unlock()
		b.fails("nobody", routes.ErrUnknownHost)
		if n := len(b.store.absent); n > full {
			t.Errorf("%d are remembered, want at most %d", n, full)
		}
		time.Sleep(time.Second) // the old ones make room
		b.fails("nobody", routes.ErrUnknownHost)
		if n := len(b.store.absent); n != 1 {
			t.Errorf("%d are remembered, want 1", n)
		}
		if n := len(b.store.hosts); n != 0 {
			t.Errorf("%d hosts are kept, want none", n)
		}
	})
}

func TestNotPublishedIsNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{Memory: routestest.NewMemory(), t: t}
		var err error
		if b.store, err = New(Options{Reader: b}); err != nil {
			t.Fatal(err)
		}
		b.fails("acme", routes.ErrNotPublished)
		b.lead()
		b.fails("acme", routes.ErrUnknownHost)
	})
}

func TestWarmHostsServeWhileTheStoreIsAway(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.host("acme", 1, "one")
		b.host("globex", 1, "one")
		b.serves("acme", "one")
		if age := b.store.Age(); age != 0 {
			t.Errorf("age %v while followed", age)
		}
		b.SetDown(true)
		time.Sleep(time.Minute)
		b.serves("acme", "one")
		b.fails("globex", routes.ErrUnavailable)
		if age := b.store.Age(); age < 50*time.Second || age > time.Minute {
			t.Errorf("age %v after a minute", age)
		}
		b.SetDown(false)
		b.host("acme", 2, "two")
		time.Sleep(5 * time.Second)
		b.serves("acme", "two")
		b.serves("globex", "one")
		if age := b.store.Age(); age != 0 {
			t.Errorf("age %v after the return", age)
		}
	})
}

func TestReachedIsTheFirstContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := routestest.NewMemory()
		m.SetDown(true)
		s, err := New(Options{Reader: m})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		reached := func() bool {
			select {
			case <-s.Reached():
				return true
			default:
				return false
			}
		}
		time.Sleep(10 * time.Second)
		if reached() {
			t.Error("reached while the store is down")
		}
		m.SetDown(false)
		time.Sleep(10 * time.Second)
		if !reached() {
			t.Error("not reached though the store is up")
		}
		m.SetDown(true)
		time.Sleep(time.Second)
		if !reached() {
			t.Error("reached must stay")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
