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

// ErrPolicyUnknown: Redis does not tell what it does when its memory is full.
var ErrPolicyUnknown = errors.New("redis does not tell its maxmemory-policy")

// EvictionPolicy returns what Redis does when its memory is full, as its maxmemory-policy; of a cluster one other than NoEviction, if
// a node has it. It fails with ErrPolicyUnknown where Redis tells neither by INFO nor by CONFIG.
func (s *store) EvictionPolicy(ctx context.Context) (string, error) {
	var policies []string
	err := s.gate.do(ctx, "eviction policy", func(ctx context.Context) error {
		policies = nil
		var mu sync.Mutex // guards policies
		ask := func(ctx context.Context, node redis.Cmdable) error {
			policy, err := policyOf(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			policies = append(policies, policy)
			return err
		}
		if cluster, ok := s.client.(*redis.ClusterClient); ok {
			return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return ask(ctx, node) })
		}
		return ask(ctx, s.client)
	})
	if err != nil {
		return "", err
	}
	found := NoEviction
	for _, policy := range policies {
		switch {
		case policy == "" && found == NoEviction:
			err = ErrPolicyUnknown
		case policy != "" && policy != NoEviction:
			found, err = policy, nil
		}
	}
	if err != nil {
		return "", err
	}
	return found, nil
}

// policyOf asks one node; empty: it does not tell. INFO is told in more places than CONFIG, and needs fewer rights.
func policyOf(ctx context.Context, node redis.Cmdable) (string, error) {
	info, err := node.Info(ctx, "memory").Result()
	if isAway(err) {
		return "", err
	}
	if _, after, found := strings.Cut(info, "maxmemory_policy:"); found {
		policy, _, _ := strings.Cut(after, "\n")
		return strings.TrimSpace(policy), nil
	}
	config, err := node.ConfigGet(ctx, "maxmemory-policy").Result()
	if isAway(err) {
		return "", err
	}
	return config["maxmemory-policy"], nil
}
