package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// script is a source that says what a test tells it to.
type script struct {
	says chan Report
	ends chan error
}

func (s *script) Run(ctx context.Context, report func(Report)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.ends:
			return err
		case r := <-s.says:
			report(r)
		}
	}
}

// rig is a running watcher with scripted sources.
type rig struct {
	*Watcher
	scripts map[string]*script
	reg     *prometheus.Registry

	mu      sync.Mutex // guards what follows
	told    int
	opened  int
	openErr error
}

func newRig(t *testing.T, names ...string) *rig {
	t.Helper()
	r := &rig{scripts: map[string]*script{}, reg: prometheus.NewRegistry()}
	var err error
	r.Watcher, err = New(Options{
		Registry: r.reg,
		Changed:  func() { r.mu.Lock(); r.told++; r.mu.Unlock() },
		Open: map[string]Opener{config.KindHTTP: func(s *config.Source) (Source, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.opened++
			return r.scripts[s.Name], r.openErr
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		r.scripts[name] = &script{says: make(chan Report), ends: make(chan error)}
	}
	r.Configure(sources(names...))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

func sources(names ...string) (out []config.Source) {
	for _, name := range names {
		out = append(out, config.Source{Name: name, HTTP: &config.HTTPSource{URL: "https://registry.example/" + name}})
	}
	return out
}

func (r *rig) say(name string, rep Report) { r.scripts[name].says <- rep; synctest.Wait() }

func (r *rig) times() int { r.mu.Lock(); defer r.mu.Unlock(); return r.told }

// state is what stands of a source: its backends' ids, settled or not.
func (r *rig) state(name string) string {
	set := r.Sets()[name]
	if set == nil {
		return "none"
	}
	var ids []string
	for _, b := range set.Backends {
		ids = append(ids, string(b.ID))
	}
	return fmt.Sprintf("%s settled=%v", strings.Join(ids, ","), set.Settled)
}

func (r *rig) want(t *testing.T, name, want string) {
	t.Helper()
	if got := r.state(name); got != want {
		t.Errorf("%s: %s, want %s", name, got, want)
	}
}

func named(names ...string) (out []Entry) {
	for _, n := range names {
		out = append(out, Entry{Name: n, URL: "https://" + n + ".example/mcp"})
	}
	return out
}

func codesOf(problems []compile.Problem) (out []string) {
	for _, p := range problems {
		out = append(out, p.Code)
	}
	return out
}

func TestAFailureTakesNothingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "reg")
		r.say("reg", Report{Entries: named("b", "a")})
		r.want(t, "reg", "a,b settled=true")
		if got := r.times(); got != 1 {
			t.Errorf("told %d times, want once", got)
		}
		r.say("reg", Report{Unchanged: true})
		r.say("reg", Report{Entries: named("a", "b")})
		if got := r.times(); got != 1 {
			t.Errorf("told %d times of what did not change", got)
		}
		time.Sleep(90 * time.Second)
		r.say("reg", Report{Err: errors.New("status 500")})
		r.want(t, "reg", "a,b settled=true")
		want := []compile.Problem{{Code: compile.CodeSourceStale, Subject: "reg",
			Text: "the last good answer is 1m30s old and stays in force (2 backends): status 500"}}
		if diff := cmp.Diff(want, r.Problems()); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
		tooMany := make([]Entry, MaxEntries+1)
		r.say("reg", Report{Entries: tooMany})
		r.want(t, "reg", "a,b settled=true")
		if got := r.times(); got != 1 {
			t.Errorf("told %d times of failures", got)
		}
		err := testutil.GatherAndCompare(r.reg, strings.NewReader(`
# HELP weir_source_up 1 if the latest look at the source succeeded; 0: its last good backends stay in force.
# TYPE weir_source_up gauge
weir_source_up{source="reg"} 0
# HELP weir_source_backends Backends that the source names, as of its last good answer.
# TYPE weir_source_backends gauge
weir_source_backends{source="reg"} 2
# HELP weir_source_looks_total Looks at the source, by result: ok, unchanged, failed.
# TYPE weir_source_looks_total counter
weir_source_looks_total{result="failed",source="reg"} 2
weir_source_looks_total{result="ok",source="reg"} 2
weir_source_looks_total{result="unchanged",source="reg"} 1
`), "weir_source_up", "weir_source_backends", "weir_source_looks_total")
		if err != nil {
			t.Error(err)
		}
		r.say("reg", Report{Entries: []Entry{}}) // it says so itself
		r.want(t, "reg", " settled=true")
		if got := codesOf(r.Problems()); got != nil {
			t.Errorf("problems of a source that answers: %v", got)
		}
	})
}

// A source that does not answer settles only once what stands published was read, so that nothing is taken away before.
func TestASourceSettles(t *testing.T) {
	standing := map[string][]Entry{"reg": named("x", "y")}
	for name, tt := range map[string]struct {
		do   func(*rig)
		want string
	}{
		"nothing happened":                      {func(*rig) {}, " settled=false"},
		"it answered":                           {func(r *rig) { r.say("reg", Report{Entries: named("a")}) }, "a settled=true"},
		"it failed, the store was not read":     {func(r *rig) { r.say("reg", Report{Err: errors.New("x")}) }, " settled=false"},
		"it failed, then the store was read":    {func(r *rig) { r.say("reg", Report{Err: errors.New("x")}); r.Seed(standing) }, "x,y settled=true"},
		"the store was read, it did not answer": {func(r *rig) { r.Seed(standing) }, "x,y settled=false"},
		"the store was read, the grace passed":  {func(r *rig) { r.Seed(standing); time.Sleep(16 * time.Second) }, "x,y settled=true"},
		"the grace passed, the store was not read": {
			func(*rig) { time.Sleep(16 * time.Second) }, " settled=false",
		},
		"it answered, then the store was read": {
			func(r *rig) { r.say("reg", Report{Entries: named("a")}); r.Seed(standing) }, "a settled=true",
		},
		"the store was empty": {func(r *rig) { r.Seed(nil); r.say("reg", Report{Err: errors.New("x")}) }, " settled=true"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "reg")
				tt.do(r)
				synctest.Wait()
				r.want(t, "reg", tt.want)
			})
		})
	}
}

// A replica whose source fails follows what the leader publishes; when the source is back, and says "unchanged", that means what it
// said last.
func TestAFailingSourceFollowsWhatStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "reg")
		r.say("reg", Report{Entries: named("a")})
		if r.Failing() {
			t.Error("it is failing")
		}
		r.say("reg", Report{Err: errors.New("away")})
		if !r.Failing() {
			t.Error("it is not failing")
		}
		r.Seed(map[string][]Entry{"reg": named("a", "b"), "other": named("c")})
		r.want(t, "reg", "a,b settled=true")
		r.say("reg", Report{Unchanged: true})
		r.want(t, "reg", "a settled=true")
	})
}

func TestReconfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "one", "two")
		r.say("one", Report{Entries: named("a")})
		r.say("two", Report{Entries: named("b")})
		next := sources("one", "two")
		next[0].HTTP.URL = "https://elsewhere.example/"
		r.Configure(next)
		synctest.Wait()
		r.want(t, "one", "a settled=true") // until it answers anew
		r.want(t, "two", "b settled=true")
		if r.opened != 3 {
			t.Errorf("opened %d times, want only the changed one anew", r.opened)
		}
		r.say("one", Report{Entries: named("c")})
		r.want(t, "one", "c settled=true")
		r.Configure(next[1:])
		synctest.Wait()
		r.want(t, "one", "none")
		if n, err := testutil.GatherAndCount(r.reg, "weir_source_up"); err != nil || n != 1 {
			t.Errorf("%d sources in the metrics (%v), want 1", n, err)
		}
	})
}

func TestASourceThatEndsIsBegunAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "reg")
		r.say("reg", Report{Entries: named("a")})
		r.scripts["reg"].ends <- errors.New("connection lost")
		synctest.Wait()
		r.want(t, "reg", "a settled=true")
		if got := codesOf(r.Problems()); !slices.Equal(got, []string{compile.CodeSourceStale}) {
			t.Errorf("problems = %v", got)
		}
		time.Sleep(5 * time.Second)
		r.say("reg", Report{Entries: named("b")})
		r.want(t, "reg", "b settled=true")
	})
}

func TestAKindThatIsNotBuiltInIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Configure([]config.Source{{Name: "k", Kubernetes: &config.KubernetesSource{}}})
		r.Seed(nil)
		synctest.Wait()
		r.want(t, "k", " settled=true")
		if got := r.Problems(); len(got) != 1 || !strings.Contains(got[0].Text, "no sources of kind kubernetes") {
			t.Errorf("problems = %v", got)
		}
	})
}

func TestStanding(t *testing.T) {
	backend := func(url, source string) routes.Backend {
		return routes.Backend{URL: url, Discovered: source != "", Source: source}
	}
	got := Standing(map[routes.HostID]*routes.VirtualHost{
		"b": {Backends: map[routes.BackendID]routes.Backend{"x": backend("https://later.example", "reg"), "z": backend("https://z.example", "k8s")}},
		"a": {Backends: map[routes.BackendID]routes.Backend{"x": backend("https://x.example", "reg"), "own": backend("https://own.example", "")}},
	})
	want := map[string][]Entry{"reg": {{Name: "x", URL: "https://x.example"}}, "k8s": {{Name: "z", URL: "https://z.example"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
