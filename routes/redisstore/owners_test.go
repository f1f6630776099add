package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

func TestEveryRedisKeepsTheContractOfOwners(t *testing.T) {
	for name, start := range map[string]func(*testing.T) (config redisstore.Config, flush func(*testing.T)){
		"miniredis": openMini, "redis": openReal, "cluster": openCluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits more than it works
			config, flush := start(t)
			client := open(t, config)
			routestest.OwnersContract(t, func(t *testing.T) routestest.OwnersFixture {
				flush(t)
				return routestest.OwnersFixture{
					NewOwners: func(t *testing.T, most routestest.OwnerLimits) routestest.Owners { return newOwners(t, client, most) }, Flush: flush,
				}
			})
		})
	}
}

func TestTheContractOfOwnersHoldsUnderTheACL(t *testing.T) {
	t.Parallel() // it waits more than it works
	r := routestest.StartRedis(t, routestest.RedisOptions{})
	clients := map[redisstore.Role]redis.UniversalClient{}
	for role, config := range users(t, r) {
		clients[role] = open(t, config)
	}
	flush := func(*testing.T) { r.Do("FLUSHALL") }
	for _, first := range []redisstore.Role{redisstore.RoleControlPlane, redisstore.RoleDataplane} {
		t.Run(string(first), func(t *testing.T) {
			routestest.OwnersContract(t, func(t *testing.T) routestest.OwnersFixture {
				flush(t)
				role := first
				return routestest.OwnersFixture{Flush: flush, NewOwners: func(t *testing.T, most routestest.OwnerLimits) routestest.Owners {
					o := newOwners(t, clients[role], most)
					role = map[bool]redisstore.Role{true: redisstore.RoleDataplane, false: redisstore.RoleControlPlane}[role == redisstore.RoleControlPlane]
					return o
				}}
			})
		})
	}
}

func newOwners(t testing.TB, c redis.UniversalClient, most routestest.OwnerLimits) *redisstore.Owners {
	t.Helper()
	return makeOwners(t, redisstore.Options{
		Client: c, Timeout: generous, MaxTasks: most.Tasks, MaxTaskOwners: most.Entries,
		Report: func(err error) { t.Errorf("reported: %v", err) },
	})
}

func makeOwners(t testing.TB, options redisstore.Options) *redisstore.Owners {
	t.Helper()
	o, err := redisstore.NewOwners(options)
	if err != nil {
		t.Fatal(err)
	}
	return o
}
