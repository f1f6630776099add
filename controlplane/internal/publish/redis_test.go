package publish

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

// redisStore is the store that production uses.
type redisStore struct {
	*redisstore.Writer
	*redisstore.Reader
}

// openRedis makes what one replica has: a client of its own.
func openRedis(t *testing.T, url string) store {
	t.Helper()
	client, err := redisstore.Open(redisstore.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	o := redisstore.Options{Client: client}
	w, err := redisstore.NewWriter(o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := redisstore.NewReader(o)
	if err != nil {
		t.Fatal(err)
	}
	return redisStore{w, r}
}

// soon waits for a condition on a real clock.
func soon(t *testing.T, what string, done func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		err := done()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// The store's own contract suite shows that the memory store behaves like Redis; this shows that the controller gets along with
// the real client: leading, publishing, a lost lease, lost data.
func TestOnRedis(t *testing.T) {
	for name, url := range map[string]func(*testing.T) (url string, flush func()){
		"miniredis": func(t *testing.T) (string, func()) {
			m := routestest.StartMiniredis(t)
			return "redis://" + m.Addr(), m.FlushAll
		},
		"redis": func(t *testing.T) (string, func()) {
			r := routestest.StartRedis(t, routestest.RedisOptions{})
			return r.URL(), func() { r.Do("FLUSHALL") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, flush := url(t)
			fast := func(o *Options) {
				o.LeaseTTL, o.Renew, o.Campaign = 2*time.Second, 200*time.Millisecond, 100*time.Millisecond
			}
			cfg := parse(t, 0, "a b", "acme: a b")
			st := openRedis(t, url)
			one := start(t, st, "one", cfg, newSource().learn("a", "ping").learn("b", "pong").settled(), fast)
			soon(t, "the first one leads and publishes", func() error {
				_, err := st.Host(t.Context(), "acme")
				return err
			})
			two := start(t, openRedis(t, url), "two", cfg, newSource().learn("a", "ping").settled(), fast)

			one.learn("a", "ping", "new")
			soon(t, "a change is published", func() error {
				if _, ok := tools(t, st, "acme")["new"]; !ok {
					return errors.New("tool new is missing")
				}
				return nil
			})
			before := document(t, st, "acme").Version()

			flush()
			soon(t, "lost data is published again", func() error {
				rec, err := st.Host(t.Context(), "acme")
				if err == nil && rec.Version.Incarnation == before.Incarnation {
					return errors.New("still the old incarnation")
				}
				return err
			})

			last, next := one, two
			if two.State().Leading {
				last, next = two, one
			}
			last.stop()
			soon(t, "the other one leads", func() error {
				if !next.State().Leading {
					return errors.New("does not lead")
				}
				return nil
			})
			next.learn("b", "pong", "last")
			soon(t, "and publishes", func() error {
				if _, ok := tools(t, st, "acme")["last"]; !ok {
					return errors.New("tool last is missing")
				}
				return nil
			})
			want := map[string]string{"last": "b/last", "ping": "a/ping", "pong": "b/pong"}
			got := tools(t, st, "acme")
			delete(got, "new") // the second one may never have discovered it
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("tools (-want +got):\n%s", diff)
			}
		})
	}
}
