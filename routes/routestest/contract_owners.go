package routestest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

// TaskKeeper records whose a task is.
type TaskKeeper interface {
	RecordTask(ctx context.Context, host routes.HostID, id string, o routes.TaskOwner) error
	ClaimTask(ctx context.Context, host routes.HostID, id string, o routes.TaskOwner) (routes.TaskRecord, error)
	TaskRecord(ctx context.Context, host routes.HostID, id, principal string) (routes.TaskRecord, error)
}

// TaskLister tells of many tasks.
type TaskLister interface {
	PrincipalTasks(ctx context.Context, host routes.HostID, principal string) ([]routes.TaskEntry, error)
	HostTasks(ctx context.Context, host routes.HostID, limit int) (routes.HostTasks, error)
}

// Owners is a store of owner records.
type Owners interface {
	TaskKeeper
	TaskLister
}

// OwnersFixture is one empty store, as OwnersContract sees it.
type OwnersFixture struct {
	// NewOwners makes one as another process would have.
	NewOwners func(t *testing.T, most OwnerLimits) Owners
	// Flush loses all data.
	Flush func(t *testing.T)
}

// OwnerLimits are how many live tasks a principal may have in a host, and how many entries a task; zero: routes.MaxTasks and
// routes.MaxTaskOwners.
type OwnerLimits struct{ Tasks, Entries int }

// OwnersContract runs the suite that every store of owner records passes; open returns an empty store each time.
func OwnersContract(t *testing.T, open func(t *testing.T) OwnersFixture) {
	groups := []map[string]func(*testing.T, *ownerBench){mintCases(), claimCases(), endCases(), boundCases(), listCases()}
	for _, cases := range groups {
		for name, run := range cases {
			t.Run(name, func(t *testing.T) {
				f := open(t)
				run(t, &ownerBench{OwnersFixture: f, ctx: t.Context(), o: f.NewOwners(t, OwnerLimits{})})
			})
		}
	}
}

// ownerBench is one store under test.
type ownerBench struct {
	OwnersFixture
	ctx context.Context
	o   Owners
}

// Principals and the host of the suite.
const (
	alice = "a11ce"
	bob   = "b0b"
	acme  = routes.HostID("acme")
)

// made is when the suite's tasks were made, unless it says otherwise.
func made() time.Time { return time.Date(2026, 8, 1, 12, 0, 0, 7e6, time.UTC) }

func minted(principal string, backend routes.BackendID) routes.TaskOwner {
	return routes.TaskOwner{Principal: principal, Backend: backend, Tool: "start", Source: routes.TaskMinted, Created: made(), Life: time.Hour}
}

func claimed(principal string, backend routes.BackendID) routes.TaskOwner {
	return routes.TaskOwner{Principal: principal, Backend: backend, Source: routes.TaskClaimed, Created: made(), Life: time.Hour}
}

func shared(backend routes.BackendID) routes.TaskOwner {
	return routes.TaskOwner{Principal: routes.AnyPrincipal, Backend: backend, Source: routes.TaskShared, Created: made(), Life: time.Hour}
}

// mint records one in host acme.
func (b *ownerBench) mint(t *testing.T, id string, o routes.TaskOwner) {
	t.Helper()
	if err := b.o.RecordTask(b.ctx, acme, id, o); err != nil {
		t.Fatalf("RecordTask(%q): %v", id, err)
	}
}

func (b *ownerBench) claim(t *testing.T, id string, o routes.TaskOwner) routes.TaskRecord {
	t.Helper()
	r, err := b.o.ClaimTask(b.ctx, acme, id, o)
	if err != nil {
		t.Fatalf("ClaimTask(%q): %v", id, err)
	}
	return r
}

func (b *ownerBench) record(t *testing.T, id, principal string) routes.TaskRecord {
	t.Helper()
	r, err := b.o.TaskRecord(b.ctx, acme, id, principal)
	if err != nil {
		t.Fatalf("TaskRecord(%q): %v", id, err)
	}
	return r
}

func (b *ownerBench) tasks(t *testing.T, principal string) []routes.TaskEntry {
	t.Helper()
	entries, err := b.o.PrincipalTasks(b.ctx, acme, principal)
	if err != nil {
		t.Fatalf("PrincipalTasks(%q): %v", principal, err)
	}
	return entries
}

func (b *ownerBench) host(t *testing.T, limit int) routes.HostTasks {
	t.Helper()
	view, err := b.o.HostTasks(b.ctx, acme, limit)
	if err != nil {
		t.Fatalf("HostTasks: %v", err)
	}
	return view
}

// wantRecord checks a record in any order, but for when its entries end: that is about their life from now.
func (b *ownerBench) wantRecord(t *testing.T, id string, want ...routes.TaskOwner) {
	t.Helper()
	sameRecord(t, want, b.record(t, id, "nobody"))
}

func sameRecord(t *testing.T, want, got routes.TaskRecord) {
	t.Helper()
	order := func(r routes.TaskRecord) routes.TaskRecord {
		r = slices.Clone(r)
		slices.SortFunc(r, func(a, b routes.TaskOwner) int {
			return cmp.Or(strings.Compare(a.Principal, b.Principal), strings.Compare(string(a.Backend), string(b.Backend)))
		})
		return r
	}
	want, got = order(want), order(got)
	for i := range got {
		if left := time.Until(got[i].Expires); left < got[i].Life-patience || left > got[i].Life+patience {
			t.Errorf("the entry of %q at %q ends in %v, want about %v", got[i].Principal, got[i].Backend, left, got[i].Life)
		}
		got[i].Expires = time.Time{}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

// wantTasks checks which tasks a principal holds, by their ids, in order of when they were made.
func (b *ownerBench) wantTasks(t *testing.T, principal string, ids ...string) {
	t.Helper()
	var want, got []string
	for _, id := range ids {
		want = append(want, routes.TaskDigest(id))
	}
	for _, e := range b.tasks(t, principal) {
		if e.Principal != principal {
			t.Errorf("PrincipalTasks(%q) has an entry of %q", principal, e.Principal)
		}
		got = append(got, e.Task)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("PrincipalTasks(%q) (-want +got):\n%s", principal, diff)
	}
}

func wantOwner(t *testing.T, r routes.TaskRecord, principal string, backend routes.BackendID, held ...routes.BackendID) {
	t.Helper()
	v, err := r.For(principal, routes.TaskPolicy{Unrecorded: "probe"}, func(*routes.TaskOwner) bool { return true })
	if err != nil {
		t.Errorf("For(%q): %v", principal, err)
		return
	}
	switch {
	case backend == "" && v.Owner != nil:
		t.Errorf("For(%q) leads to %q, want nowhere", principal, v.Owner.Backend)
	case backend != "" && (v.Owner == nil || v.Owner.Backend != backend):
		t.Errorf("For(%q) leads to %+v, want %q", principal, v.Owner, backend)
	}
	if diff := gocmp.Diff(held, v.Held); diff != "" {
		t.Errorf("For(%q): held (-want +got):\n%s", principal, diff)
	}
}
