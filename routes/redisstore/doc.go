// Package redisstore keeps published documents in Redis: a [Writer] for the control plane that leads, a [Reader] for
// everybody; and for both planes [Owners], which know whose a task is.
//
// Everything that a change touches lies in one hash slot, so that one Lua script writes it whole, on Redis Cluster too. The
// script first compares the writer's lease with the fence: a leader that lost its lease, even one that slept through the
// loss, writes nothing. See docs/redis.md for the keys and docs/decisions/0002-one-slot-one-script.md for why.
//
// Every operation is bounded and tried at most twice. After three failures in a row operations fail at once with
// [routes.ErrUnavailable], and one prober finds out when Redis is back.
package redisstore

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// DefaultTimeout bounds one try of one operation.
const DefaultTimeout = 200 * time.Millisecond

// Options of a Reader, a Writer or Owners.
type Options struct {
	// Client is what Open returned: a *redis.Client or a *redis.ClusterClient with ContextTimeoutEnabled. It is not closed by
	// this package; closing it also ends what this package started.
	Client redis.UniversalClient
	// Prefix begins every key; empty: "weir:".
	Prefix string
	// Timeout bounds one try of one operation; zero: 200ms.
	Timeout time.Duration
	// Observe is told of every operation when it ends, for metrics: its name, which is one of few, how long it took with its
	// retry, and its error. It must be quick and safe for concurrent use. Nil: nobody is told.
	Observe func(operation string, took time.Duration, err error)
	// Outages is told when Redis goes away and comes back. What shares a client should share it, since an idle part notices nothing;
	// nil: each has its own.
	Outages *Outages
	// MaxTasks is how many live tasks a principal may have in one host, MaxTaskOwners how many entries a task; zero: routes.MaxTasks and
	// routes.MaxTaskOwners. Only Owners heed them.
	MaxTasks, MaxTaskOwners int
	// Report is told of owner records that can't be read, each time; its text has digests and no secret. Nil: nobody is told. Only
	// Owners heed it. Safe for concurrent use.
	Report func(error)
}

// store is what Reader and Writer share.
type store struct {
	client redis.UniversalClient
	keys   keyspace
	gate   *gate
}

func newStore(o Options) (store, error) {
	if o.Client == nil {
		return store{}, errors.New("redisstore: Client is required")
	}
	if o.Timeout < 0 {
		return store{}, fmt.Errorf("redisstore: Timeout %v is negative", o.Timeout)
	}
	prefix := cmp.Or(o.Prefix, DefaultPrefix)
	if err := checkPrefix(prefix); err != nil {
		return store{}, fmt.Errorf("redisstore: Prefix: %w", err)
	}
	s := store{client: o.Client, keys: keyspace{prefix: prefix}}
	s.gate = newGate(cmp.Or(o.Timeout, DefaultTimeout), o.Observe, s.probe)
	if o.Outages != nil {
		s.gate.outages = o.Outages
	}
	return s, nil
}
