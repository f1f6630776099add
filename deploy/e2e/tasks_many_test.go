package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
)

// tasks/get costs what it did when there are 100,000 live owner records, 9,900 of them the caller's own. The measure is its time against
// that of a call that looks nothing up, taken in turn: the machine may be busier the second time.
func TestManyOwnerRecordsKeepFollowUpsFlat(t *testing.T) {
	t.Parallel()
	records := 100_000
	if testing.Short() {
		records = 12_000
	}
	const samples, most = 300, 1.6
	p := newTaskPair(t, "")
	db := redis.NewClient(&redis.Options{Addr: p.redis.Addr(), ReadTimeout: patience})
	t.Cleanup(func() { db.Close() })
	if err := db.ConfigSet(t.Context(), "appendonly", "no").Err(); err != nil { // each write would wait for the disk
		t.Fatal(err)
	}
	alice := p.as(t, "alice", 0, modernVersion)
	id := alice.start(t, "a__start", `{}`)
	cost := func() float64 {
		var gets, calls []float64
		for range samples {
			gets = append(gets, elapsed(t, func() error { return alice.get(id, "working") }))
			calls = append(calls, elapsed(t, func() error { return serves(alice.client, "a__plain", "alpha") }))
		}
		t.Logf("%d records: median of tasks/get %.2f ms, of a call %.2f ms", db.DBSize(t.Context()).Val(), median(gets), median(calls))
		return median(gets) / median(calls)
	}
	cost() // warm
	before := cost()

	owners, err := redisstore.NewOwners(redisstore.Options{Client: db, Prefix: "weir:"})
	if err != nil {
		t.Fatal(err)
	}
	fillRecords(t, owners, p.onlyPrincipal(t), records)
	var view struct{ Count int }
	if err := p.admin(http.MethodGet, "/api/v1/tasks?host=acme&limit=1", &view); err != nil || view.Count != records+1 {
		t.Fatalf("the operator sees %d tasks, %v; want %d", view.Count, err, records+1)
	}
	after := cost()
	t.Logf("tasks/get costs %.2f of a call with 1 record, %.2f with %d", before, after, records+1)
	if after > most*before {
		t.Errorf("tasks/get costs %.2f times what it did before there were %d records, want at most %.1f times", after/before, records, most)
	}
	// One round trip for each: what else runs scripts meanwhile is leases and status, every few seconds.
	scripts := scriptsRun(t, db)
	for range samples {
		if err := alice.get(id, "working"); err != nil {
			t.Fatal(err)
		}
	}
	if n := scriptsRun(t, db) - scripts; n < samples || n > samples+samples/3 {
		t.Errorf("%d follow-ups ran %d scripts in Redis, want one each", samples, n)
	}
}

// onlyPrincipal is the one who has tasks, as the operator sees it.
func (p *pair) onlyPrincipal(t *testing.T) string {
	t.Helper()
	var view struct{ Principals []struct{ Principal string } }
	if err := p.admin(http.MethodGet, "/api/v1/tasks?host=acme", &view); err != nil || len(view.Principals) != 1 {
		t.Fatalf("the operator sees %+v, %v; want one principal", view, err)
	}
	return view.Principals[0].Principal
}

// fillRecords writes so many owner records through the store: 9,900 of principal, and as many of each of others.
func fillRecords(t *testing.T, owners *redisstore.Owners, principal string, records int) {
	t.Helper()
	const each, writers = 9900, 16
	began := time.Now()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := w; i < records; i += writers {
				o := routes.TaskOwner{Principal: principal, Backend: "alpha", Tool: "a__start", Source: routes.TaskMinted, Life: time.Hour}
				if n := i / each; n > 0 {
					o.Principal = fmt.Sprintf("%064x", n)
				}
				if err := record(t.Context(), owners, fmt.Sprint("filler-", i), o); err != nil {
					t.Errorf("record %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("wrote %d records in %v", records, time.Since(began).Round(time.Millisecond))
	if t.Failed() {
		t.FailNow()
	}
}

// record writes an owner record; a Redis that is slow for a moment counts as away, and is asked again.
func record(ctx context.Context, owners *redisstore.Owners, id string, o routes.TaskOwner) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := owners.RecordTask(ctx, "acme", id, o)
		if !errors.Is(err, routes.ErrUnavailable) || time.Now().After(deadline) {
			return err
		}
	}
}

// elapsed is how long something that must succeed takes, in ms.
func elapsed(t *testing.T, f func() error) float64 {
	t.Helper()
	began := time.Now()
	if err := f(); err != nil {
		t.Fatal(err)
	}
	return ms(time.Since(began))
}

// scriptsRun is how many scripts Redis has run.
func scriptsRun(t *testing.T, db *redis.Client) int {
	t.Helper()
	info, err := db.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, name := range []string{"evalsha", "evalsha_ro", "eval", "fcall"} {
		var n int
		if _, err := fmt.Sscanf(info["Commandstats"]["cmdstat_"+name], "calls=%d", &n); err == nil {
			total += n
		}
	}
	return total
}
