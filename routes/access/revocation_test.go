package access

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

var _ RevocationStore = (*routestest.Memory)(nil)
var _ RevocationWriter = (*routestest.Memory)(nil)

// noon is when a synctest bubble begins, about.
var noon = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func ofToken(jti string, until time.Duration) routes.Revocation {
	return routes.Revocation{Issuer: "idp", TokenID: jti, Until: noon.Add(until)}
}

func ofSubject(subject string, before, until time.Duration) routes.Revocation {
	return routes.Revocation{Issuer: "idp", Subject: subject, IssuedBefore: noon.Add(before), Until: noon.Add(until)}
}

func TestWhatIsRevoked(t *testing.T) {
	token := func(jti, subject string, issued time.Duration) *Identity {
		return &Identity{Issuer: "idp", TokenID: jti, Subject: subject, IssuedAt: noon.Add(issued)}
	}
	for name, tt := range map[string]struct {
		list []routes.Revocation
		now  time.Duration // after noon
		id   *Identity
		want bool
	}{
		"nothing":                          {nil, 0, token("t", "s", 0), false},
		"the token":                        {[]routes.Revocation{ofToken("t", 9)}, 8, token("t", "s", 0), true},
		"another token":                    {[]routes.Revocation{ofToken("t", 9)}, 8, token("u", "s", 0), false},
		"a token without jti":              {[]routes.Revocation{ofToken("t", 9)}, 8, token("", "s", 0), false},
		"a jti that is another's subject":  {[]routes.Revocation{ofToken("s", 9)}, 8, token("t", "s", 0), false},
		"the same jti of another issuer":   {[]routes.Revocation{ofToken("t", 9)}, 8, &Identity{Issuer: "other", TokenID: "t"}, false},
		"it has ended":                     {[]routes.Revocation{ofToken("t", 9)}, 9, token("t", "s", 0), false},
		"the later end counts":             {[]routes.Revocation{ofToken("t", 20), ofToken("t", 9)}, 10, token("t", "s", 0), true},
		"the subject":                      {[]routes.Revocation{ofSubject("s", 5, 9)}, 8, token("t", "s", 4), true},
		"issued at that moment":            {[]routes.Revocation{ofSubject("s", 5, 9)}, 8, token("t", "s", 5), false},
		"another subject":                  {[]routes.Revocation{ofSubject("s", 5, 9)}, 8, token("t", "r", 4), false},
		"the subject at another issuer":    {[]routes.Revocation{ofSubject("s", 5, 9)}, 8, &Identity{Issuer: "other", Subject: "s"}, false},
		"a token that does not say when":   {[]routes.Revocation{ofSubject("s", 5, 9)}, 8, &Identity{Issuer: "idp", Subject: "s"}, true},
		"a ban in the future":              {[]routes.Revocation{ofSubject("s", 100, 9)}, 8, token("t", "s", 50), true},
		"the longer one does not lend":     {[]routes.Revocation{ofSubject("s", 5, 90), ofSubject("s", 50, 9)}, 10, token("t", "s", 6), false},
		"the longer one goes on":           {[]routes.Revocation{ofSubject("s", 5, 90), ofSubject("s", 50, 9)}, 10, token("t", "s", 4), true},
		"the later one while it runs":      {[]routes.Revocation{ofSubject("s", 5, 90), ofSubject("s", 50, 9)}, 8, token("t", "s", 6), true},
		"of many the one that runs":        {[]routes.Revocation{ofSubject("s", 1, 90), ofSubject("s", 2, 80), ofSubject("s", 3, 70)}, 75, token("t", "s", 1), true},
		"of many none that runs covers it": {[]routes.Revocation{ofSubject("s", 3, 70), ofSubject("s", 1, 90), ofSubject("s", 2, 80)}, 75, token("t", "s", 2), false},
	} {
		t.Run(name, func(t *testing.T) {
			var s revoked
			s.init()
			s.merge(tt.list, noon)
			now := func() time.Time { return noon.Add(tt.now) }
			if got := s.has(tt.id, now); got != tt.want {
				t.Errorf("revoked: %v, want %v", got, tt.want)
			}
			s.sweep(now())
			if got := s.has(tt.id, now); got != tt.want {
				t.Errorf("revoked after a sweep: %v, want %v", got, tt.want)
			}
			if n := len(s.all(now())); n != s.size() {
				t.Errorf("%d are counted, %d there", s.size(), n)
			}
		})
	}
}

func TestSweepForgetsAllThatEnded(t *testing.T) {
	var s revoked
	s.init()
	s.merge([]routes.Revocation{ofToken("a", 5), ofToken("b", 50), ofSubject("s", 1, 50), ofSubject("s", 2, 5), ofSubject("r", 1, 5)}, noon)
	if s.size() != 5 {
		t.Errorf("%d are known, want 5", s.size())
	}
	s.sweep(noon.Add(10))
	if s.size() != 2 || len(s.tokens) != 1 || len(s.subjects) != 1 {
		t.Errorf("%d are left: %v, %v; want b and the longer one of s", s.size(), s.tokens, s.subjects)
	}
	s.sweep(noon.Add(100))
	if s.size() != 0 || len(s.tokens)+len(s.subjects) != 0 {
		t.Errorf("%d are left: %v, %v", s.size(), s.tokens, s.subjects)
	}
}

// keeper is a Revocations that runs in a bubble before a store in memory.
type keeper struct {
	*Revocations
	store  *routestest.Memory
	errors []error
}

func newKeeper(t *testing.T, o RevocationOptions, store *routestest.Memory) *keeper {
	t.Helper()
	k := &keeper{store: store}
	o.Store = store
	o.OnError = func(err error) { k.errors = append(k.errors, err) }
	var err error
	if k.Revocations, err = NewRevocations(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return k
}

func (k *keeper) revoke(t *testing.T, list ...routes.Revocation) {
	t.Helper()
	if err := k.store.Revoke(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (k *keeper) refuses(jti string) bool { return k.Revoked(&Identity{Issuer: "idp", TokenID: jti}) }

func TestRevocationsAreReadAndFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := routestest.NewMemory()
		store.SetDown(true)
		if err := errors.Join(store.Revoke(t.Context(), nil)); err == nil {
			t.Fatal("the store is not down")
		}
		k := newKeeper(t, RevocationOptions{}, store)
		synctest.Wait()
		if err := k.Confirm(t.Context()); err == nil {
			t.Error("confirmed before anything was read")
		}
		store.SetDown(false)
		if err := store.Revoke(t.Context(), []routes.Revocation{ofToken("before", time.Hour)}); err != nil {
			t.Fatal(err)
		}
		<-k.Loaded()
		synctest.Wait()
		if err := k.Confirm(t.Context()); err != nil || k.Age() != 0 {
			t.Errorf("Confirm: %v, age %v", err, k.Age())
		}
		k.revoke(t, ofToken("after", time.Hour))
		if !k.refuses("before") || !k.refuses("after") || k.refuses("other") {
			t.Errorf("before, after, other: %v, %v, %v", k.refuses("before"), k.refuses("after"), k.refuses("other"))
		}
		time.Sleep(2 * time.Hour)
		if k.refuses("before") || k.Len() != 0 {
			t.Errorf("ended ones: refused %v, %d kept", k.refuses("before"), k.Len())
		}
	})
}

func TestWhatTheStoreLosesIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := routestest.NewMemory()
		data, control := newKeeper(t, RevocationOptions{}, store), newKeeper(t, RevocationOptions{Writer: store}, store)
		<-data.Loaded()
		<-control.Loaded()
		data.revoke(t, ofToken("a", time.Hour), ofSubject("s", time.Hour, time.Hour), ofToken("short", time.Second))
		time.Sleep(2 * time.Second)
		store.Flush()
		store.Disconnect()
		synctest.Wait()
		if !data.refuses("a") || !control.refuses("a") {
			t.Error("a revocation was forgotten with the store's data")
		}
		// A plane that starts now gets all that still runs from the control plane.
		late := newKeeper(t, RevocationOptions{}, store)
		<-late.Loaded()
		synctest.Wait()
		got := late.All()
		slices.SortFunc(got, func(a, b routes.Revocation) int { return strings.Compare(a.TokenID, b.TokenID) })
		if diff := cmp.Diff([]routes.Revocation{ofSubject("s", time.Hour, time.Hour), ofToken("a", time.Hour)}, got); diff != "" {
			t.Errorf("what is in force at a plane that started late (-want +got):\n%s", diff)
		}
		if len(data.errors)+len(control.errors) > 0 {
			t.Errorf("errors: %v %v", data.errors, control.errors)
		}
	})
}

func TestALossThatNobodyTellsIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := routestest.NewMemory()
		k := newKeeper(t, RevocationOptions{Writer: store}, store)
		<-k.Loaded()
		gone, ended := ofToken("gone", time.Hour), ofToken("ended", time.Second)
		k.revoke(t, gone, ended)
		if err := store.DropRevocations(t.Context(), []string{gone.Key()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reloadEvery + time.Second)
		all, _, err := store.Revocations(t.Context())
		if diff := cmp.Diff([]routes.Revocation{gone}, all); diff != "" || err != nil {
			t.Errorf("the store has (-want +got), %v:\n%s", err, diff)
		}
	})
}

func TestRevocationsThatAreTooOldFailClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := routestest.NewMemory()
		bounded := newKeeper(t, RevocationOptions{FailClosedAfter: time.Minute}, store)
		unbounded := newKeeper(t, RevocationOptions{}, store)
		<-bounded.Loaded()
		<-unbounded.Loaded()
		synctest.Wait()
		store.SetDown(true)
		synctest.Wait()
		time.Sleep(time.Minute)
		if err := bounded.Confirm(t.Context()); err != nil || bounded.Age() != time.Minute {
			t.Errorf("after a minute: %v, age %v", err, bounded.Age())
		}
		time.Sleep(time.Second)
		if err := bounded.Confirm(t.Context()); err == nil {
			t.Error("no error after the bound")
		}
		if err := unbounded.Confirm(t.Context()); err != nil {
			t.Errorf("without a bound: %v", err)
		}
		store.SetDown(false)
		time.Sleep(reloadRetryMax)
		if err := bounded.Confirm(t.Context()); err != nil || bounded.Age() != 0 {
			t.Errorf("after the store came back: %v, age %v", err, bounded.Age())
		}
	})
}

// faulty is a store that fails while down is set, and has entries that can't be read.
type faulty struct {
	*routestest.Memory
	unreadable []string
	down       atomic.Bool
}

func (f *faulty) Revocations(ctx context.Context) ([]routes.Revocation, []string, error) {
	if f.down.Load() {
		return nil, nil, errors.New("boom")
	}
	all, _, err := f.Memory.Revocations(ctx)
	return all, f.unreadable, err
}

func TestAReadingThatFailsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		store := &faulty{Memory: routestest.NewMemory(), unreadable: []string{"key"}}
		store.down.Store(true)
		k, err := NewRevocations(RevocationOptions{Store: store, OnError: func(err error) { told = append(told, err.Error()) }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- k.Run(ctx) }()
		synctest.Wait()
		store.down.Store(false)
		<-k.Loaded()
		synctest.Wait()
		want := []string{"read revocations: boom", "1 revocations can't be read and are not in force, such as key"}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("errors (-want +got):\n%s", diff)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestVerifyAsksForRevocations(t *testing.T) {
	is := es256Issuer(t)
	unknown := errors.New("not read yet")
	var confirm error
	var out bool
	v := newVerifier(t, Options{Config: Config{Issuers: []Issuer{is}},
		Confirm: func(context.Context) error { return confirm }, Revoked: func(*Identity) bool { return out }})
	token := goodToken(t, nil)
	id, err := v.Verify(t.Context(), token, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		confirm error
		revoked bool
		want    error
	}{
		"fine": {nil, false, nil}, "revoked": {nil, true, ErrUnauthorized}, "not confirmed": {unknown, false, ErrUnconfirmed},
		"not confirmed outranks": {unknown, true, ErrUnconfirmed},
	} {
		t.Run(name, func(t *testing.T) {
			confirm, out = tt.confirm, tt.revoked
			if _, err := v.Verify(t.Context(), token, ""); !errors.Is(err, tt.want) {
				t.Errorf("Verify: %v, want %v", err, tt.want)
			}
			if err := v.Recheck(t.Context(), id, false); !errors.Is(err, tt.want) {
				t.Errorf("Recheck: %v, want %v", err, tt.want)
			}
		})
	}
}

func BenchmarkRevoked(b *testing.B) {
	for _, n := range []int{0, 1, 1000, routes.MaxRevocations} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			k := filled(b, n)
			id := &Identity{Issuer: "idp", TokenID: "someone else's", Subject: "somebody", IssuedAt: noon}
			b.ReportAllocs()
			for b.Loop() {
				if k.Revoked(id) {
					b.Fatal("revoked")
				}
			}
		})
	}
}

func filled(t testing.TB, n int) *Revocations {
	k, err := NewRevocations(RevocationOptions{Store: routestest.NewMemory()})
	if err != nil {
		t.Fatal(err)
	}
	list := make([]routes.Revocation, n)
	for i := range list {
		if list[i] = ofToken("token "+strconv.Itoa(i), 1e18); i%2 == 1 {
			list[i] = ofSubject("subject "+strconv.Itoa(i), 1e18, 1e18)
		}
	}
	k.known.merge(list, noon)
	return k
}

func TestAskingDoesNotAllocate(t *testing.T) {
	k := filled(t, 1000)
	k.isLoaded.Store(true)
	for name, id := range map[string]*Identity{
		"revoked":     {Issuer: "idp", TokenID: "token 0", Subject: "subject 1"},
		"not revoked": {Issuer: "idp", TokenID: "x", Subject: "y"},
	} {
		if n := testing.AllocsPerRun(100, func() {
			if k.Confirm(context.Background()) != nil || k.Revoked(id) != (name == "revoked") {
				t.Fail()
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
