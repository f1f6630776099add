package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

const (
	leaseTTL = time.Minute
	patience = time.Minute
)

// stage is a real Redis with a leader, a reader and a follower.
type stage struct {
	redis  *routestest.RedisServer
	w      *redisstore.Writer
	r      *redisstore.Reader
	lease  routes.Lease
	events chan routes.Event
	states chan bool
}

// setUp starts all; host "a" stands at revision 1, and the store is complete.
func setUp(t *testing.T, o routestest.RedisOptions) *stage {
	t.Helper()
	return setUpWith(t, o, newReader)
}

func setUpWith(t *testing.T, o routestest.RedisOptions, newReader func(*testing.T, redis.UniversalClient) *redisstore.Reader) *stage {
	t.Helper()
	s := &stage{redis: routestest.StartRedis(t, o), events: make(chan routes.Event, 1000), states: make(chan bool, 1000)}
	client := open(t, redisstore.Config{URL: s.redis.URL()})
	s.w, s.r = newWriter(t, client), newReader(t, client)
	s.lead(t)
	s.publish(t, "a", 1)
	if err := s.w.MarkComplete(t.Context(), s.lease); err != nil {
		t.Fatal(err)
	}
	s.follow(t)
	return s
}

// newBoundedReader has the bounds of production.
func newBoundedReader(t *testing.T, c redis.UniversalClient) *redisstore.Reader {
	t.Helper()
	r, err := redisstore.NewReader(redisstore.Options{Client: c})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *stage) lead(t *testing.T) {
	t.Helper()
	eventually(t, "Acquire", func() (err error) {
		s.lease, err = s.w.Acquire(t.Context(), "one", leaseTTL, 0)
		return err
	})
}

func (s *stage) publish(t *testing.T, id routes.HostID, revision uint64) {
	t.Helper()
	c := routestest.Host(id).Tool("x", "b", "x").Change(t, s.lease, revision)
	if err := s.w.Publish(t.Context(), s.lease, routes.Batch{Hosts: []routes.HostChange{c}}); err != nil {
		t.Fatalf("Publish: %v", err)
	}
}

// follow starts a follower, and waits for its first Reset.
func (s *stage) follow(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.r.Follow(ctx, func(events []routes.Event) {
			for _, e := range events {
				s.events <- e
			}
		}, func(reachable bool, _ error) { s.states <- reachable })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Follow: %v", err)
		}
	})
	s.wantState(t, true)
	s.wantReset(t)
}

// wantState waits until the store is reachable, or not. (On a busy machine a bounded reader may lose it for a moment.)
func (s *stage) wantState(t *testing.T, want bool) {
	t.Helper()
	for receive(t, s.states) != want {
	}
}

func (s *stage) wantReset(t *testing.T) {
	t.Helper()
	if e := receive(t, s.events); !e.Reset {
		t.Fatalf("event %+v, want a Reset", e)
	}
}

func (s *stage) wantChange(t *testing.T, id routes.HostID, revision uint64) {
	t.Helper()
	if e := receive(t, s.events); e.Host != id || e.Version.Revision != revision {
		t.Fatalf("event %+v, want host %q at %d", e, id, revision)
	}
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("waited in vain for the follower")
		panic("unreachable")
	}
}

func eventually(t *testing.T, what string, done func() error) {
	t.Helper()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	late := time.After(patience)
	for {
		err := done()
		if err == nil {
			return
		}
		select {
		case <-late:
			t.Fatalf("%s: %v", what, err)
		case <-poll.C:
		}
	}
}

func (s *stage) readable(t *testing.T) {
	t.Helper()
	eventually(t, "Host after Redis is back", func() error {
		_, err := s.r.Host(t.Context(), "a")
		return err
	})
}

func TestRedisDiesAndComesBackWithItsData(t *testing.T) {
	s := setUp(t, routestest.RedisOptions{AppendOnly: true})
	s.redis.Kill()
	s.wantState(t, false)
	for range 5 {
		if _, err := s.r.Host(t.Context(), "a"); !errors.Is(err, routes.ErrUnavailable) {
			t.Errorf("Host while Redis is away: %v, want ErrUnavailable", err)
		}
	}
	if _, err := s.r.Host(t.Context(), "ghost"); !errors.Is(err, routes.ErrUnavailable) {
		t.Errorf("an unknown Host while Redis is away: %v, want ErrUnavailable", err)
	}
	s.redis.Restart()
	s.wantState(t, true)
	s.wantReset(t)
	s.readable(t)
	eventually(t, "Renew", func() error { return s.w.Renew(t.Context(), s.lease, leaseTTL) })
	s.publish(t, "a", 2)
	s.wantChange(t, "a", 2)
}

func TestRedisComesBackWithoutItsData(t *testing.T) {
	s := setUp(t, routestest.RedisOptions{})
	s.redis.Kill()
	s.wantState(t, false)
	s.redis.Restart()
	s.wantState(t, true)
	s.wantReset(t)
	eventually(t, "Renew is fenced", func() error {
		if err := s.w.Renew(t.Context(), s.lease, leaseTTL); !errors.Is(err, routes.ErrFenced) {
			return fmt.Errorf("%w, want ErrFenced", err)
		}
		return nil
	})
	for _, id := range []routes.HostID{"a", "ghost"} {
		if _, err := s.r.Host(t.Context(), id); !errors.Is(err, routes.ErrNotPublished) {
			t.Errorf("Host(%q): %v, want ErrNotPublished", id, err)
		}
	}
	old := s.lease
	s.lead(t)
	if s.lease.Incarnation == old.Incarnation {
		t.Errorf("lease %+v after %+v: want another incarnation", s.lease, old)
	}
	s.publish(t, "a", 1)
	s.wantReset(t) // the incarnation is new to the follower
	s.wantChange(t, "a", 1)
	s.readable(t)
}

// An old snapshot forgets writes that everybody saw. What is published then must win over them everywhere.
func TestRedisComesBackWithAnOldSnapshot(t *testing.T) {
	for name, tt := range map[string]struct {
		forgotten func(*testing.T, *stage) // after the snapshot
		next      func(*testing.T, *stage) // how somebody leads again
	}{
		"the leader notices that its writes are lost": {
			forgotten: func(t *testing.T, s *stage) { s.publish(t, "a", 2) },
			next: func(t *testing.T, s *stage) {
				eventually(t, "Renew is fenced", func() error {
					if err := s.w.Renew(t.Context(), s.lease, leaseTTL); !errors.Is(err, routes.ErrFenced) {
						return fmt.Errorf("%v, want ErrFenced", err)
					}
					return nil
				})
				if m, err := s.r.Meta(t.Context()); m.Complete || m.Incarnation == s.lease.Incarnation || err != nil {
					t.Errorf("Meta = %+v, %v; want another incarnation, not complete", m, err)
				}
				if _, err := s.r.Host(t.Context(), "ghost"); !errors.Is(err, routes.ErrNotPublished) {
					t.Errorf("Host: %v, want ErrNotPublished", err)
				}
				s.lead(t)
			},
		},
		"the lease itself is forgotten, and the leader publishes": {
			forgotten: func(t *testing.T, s *stage) {
				if err := s.w.Release(t.Context(), s.lease); err != nil {
					t.Fatal(err)
				}
				s.lead(t)
				s.publish(t, "a", 2)
			},
			next: func(t *testing.T, s *stage) {
				eventually(t, "Publish is fenced", func() error {
					b := routes.Batch{Hosts: []routes.HostChange{routestest.Removal("b", 1)}}
					if err := s.w.Publish(t.Context(), s.lease, b); !errors.Is(err, routes.ErrFenced) {
						return fmt.Errorf("%v, want ErrFenced", err)
					}
					return nil
				})
				s.lead(t)
			},
		},
		"another leads, who knows nothing of it": {
			forgotten: func(t *testing.T, s *stage) {
				if err := s.w.Release(t.Context(), s.lease); err != nil {
					t.Fatal(err)
				}
				s.lead(t)
				s.publish(t, "a", 2)
			},
			next: func(t *testing.T, s *stage) {
				s.redis.Do("DEL", "weir:{routes}:lease") // it would have run out
				s.w = newWriter(t, open(t, redisstore.Config{URL: s.redis.URL()}))
				s.lead(t)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := setUp(t, routestest.RedisOptions{})
			s.redis.Do("SAVE")
			tt.forgotten(t, s)
			seen, err := s.r.Host(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			s.redis.Kill()
			s.redis.Restart()
			s.readable(t)
			tt.next(t, s)
			s.publish(t, "a", 1)
			got, err := s.r.Host(t.Context(), "a")
			if err != nil || !got.Version.Supersedes(seen.Version) {
				t.Errorf("Host = %+v, %v; does not supersede what was seen before, %+v", got.Version, err, seen.Version)
			}
		})
	}
}

func TestARedisThatHangsIsLeftAlone(t *testing.T) {
	t.Parallel() // it waits more than it works
	s := setUpWith(t, routestest.RedisOptions{}, newBoundedReader)
	s.redis.Pause()
	s.wantState(t, false)
	for range 5 {
		if _, err := s.r.Host(t.Context(), "a"); !errors.Is(err, routes.ErrUnavailable) {
			t.Errorf("Host while Redis hangs: %v, want ErrUnavailable", err)
		}
	}
	s.redis.Resume()
	s.wantState(t, true)
	s.wantReset(t)
	s.readable(t)
}

func TestFlushAllUnderALeaderAndAFollower(t *testing.T) {
	s := setUp(t, routestest.RedisOptions{})
	s.redis.Do("FLUSHALL")
	if err := s.w.Renew(t.Context(), s.lease, leaseTTL); !errors.Is(err, routes.ErrFenced) {
		t.Errorf("Renew: %v, want ErrFenced", err)
	}
	s.lead(t)
	s.publish(t, "a", 1)
	s.wantReset(t)
	// The Reset may have come by looking, with the change before it.
	s.publish(t, "a", 2)
	for e := receive(t, s.events); e.Version.Revision != 2; e = receive(t, s.events) {
	}
}

func TestAFollowerOfATrimmedStreamIsReset(t *testing.T) {
	s := setUp(t, routestest.RedisOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	batches, next, done := make(chan []routes.Event), make(chan bool), make(chan error, 1)
	go func() {
		done <- s.r.Follow(ctx, func(events []routes.Event) {
			select {
			case batches <- slices.Clone(events):
				<-next
			case <-ctx.Done():
			}
		}, nil)
	}()
	defer func() { cancel(); <-done }()
	receive(t, batches) // the first Reset; the follower waits
	s.publish(t, "a", 2)
	s.publish(t, "b", 1)
	s.redis.Do("XTRIM", "weir:{routes}:changes", "MAXLEN", 0)
	s.publish(t, "c", 1)
	next <- true
	events := receive(t, batches)
	if len(events) != 2 || !events[0].Reset || events[1].Host != "c" {
		t.Errorf("events %+v, want a Reset and c", events)
	}
	next <- true
}

func TestAFollowerIsResetWhenTheSequenceMovesWithoutTheStream(t *testing.T) {
	t.Parallel() // it waits more than it works
	s := setUp(t, routestest.RedisOptions{})
	s.redis.Do("HINCRBY", "weir:{routes}:fence", "sequence", 5)
	s.wantReset(t)
}

func TestScriptsAreSentAgainWhereRedisForgotThem(t *testing.T) {
	s := setUp(t, routestest.RedisOptions{})
	s.redis.Do("SCRIPT", "FLUSH")
	s.publish(t, "a", 2)
	s.wantChange(t, "a", 2)
}

func TestWhatWasLostOnItsOwnIsNotRemoved(t *testing.T) {
	s := setUp(t, routestest.RedisOptions{})
	s.publish(t, "b", 1)
	s.redis.Do("DEL", "weir:{routes}:host:a", "weir:{routes}:list:a")
	s.redis.Do("HSET", "weir:{routes}:index", "b", "garbage")
	hosts, err := s.r.Hosts(t.Context(), []routes.HostID{"a", "b"})
	if len(hosts) != 0 || err != nil {
		t.Errorf("Hosts = %v, %v; want none", hosts, err)
	}
	for _, id := range []routes.HostID{"a", "b"} {
		if _, err := s.r.Host(t.Context(), id); !errors.Is(err, routes.ErrNotPublished) {
			t.Errorf("Host(%q): %v, want ErrNotPublished", id, err)
		}
	}
	if _, err := s.r.List(t.Context(), "a"); !errors.Is(err, routes.ErrNotPublished) {
		t.Errorf("List: %v, want ErrNotPublished", err)
	}
	index, _, err := s.r.Index(t.Context())
	if index["b"] != (routes.HostEntry{}) || index["a"].Digest == "" || err != nil {
		t.Errorf("Index = %v, %v; want b zero and a as it was", index, err)
	}
	s.publish(t, "a", 2)
	s.publish(t, "b", 1) // whatever stood there
	if hosts, err := s.r.Hosts(t.Context(), []routes.HostID{"a", "b"}); len(hosts) != 2 || err != nil {
		t.Errorf("Hosts = %v, %v; want both", hosts, err)
	}
}

func TestWhatRedisRefusesIsUnavailableAndNothingSecretIsShown(t *testing.T) {
	s := setUp(t, routestest.RedisOptions{})
	s.redis.Do("SET", "weir:{routes}:index", "not a hash any more")
	_, err := s.r.Host(t.Context(), "a")
	if !errors.Is(err, routes.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("Host: %v, want ErrUnavailable, WRONGTYPE", err)
	}
}

// Redis finds an Acquire that was given up long ago among what it was sent, and does it: the owner does not take that lease for
// somebody else's.
func TestAnAcquireThatWasGivenUpIsNobodyElses(t *testing.T) {
	server := routestest.StartRedis(t, routestest.RedisOptions{})
	client := open(t, redisstore.Config{URL: server.URL()})
	w, r := newWriter(t, client), newReader(t, client)
	l, err := w.Acquire(t.Context(), "one", leaseTTL, 0) // connections are open, and Redis knows the script
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := w.Acquire(ctx, "one", time.Hour, 0); err == nil {
		t.Fatal("a Redis that stands still gave a lease")
	}
	server.Resume()
	eventually(t, "the lease is taken", func() error {
		if owner, _, err := r.Leader(t.Context()); owner != "one" || err != nil {
			return fmt.Errorf("leader %q, %v", owner, err)
		}
		return nil
	})
	if _, err := newWriter(t, client).Acquire(t.Context(), "one", leaseTTL, 0); !errors.Is(err, routes.ErrNotLeader) {
		t.Errorf("another one of the same name: %v, want ErrNotLeader", err)
	}
	l, err = w.Acquire(t.Context(), "one", leaseTTL, 0)
	if err != nil {
		t.Fatalf("the owner: %v", err)
	}
	if _, epoch, err := r.Leader(t.Context()); err != nil || epoch != l.Epoch {
		t.Errorf("epoch %d, %v; want that of %+v", epoch, err, l)
	}
	if err := w.Renew(t.Context(), l, leaseTTL); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if _, err := w.Acquire(t.Context(), "one", leaseTTL, 0); !errors.Is(err, routes.ErrNotLeader) {
		t.Errorf("once more: %v, want ErrNotLeader", err)
	}
}
