package routes_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weir-mcp/weir/routes"
)

const hours = time.Hour

func TestADigestStandsForOneID(t *testing.T) {
	// Records outlive versions: this must never change. It is the plain SHA-256 of the id.
	if got, want := routes.TaskDigest("t1"), "628b49d96dcde97a430dd4f597705899e09a968f793491e4b704cae33a40dc02"; got != want {
		t.Errorf("TaskDigest = %s, want %s", got, want)
	}
	seen := map[string]string{}
	for _, id := range []string{"bc", "c", "", " ", "b\x00c", "bC", strings.Repeat("x", 1<<16)} {
		d := routes.TaskDigest(id)
		if other, twice := seen[d]; len(d) != 64 || twice {
			t.Errorf("%q has the digest %q, as %q", id, d, other)
		}
		seen[d] = id
	}
}

func TestATaskIsRememberedSomewhatLongerThanItsBackendPromises(t *testing.T) {
	for name, tt := range map[string]struct {
		ttl       time.Duration
		unlimited bool
		want      time.Duration
	}{
		"nothing said":            {0, false, routes.MinTaskLife},
		"nonsense":                {-hours, false, routes.MinTaskLife},
		"a minute":                {time.Minute, false, routes.MinTaskLife},
		"two days":                {48 * hours, false, 49 * hours},
		"a year":                  {365 * 24 * hours, false, routes.MaxTaskLife},
		"just under the most":     {routes.MaxTaskLife - time.Second, false, routes.MaxTaskLife},
		"more than can be said":   {1<<63 - 1, false, routes.MaxTaskLife},
		"unlimited":               {0, true, routes.MaxTaskLife},
		"unlimited, and a number": {time.Minute, true, routes.MaxTaskLife},
	} {
		if got := routes.TaskLife(tt.ttl, tt.unlimited); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// entry makes one from "principal source backend".
func entry(text string) routes.TaskOwner {
	f := strings.Fields(text)
	return routes.TaskOwner{Principal: f[0], Source: routes.TaskSource(f[1]), Backend: routes.BackendID(f[2]), Life: hours}
}

func TestWhatARecordMeansToAPrincipal(t *testing.T) {
	claim, probe, deny := routes.TaskPolicy{}, routes.TaskPolicy{Unrecorded: "probe"}, routes.TaskPolicy{Unrecorded: "deny"}
	for name, tt := range map[string]struct {
		record string // entries, with "; " between them
		policy routes.TaskPolicy
		not    string // the backend that the token does not cover
		want   string // the entry that leads on
		held   []routes.BackendID
		err    error
	}{
		"nothing is recorded":                             {"", claim, "", "", nil, nil},
		"the own task":                                    {"me mint a", claim, "", "me mint a", nil, nil},
		"the own task, claimed":                           {"me claim a", claim, "", "me claim a", nil, nil},
		"somebody else's":                                 {"you mint a", claim, "", "", []routes.BackendID{"a"}, nil},
		"somebody else's, claimed":                        {"you claim a", claim, "", "", []routes.BackendID{"a"}, nil},
		"one id at two backends":                          {"me mint a; you mint b", claim, "", "me mint a", []routes.BackendID{"b"}, nil},
		"one id of two principals at one backend":         {"me mint a; you mint a", claim, "", "me mint a", []routes.BackendID{"a"}, nil},
		"the own id at two backends":                      {"me mint a; me mint b", claim, "", "", nil, routes.ErrAmbiguousTask},
		"the own id at two backends, both claimed":        {"me claim a; me claim b", claim, "", "", nil, routes.ErrAmbiguousTask},
		"an own mint outranks an own claim":               {"me claim a; me mint b", claim, "", "me mint b", nil, nil},
		"another's mint outranks an own claim":            {"me claim a; you mint a", claim, "", "", []routes.BackendID{"a"}, nil},
		"and elsewhere it does not":                       {"me claim a; you mint b", claim, "", "me claim a", []routes.BackendID{"b"}, nil},
		"an outranked claim is not ambiguous":             {"me claim a; you mint a; me claim b", claim, "", "me claim b", []routes.BackendID{"a"}, nil},
		"a shared task":                                   {"* probe a", probe, "", "* probe a", nil, nil},
		"a shared task where none are shared any more":    {"* probe a", claim, "", "", nil, nil},
		"the same, where nobody may":                      {"* probe a", deny, "", "", nil, nil},
		"what stands recorded is no matter of the policy": {"me claim a", deny, "", "me claim a", nil, nil},
		"a claim outranks a shared one":                   {"* probe a; you claim a", probe, "", "", []routes.BackendID{"a"}, nil},
		"an own claim outranks a shared one elsewhere":    {"* probe a; me claim b", probe, "", "me claim b", nil, nil},
		"two shared ones":                                 {"* probe a; * probe b", probe, "", "", nil, routes.ErrAmbiguousTask},
		"a token that does not cover the tool":            {"me mint a", claim, "a", "", []routes.BackendID{"a"}, nil},
		"a token that covers one of two":                  {"me mint a; me mint b", claim, "a", "me mint b", []routes.BackendID{"a"}, nil},
		"a shared task that the token does not cover":     {"* probe a", probe, "a", "", []routes.BackendID{"a"}, nil},
		"what a later version wrote":                      {"me lease a; you mint b", claim, "", "", []routes.BackendID{"b"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var r routes.TaskRecord
			for text := range strings.SplitSeq(tt.record, "; ") {
				if text != "" {
					r = append(r, entry(text))
				}
			}
			for range 2 { // in either order
				v, err := r.For("me", tt.policy, func(o *routes.TaskOwner) bool { return string(o.Backend) != tt.not })
				got := ""
				if v.Owner != nil {
					got = v.Owner.Principal + " " + string(v.Owner.Source) + " " + string(v.Owner.Backend)
				}
				if got != tt.want || !errors.Is(err, tt.err) {
					t.Errorf("For = %q, %v; want %q, %v", got, err, tt.want, tt.err)
				}
				if diff := cmp.Diff(tt.held, v.Held); diff != "" {
					t.Errorf("held (-want +got):\n%s", diff)
				}
				slices.Reverse(r)
			}
		})
	}
}

// genRecord makes what a store may hold: one entry for each principal and backend.
func genRecord(t *rapid.T) routes.TaskRecord {
	var r routes.TaskRecord
	for _, principal := range []string{"me", "you", "they", routes.AnyPrincipal} {
		for _, backend := range []routes.BackendID{"a", "b", "c"} {
			sources := []routes.TaskSource{"", routes.TaskMinted, routes.TaskClaimed}
			if principal == routes.AnyPrincipal {
				sources = []routes.TaskSource{"", routes.TaskShared}
			}
			if source := rapid.SampledFrom(sources).Draw(t, principal+" at "+string(backend)); source != "" {
				r = append(r, routes.TaskOwner{Principal: principal, Backend: backend, Source: source, Life: hours})
			}
		}
	}
	return r
}

// What must hold of any record, said without the ranks that the code goes by.
func TestNoRecordLetsAnybodyPastAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRecord(t)
		policy := routes.TaskPolicy{Unrecorded: rapid.SampledFrom([]string{"", "claim", "probe", "deny"}).Draw(t, "policy")}
		covered := rapid.SliceOfDistinct(rapid.SampledFrom([]routes.BackendID{"a", "b", "c"}), rapid.ID).Draw(t, "covered")
		may := func(o *routes.TaskOwner) bool { return slices.Contains(covered, o.Backend) }
		v, err := r.For("me", policy, may)

		others := func(source routes.TaskSource, backend routes.BackendID) bool {
			return slices.ContainsFunc(r, func(o routes.TaskOwner) bool {
				return o.Principal != "me" && o.Source == source && o.Backend == backend
			})
		}
		mine := func(source routes.TaskSource) (backends []routes.BackendID) {
			for _, o := range r {
				if o.Principal == "me" && o.Source == source && may(&o) {
					backends = append(backends, o.Backend)
				}
			}
			return backends
		}
		if err != nil && (v.Owner != nil || !errors.Is(err, routes.ErrAmbiguousTask)) {
			t.Fatalf("For = %+v, %v", v, err)
		}
		if o := v.Owner; o != nil {
			switch {
			case o.Principal != "me" && (o.Source != routes.TaskShared || policy.Unrecorded != "probe"):
				t.Fatalf("it leads to somebody else's task, %+v", o)
			case !may(o):
				t.Fatalf("it leads to %+v, which the token does not cover", o)
			case o.Source != routes.TaskMinted && others(routes.TaskMinted, o.Backend):
				t.Fatalf("it leads to %+v, which another made", o)
			case o.Source == routes.TaskShared && others(routes.TaskClaimed, o.Backend):
				t.Fatalf("it leads to %+v, which another claimed", o)
			}
		}
		switch made := mine(routes.TaskMinted); {
		case len(made) == 1 && (v.Owner == nil || v.Owner.Backend != made[0] || v.Owner.Source != routes.TaskMinted):
			t.Fatalf("it leads to %+v, not to the principal's own task at %q", v.Owner, made[0])
		case len(made) > 1 && err == nil:
			t.Fatalf("it leads to %+v, where the principal's own task is at %q", v.Owner, made)
		}
		if !slices.IsSorted(v.Held) || len(slices.Compact(slices.Clone(v.Held))) != len(v.Held) {
			t.Fatalf("held %q", v.Held)
		}
		for _, backend := range []routes.BackendID{"a", "b", "c"} {
			if err == nil && (others(routes.TaskMinted, backend) || others(routes.TaskClaimed, backend)) && !slices.Contains(v.Held, backend) {
				t.Fatalf("%q may be asked, where the task is another's", backend)
			}
		}

		// The order of entries means nothing, and what others do opens no door.
		shuffled := rapid.Permutation(r).Draw(t, "order")
		again, againErr := routes.TaskRecord(shuffled).For("me", policy, may)
		if diff := cmp.Diff(v, again); diff != "" || !errors.Is(againErr, err) {
			t.Fatalf("in another order %v (-first +second):\n%s", againErr, diff)
		}
		alone := slices.DeleteFunc(slices.Clone(r), func(o routes.TaskOwner) bool { return o.Principal == "you" || o.Principal == "they" })
		before, beforeErr := alone.For("me", policy, may)
		if beforeErr == nil && before.Owner == nil && (v.Owner != nil || err != nil) {
			t.Fatalf("others' entries let the principal through to %+v, %v", v.Owner, err)
		}
		stranger, strangerErr := r.For("nobody", routes.TaskPolicy{}, func(*routes.TaskOwner) bool { return true })
		if stranger.Owner != nil || strangerErr != nil {
			t.Fatalf("a stranger gets to %+v, %v", stranger.Owner, strangerErr)
		}
	})
}

func TestNoStoreIsGivenABadOwner(t *testing.T) {
	good := routes.TaskOwner{Principal: "p", Backend: "b", Source: routes.TaskMinted, Life: hours, Tool: "ünï", Session: "s"}
	if err := good.Validate(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, change := range map[string]func(*routes.TaskOwner){
		"no principal":           func(o *routes.TaskOwner) { o.Principal = "" },
		"a principal in two":     func(o *routes.TaskOwner) { o.Principal = "a/b" },
		"a principal in words":   func(o *routes.TaskOwner) { o.Principal = "a b" },
		"everybody's mint":       func(o *routes.TaskOwner) { o.Principal = routes.AnyPrincipal },
		"somebody's shared task": func(o *routes.TaskOwner) { o.Source = routes.TaskShared },
		"no backend":             func(o *routes.TaskOwner) { o.Backend = "" },
		"a bad backend":          func(o *routes.TaskOwner) { o.Backend = "A" },
		"no source":              func(o *routes.TaskOwner) { o.Source = "" },
		"another source":         func(o *routes.TaskOwner) { o.Source = "lease" },
		"no life":                func(o *routes.TaskOwner) { o.Life = 0 },
		"too short a life":       func(o *routes.TaskOwner) { o.Life = time.Second - 1 },
		"too long a life":        func(o *routes.TaskOwner) { o.Life = routes.MaxTaskLife + 1 },
		"a long session":         func(o *routes.TaskOwner) { o.Session = strings.Repeat("s", routes.MaxTaskText+1) },
		"a tool that is no text": func(o *routes.TaskOwner) { o.Tool = "\xff" },
	} {
		o := good
		change(&o)
		if o.Validate() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
