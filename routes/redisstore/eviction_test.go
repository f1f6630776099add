package redisstore_test

import (
	"errors"
	"testing"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

func TestTheEvictionPolicyIsToldAsRedisHasIt(t *testing.T) {
	r := routestest.StartRedis(t, routestest.RedisOptions{})
	config := users(t, r)[redisstore.RoleControlPlane]
	ask := func(t *testing.T, c redisstore.Config, want string, wantErr error) {
		t.Helper()
		got, err := newReader(t, open(t, c)).EvictionPolicy(t.Context())
		if got != want || !errors.Is(err, wantErr) || errors.Is(err, routes.ErrUnavailable) {
			t.Errorf("EvictionPolicy = %q, %v; want %q, %v", got, err, want, wantErr)
		}
	}
	ask(t, config, redisstore.NoEviction, nil)
	r.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	for name, tt := range map[string]struct {
		rules []any // of the user who asks
		want  string
		err   error
	}{
		"both may be asked":  {[]any{"+config|get", "+info"}, "allkeys-lru", nil},
		"INFO is refused":    {[]any{"+config|get"}, "allkeys-lru", nil},
		"CONFIG is refused":  {[]any{"+info"}, "allkeys-lru", nil},
		"neither is allowed": {nil, "", redisstore.ErrPolicyUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			r.Do(append([]any{"ACL", "SETUSER", "asker", "reset", "on", ">secret", "-@all", "+hello"}, tt.rules...)...)
			ask(t, redisstore.Config{URL: r.URL(), Username: "asker", Password: "secret"}, tt.want, tt.err)
		})
	}
	o := makeOwners(t, redisstore.Options{Client: open(t, config)})
	r.Kill()
	if _, err := o.EvictionPolicy(t.Context()); !errors.Is(err, routes.ErrUnavailable) {
		t.Errorf("EvictionPolicy while Redis is away: %v, want ErrUnavailable", err)
	}
}

func TestOneNodeThatEvictsIsEnough(t *testing.T) {
	c := routestest.StartRedisCluster(t)
	r := newReader(t, open(t, redisstore.Config{Addrs: c.Addrs(), Cluster: true}))
	if got, err := r.EvictionPolicy(t.Context()); got != redisstore.NoEviction || err != nil {
		t.Errorf("EvictionPolicy = %q, %v; want %q", got, err, redisstore.NoEviction)
	}
	c.Nodes[2].Do("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	if got, err := r.EvictionPolicy(t.Context()); got != "volatile-ttl" || err != nil {
		t.Errorf("EvictionPolicy = %q, %v; want volatile-ttl", got, err)
	}
}
