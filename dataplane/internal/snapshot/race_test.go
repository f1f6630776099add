package snapshot

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

// held makes the next read of a host wait, after it has read, until the returned function is called.
func (b *bench) held() (release func()) {
	gate := make(chan struct{})
	var once sync.Once
	hold := func(routes.HostID) {
		first := false
		once.Do(func() { first = true })
		if first {
			<-gate
		}
	}
	b.hold.Store(&hold)
	return func() { close(gate) }
}

// ask starts a request for a cold host and returns how it ended.
func (b *bench) ask(id routes.HostID) <-chan error {
	done := make(chan error, 1)
	go func() { _, err := b.store.Get(b.t.Context(), id); done <- err }()
	synctest.Wait()
	return done
}

// A host is published while a read that found nothing is under way: whoever asks after the publication must not be told that
// the host is unknown, and nobody may remember it.
func TestRaceOfReadAndFirstPublication(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		release := b.held()
		before := b.ask("acme")
		b.host("acme", 1, "one")
		synctest.Wait()
		after := b.ask("acme") // joins the same read
		release()
		for name, done := range map[string]<-chan error{"before": before, "after": after} {
			if err := <-done; err != nil {
				t.Errorf("who asked %s the publication: %v", name, err)
			}
		}
		b.serves("acme", "one")
	})
}

// A host is removed while a read that found it is under way: the late read must not bring it back.
func TestRaceOfReadAndRemoval(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.host("acme", 1, "one")
		release := b.held()
		done := b.ask("acme")
		b.publish(routestest.Removal("acme", 2))
		b.settle() // the tombstone is applied, since somebody waits for the host
		release()
		<-done // either answer is right: the request overlapped the removal
		synctest.Wait()
		b.settle()
		b.fails("acme", routes.ErrUnknownHost)
	})
}

// A host changes while a read of its older document is under way.
func TestRaceOfReadAndChange(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.host("acme", 1, "one")
		release := b.held()
		done := b.ask("acme")
		b.host("acme", 2, "two")
		b.settle()
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		b.serves("acme", "two")
	})
}

// The store loses its data and is filled anew while a read from before is under way: its document is of another incarnation, so
// that numbers don't tell which is older.
func TestRaceOfReadAndNewIncarnation(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.host("acme", 100, "old")
		release := b.held()
		done := b.ask("acme")
		b.Flush()
		b.lead()
		b.host("acme", 1, "new")
		b.Disconnect()
		time.Sleep(5 * time.Second)
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		b.serves("acme", "new")
	})
}

func TestARefreshThatFailsIsRepeated(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.host("acme", 1, "one")
		b.serves("acme", "one")
		b.broken.Store(true)
		b.host("acme", 2, "two")
		time.Sleep(10 * time.Second)
		b.serves("acme", "one")
		b.broken.Store(false)
		time.Sleep(maxRetry + time.Second)
		b.serves("acme", "two")
	})
}

func TestManyHostsChangeAtOnce(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		const n = 500
		changes := func(revision uint64) (out []routes.HostChange) {
			for i := range n {
				out = append(out, routestest.Host(routes.HostID(fmt.Sprintf("h%d", i))).
					Tool(fmt.Sprintf("t%d", revision), "b", "up").Change(t, b.lease, revision))
			}
			return out
		}
		b.publish(changes(1)...)
		for i := range n {
			b.serves(routes.HostID(fmt.Sprintf("h%d", i)), "t1")
		}
		b.publish(changes(2)...)
		b.settle()
		for i := range n {
			b.serves(routes.HostID(fmt.Sprintf("h%d", i)), "t2")
		}
	})
}

// What is served never goes back, however readers, changes and reconnects meet. Run with -race.
func TestNothingGoesBack(t *testing.T) {
	m := routestest.NewMemory()
	s, err := New(Options{Reader: m, Jitter: time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	lease, err := m.Acquire(ctx, "test", time.Hour, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.MarkComplete(ctx, lease); err != nil {
		t.Fatal(err)
	}
	const last = 300
	for range 4 {
		wg.Go(func() {
			var seen uint64
			for seen < last {
				ix, err := s.Get(ctx, "acme")
				if err != nil {
					continue // before the first publication
				}
				got := ix.Host().Revision
				if got < seen {
					t.Errorf("revision %d after %d", got, seen)
					return
				}
				seen = got
			}
		})
	}
	for revision := uint64(1); revision <= last; revision++ {
		c := routestest.Host("acme").Tool("t", "b", "up").Change(t, lease, revision)
		if err := m.Publish(ctx, lease, routes.Batch{Hosts: []routes.HostChange{c}}); err != nil {
			t.Error(err)
			break
		}
		if revision%50 == 0 {
			m.Disconnect()
		}
	}
	// The readers end when they see the last revision.
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if ix, err := s.Get(ctx, "acme"); err == nil && ix.Host().Revision == last || ctx.Err() != nil {
				return
			}
		}
	}()
	<-done
	cancel()
	wg.Wait()
}

func TestGetOfAWarmHostAllocatesNothing(t *testing.T) {
	m := routestest.NewMemory()
	lease, err := m.Acquire(t.Context(), "test", time.Hour, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := routestest.Host("acme").Tool("t", "b", "up").Change(t, lease, 1)
	if err := m.Publish(t.Context(), lease, routes.Batch{Hosts: []routes.HostChange{c}}); err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Reader: m})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	s.loads.Wait()
	if n := testing.AllocsPerRun(100, func() { _, _ = s.Get(t.Context(), "acme") }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
