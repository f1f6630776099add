package tasks

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

// Before a real Redis that hangs or dies: what was made meanwhile is known here, and stands there when it is back.
func TestARealRedisGoesAway(t *testing.T) {
	for name, fault := range map[string]struct{ begin, end func(*routestest.RedisServer) }{
		"paused": {(*routestest.RedisServer).Pause, (*routestest.RedisServer).Resume},
		"killed": {(*routestest.RedisServer).Kill, (*routestest.RedisServer).Restart},
	} {
		t.Run(name, func(t *testing.T) {
			redis := routestest.StartRedis(t, routestest.RedisOptions{})
			client, err := redisstore.Open(redisstore.Config{URL: redis.URL()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { client.Close() })
			owners, err := redisstore.NewOwners(redisstore.Options{Client: client, Outages: new(redisstore.Outages)})
			if err != nil {
				t.Fatal(err)
			}
			f := newFixture(t, true)
			f.o.Store, f.o.Outage = owners, owners.Recovered
			if err := f.Record(t.Context(), "acme", "before", owner("alice", "b")); err != nil {
				t.Fatal(err)
			}
			fault.begin(redis)
			for _, id := range []string{"t-1", "t-2", "t-3", "t-4"} {
				began := time.Now()
				if err := f.Record(t.Context(), "acme", id, owner("alice", "b")); err != nil {
					t.Fatal(err)
				}
				t.Logf("%s: the answer was held for %v", id, time.Since(began))
				if record, sure := f.lookup(t, id, "alice"); len(record) != 1 || sure {
					t.Errorf("%s: sure %v, record %v", id, sure, record)
				}
				if _, _, err := f.Lookup(t.Context(), "acme", id, "bob"); !errors.Is(err, routes.ErrUnavailable) {
					t.Errorf("%s: bob gets %v", id, err)
				}
			}
			if _, _, err := f.Lookup(t.Context(), "acme", "before", "alice"); !errors.Is(err, routes.ErrUnavailable) {
				t.Errorf("a task of before: %v", err)
			}
			fault.end(redis)
			for deadline := time.Now().Add(30 * time.Second); f.queue.len() > 0; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%d records still wait", f.queue.len())
				}
			}
			if record, err := owners.TaskRecord(t.Context(), "acme", "t-4", "alice"); err != nil || len(record) != 1 {
				t.Errorf("record %v, %v", record, err)
			}
			if _, sure := f.lookup(t, "nobody's", "alice"); sure {
				t.Error("sure of a store that was away a moment ago")
			}
		})
	}
}
