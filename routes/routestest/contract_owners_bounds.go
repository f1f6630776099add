package routestest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/weir-mcp/weir/routes"
)

// number makes a principal.
func number(i int) string { return "principal-" + strconv.Itoa(i) }

// live changes the life of an entry.
func live(o routes.TaskOwner, life time.Duration) routes.TaskOwner {
	o.Life = life
	return o
}

func endCases() map[string]func(*testing.T, *ownerBench) {
	return map[string]func(*testing.T, *ownerBench){
		"each entry ends by itself": func(t *testing.T, b *ownerBench) {
			b.mint(t, "x", live(minted(alice, "files"), time.Second))
			b.mint(t, "x", minted(bob, "mail"))
			b.mint(t, "y", live(minted(alice, "files"), time.Second))
			b.mint(t, "z", minted(alice, "files"))
			eventually(t, "alice's entry to end", func() error {
				if r := b.record(t, "x", bob); len(r) != 1 {
					return fmt.Errorf("record %+v", r)
				}
				return nil
			})
			b.wantRecord(t, "x", minted(bob, "mail"))
			eventually(t, "the other one to end", func() error {
				if r := b.record(t, "y", bob); len(r) != 0 {
					return fmt.Errorf("record %+v", r)
				}
				return nil
			})
			b.wantTasks(t, alice, "z")
			b.wantTasks(t, bob, "x")
			eventually(t, "alice to be shown with one", func() error {
				if view := b.host(t, 10); view.Count != 2 || len(view.Principals) != 2 {
					return fmt.Errorf("HostTasks %+v", view)
				}
				return nil
			})
			b.claim(t, "y", claimed(bob, "files")) // what has ended holds nobody up
			b.wantRecord(t, "y", claimed(bob, "files"))
		},
		"below half of its life, and not above, an entry is prolonged by those whom it serves": func(t *testing.T, b *ownerBench) {
			const life = 4 * time.Second
			for _, id := range []string{"own", "foreign"} {
				b.mint(t, id, live(minted(alice, "files"), life))
			}
			b.claim(t, "shared", live(shared("files"), life))
			end := map[string]time.Time{}
			for _, id := range []string{"own", "foreign", "shared"} {
				end[id] = b.record(t, id, "nobody")[0].Expires
			}
			asked := time.Now()
			prolonged := func(id, principal string) func() error {
				return func() error {
					if time.Since(asked) > life/4 {
						t.Skip("the machine stood still for so long that nobody could have asked in time")
					}
					r := b.record(t, id, principal)
					asked = time.Now()
					if len(r) == 0 {
						t.Fatalf("%s has ended", id)
					}
					if b.record(t, "foreign", bob); r[0].Expires.Equal(end[id]) {
						return errors.New("it ends when it did")
					}
					if left := end[id].Sub(r[0].Expires.Add(-life)); left > life/2 || r[0].Expires.Before(end[id]) {
						t.Errorf("%s was prolonged with %v left, to end at %v instead of %v", id, left, r[0].Expires, end[id])
					}
					return nil
				}
			}
			eventually(t, "the own entry to be prolonged", prolonged("own", alice))
			eventually(t, "the shared entry to be prolonged", prolonged("shared", bob))
			eventually(t, "the entry that only others ask for to end", func() error {
				if r := b.record(t, "foreign", bob); len(r) != 0 {
					return fmt.Errorf("it stands: %+v", r)
				}
				b.record(t, "own", alice)
				b.record(t, "shared", bob)
				return nil
			})
			b.wantTasks(t, alice, "own") // its place in the set was prolonged, too
			b.wantTasks(t, routes.AnyPrincipal, "shared")
		},
	}
}

func boundCases() map[string]func(*testing.T, *ownerBench) {
	return map[string]func(*testing.T, *ownerBench){
		"a principal may hold so many tasks, and records nothing beyond": func(t *testing.T, b *ownerBench) {
			o := b.NewOwners(t, OwnerLimits{Tasks: 3})
			record := func(id string, owner routes.TaskOwner) error { return o.RecordTask(b.ctx, acme, id, owner) }
			began := time.Now()
			wantErr(t, "first", record("1", live(minted(alice, "files"), time.Second)), nil)
			wantErr(t, "second", record("2", minted(alice, "files")), nil)
			_, err := o.ClaimTask(b.ctx, acme, "3", claimed(alice, "files"))
			wantErr(t, "third", err, nil)
			if held := b.tasks(t, alice); len(held) != 3 {
				if time.Since(began) >= time.Second {
					t.Skip("the machine is so slow that the first task has ended before the fourth")
				}
				t.Fatalf("the principal holds %v, want three tasks", held)
			}
			err = record("4", minted(alice, "files"))
			_, claimErr := o.ClaimTask(b.ctx, acme, "5", claimed(alice, "files"))
			if err == nil || claimErr == nil {
				eventually(t, "the first to have ended, which left room", func() error {
					if r := b.record(t, "1", bob); len(r) != 0 {
						return fmt.Errorf("it stands: %+v", r)
					}
					return nil
				})
				return
			}
			wantErr(t, "RecordTask", err, routes.ErrTooManyTasks)
			wantErr(t, "ClaimTask", claimErr, routes.ErrTooManyTasks)
			b.wantRecord(t, "4")
			b.wantRecord(t, "5")
			wantErr(t, "one that stands", record("2", minted(alice, "files")), nil)
			wantErr(t, "one that stands, at another backend", record("2", minted(alice, "mail")), nil)
			wantErr(t, "another principal's", record("4", minted(bob, "files")), nil)
			wantErr(t, "another host's", o.RecordTask(b.ctx, "other", "4", minted(alice, "files")), nil)
			eventually(t, "room where the first has ended", func() error { return record("4", minted(alice, "files")) })
			b.wantTasks(t, alice, "2", "2", "3", "4")
			wantErr(t, "one more", record("6", minted(alice, "files")), routes.ErrTooManyTasks)
		},
		"an id may have so many entries, and no more are recorded": func(t *testing.T, b *ownerBench) {
			const most = 10
			o := b.NewOwners(t, OwnerLimits{Entries: most})
			for i := range most {
				wantErr(t, "RecordTask", o.RecordTask(b.ctx, acme, "x", minted(number(i), "files")), nil)
			}
			wantErr(t, "RecordTask", o.RecordTask(b.ctx, acme, "x", minted(alice, "files")), routes.ErrTooManyTasks)
			_, err := o.ClaimTask(b.ctx, acme, "x", claimed(alice, "mail"))
			wantErr(t, "ClaimTask", err, routes.ErrTooManyTasks)
			b.wantTasks(t, alice)
			wantErr(t, "one that stands", o.RecordTask(b.ctx, acme, "x", minted(number(3), "files")), nil)
			if n := len(b.record(t, "x", alice)); n != most {
				t.Errorf("%d entries, want %d", n, most)
			}
		},
	}
}

func listCases() map[string]func(*testing.T, *ownerBench) {
	return map[string]func(*testing.T, *ownerBench){
		"a principal's many tasks are told of whole, in the order in which they were made": func(t *testing.T, b *ownerBench) {
			const many = 300
			var g errgroup.Group
			g.SetLimit(8)
			want := make([]routes.TaskEntry, many)
			for i := range many {
				o := minted(alice, routes.BackendID([]string{"files", "mail"}[i%2]))
				o.Created, o.Session = made().Add(time.Duration(i)*time.Minute), "session "+strconv.Itoa(i)
				id := "task " + strconv.Itoa(i)
				want[i] = routes.TaskEntry{Task: routes.TaskDigest(id), TaskOwner: o}
				g.Go(func() error {
					return errors.Join(b.o.RecordTask(b.ctx, acme, id, o), b.o.RecordTask(b.ctx, acme, id, minted(bob, "files")))
				})
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			got := b.tasks(t, alice)
			for i := range got {
				got[i].Expires = time.Time{}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("PrincipalTasks (-want +got):\n%s", diff)
			}
		},
		"an operator sees a bounded part, and the whole count": func(t *testing.T, b *ownerBench) {
			for i := range 15 {
				o := minted(number(i%3), "files")
				o.Session = "a session is nothing for an operator"
				o.Life += time.Duration(i%3) * time.Hour
				b.mint(t, "task "+strconv.Itoa(i), o)
			}
			b.claim(t, "open", live(shared("files"), 10*time.Hour))
			all := b.host(t, 16)
			if all.Count != 16 || all.More || len(all.Principals) != 4 {
				t.Errorf("HostTasks = %+v, want all 16 of 4", all)
			}
			var names []string
			for _, p := range all.Principals {
				names = append(names, p.Principal)
				want := 5
				if p.Principal == routes.AnyPrincipal {
					want = 1
				}
				if p.Count != want || len(p.Tasks) != want {
					t.Errorf("%q: %d tasks, %d shown; want %d", p.Principal, p.Count, len(p.Tasks), want)
				}
				for _, e := range p.Tasks {
					if e.Session != "" || e.Principal != p.Principal || e.Expires.IsZero() || e.Backend != "files" || e.Created != made() {
						t.Errorf("%q: entry %+v", p.Principal, e)
					}
				}
			}
			if want := []string{routes.AnyPrincipal, number(2), number(1), number(0)}; !slices.Equal(names, want) {
				t.Errorf("principals %q, want %q: the one whose tasks end last first", names, want)
			}
			some := b.host(t, 8)
			shown := 0
			for _, p := range some.Principals {
				shown += len(p.Tasks)
			}
			if some.Count != 16 || !some.More || shown != 8 || len(some.Principals) != 4 || len(some.Principals[2].Tasks) != 2 {
				t.Errorf("HostTasks = %+v: %d shown; want 8 of 16, and that there are more", some, shown)
			}
			if other, err := b.o.HostTasks(b.ctx, "other", 8); other.Count != 0 || err != nil {
				t.Errorf("HostTasks of another host: %+v, %v", other, err)
			}
		},
	}
}
