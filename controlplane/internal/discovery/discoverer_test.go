package discovery

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
)

// awaitRound waits for the end of a round, which nobody is told of when nothing changed.
func (r *running) awaitRound(id routes.BackendID, ok func(*catalog.Catalog) bool) *catalog.Catalog {
	r.t.Helper()
	tick, deadline := time.NewTicker(time.Millisecond), time.After(patience)
	defer tick.Stop()
	for {
		if catalogs, _ := r.Snapshot(); catalogs[id] != nil && ok(catalogs[id]) {
			return catalogs[id]
		}
		select {
		case <-tick.C:
		case <-deadline:
			r.t.Fatalf("%s: no such round within %v", id, patience)
		}
	}
}

// counting is a modern backend with one tool that counts its lists.
func counting(t *testing.T, n *atomic.Int64) *httptest.Server {
	return handmade(t, modern(`{"tools":{}}`, func(request) reply {
		n.Add(1)
		return reply{result: tools(tool("a"))}
	}))
}

// hanging is a backend that takes requests and never answers; begun gets one value for each, if there is room.
func hanging(t *testing.T, begun chan<- struct{}) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server would not notice that its client left
		select {
		case begun <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return s
}

func TestHungBackendsDelayNobody(t *testing.T) {
	var rounds atomic.Int64
	backends := map[string]string{"good": counting(t, &rounds).URL}
	for i := range 8 {
		backends[fmt.Sprint("hung", i)] = hanging(t, nil).URL
	}
	d := run(t, Options{}, config.Discovery{Interval: 10 * time.Millisecond, Timeout: 200 * time.Millisecond, Parallel: 2}, backends)
	receive(t, d.FirstRound(), "first round")
	d.awaitUp("good")
	_, healths := d.Snapshot()
	if h := healths["hung0"]; h.Up || !strings.Contains(h.LastError, "timeout") || h.Checked.IsZero() {
		t.Errorf("a hung backend's health: %+v", h)
	}
	// From now on the hung ones keep a lane of their own busy all the time; the good one is looked at again and again.
	before := rounds.Load()
	d.awaitRound("good", func(*catalog.Catalog) bool { return rounds.Load() >= before+20 })
}

func TestSeededBackendsKeepTheirCatalog(t *testing.T) {
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	client, err := egress.New(egress.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var changes atomic.Int64
	d, err := New(Options{Client: client, Changed: func(routes.BackendID) { changes.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-time.Hour)
	seed := &catalog.Catalog{Backend: "b", Protocol: "2025-11-25", Handshake: routes.HandshakeNone, Taken: then,
		Tools: catalog.List{Items: []catalog.Item{{Name: "old"}}, Since: then}}
	d.Seed(map[routes.BackendID]*catalog.Catalog{"b": seed, "gone": seed, "nothing": nil})
	d.Configure(seldom, []config.Backend{{ID: "b", Route: routes.Backend{URL: dead.URL}}, {ID: "stdio", Stdio: &config.Stdio{Command: "x"}}})
	if catalogs, healths := d.Snapshot(); len(catalogs) != 1 || catalogs["b"] != seed || len(healths) != 0 {
		t.Errorf("before Run: %v, %v", catalogs, healths)
	}
	select {
	case <-d.FirstRound():
		t.Error("the first round is over before it began")
	default:
	}
	stop := start(t, d)
	receive(t, d.FirstRound(), "first round")
	catalogs, healths := d.Snapshot()
	c := catalogs["b"]
	if !c.Tools.Stale || c.Tools.Reason != "unreachable" || len(c.Tools.Items) != 1 || c.Handshake != routes.HandshakeNone || !c.Tools.Since.Equal(then) {
		t.Errorf("catalog %+v", c)
	}
	if healths["b"].Up || healths["b"].LastError == "" || len(catalogs) != 1 || seed.Tools.Stale {
		t.Errorf("healths %+v, catalogs %v", healths, catalogs)
	}
	if changes.Load() == 0 {
		t.Error("nobody was told")
	}
	d.Seed(map[routes.BackendID]*catalog.Catalog{"b": {Backend: "b"}})
	if again, _ := d.Snapshot(); again["b"] != c {
		t.Error("a seed took the place of a catalog")
	}
	stop()
	late, err := New(Options{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	late.Configure(seldom, []config.Backend{{ID: "b", Route: routes.Backend{URL: dead.URL}}})
	late.Seed(map[routes.BackendID]*catalog.Catalog{"b": seed})
	if catalogs, _ := late.Snapshot(); catalogs["b"] != seed {
		t.Error("a seed after Configure was not taken")
	}
}

func TestConfigureWhileRunning(t *testing.T) {
	var one, two, three atomic.Int64
	first, second, third := counting(t, &one), counting(t, &two), counting(t, &three)
	reg := prometheus.NewRegistry()
	d := run(t, Options{Registry: reg}, seldom, map[string]string{"a": first.URL, "z": first.URL})
	receive(t, d.FirstRound(), "first round")
	d.awaitUp("a")

	d.configure(seldom, map[string]string{"a": first.URL, "b": second.URL})
	d.awaitUp("b") // a new one at once, though the interval is an hour
	catalogs, healths := d.Snapshot()
	if len(catalogs) != 2 || len(healths) != 2 {
		t.Errorf("a removed backend is still there: %v", catalogs)
	}
	if d.Refresh("z") || d.Refresh("nobody") {
		t.Error("an unknown backend was refreshed")
	}
	if got := two.Load(); got != 1 {
		t.Errorf("the new backend was asked %d times", got)
	}
	want := `
# HELP weir_discovery_backend_up 1 if the backend answered the last time that it was discovered.
# TYPE weir_discovery_backend_up gauge
weir_discovery_backend_up{backend="a"} 1
weir_discovery_backend_up{backend="b"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "weir_discovery_backend_up"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg, "weir_discovery_items", "weir_discovery_stale"); err != nil || n != 16 {
		t.Errorf("%d gauges of lists, %v; want 16", n, err)
	}

	d.configure(seldom, map[string]string{"a": third.URL, "b": second.URL})
	d.awaitRound("a", func(*catalog.Catalog) bool { return three.Load() > 0 }) // a changed one at once
	if one.Load() != 2 || two.Load() != 1 {
		t.Errorf("unchanged backends were asked again: %d, %d", one.Load(), two.Load())
	}
}

func TestRemovingAHungBackendEndsItsRound(t *testing.T) {
	begun := make(chan struct{}, 1)
	d := run(t, Options{}, seldom, map[string]string{"hung": hanging(t, begun).URL})
	receive(t, begun, "the round")
	d.configure(seldom, nil)
	receive(t, d.FirstRound(), "first round")
	if catalogs, healths := d.Snapshot(); len(catalogs)+len(healths) != 0 {
		t.Errorf("%v, %v", catalogs, healths)
	}
	// Had its round gone on, the one slot would be taken for half a minute and longer.
	d.configure(config.Discovery{Interval: time.Hour, Timeout: time.Hour, Parallel: 1}, map[string]string{"b": counting(t, new(atomic.Int64)).URL})
	d.awaitUp("b")
}

func TestABackendThatComesAndGoes(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	s := handmade(t, func(r request) reply {
		if down.Load() {
			return reply{status: http.StatusServiceUnavailable}
		}
		return modern(`{"tools":{}}`, func(request) reply { return reply{result: tools(tool("a"))} })(r)
	})
	d := run(t, Options{}, often, map[string]string{"b": s.URL})
	receive(t, d.FirstRound(), "first round")
	if catalogs, healths := d.Snapshot(); len(catalogs) != 0 || healths["b"].Up {
		t.Errorf("never heard of: %v, %v", catalogs, healths)
	}
	down.Store(false)
	d.awaitUp("b") // by itself
	down.Store(true)
	c := d.await("b", "down", func(_ *catalog.Catalog, h catalog.Health) bool { return !h.Up })
	if !c.Tools.Stale || c.Tools.Reason != "overloaded (HTTP 503)" || len(c.Tools.Items) != 1 {
		t.Errorf("%+v", c)
	}
	down.Store(false)
	d.await("b", "up again", func(c *catalog.Catalog, h catalog.Health) bool { return h.Up && !c.Tools.Stale })
}

func TestABackendThatChangesItsEra(t *testing.T) {
	var old atomic.Bool
	list := func(request) reply { return reply{result: `{"tools":[` + tool("a") + `]}`} }
	s := handmade(t, func(r request) reply {
		if old.Load() {
			return legacy(`{"tools":{}}`, list)(r)
		}
		return modern(`{"tools":{}}`, list)(r)
	})
	d := run(t, Options{}, seldom, map[string]string{"b": s.URL})
	speaks := func(version string, h routes.Handshake) {
		t.Helper()
		d.await("b", version, func(c *catalog.Catalog, _ catalog.Health) bool {
			return c != nil && c.Protocol == version && c.Handshake == h
		})
	}
	speaks("2026-07-28", "")
	old.Store(true)
	d.Refresh("b")
	speaks("2025-11-25", routes.HandshakeNone)
	old.Store(false)
	d.Refresh("b")
	speaks("2026-07-28", "")
}

func TestNothingChangedNobodyIsTold(t *testing.T) {
	var rounds atomic.Int64
	var told atomic.Int64
	s := counting(t, &rounds)
	client, err := egress.New(egress.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	d, err := New(Options{Client: client, Changed: func(routes.BackendID) { told.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	d.Configure(config.Discovery{Interval: time.Millisecond, Timeout: patience, Parallel: 1}, []config.Backend{{ID: "b", Route: routes.Backend{URL: s.URL}}})
	defer start(t, d)()
	r := &running{Discoverer: d, t: t}
	r.awaitRound("b", func(*catalog.Catalog) bool { return rounds.Load() >= 10 })
	if got := told.Load(); got != 1 {
		t.Errorf("told %d times of one change", got)
	}
}

func TestNoBackends(t *testing.T) {
	d := run(t, Options{}, seldom, nil)
	receive(t, d.FirstRound(), "first round")
	if _, err := New(Options{}); err == nil {
		t.Error("New without a client")
	}
}

func TestRhythm(t *testing.T) {
	failure := func(after time.Duration) error {
		return fmt.Errorf("open: %w", &egress.Failure{Reason: "x", RetryAfter: after})
	}
	r := newRhythm(func(d time.Duration) time.Duration { return d + 1 })
	if got := r.pause(time.Minute, nil); got != time.Minute+1 {
		t.Errorf("after a good round: %v, want the interval with its jitter", got)
	}
	var last time.Duration
	for i := range 20 {
		got := r.pause(time.Minute, errors.New("down"))
		if got <= 0 || got > time.Minute || i == 0 && got > 2*firstRetry {
			t.Errorf("retry %d after %v", i, got)
		}
		last = got
	}
	if last < 20*time.Second {
		t.Errorf("retries are still after %v", last)
	}
	_ = r.pause(time.Minute, nil)
	if got := r.pause(time.Minute, errors.New("down")); got > 2*firstRetry {
		t.Errorf("the first retry after a good round comes after %v", got)
	}
	if got := r.pause(time.Minute, failure(2*time.Minute)); got != 2*time.Minute {
		t.Errorf("the backend asked for 2m and got %v", got)
	}
	if got := r.pause(time.Minute, failure(time.Hour)); got != maxRetryAfter {
		t.Errorf("the backend asked for an hour and got %v", got)
	}
	if got := r.pause(10*time.Millisecond, errors.New("down")); got > 10*time.Millisecond {
		t.Errorf("a retry after %v is later than the interval", got)
	}
}

func TestDescribe(t *testing.T) {
	long := describe(errors.New("a\nb" + strings.Repeat("é", 600) + "\xff"))
	if !strings.HasPrefix(long, "a; b") || len(long) > maxDescription+3 || strings.ToValidUTF8(long, "?") != long {
		t.Errorf("%q", long)
	}
	reasons := map[string]error{
		"timeout": &egress.Failure{Reason: "timeout"}, "error -1": fmt.Errorf("x: %w", &egress.RPCError{Code: -1}),
		"loop": broken("loop", "x"), "bad_response": errors.New("x"),
	}
	got := map[string]error{}
	for _, err := range reasons {
		got[reasonOf(err)] = err
	}
	if diff := cmp.Diff(len(reasons), len(got)); diff != "" {
		t.Errorf("reasons %v", got)
	}
	for want, err := range reasons {
		if reasonOf(err) != want {
			t.Errorf("reasonOf(%v) = %q, want %q", err, reasonOf(err), want)
		}
	}
}
