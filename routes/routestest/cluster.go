package routestest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// slots is how many Redis Cluster has.
const slots = 16384

// RedisCluster is a cluster of three masters without replicas.
type RedisCluster struct{ Nodes []*RedisServer }

// StartRedisCluster starts and joins three nodes, which end with the test. See StartRedis.
func StartRedisCluster(t testing.TB) *RedisCluster {
	t.Helper()
	needRedis(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*startPatience)
	defer cancel()
	c := &RedisCluster{}
	const n = 3
	for i := range n {
		bus := freePort(t)
		node := StartRedis(t, RedisOptions{Args: []string{"--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(bus),
			"--cluster-node-timeout", "5000", "--cluster-config-file", "nodes.conf"}})
		c.Nodes = append(c.Nodes, node)
		from, to := i*slots/n, (i+1)*slots/n-1
		node.do(ctx, "CLUSTER", "ADDSLOTSRANGE", from, to)
		node.do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i > 0 {
			c.Nodes[0].do(ctx, "CLUSTER", "MEET", "127.0.0.1", node.port, bus)
		}
	}
	for _, node := range c.Nodes {
		node.waitFor(ctx, "every node to know the cluster", func() bool {
			info := node.do(ctx, "CLUSTER", "INFO")
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3") &&
				strings.Contains(info, "cluster_size:3")
		})
	}
	return c
}

// Addrs returns host:port of each node.
func (c *RedisCluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}

// FlushAll loses the data of every node.
func (c *RedisCluster) FlushAll() {
	for _, node := range c.Nodes {
		node.Do("FLUSHALL")
	}
}

// Do sends one command on a connection of its own, and returns the reply as text; "" where there is nothing.
func (r *RedisServer) Do(args ...any) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	return r.do(ctx, args...)
}

func (r *RedisServer) do(ctx context.Context, args ...any) string {
	r.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1, Protocol: 2})
	defer c.Close()
	v, err := c.Do(ctx, args...).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return ""
	case err != nil:
		r.t.Fatalf("redis: %v: %v", args, err)
	}
	return fmt.Sprint(v)
}

func (r *RedisServer) waitFor(ctx context.Context, what string, done func() bool) {
	r.t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			r.t.Fatalf("waited in vain for %s:\n%s", what, r.run.log())
		case <-poll.C:
		}
	}
}
