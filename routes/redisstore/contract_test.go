package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

func TestMain(m *testing.M) {
	redisstore.SilenceClients() // they would tell of every Redis that a test ends
	goleak.VerifyTestMain(m)
}

func TestEveryRedisKeepsTheContract(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (config redisstore.Config, flush func(*testing.T)){
		"miniredis": openMini, "redis": openReal, "cluster": openCluster,
	} {
		t.Run(name, func(t *testing.T) {
			config, flush := open(t)
			routestest.Contract(t, func(t *testing.T) routestest.Fixture {
				flush(t)
				return fixture(config, flush)
			})
		})
	}
}

func openMini(t *testing.T) (redisstore.Config, func(*testing.T)) {
	m := routestest.StartMiniredis(t)
	return redisstore.Config{URL: "redis://" + m.Addr()}, func(*testing.T) { m.FlushAll() }
}

func openReal(t *testing.T) (redisstore.Config, func(*testing.T)) {
	r := routestest.StartRedis(t, routestest.RedisOptions{})
	return redisstore.Config{URL: r.URL()}, func(*testing.T) { r.Do("FLUSHALL") }
}

func openCluster(t *testing.T) (redisstore.Config, func(*testing.T)) {
	c := routestest.StartRedisCluster(t)
	return redisstore.Config{Addrs: c.Addrs(), Cluster: true}, func(*testing.T) { c.FlushAll() }
}

// generous is the time that a test on a busy machine grants an operation where the bound itself is not the subject.
const generous = 10 * time.Second

func fixture(config redisstore.Config, flush func(*testing.T)) routestest.Fixture {
	return routestest.Fixture{
		NewWriter: func(t *testing.T) routestest.Writer { return newWriter(t, open(t, config)) },
		NewReader: func(t *testing.T) routestest.Reader { return newReader(t, open(t, config)) },
		Flush:     flush,
	}
}

// open makes a client that is closed with the test.
func open(t *testing.T, config redisstore.Config) redis.UniversalClient {
	t.Helper()
	c, err := redisstore.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func newWriter(t *testing.T, c redis.UniversalClient) *redisstore.Writer {
	t.Helper()
	w, err := redisstore.NewWriter(redisstore.Options{Client: c, Timeout: generous})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func newReader(t *testing.T, c redis.UniversalClient) *redisstore.Reader {
	t.Helper()
	r, err := redisstore.NewReader(redisstore.Options{Client: c, Timeout: generous})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
