package controlplane

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
)

const (
	// evictionCheck is how often Redis is asked what it does when its memory is full, evictionRetry how soon again while it is away.
	evictionCheck = time.Minute
	evictionRetry = 5 * time.Second
)

// eviction watches whether Redis may forget what is written: routes, revocations, whose a task is.
type eviction struct {
	ask     func(context.Context) (string, error)
	log     *zap.Logger
	problem atomic.Pointer[compile.Problem] // nil: there is none, as far as is known
}

// run asks until ctx ends.
func (e *eviction) run(ctx context.Context) error {
	told := "" // what the log was told last
	for {
		policy, err := e.ask(ctx)
		wait := evictionCheck
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && policy == redisstore.NoEviction:
			e.problem.Store(nil)
			told = policy
		case err == nil:
			p := compile.Problem{Code: compile.CodeRedisEvicts, Subject: "maxmemory-policy", Text: fmt.Sprintf(
				"Redis forgets keys when its memory is full (maxmemory-policy %s): it may lose routes, revocations and whose a task is", policy)}
			e.problem.Store(&p)
			if told != policy {
				e.log.Warn("Redis may evict keys", zap.String("maxmemory_policy", policy))
			}
			told = policy
		case errors.Is(err, redisstore.ErrPolicyUnknown):
			if told != err.Error() {
				e.log.Info("whether Redis evicts keys is not known", zap.Error(err))
			}
			told = err.Error()
		case errors.Is(err, routes.ErrUnavailable):
			wait = evictionRetry
		}
		again := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			again.Stop()
			return nil
		case <-again.C:
		}
	}
}

// problems are one at most.
func (e *eviction) problems() []compile.Problem {
	if p := e.problem.Load(); p != nil {
		return []compile.Problem{*p}
	}
	return nil
}
