package tasks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/weir-mcp/weir/routes/redisstore.(*gate).probeUntilBack")) // ends with its client, a moment later
}

var (
	_ Store = (*redisstore.Owners)(nil)
	_ Store = (*routestest.Memory)(nil)
)

// slow is a store that hangs instead of failing, as a paused Redis does.
type slow struct {
	Store
	hangs  atomic.Bool
	writes atomic.Int32
	fail   atomic.Pointer[error]
}

func (s *slow) wait(ctx context.Context) error {
	if s.hangs.Load() {
		ctx, cancel := context.WithTimeout(ctx, 400*time.Millisecond) // two tries
		defer cancel()
		<-ctx.Done()
		return fmt.Errorf("%w: %w", routes.ErrUnavailable, ctx.Err())
	}
	return nil
}

func (s *slow) RecordTask(ctx context.Context, host routes.HostID, id string, o routes.TaskOwner) error {
	s.writes.Add(1)
	if err := s.fail.Load(); err != nil {
		return *err
	}
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Store.RecordTask(ctx, host, id, o)
}

func (s *slow) TaskRecord(ctx context.Context, host routes.HostID, id, principal string) (routes.TaskRecord, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.TaskRecord(ctx, host, id, principal)
}

// fixture is a Book over a store in memory.
type fixture struct {
	*Book
	memory *routestest.Memory
	slow   *slow
	log    *observer.ObservedLogs
}

// newFixture makes a Book; run has it write what waits, until the test ends.
func newFixture(t *testing.T, run bool) *fixture {
	t.Helper()
	core, log := observer.New(zap.DebugLevel)
	f := &fixture{memory: routestest.NewMemory(), log: log}
	f.slow = &slow{Store: f.memory}
	var err error
	if f.Book, err = New(Options{Store: f.slow, Outage: f.memory.Recovered, Log: zap.New(core), Registerer: prometheus.NewRegistry()}); err != nil {
		t.Fatal(err)
	}
	if run {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	return f
}

func owner(principal string, backend routes.BackendID) routes.TaskOwner {
	return routes.TaskOwner{Principal: principal, Backend: backend, Tool: "t", Source: routes.TaskMinted, Created: time.Now(), Life: routes.MinTaskLife}
}

var ignoreTimes = cmpopts.IgnoreFields(routes.TaskOwner{}, "Created", "Expires")

// lookup is Lookup where an error is a failure.
func (f *fixture) lookup(t *testing.T, id, principal string) (routes.TaskRecord, bool) {
	t.Helper()
	record, sure, err := f.Lookup(t.Context(), "acme", id, principal)
	if err != nil {
		t.Fatalf("look-up of %s for %s: %v", id, principal, err)
	}
	return record, sure
}

func TestARecordStandsBeforeTheAnswerLeaves(t *testing.T) {
	f := newFixture(t, false)
	if err := f.Record(t.Context(), "acme", "t-1", owner("alice", "b")); err != nil {
		t.Fatal(err)
	}
	record, sure := f.lookup(t, "t-1", "alice")
	if diff := cmp.Diff(routes.TaskRecord{owner("alice", "b")}, record, ignoreTimes); diff != "" || !sure {
		t.Errorf("sure %v, record (-want +got):\n%s", sure, diff)
	}
	if n := f.queue.len(); n != 0 {
		t.Errorf("%d records wait", n)
	}
}

// The client may have left: its task runs, and is recorded.
func TestARecordOutlivesItsRequest(t *testing.T) {
	f := newFixture(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Record(ctx, "acme", "t-1", owner("alice", "b")); err != nil {
		t.Fatal(err)
	}
	if record, _ := f.lookup(t, "t-1", "alice"); len(record) != 1 || f.queue.len() != 0 {
		t.Errorf("record %v, %d wait", record, f.queue.len())
	}
}

// A store that hangs holds an answer for 250 ms, no more, and gets the record when it is back.
func TestAStoreThatHangsAtMint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, true)
		f.slow.hangs.Store(true)
		began := time.Now()
		if err := f.Record(t.Context(), "acme", "t-1", owner("alice", "b")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 250*time.Millisecond {
			t.Errorf("the answer was held for %v", took)
		}
		time.Sleep(30 * time.Second)
		record, sure := f.lookup(t, "t-1", "alice")
		if len(record) != 1 || sure {
			t.Errorf("while the store hangs: sure %v, record %v", sure, record)
		}
		if _, _, err := f.Lookup(t.Context(), "acme", "t-1", "bob"); err == nil {
			t.Error("no error for somebody else's task")
		}
		f.slow.hangs.Store(false)
		time.Sleep(maxRetry + writeTimeout)
		synctest.Wait()
		if n := f.queue.len(); n != 0 {
			t.Errorf("%d records still wait", n)
		}
		stands, err := f.memory.TaskRecord(t.Context(), "acme", "t-1", "alice")
		if err != nil || len(stands) != 1 {
			t.Errorf("the store has %v, %v", stands, err)
		}
	})
}

func (s *slow) ClaimTask(ctx context.Context, host routes.HostID, id string, o routes.TaskOwner) (routes.TaskRecord, error) {
	s.writes.Add(1)
	return s.Store.ClaimTask(ctx, host, id, o)
}

// "Nothing is recorded" is believed again 10 s after an outage, to the moment.
func TestTheSecondsAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, true)
		if _, sure := f.lookup(t, "t-1", "alice"); !sure {
			t.Error("not sure of a store that was never away")
		}
		f.memory.SetDown(true)
		if _, _, err := f.Lookup(t.Context(), "acme", "t-1", "alice"); !errors.Is(err, routes.ErrUnavailable) {
			t.Errorf("while it is away: %v", err)
		}
		time.Sleep(time.Hour)
		f.memory.SetDown(false)
		for _, tt := range []struct {
			after time.Duration
			sure  bool
		}{{0, false}, {routes.TaskOutageGrace - 1, false}, {1, true}, {time.Hour, true}} {
			time.Sleep(tt.after)
			if _, sure := f.lookup(t, "t-1", "alice"); sure != tt.sure {
				t.Errorf("%v later: sure %v, want %v", tt.after, sure, tt.sure)
			}
		}
	})
}

// New records must not put off the next try to write the old ones.
func TestManyRecordsWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, true)
		f.memory.SetDown(true)
		for i := range 40 {
			if err := f.Record(t.Context(), "acme", fmt.Sprint(i), owner("alice", "b")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(maxRetry / 2)
			if i == 30 {
				f.memory.SetDown(false)
				f.slow.hangs.Store(false)
			}
		}
		time.Sleep(maxRetry)
		synctest.Wait()
		if n := f.queue.len(); n != 0 {
			t.Errorf("%d records still wait", n)
		}
		for i := range 40 {
			if record, _ := f.lookup(t, fmt.Sprint(i), "alice"); len(record) != 1 {
				t.Errorf("task %d: %v", i, record)
			}
		}
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, false)
		if f.queue.max != MaxUnwritten {
			t.Errorf("room for %d", f.queue.max)
		}
		f.queue.max = 100 // the store in memory is slow with many
		f.memory.SetDown(true)
		record := func(principal string, i int) error {
			return f.Record(t.Context(), "acme", fmt.Sprint(principal, i), owner(principal, "b"))
		}
		for i := range 50 { // half of it is for whoever comes first
			if err := record("alice", i); err != nil {
				t.Fatal(i, err)
			}
		}
		if err := record("alice", 50); !errors.Is(err, ErrFull) {
			t.Errorf("more than one may have of the rest: %v, want ErrFull", err)
		}
		for p := range 5 { // the rest in tenths
			for i := range 10 {
				if err := record(fmt.Sprint("other-", p, "-"), i); err != nil {
					t.Fatal(p, i, err)
				}
			}
		}
		if err := record("bob", 0); !errors.Is(err, ErrFull) {
			t.Errorf("one more: %v, want ErrFull", err)
		}
		if err := f.Record(t.Context(), "acme", "alice5", owner("alice", "b")); err != nil {
			t.Errorf("a known one again: %v", err)
		}
		if n := testutil.ToFloat64(f.metrics.lost.WithLabelValues(lostFull)); n != 2 {
			t.Errorf("lost: %v", n)
		}
		f.memory.SetDown(false)
		f.Drain(t.Context())
		if n := f.queue.len(); n != 0 {
			t.Errorf("%d records wait after the drain", n)
		}
		if n := len(f.queue.of); n != 0 {
			t.Errorf("%d principals are remembered for nothing", n)
		}
		if record, _ := f.lookup(t, "other-4-9", "other-4-"); len(record) != 1 {
			t.Errorf("record %v", record)
		}
	})
}

// What the store will never take is not held, and does not hold up the rest.
func TestRecordsThatTheStoreRefuses(t *testing.T) {
	f := newFixture(t, false)
	full := fmt.Errorf("here: %w", routes.ErrTooManyTasks)
	f.slow.fail.Store(&full)
	if err := f.Record(t.Context(), "acme", "t-1", owner("alice", "b")); !errors.Is(err, routes.ErrTooManyTasks) || f.queue.len() != 0 {
		t.Errorf("%v, %d wait", err, f.queue.len())
	}
	bad := owner("alice", "b")
	bad.Life = 0
	if err := f.Record(t.Context(), "acme", "t-1", bad); err == nil || f.queue.len() != 0 {
		t.Errorf("%v, %d wait", err, f.queue.len())
	}
	oom := errors.New("OOM command not allowed") // it answers, so that other dataplanes believe what it does not know
	f.slow.fail.Store(&oom)
	if err := f.Record(t.Context(), "acme", "t-1", owner("alice", "b")); !errors.Is(err, oom) || f.queue.len() != 0 {
		t.Errorf("%v, %d wait", err, f.queue.len())
	}
	if n := testutil.ToFloat64(f.metrics.lost.WithLabelValues(lostRefused)); n != 1 {
		t.Errorf("lost: %v", n)
	}
	f.metrics.lost.Reset()
	for why, err := range map[string]error{lostTooMany: full, lostRefused: errors.New("never")} {
		f.slow.fail.Store(nil)
		f.memory.SetDown(true)
		if err := f.Record(t.Context(), "acme", "t-2", owner("alice", "b")); err != nil {
			t.Fatal(err)
		}
		f.memory.SetDown(false)
		f.slow.fail.Store(&err)
		f.Drain(t.Context())
		if n := testutil.ToFloat64(f.metrics.lost.WithLabelValues(why)); n != 1 || f.queue.len() != 0 {
			t.Errorf("%s: lost %v, %d wait", why, n, f.queue.len())
		}
	}
}

// A drain ends at its deadline; what is lost then is told by digest and counted.
func TestADrainThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, true)
		f.memory.SetDown(true)
		for _, id := range []string{"t-1", "t-2"} {
			if err := f.Record(t.Context(), "acme", id, owner("alice", "b")); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		began := time.Now()
		f.Drain(ctx)
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("the drain took %v", took)
		}
		if n := testutil.ToFloat64(f.metrics.lost.WithLabelValues(lostDrain)); n != 2 || f.queue.len() != 0 {
			t.Errorf("lost %v, %d wait", n, f.queue.len())
		}
		digests := map[any]bool{}
		for _, line := range f.log.FilterMessage("task record lost").All() {
			digests[line.ContextMap()["task"]] = true
		}
		if !digests[routes.TaskDigest("t-1")] || !digests[routes.TaskDigest("t-2")] || len(digests) != 2 {
			t.Errorf("the log names %v", digests)
		}
	})
}

func TestADrainWithNothingToWriteEndsAtOnce(t *testing.T) {
	f := newFixture(t, false)
	f.memory.SetDown(true)
	f.Drain(t.Context())
}

// What is held here and what stands in the store are one record.
func TestHeldAndStoredEntriesAreMerged(t *testing.T) {
	f := newFixture(t, false)
	for _, o := range []routes.TaskOwner{owner("alice", "a"), owner("alice", "b"), owner("bob", "b")} {
		if err := f.Record(t.Context(), "acme", "t-1", o); err != nil {
			t.Fatal(err)
		}
	}
	f.memory.SetDown(true)
	later, new := owner("alice", "b"), owner("alice", "c")
	later.Session = "s-2"
	for _, o := range []routes.TaskOwner{later, new} {
		if err := f.Record(t.Context(), "acme", "t-1", o); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Record(t.Context(), "other", "t-1", owner("alice", "d")); err != nil {
		t.Fatal(err)
	}
	byPlace := cmpopts.SortSlices(func(a, b routes.TaskOwner) bool {
		return a.Principal+string(a.Backend) < b.Principal+string(b.Backend)
	})
	elsewhere := routes.TaskOwner{Principal: "other/alice", Backend: "d", Source: routes.TaskMinted, Life: owner("alice", "d").Life}
	record, sure := f.lookup(t, "t-1", "alice")
	if diff := cmp.Diff(routes.TaskRecord{later, new, elsewhere}, record, ignoreTimes, byPlace); diff != "" || sure {
		t.Errorf("while the store is away: sure %v, record (-want +got):\n%s", sure, diff)
	}
	f.memory.SetDown(false)
	record, _ = f.lookup(t, "t-1", "alice")
	if diff := cmp.Diff(routes.TaskRecord{owner("alice", "a"), later, new, owner("bob", "b"), elsewhere}, record, ignoreTimes, byPlace); diff != "" {
		t.Errorf("when it is back (-want +got):\n%s", diff)
	}
	record, _ = f.lookup(t, "t-1", "bob")
	if len(record) != 5 {
		t.Errorf("bob sees %v", record)
	}
}

func TestUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, true)
		claimed := routes.TaskOwner{Principal: "alice", Backend: "b", Source: routes.TaskClaimed, Life: time.Hour}
		if _, err := f.memory.ClaimTask(t.Context(), "acme", "claimed", claimed); err != nil {
			t.Fatal(err)
		}
		minted := owner("alice", "b")
		if err := f.Record(t.Context(), "acme", "minted", minted); err != nil {
			t.Fatal(err)
		}
		claimed.Life, minted.Life, minted.Session = 2*time.Hour, routes.MaxTaskLife, "s-2"
		f.Update("acme", "claimed", claimed)
		f.Update("acme", "minted", minted)
		synctest.Wait()
		for id, want := range map[string]routes.TaskOwner{"claimed": claimed, "minted": minted} {
			record, _ := f.lookup(t, id, "alice")
			if diff := cmp.Diff(routes.TaskRecord{want}, record, ignoreTimes); diff != "" {
				t.Errorf("%s (-want +got):\n%s", id, diff)
			}
		}
	})
}

// Updates never delay an answer: what there is no room for is left to the next poll.
func TestUpdatesWithoutRoomAreDropped(t *testing.T) {
	f := newFixture(t, false) // nobody writes
	for range 2 * updates {
		f.Update("acme", "t-1", owner("alice", "b"))
	}
	if n := len(f.updates); n != updates {
		t.Errorf("%d updates wait, want %d", n, updates)
	}
}

func TestManyAtOnce(t *testing.T) {
	f := newFixture(t, true)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				id := fmt.Sprint(j)
				if err := f.Record(t.Context(), "acme", id, owner(fmt.Sprint("p", i), "b")); err != nil {
					t.Error(err)
				}
				_, _, _ = f.Lookup(t.Context(), "acme", id, "p0") // away now and then
				if j%10 == 0 {
					f.memory.SetDown(j%20 == 0)
				}
			}
		})
	}
	wg.Wait()
	f.memory.SetDown(false)
	f.Drain(t.Context())
	for j := range 50 {
		if record, _ := f.lookup(t, fmt.Sprint(j), "p0"); len(record) != 8 {
			t.Errorf("task %d has %d entries, want 8", j, len(record))
		}
	}
}
