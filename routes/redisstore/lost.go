package redisstore

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
)

// looksPerRead is how many keys one round trip looks for at most.
const looksPerRead = 256

// Lost returns which of the given hosts have no table or no list, and which of the backends no catalog: lost on their own, by a
// hand or by eviction, while the index still has them. It moves no document.
func (r *Reader) Lost(ctx context.Context, hosts []routes.HostID, backends []routes.BackendID) (
	lostHosts []routes.HostID, lostCatalogs []routes.BackendID, err error,
) {
	keys := make([]string, 0, 2*len(hosts)+len(backends))
	for _, id := range hosts {
		keys = append(keys, r.keys.host(id), r.keys.list(id))
	}
	for _, id := range backends {
		keys = append(keys, r.keys.catalog(id))
	}
	there := make([]bool, 0, len(keys))
	for some := range slices.Chunk(keys, looksPerRead) {
		var replies []redis.Cmder
		err := r.gate.do(ctx, "lost", func(ctx context.Context) (err error) {
			replies, err = r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, key := range some {
					p.Exists(ctx, key)
				}
				return nil
			})
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		for _, reply := range replies {
			there = append(there, reply.(*redis.IntCmd).Val() == 1)
		}
	}
	for i, id := range hosts {
		if !there[2*i] || !there[2*i+1] {
			lostHosts = append(lostHosts, id)
		}
	}
	for i, id := range backends {
		if !there[2*len(hosts)+i] {
			lostCatalogs = append(lostCatalogs, id)
		}
	}
	return lostHosts, lostCatalogs, nil
}
