package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

// ownersStage is a real Redis with Owners, what they reported, and how often they went to Redis.
type ownersStage struct {
	*Owners
	redis *routestest.RedisServer
	trips roundTrips

	mu       sync.Mutex // guards reported
	reported []string
}

func stageOwners(t *testing.T, o routestest.RedisOptions) *ownersStage {
	t.Helper()
	s := &ownersStage{redis: routestest.StartRedis(t, o)}
	client, err := Open(Config{URL: s.redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	client.AddHook(&s.trips)
	s.Owners, err = NewOwners(Options{Client: client, Timeout: 10 * time.Second, Report: func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reported = append(s.reported, err.Error())
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// roundTrips are what a client does, each as the commands that it sends at once.
type roundTrips struct {
	mu  sync.Mutex // guards all
	all [][]string
}

func (r *roundTrips) add(cmds ...redis.Cmder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, cmd := range cmds {
		names = append(names, cmd.Name())
	}
	r.all = append(r.all, names)
}

// take returns what was done since the last time.
func (r *roundTrips) take() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

func (r *roundTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { r.add(cmd); return next(ctx, cmd) }
}

func (r *roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "hello" { // how a connection begins
			r.add(cmds...)
		}
		return next(ctx, cmds)
	}
}

const (
	alice = "a11ce"
	bob   = "b0b"
	host  = routes.HostID("acme")
	raw   = "a-raw-task-id"
)

func task(principal string, backend routes.BackendID, source routes.TaskSource) routes.TaskOwner {
	return routes.TaskOwner{Principal: principal, Backend: backend, Source: source, Tool: "start", Session: "in-here", Life: time.Hour}
}

func (s *ownersStage) mint(t *testing.T, id string, o routes.TaskOwner) {
	t.Helper()
	if err := s.RecordTask(t.Context(), host, id, o); err != nil {
		t.Fatal(err)
	}
}

func (s *ownersStage) claim(t *testing.T, id string, o routes.TaskOwner) routes.TaskRecord {
	t.Helper()
	r, err := s.ClaimTask(t.Context(), host, id, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *ownersStage) look(t *testing.T, id, principal string) routes.TaskRecord {
	t.Helper()
	r, err := s.TaskRecord(t.Context(), host, id, principal)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// age makes an entry, its key and its places in the sets end after left from now.
func (s *ownersStage) age(t *testing.T, id string, o routes.TaskOwner, left time.Duration) {
	t.Helper()
	key, field := s.keys.task(routes.TaskDigest(id)), scoped(host, o.Principal)+"/"+string(o.Backend)
	_, rest, _ := strings.Cut(s.redis.Do("HGET", key, field), " ")
	ends := time.Now().Add(left).UnixMilli()
	s.redis.Do("HSET", key, field, fmt.Sprint(ends, " ", rest))
	s.redis.Do("PEXPIREAT", key, ends)
	for set, member := range map[string]string{s.keys.tasks(host, o.Principal): routes.TaskDigest(id), s.keys.taskHost(host): o.Principal} {
		s.redis.Do("ZADD", set, ends, member)
		s.redis.Do("PEXPIREAT", set, ends)
	}
}

func TestALookUpIsOneRoundTrip(t *testing.T) {
	s := stageOwners(t, routestest.RedisOptions{})
	own, everybody := task(alice, "files", routes.TaskMinted), task(routes.AnyPrincipal, "files", routes.TaskShared)
	s.mint(t, "own", own)
	s.claim(t, "shared", everybody)
	s.look(t, "own", alice) // Redis knows every script from here on
	one, more := [][]string{{"evalsha"}}, [][]string{{"evalsha"}, {"evalsha", "evalsha"}}
	for _, tt := range []struct {
		name, id, principal string
		owner               routes.TaskOwner
		left                time.Duration
		want                [][]string
	}{
		{"unknown", "ghost", alice, own, time.Hour, one},
		{"above half", "own", alice, own, 35 * time.Minute, one},
		{"somebody else's, below half", "own", bob, own, 10 * time.Minute, one},
		{"below half: the sets follow", "own", alice, own, 25 * time.Minute, more},
		{"just prolonged", "own", alice, own, 0, one},
		{"shared, above half", "shared", bob, everybody, 35 * time.Minute, one},
		{"shared, below half: the sets follow", "shared", bob, everybody, 25 * time.Minute, more},
	} {
		if tt.left > 0 && tt.id != "ghost" {
			s.age(t, tt.id, tt.owner, tt.left)
		}
		s.trips.take()
		began := time.Now()
		r := s.look(t, tt.id, tt.principal)
		if diff := cmp.Diff(tt.want, s.trips.take()); diff != "" {
			t.Errorf("%s: round trips (-want +got):\n%s", tt.name, diff)
		}
		if len(tt.want) == 1 {
			continue
		}
		if left := r[0].Expires.Sub(began); left < tt.owner.Life-time.Second {
			t.Errorf("%s: prolonged to %v", tt.name, left)
		}
		for _, key := range []string{s.keys.task(routes.TaskDigest(tt.id)), s.keys.tasks(host, tt.owner.Principal), s.keys.taskHost(host)} {
			if ttl := s.client.PTTL(t.Context(), key).Val(); ttl < tt.owner.Life-time.Minute || ttl > tt.owner.Life {
				t.Errorf("%s: %s lives for %v, want %v", tt.name, key, ttl, tt.owner.Life)
			}
		}
	}
}

func TestAKeyLivesAsLongAsItsLongestEntry(t *testing.T) {
	s := stageOwners(t, routestest.RedisOptions{})
	long, short := task(alice, "files", routes.TaskMinted), task(bob, "mail", routes.TaskMinted)
	long.Life = 10 * time.Hour
	s.mint(t, "x", long)
	s.mint(t, "x", short)
	s.mint(t, "y", task(alice, "files", routes.TaskMinted))
	for _, key := range []string{s.keys.task(routes.TaskDigest("x")), s.keys.tasks(host, alice), s.keys.taskHost(host)} {
		if ttl := s.client.PTTL(t.Context(), key).Val(); ttl < long.Life-time.Minute || ttl > long.Life {
			t.Errorf("%s lives for %v, want %v", key, ttl, long.Life)
		}
	}
	// A write forgets what has ended: an hour later bob's entry would have.
	s.age(t, "x", short, -time.Minute)
	s.redis.Do("PEXPIREAT", s.keys.task(routes.TaskDigest("x")), time.Now().Add(time.Hour).UnixMilli())
	s.mint(t, "x", long)
	if fields := s.redis.Do("HKEYS", s.keys.task(routes.TaskDigest("x"))); fields != "["+scoped(host, alice)+"/files]" {
		t.Errorf("the record has %s, want alice's entry alone", fields)
	}
}

func TestEntriesThatCantBeReadAreReportedAndLeftOut(t *testing.T) {
	s := stageOwners(t, routestest.RedisOptions{})
	s.mint(t, "x", task(alice, "files", routes.TaskMinted))
	key := s.keys.task(routes.TaskDigest("x"))
	later := time.Now().Add(time.Hour).UnixMilli()
	s.redis.Do("HSET", key, scoped(host, bob)+"/mail", "a secret that nobody logs", scoped(host, bob)+"/chat", fmt.Sprintf(`%d 3600000 1 lease {}`, later),
		scoped(host, bob)+"/wiki", fmt.Sprintf(`%d 3600000 1 mint {"tool":`, later), "nobackend", fmt.Sprintf(`%d 3600000 1 mint {}`, later),
		bob+"/code", fmt.Sprintf(`%d 99999999999999999999 1 mint {}`, later))
	r := s.look(t, "x", alice)
	if len(r) != 1 || r[0].Principal != alice {
		t.Errorf("record %+v, want alice's entry alone", r)
	}
	if len(s.reported) != 5 || strings.Contains(fmt.Sprint(s.reported), "secret") {
		t.Errorf("reported %q, want 5 without what stands there", s.reported)
	}
	// Nobody may claim where something stands that can't be read; elsewhere all goes on.
	for _, backend := range []routes.BackendID{"mail", "chat", "wiki"} {
		if v, err := s.claim(t, "x", task(alice+"2", backend, routes.TaskClaimed)).For(alice+"2", routes.TaskPolicy{}, all); v.Owner != nil || err != nil {
			t.Errorf("at %s: %+v, %v; the claim took", backend, v, err)
		}
	}
	s.claim(t, "x", task(bob, "free", routes.TaskClaimed))
	s.mint(t, "x", task(bob, "mail", routes.TaskMinted)) // it takes the place of what can't be read
	var backends []string
	for _, o := range s.look(t, "x", alice) {
		backends = append(backends, string(o.Backend))
	}
	slices.Sort(backends)
	if diff := cmp.Diff([]string{"files", "free", "mail"}, backends); diff != "" {
		t.Errorf("backends (-want +got):\n%s", diff)
	}
	if tasks, err := s.PrincipalTasks(t.Context(), host, bob); len(tasks) != 2 || err != nil {
		t.Errorf("PrincipalTasks = %+v, %v; want two", tasks, err)
	}
}

func all(*routes.TaskOwner) bool { return true }

func TestRawIdsAreNowhereInRedis(t *testing.T) {
	s := stageOwners(t, routestest.RedisOptions{})
	s.mint(t, raw, task(alice, "files", routes.TaskMinted))
	s.claim(t, raw, task(bob, "mail", routes.TaskClaimed))
	s.claim(t, raw+"2", task(routes.AnyPrincipal, "mail", routes.TaskShared))
	s.look(t, raw, alice)
	ctx, seen := t.Context(), 0
	for _, key := range s.client.Keys(ctx, "*").Val() {
		text := key
		switch kind := s.client.Type(ctx, key).Val(); kind {
		case "hash":
			text += fmt.Sprint(s.client.HGetAll(ctx, key).Val())
		case "zset":
			text += fmt.Sprint(s.client.ZRange(ctx, key, 0, -1).Val())
		default:
			t.Errorf("%s is a %s", key, kind)
		}
		if strings.Contains(text, raw) {
			t.Errorf("%s shows a task's id: %s", key, text)
		}
		seen++
	}
	if seen != 6 { // two records, three sets, one host
		t.Errorf("%d keys, want 6", seen)
	}
}

func TestTheViewOfAHostTakesFewRoundTrips(t *testing.T) {
	s := stageOwners(t, routestest.RedisOptions{})
	const principals = 300
	for i := range principals {
		o := task(fmt.Sprint("principal-", i), "files", routes.TaskMinted)
		s.mint(t, "x", o)
	}
	s.trips.take()
	view, err := s.HostTasks(t.Context(), host, principals)
	if err != nil || view.Count != principals || len(view.Principals) != principals || view.More {
		t.Errorf("HostTasks = %d tasks of %d, more %v, %v", view.Count, len(view.Principals), view.More, err)
	}
	for _, p := range view.Principals {
		if len(p.Tasks) != 1 || p.Tasks[0].Principal != p.Principal {
			t.Errorf("%s holds %+v", p.Principal, p.Tasks)
		}
	}
	// The principals (and the script, which Redis did not know), how many they hold, which, and the records.
	if n, want := len(s.trips.take()), 2+2+2+3; n != want {
		t.Errorf("%d round trips, want %d", n, want)
	}
}

// A Redis that is full, or that forgot its scripts, or a key of another kind.
func TestARedisThatRefusesToWriteIsReadAllTheSame(t *testing.T) {
	s := stageOwners(t, routestest.RedisOptions{})
	o := task(alice, "files", routes.TaskMinted)
	s.mint(t, "x", o)
	s.age(t, "x", o, 10*time.Minute)
	s.redis.Do("CONFIG", "SET", "maxmemory", 1)
	if err := s.RecordTask(t.Context(), host, "y", o); !strings.Contains(fmt.Sprint(err), "OOM") {
		t.Errorf("RecordTask: %v, want OOM", err)
	}
	if r := s.look(t, "x", alice); len(r) != 1 || time.Until(r[0].Expires) > 11*time.Minute {
		t.Errorf("record %+v, want the entry as it was", r)
	}
	s.redis.Do("CONFIG", "SET", "maxmemory", 0)
	if r := s.look(t, "x", alice); len(r) != 1 || time.Until(r[0].Expires) < 50*time.Minute {
		t.Errorf("record %+v, want it prolonged", r)
	}
	s.redis.Do("SCRIPT", "FLUSH")
	s.mint(t, "y", o)
	s.redis.Do("SCRIPT", "FLUSH")
	if tasks, err := s.PrincipalTasks(t.Context(), host, alice); len(tasks) != 2 || err != nil {
		t.Errorf("PrincipalTasks = %+v, %v; want two", tasks, err)
	}
	if _, away := s.Recovered(); away {
		t.Error("a Redis that refuses is not away")
	}
}
