package tasks

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
	"github.com/weir-mcp/weir/routes/wire"
)

// generous is the time that a test on a busy machine grants an operation.
const generous = 10 * time.Second

// Two control planes on one real Redis: of all who ask at once for a task that nobody recorded, one has it, and it stays so.
func TestClaimsRaceOnRedis(t *testing.T) {
	redisstore.SilenceClients()
	url := routestest.StartRedis(t, routestest.RedisOptions{}).URL()
	b := newBench(t)
	var planes []*Locator
	for range 2 {
		client, err := redisstore.Open(redisstore.Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		owners, err := redisstore.NewOwners(redisstore.Options{Client: client, Timeout: generous})
		if err != nil {
			t.Fatal(err)
		}
		l, err := New(Options{Owners: owners, Backends: noBackends{}})
		if err != nil {
			t.Fatal(err)
		}
		l.ask = func(_ context.Context, id routes.BackendID, _ *routes.Backend, _ string) reply {
			if id == "a" {
				return reply{known, routes.MinTaskLife}
			}
			return reply{}
		}
		planes = append(planes, l)
	}
	const tasks, principals = 8, 6
	ask := func(l *Locator, who, task string) Outcome {
		return l.Ask(t.Context(), Query{Identity: caller(who), Host: b.host, TaskID: task, Era: wire.Modern})
	}
	var mu sync.Mutex
	owners := map[string][]string{}
	var wg sync.WaitGroup
	for task := range tasks {
		for p := range principals {
			who, id := fmt.Sprint("p", p), fmt.Sprint("t", task)
			wg.Go(func() {
				switch out := ask(planes[p%2], who, id); out.Kind {
				case owner:
					mu.Lock()
					defer mu.Unlock()
					owners[id] = append(owners[id], who)
				case missed:
				default:
					t.Errorf("%s asked for %s: %+v", who, id, out)
				}
			})
		}
	}
	wg.Wait()
	for task := range tasks {
		id := fmt.Sprint("t", task)
		if len(owners[id]) != 1 {
			t.Errorf("%s belongs to %v, want one", id, owners[id])
			continue
		}
		for i, l := range planes {
			want(t, ask(l, owners[id][0], id), owner, "a")
			if out := ask(l, fmt.Sprint("late", i), id); out.Kind != missed {
				t.Errorf("somebody else has %s too: %+v", id, out)
			}
		}
	}
}
