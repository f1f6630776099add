package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// NoEviction is the policy that Weir needs: Redis refuses to write when its memory is full, rather than forget.
const NoEviction = "noeviction"

// EvictionPolicy returns what Redis does when its memory is full, as its maxmemory-policy; of a cluster the first that it finds other
// than NoEviction. A Redis that tells neither by INFO nor by CONFIG is an error.
func (s *store) EvictionPolicy(ctx context.Context) (string, error) {
	var policy string
	err := s.gate.do(ctx, "eviction policy", func(ctx context.Context) (err error) {
		cluster, ok := s.client.(*redis.ClusterClient)
		if !ok {
			policy, err = policyOf(ctx, s.client)
			return err
		}
		var mu sync.Mutex // guards found
		found := NoEviction
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			p, err := policyOf(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && p != NoEviction {
				found = p
			}
			return err
		})
		policy = found
		return err
	})
	if err != nil {
		return "", err
	}
	return policy, nil
}

// policyOf asks one node. INFO tells more places than CONFIG does, and needs fewer rights.
func policyOf(ctx context.Context, node redis.Cmdable) (string, error) {
	info, err := node.Info(ctx, "memory").Result()
	if isAway(err) {
		return "", err
	}
	if _, after, found := strings.Cut(info, "maxmemory_policy:"); err == nil && found {
		policy, _, _ := strings.Cut(after, "\n")
		return strings.TrimSpace(policy), nil
	}
	config, err := node.ConfigGet(ctx, "maxmemory-policy").Result()
	switch policy := config["maxmemory-policy"]; {
	case err != nil:
		return "", err
	case policy == "":
		return "", unknownPolicy{errors.New("maxmemory-policy is not told")}
	default:
		return policy, nil
	}
}

// unknownPolicy is an answer of Redis, so that the gate does not take it for away.
type unknownPolicy struct{ error }

// RedisError makes it one of go-redis's errors.
func (unknownPolicy) RedisError() {}
