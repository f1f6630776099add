package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

func TestARedisThatEvictsIsAProblemUntilItDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.InfoLevel)
		type answer struct {
			policy string
			err    error
		}
		var next atomic.Pointer[answer]
		e := &eviction{ask: func(context.Context) (string, error) { a := next.Load(); return a.policy, a.err }, log: zap.New(core)}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		next.Store(&answer{err: fmt.Errorf("eviction policy: %w", routes.ErrUnavailable)})
		done := make(chan error)
		go func() { done <- e.run(ctx) }()
		for _, step := range []struct {
			policy   string
			err      error
			wait     time.Duration
			problems int
			logs     int // so far
		}{
			{"allkeys-lru", nil, evictionRetry, 1, 1},
			{"allkeys-lru", nil, evictionCheck, 1, 1}, // told once
			{"", fmt.Errorf("eviction policy: %w", routes.ErrUnavailable), evictionCheck, 1, 1},
			{redisstore.NoEviction, nil, evictionRetry, 0, 1},
			{"volatile-ttl", nil, evictionCheck, 1, 2},
			{redisstore.NoEviction, nil, evictionCheck, 0, 2},
			{"", redisstore.ErrPolicyUnknown, evictionCheck, 0, 3},
			{"", redisstore.ErrPolicyUnknown, evictionCheck, 0, 3},
		} {
			synctest.Wait()
			next.Store(&answer{step.policy, step.err})
			time.Sleep(step.wait)
			synctest.Wait()
			if got := e.problems(); len(got) != step.problems || len(got) == 1 && got[0].Code != compile.CodeRedisEvicts {
				t.Errorf("%q, %v: problems %+v, want %d", step.policy, step.err, got, step.problems)
			}
			if logged.Len() != step.logs {
				t.Errorf("%q, %v: logged %+v, want %d lines", step.policy, step.err, logged.All(), step.logs)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

func TestThePlaneShowsThatRedisEvicts(t *testing.T) {
	r := routestest.StartRedis(t, routestest.RedisOptions{Args: []string{"--maxmemory-policy", "allkeys-lru"}})
	p, config := newPlane(t)
	p.write(strings.ReplaceAll(config, p.redis.Addr(), r.Addr()))
	p.start()
	soon(t, "the problem", func() error {
		_, body := get(t, "http://"+p.addr["admin"]+"/api/v1/problems")
		if !strings.Contains(string(body), `"redis_evicts"`) || !strings.Contains(string(body), "allkeys-lru") {
			return errors.New(string(body))
		}
		return nil
	})
}
