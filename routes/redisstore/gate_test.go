package redisstore

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
)

// hang waits as a Redis that does not answer.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func fine(context.Context) error { return nil }

func TestAnOperationIsBoundedAndTriedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(200*time.Millisecond, nil, fine)
		began, tries := time.Now(), 0
		err := g.do(t.Context(), "get", func(ctx context.Context) error { tries++; return hang(ctx) })
		if !errors.Is(err, routes.ErrUnavailable) || tries != 2 || time.Since(began) != 400*time.Millisecond {
			t.Errorf("%v after %d tries and %v; want ErrUnavailable, 2, 400ms", err, tries, time.Since(began))
		}
		err = g.do(t.Context(), "get", func(context.Context) error {
			if tries++; tries == 3 {
				return io.EOF
			}
			return nil
		})
		if err != nil || tries != 4 {
			t.Errorf("%v after %d tries; want success at the second", err, tries-2)
		}
	})
}

func TestThreeFailuresShutTheGateAndTheProberOpensIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		var probes atomic.Int64
		away.Store(true)
		g := newGate(200*time.Millisecond, nil, func(ctx context.Context) error {
			probes.Add(1)
			if away.Load() {
				return hang(ctx)
			}
			return nil
		})
		for range failuresToShut {
			g.do(t.Context(), "get", hang)
		}
		began := time.Now()
		err := g.do(t.Context(), "get", func(context.Context) error { t.Error("an operation passed the shut gate"); return nil })
		if !errors.Is(err, routes.ErrUnavailable) || time.Since(began) != 0 {
			t.Errorf("%v after %v; want ErrUnavailable at once", err, time.Since(began))
		}
		time.Sleep(time.Hour)
		if g.shut() == nil {
			t.Error("the gate opened while Redis was away")
		}
		most := int64(time.Hour/(probeMax+200*time.Millisecond)) + 5
		if n := probes.Load(); n > most || n < most-10 {
			t.Errorf("%d probes in an hour, want about %d: one prober", n, most)
		}
		away.Store(false)
		time.Sleep(probeMax + 200*time.Millisecond)
		if err := g.do(t.Context(), "get", fine); err != nil {
			t.Errorf("after Redis is back: %v", err)
		}
		probes.Store(0)
		time.Sleep(time.Minute)
		if n := probes.Load(); n != 0 {
			t.Errorf("%d probes after Redis is back", n)
		}
	})
}

func TestWhatCountsAsAway(t *testing.T) {
	type result struct{ unavailable, counted bool }
	for name, tt := range map[string]struct {
		err  error
		want result
	}{
		"an answer":             {nil, result{false, false}},
		"a cut connection":      {io.EOF, result{true, true}},
		"a full pool":           {redis.ErrPoolTimeout, result{true, true}},
		"Redis loads its data":  {answered("LOADING Redis is loading the dataset in memory"), result{true, true}},
		"a replica":             {answered("READONLY You can't write against a read only replica."), result{true, true}},
		"a wrong password":      {answered("WRONGPASS invalid username-password pair"), result{true, true}},
		"no connection is left": {answered("ERR max number of clients reached"), result{true, true}},
		"a missing permission":  {answered("NOPERM No permissions to access a key"), result{true, false}},
		"a key of another type": {answered("WRONGTYPE Operation against a key"), result{true, false}},
		"memory is full":        {answered("OOM command not allowed"), result{true, false}},
		"the client was closed": {redis.ErrClosed, result{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(time.Second, nil, fine)
			err := g.do(t.Context(), "get", func(context.Context) error { return tt.err })
			if got := (result{errors.Is(err, routes.ErrUnavailable), g.failures > 0}); got != tt.want {
				t.Errorf("%v: %+v, want %+v", err, got, tt.want)
			}
		})
	}
}

// answered is an error reply.
type answered string

func (a answered) Error() string { return string(a) }
func (answered) RedisError()     {}

func TestACallerWhoLeavesDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(200*time.Millisecond, nil, fine)
		for range 2 * failuresToShut {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			if err := g.do(ctx, "get", hang); !errors.Is(err, context.Canceled) || errors.Is(err, routes.ErrUnavailable) {
				t.Errorf("%v, want context.Canceled", err)
			}
		}
		if g.failures != 0 {
			t.Errorf("%d failures counted", g.failures)
		}
		// One who has no more time does: it waited for Redis.
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := g.do(ctx, "get", hang); !errors.Is(err, routes.ErrUnavailable) || g.failures != 1 {
			t.Errorf("%v, %d failures; want ErrUnavailable, 1", err, g.failures)
		}
	})
}

func TestAClosedClientEndsTheProber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if a goroutine stays
		g := newGate(200*time.Millisecond, nil, func(context.Context) error { return redis.ErrClosed })
		for range failuresToShut {
			g.do(t.Context(), "get", hang)
		}
		time.Sleep(probeFirst)
	})
}

func TestObserveIsToldOfEveryOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		g := newGate(200*time.Millisecond, func(op string, took time.Duration, err error) {
			told = append(told, op+" "+took.String())
			if (err != nil) != (op == "bad") {
				t.Errorf("%s: %v", op, err)
			}
		}, fine)
		g.do(t.Context(), "good", fine)
		g.do(t.Context(), "bad", hang)
		if len(told) != 2 || told[0] != "good 0s" || told[1] != "bad 400ms" {
			t.Errorf("told %q", told)
		}
	})
}
