package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

const taskHost = routes.HostID("acme")

func mintedBy(principal string) routes.TaskOwner {
	return routes.TaskOwner{Principal: principal, Backend: "files", Tool: "start", Source: routes.TaskMinted, Created: time.Now(), Life: time.Hour}
}

func TestOwnersWhoseRedisDies(t *testing.T) {
	for name, tt := range map[string]struct {
		options routestest.RedisOptions
		entries int // that stand afterwards
	}{
		"and comes back with its data":    {routestest.RedisOptions{AppendOnly: true}, 1},
		"and comes back without its data": {routestest.RedisOptions{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, r := t.Context(), routestest.StartRedis(t, tt.options)
			o := makeOwners(t, redisstore.Options{Client: open(t, redisstore.Config{URL: r.URL()}), Timeout: generous})
			record := func() error { return o.RecordTask(ctx, taskHost, "x", mintedBy("alice")) }
			look := func() (routes.TaskRecord, error) { return o.TaskRecord(ctx, taskHost, "x", "alice") }
			if err := record(); err != nil {
				t.Fatal(err)
			}
			if since, away := o.Recovered(); !since.IsZero() || away {
				t.Errorf("Recovered = %v, %v before any outage", since, away)
			}
			r.Kill()
			killed := time.Now()
			for range 4 { // the last one at a shut gate
				if _, err := look(); !errors.Is(err, routes.ErrUnavailable) {
					t.Errorf("TaskRecord: %v, want ErrUnavailable", err)
				}
			}
			for name, err := range map[string]error{
				"RecordTask":     record(),
				"ClaimTask":      second(o.ClaimTask(ctx, taskHost, "x", routes.TaskOwner{Principal: "bob", Backend: "files", Source: routes.TaskClaimed, Life: time.Hour})),
				"PrincipalTasks": second(o.PrincipalTasks(ctx, taskHost, "alice")),
				"HostTasks":      second(o.HostTasks(ctx, taskHost, 10)),
			} {
				if !errors.Is(err, routes.ErrUnavailable) || errors.Is(err, routes.ErrTooManyTasks) {
					t.Errorf("%s: %v, want ErrUnavailable", name, err)
				}
			}
			if _, away := o.Recovered(); !away {
				t.Error("Recovered says that Redis is there")
			}
			r.Restart()
			var got routes.TaskRecord
			eventually(t, "TaskRecord after Redis is back", func() (err error) { got, err = look(); return err })
			if len(got) != tt.entries {
				t.Errorf("record %+v, want %d entries", got, tt.entries)
			}
			if since, away := o.Recovered(); away || since.Before(killed) || time.Since(since) > patience {
				t.Errorf("Recovered = %v, %v; killed at %v", since, away, killed)
			}
			if err := record(); err != nil {
				t.Errorf("RecordTask: %v", err)
			}
			if tasks, err := o.PrincipalTasks(ctx, taskHost, "alice"); len(tasks) != 1 || err != nil {
				t.Errorf("PrincipalTasks = %+v, %v; want one", tasks, err)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

// A dataplane waits 250 ms for a mint and then answers all the same: an operation must heed the caller's time, and its own.
func TestOwnersWhoseRedisHangs(t *testing.T) {
	t.Parallel() // it waits more than it works
	r := routestest.StartRedis(t, routestest.RedisOptions{})
	o := makeOwners(t, redisstore.Options{Client: open(t, redisstore.Config{URL: r.URL()})}) // the bounds of production
	record := func(ctx context.Context) error { return o.RecordTask(ctx, taskHost, "x", mintedBy("alice")) }
	eventually(t, "RecordTask", func() error { return record(t.Context()) })
	r.Pause()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // less than one try
	defer cancel()
	if err := record(short); !errors.Is(err, routes.ErrUnavailable) {
		t.Errorf("RecordTask for a caller with little time: %v, want ErrUnavailable", err)
	}
	long, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 10 { // of which all but some fail at once
		if err := record(long); !errors.Is(err, routes.ErrUnavailable) {
			t.Errorf("RecordTask: %v, want ErrUnavailable", err)
		}
		if _, err := o.TaskRecord(long, taskHost, "x", "alice"); !errors.Is(err, routes.ErrUnavailable) {
			t.Errorf("TaskRecord: %v, want ErrUnavailable", err)
		}
	}
	if long.Err() != nil {
		t.Error("the operations did not bound themselves")
	}
	if _, away := o.Recovered(); !away {
		t.Error("Recovered says that Redis is there")
	}
	resumed := time.Now()
	r.Resume()
	eventually(t, "TaskRecord after Redis goes on", func() error {
		record, err := o.TaskRecord(t.Context(), taskHost, "x", "alice")
		if err == nil && len(record) != 1 {
			t.Errorf("record %+v, want one entry", record)
		}
		return err
	})
	if since, _ := o.Recovered(); since.Before(resumed) {
		t.Errorf("Recovered = %v; Redis went on at %v", since, resumed)
	}
}

// Owners that nobody used meanwhile learn of an outage by what shares their client.
func TestAnOutageIsSeenByAllThatShareIt(t *testing.T) {
	r := routestest.StartRedis(t, routestest.RedisOptions{})
	options := redisstore.Options{Client: open(t, redisstore.Config{URL: r.URL()}), Timeout: generous, Outages: new(redisstore.Outages)}
	reader, err := redisstore.NewReader(options)
	if err != nil {
		t.Fatal(err)
	}
	idle := makeOwners(t, options)
	ctx, cancel := context.WithCancel(t.Context())
	states, done := make(chan bool, 1000), make(chan error, 1)
	go func() {
		done <- reader.Follow(ctx, func([]routes.Event) {}, func(reachable bool, _ error) { states <- reachable })
	}()
	if !receive(t, states) {
		t.Fatal("the follower does not reach Redis")
	}
	if since, away := idle.Recovered(); !since.IsZero() || away {
		t.Errorf("Recovered = %v, %v before any outage", since, away)
	}
	r.Kill()
	killed := time.Now()
	for receive(t, states) {
	}
	if _, away := idle.Recovered(); !away {
		t.Error("Recovered says that Redis is there")
	}
	r.Restart()
	for !receive(t, states) {
	}
	if since, away := idle.Recovered(); away || since.Before(killed) {
		t.Errorf("Recovered = %v, %v; killed at %v", since, away, killed)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Follow: %v", err)
	}
}

func TestAnOwnersOperationWhoseAnswerIsLostHappensOnce(t *testing.T) {
	m := routestest.StartMiniredis(t)
	way := &lossy{addr: m.Addr()}
	o := newOwners(t, way.client(t), routestest.OwnerLimits{Tasks: 2})
	ctx := t.Context()
	claim := routes.TaskOwner{Principal: "alice", Backend: "files", Source: routes.TaskClaimed, Life: time.Hour}
	steps := map[string]func(id string) error{
		"RecordTask": func(id string) error { return o.RecordTask(ctx, taskHost, id, mintedBy("alice")) },
		"ClaimTask":  func(id string) error { return second(o.ClaimTask(ctx, taskHost, id, claim)) },
		"TaskRecord": func(id string) error { return second(o.TaskRecord(ctx, taskHost, id, "alice")) },
	}
	for name, do := range steps { // Redis knows the scripts from here on, so that the lost answer is the script's own
		if err := do("warm"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for name, do := range steps {
		before := way.lost.Load()
		way.armed.Store(true)
		if err := do("x"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if way.lost.Load() != before+1 {
			t.Errorf("%s: its answer was not lost; the test shows nothing", name)
		}
	}
	if r, err := o.TaskRecord(ctx, taskHost, "x", "alice"); len(r) != 1 || r[0].Source != routes.TaskMinted || err != nil {
		t.Errorf("record %+v, %v; want the mint alone", r, err)
	}
	if tasks, err := o.PrincipalTasks(ctx, taskHost, "alice"); len(tasks) != 2 || err != nil {
		t.Errorf("PrincipalTasks = %+v, %v; want two", tasks, err)
	}
}
