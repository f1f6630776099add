package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

// users makes one user for each role and forbids everything to the default one.
func users(t *testing.T, r *routestest.RedisServer) map[redisstore.Role]redisstore.Config {
	configs := map[redisstore.Role]redisstore.Config{}
	for role, name := range map[redisstore.Role]string{redisstore.RoleControlPlane: "control", redisstore.RoleDataplane: "data"} {
		args := []any{"ACL", "SETUSER", name, "on", ">secret of " + name}
		for _, rule := range strings.Fields(redisstore.ACLRules(role, redisstore.DefaultPrefix)) {
			args = append(args, rule)
		}
		r.Do(args...)
		configs[role] = redisstore.Config{URL: r.URL(), Username: name, Password: "secret of " + name}
	}
	return configs
}

func TestTheContractHoldsUnderTheACL(t *testing.T) {
	r := routestest.StartRedis(t, routestest.RedisOptions{})
	configs := users(t, r)
	flush := func(*testing.T) { r.Do("FLUSHALL") }
	routestest.Contract(t, func(t *testing.T) routestest.Fixture {
		flush(t)
		return routestest.Fixture{
			NewWriter: func(t *testing.T) routestest.Writer {
				return newWriter(t, open(t, configs[redisstore.RoleControlPlane]))
			},
			NewReader: func(t *testing.T) routestest.Reader { return newReader(t, open(t, configs[redisstore.RoleDataplane])) },
			Flush:     flush,
		}
	})
}

func TestNoRoleReachesWhatIsTheOthers(t *testing.T) {
	r := routestest.StartRedis(t, routestest.RedisOptions{})
	configs := users(t, r)
	ctx := t.Context()
	data, control := open(t, configs[redisstore.RoleDataplane]), open(t, configs[redisstore.RoleControlPlane])
	if _, err := newWriter(t, data).Acquire(ctx, "one", generous, 0); !redis.HasErrorPrefix(err, "NOPERM") {
		t.Errorf("a dataplane acquires: %v, want NOPERM", err)
	}
	if err := newReader(t, control).PutStatus(ctx, "one", nil, generous); !redis.HasErrorPrefix(err, "NOPERM") {
		t.Errorf("a control plane puts a status: %v, want NOPERM", err)
	}
	for name, try := range map[string]func(context.Context) error{
		"FLUSHALL":      func(ctx context.Context) error { return data.FlushAll(ctx).Err() },
		"KEYS":          func(ctx context.Context) error { return data.Keys(ctx, "*").Err() },
		"CONFIG GET":    func(ctx context.Context) error { return control.ConfigGet(ctx, "*").Err() },
		"a foreign key": func(ctx context.Context) error { return control.Get(ctx, "other").Err() },
	} {
		if err := try(ctx); !redis.HasErrorPrefix(err, "NOPERM") {
			t.Errorf("%s: %v, want NOPERM", name, err)
		}
	}
}

func TestAWrongPasswordIsUnavailable(t *testing.T) {
	r := routestest.StartRedis(t, routestest.RedisOptions{})
	c := users(t, r)[redisstore.RoleDataplane]
	c.Password = "wrong"
	_, err := newReader(t, open(t, c)).Host(t.Context(), "a")
	if !errors.Is(err, routes.ErrUnavailable) || strings.Contains(err.Error(), "wrong") {
		t.Errorf("Host: %v, want ErrUnavailable without the password", err)
	}
}
