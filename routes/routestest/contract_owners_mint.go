package routestest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

func mintCases() map[string]func(*testing.T, *ownerBench) {
	return map[string]func(*testing.T, *ownerBench){
		"nothing is recorded of an unknown id, and asking changes nothing": func(t *testing.T, b *ownerBench) {
			b.wantRecord(t, "x")
			b.wantTasks(t, "nobody")
			if diff := cmp.Diff(routes.HostTasks{}, b.host(t, 10)); diff != "" {
				t.Errorf("HostTasks (-want +got):\n%s", diff)
			}
		},
		"what one process records every other one reads": func(t *testing.T, b *ownerBench) {
			o := minted(alice, "files")
			o.Session = "a \"session\"\n\x01ünï {}"
			o.Tool = "Ünï/start 1 2 3"
			b.mint(t, "x", o)
			r, err := b.NewOwners(t, OwnerLimits{}).TaskRecord(b.ctx, acme, "x", alice)
			if err != nil {
				t.Fatal(err)
			}
			sameRecord(t, routes.TaskRecord{o}, r)
		},
		"a task that nobody dates was made now": func(t *testing.T, b *ownerBench) {
			o := minted(alice, "files")
			o.Created = time.Time{}
			b.mint(t, "x", o)
			if ago := time.Since(b.record(t, "x", alice)[0].Created); ago > patience || ago < -patience {
				t.Errorf("made %v ago", ago)
			}
		},
		"a mint that is repeated is one": func(t *testing.T, b *ownerBench) {
			o := minted(alice, "files")
			b.mint(t, "x", o)
			first := b.record(t, "x", alice)
			b.mint(t, "x", o)
			if again := b.record(t, "x", alice); again[0].Expires.Before(first[0].Expires) {
				t.Errorf("ends at %v after %v", again[0].Expires, first[0].Expires)
			}
			b.wantRecord(t, "x", o)
			b.wantTasks(t, alice, "x")
			if view := b.host(t, 10); view.Count != 1 || len(view.Principals) != 1 {
				t.Errorf("HostTasks = %+v, want one task of one principal", view)
			}
		},
		"two principals with one id at two backends each reach their own": func(t *testing.T, b *ownerBench) {
			b.mint(t, "1", minted(alice, "files"))
			b.mint(t, "1", minted(bob, "mail"))
			b.wantRecord(t, "1", minted(alice, "files"), minted(bob, "mail"))
			wantOwner(t, b.record(t, "1", alice), alice, "files", "mail")
			wantOwner(t, b.record(t, "1", bob), bob, "mail", "files")
		},
		"two principals with one id at one backend each reach it": func(t *testing.T, b *ownerBench) {
			b.mint(t, "1", minted(alice, "files"))
			b.mint(t, "1", minted(bob, "files"))
			wantOwner(t, b.record(t, "1", alice), alice, "files", "files")
			wantOwner(t, b.record(t, "1", bob), bob, "files", "files")
		},
		"one principal with one id at two backends is told so": func(t *testing.T, b *ownerBench) {
			b.mint(t, "1", minted(alice, "files"))
			b.mint(t, "1", minted(alice, "mail"))
			_, err := b.record(t, "1", alice).For(alice, routes.TaskPolicy{}, func(*routes.TaskOwner) bool { return true })
			wantErr(t, "For", err, routes.ErrAmbiguousTask)
			b.wantTasks(t, alice, "1", "1")
			if view := b.host(t, 10); view.Count != 1 || len(view.Principals[0].Tasks) != 2 {
				t.Errorf("HostTasks = %+v, want one task with two entries", view)
			}
		},
		"a task of one host is somebody else's in another, for its own principal too": func(t *testing.T, b *ownerBench) {
			own := minted(alice, "files")
			own.Session = "s"
			b.mint(t, "1", own)
			r, err := b.o.TaskRecord(b.ctx, "other", "1", alice)
			if err != nil || len(r) != 1 || r[0].Principal != string(acme)+"/"+alice || r[0].Tool != "" || r[0].Session != "" {
				t.Errorf("TaskRecord in another host: %+v, %v", r, err)
			}
			v, err := r.For(alice, routes.TaskPolicy{Unrecorded: "probe"}, func(*routes.TaskOwner) bool { return true })
			if err != nil || v.Owner != nil || !slices.Equal(v.Held, []routes.BackendID{"files"}) {
				t.Errorf("it means %+v, %v, want one that is held", v, err)
			}
			for _, o := range []routes.TaskOwner{claimed(alice, "files"), claimed(bob, "files"), shared("files")} {
				r, err := b.o.ClaimTask(b.ctx, "other", "1", o)
				if err != nil || len(r) != 1 || r[0].Source != routes.TaskMinted {
					t.Errorf("a claim in another host: %+v, %v, want the record as it was", r, err)
				}
			}
			if _, err := b.o.ClaimTask(b.ctx, "other", "1", claimed(alice, "mail")); err != nil { // another backend's task of that id
				t.Error(err)
			}
			wantOwner(t, b.record(t, "1", alice), alice, "files", "mail")
		},
		"what everybody of a host may follow says nothing in another host": func(t *testing.T, b *ownerBench) {
			b.claim(t, "1", shared("files"))
			r, err := b.o.TaskRecord(b.ctx, "other", "1", alice)
			if err != nil || len(r) != 0 {
				t.Errorf("TaskRecord in another host: %+v, %v", r, err)
			}
			r, err = b.o.ClaimTask(b.ctx, "other", "1", shared("files"))
			if err != nil || len(r) != 1 || r[0].Principal != routes.AnyPrincipal {
				t.Errorf("shared in another host too: %+v, %v", r, err)
			}
		},
		"hosts have lists of their own": func(t *testing.T, b *ownerBench) {
			b.mint(t, "1", minted(alice, "files"))
			if tasks, err := b.o.PrincipalTasks(b.ctx, "other", alice); len(tasks) != 0 || err != nil {
				t.Errorf("PrincipalTasks in another host: %v, %v", tasks, err)
			}
		},
		"ids of every kind are apart": func(t *testing.T, b *ownerBench) {
			ids := []string{" ", "a", "a ", "A", "a\x00", "a/b", "{a}", "}{", "line\nbreak", "\xff\xfe", "\xff", "*", "1", "01",
				strings.Repeat("long", 10_000), strings.Repeat("long", 10_001), "nil"}
			for i, id := range ids {
				o := minted(alice, "files")
				o.Created = made().Add(time.Duration(i) * time.Second)
				b.mint(t, id, o)
			}
			for i, id := range ids {
				o := minted(alice, "files")
				o.Created = made().Add(time.Duration(i) * time.Second)
				b.wantRecord(t, id, o)
			}
			b.wantTasks(t, alice, ids...)
		},
		"nothing is ever shortened, and a longer life counts": func(t *testing.T, b *ownerBench) {
			long, short := minted(alice, "files"), minted(alice, "files")
			long.Life, short.Life = routes.MaxTaskLife, time.Second
			b.mint(t, "x", short)
			b.mint(t, "x", long)
			b.wantRecord(t, "x", long)
			first := b.record(t, "x", alice)[0].Expires
			b.mint(t, "x", short)
			b.claim(t, "x", func() routes.TaskOwner { o := claimed(alice, "files"); o.Life = time.Second; return o }())
			b.wantRecord(t, "x", long)
			if again := b.record(t, "x", alice)[0].Expires; again.Before(first) {
				t.Errorf("ends at %v after %v", again, first)
			}
		},
		"of two tasks of one id at one backend the later made stays": func(t *testing.T, b *ownerBench) {
			old, young := minted(alice, "files"), minted(alice, "files")
			old.Tool, old.Session = "old", "session"
			young.Tool, young.Created = "young", made().Add(time.Minute)
			b.mint(t, "x", old)
			b.mint(t, "x", young)
			b.mint(t, "x", old) // from a dataplane that had kept it
			b.wantRecord(t, "x", young)
		},
		"what can't be meant is not recorded": func(t *testing.T, b *ownerBench) {
			bad := func(change func(*routes.TaskOwner)) routes.TaskOwner {
				o := minted(alice, "files")
				change(&o)
				return o
			}
			for name, o := range map[string]routes.TaskOwner{
				"no principal":        bad(func(o *routes.TaskOwner) { o.Principal = "" }),
				"a split principal":   bad(func(o *routes.TaskOwner) { o.Principal = "a/b" }),
				"everybody's mint":    bad(func(o *routes.TaskOwner) { o.Principal = routes.AnyPrincipal }),
				"a bad backend":       bad(func(o *routes.TaskOwner) { o.Backend = "a/b" }),
				"no life":             bad(func(o *routes.TaskOwner) { o.Life = 0 }),
				"too much life":       bad(func(o *routes.TaskOwner) { o.Life = routes.MaxTaskLife + 1 }),
				"no source":           bad(func(o *routes.TaskOwner) { o.Source = "" }),
				"a long tool":         bad(func(o *routes.TaskOwner) { o.Tool = strings.Repeat("x", routes.MaxTaskText+1) }),
				"a session of nobody": bad(func(o *routes.TaskOwner) { o.Session = "\xff" }),
				"a claim":             claimed(alice, "files"),
				"a shared one":        shared("files"),
			} {
				if err := b.o.RecordTask(b.ctx, acme, "x", o); err == nil || errors.Is(err, routes.ErrUnavailable) {
					t.Errorf("RecordTask with %s: %v", name, err)
				}
			}
			if _, err := b.o.ClaimTask(b.ctx, acme, "x", minted(alice, "files")); err == nil {
				t.Error("ClaimTask took a mint")
			}
			if err := b.o.RecordTask(b.ctx, acme, "", minted(alice, "files")); err == nil {
				t.Error("RecordTask took an empty id")
			}
			b.wantRecord(t, "x")
		},
		"whoever left is told so": func(t *testing.T, b *ownerBench) {
			ctx, cancel := context.WithCancel(b.ctx)
			cancel()
			_, err := b.o.TaskRecord(ctx, acme, "x", alice)
			wantErr(t, "TaskRecord", err, context.Canceled)
			wantErr(t, "RecordTask", b.o.RecordTask(ctx, acme, "x", minted(alice, "files")), context.Canceled)
			b.wantRecord(t, "x")
		},
		"after all is lost, all can be recorded again": func(t *testing.T, b *ownerBench) {
			b.mint(t, "x", minted(alice, "files"))
			b.Flush(t)
			b.wantRecord(t, "x")
			b.wantTasks(t, alice)
			b.mint(t, "x", minted(alice, "files"))
			b.wantRecord(t, "x", minted(alice, "files"))
			b.wantTasks(t, alice, "x")
		},
	}
}

func claimCases() map[string]func(*testing.T, *ownerBench) {
	return map[string]func(*testing.T, *ownerBench){
		"whoever claims first owns it": func(t *testing.T, b *ownerBench) {
			sameRecord(t, routes.TaskRecord{claimed(alice, "files")}, b.claim(t, "x", claimed(alice, "files")))
			sameRecord(t, routes.TaskRecord{claimed(alice, "files")}, b.claim(t, "x", claimed(bob, "files")))
			b.wantRecord(t, "x", claimed(alice, "files"))
			wantOwner(t, b.record(t, "x", bob), bob, "", "files")
			b.wantTasks(t, alice, "x")
			b.wantTasks(t, bob)
			for _, p := range b.host(t, 10).Principals {
				if p.Principal != alice {
					t.Errorf("HostTasks has %+v, whose claim was refused", p)
				}
			}
		},
		"a claim at another backend is another task": func(t *testing.T, b *ownerBench) {
			b.claim(t, "x", claimed(alice, "files"))
			b.claim(t, "x", claimed(bob, "mail"))
			b.wantRecord(t, "x", claimed(alice, "files"), claimed(bob, "mail"))
		},
		"a claim that is repeated is one": func(t *testing.T, b *ownerBench) {
			b.claim(t, "x", claimed(alice, "files"))
			longer := claimed(alice, "files")
			longer.Life = 2 * time.Hour
			sameRecord(t, routes.TaskRecord{longer}, b.claim(t, "x", longer))
			b.wantTasks(t, alice, "x")
		},
		"a mint takes the place of the principal's own claim": func(t *testing.T, b *ownerBench) {
			b.claim(t, "x", claimed(alice, "files"))
			earlier := minted(alice, "files")
			earlier.Created = made().Add(-time.Minute)
			b.mint(t, "x", earlier)
			b.wantRecord(t, "x", earlier)
			b.claim(t, "x", claimed(alice, "files"))
			b.wantRecord(t, "x", earlier)
			b.wantTasks(t, alice, "x")
		},
		"a mint that turns up later outranks another's claim": func(t *testing.T, b *ownerBench) {
			b.claim(t, "x", claimed(alice, "files"))
			b.mint(t, "x", minted(bob, "files"))
			wantOwner(t, b.record(t, "x", alice), alice, "", "files")
			wantOwner(t, b.record(t, "x", bob), bob, "files", "files")
		},
		"a minted task can't be claimed by another": func(t *testing.T, b *ownerBench) {
			b.mint(t, "x", minted(alice, "files"))
			r := b.claim(t, "x", claimed(bob, "files"))
			wantOwner(t, r, bob, "", "files")
			wantOwner(t, r, alice, "files")
			b.wantTasks(t, bob)
		},
		"a shared task is everybody's, and one": func(t *testing.T, b *ownerBench) {
			b.claim(t, "x", shared("files"))
			r := b.claim(t, "x", shared("files"))
			sameRecord(t, routes.TaskRecord{shared("files")}, r)
			wantOwner(t, r, alice, "files")
			wantOwner(t, r, bob, "files")
			b.wantTasks(t, alice)
			b.wantTasks(t, routes.AnyPrincipal, "x")
		},
		"nothing of somebody's is shared": func(t *testing.T, b *ownerBench) {
			b.mint(t, "x", minted(alice, "files"))
			b.claim(t, "y", claimed(alice, "files"))
			sameRecord(t, routes.TaskRecord{minted(alice, "files")}, b.claim(t, "x", shared("files")))
			sameRecord(t, routes.TaskRecord{claimed(alice, "files")}, b.claim(t, "y", shared("files")))
			b.wantTasks(t, routes.AnyPrincipal)
		},
		"what is shared can be claimed, and minted": func(t *testing.T, b *ownerBench) { // the policy changed
			b.claim(t, "x", shared("files"))
			wantOwner(t, b.claim(t, "x", claimed(alice, "files")), alice, "files")
			wantOwner(t, b.record(t, "x", bob), bob, "", "files")
			b.mint(t, "x", minted(bob, "files"))
			wantOwner(t, b.record(t, "x", bob), bob, "files", "files")
			wantOwner(t, b.record(t, "x", alice), alice, "", "files")
		},
		"of many who claim at once one wins, and all are told who": func(t *testing.T, b *ownerBench) {
			const many = 16
			records := make([]routes.TaskRecord, many)
			var all sync.WaitGroup
			for i := range many {
				o := b.NewOwners(t, OwnerLimits{})
				all.Go(func() {
					var err error
					if records[i], err = o.ClaimTask(b.ctx, acme, "x", claimed(number(i), "files")); err != nil {
						t.Errorf("ClaimTask: %v", err)
					}
				})
			}
			all.Wait()
			stands := b.record(t, "x", "nobody")
			if len(stands) != 1 {
				t.Fatalf("%d entries, want one: %+v", len(stands), stands)
			}
			for i, r := range records {
				if len(r) != 1 || r[0].Principal != stands[0].Principal {
					t.Errorf("claimant %d was told %+v; %q won", i, r, stands[0].Principal)
				}
				if tasks := b.tasks(t, number(i)); (len(tasks) == 1) != (number(i) == stands[0].Principal) {
					t.Errorf("claimant %d holds %+v; %q won", i, tasks, stands[0].Principal)
				}
			}
		},
		"a mint and claims at once leave the task to the one who made it": func(t *testing.T, b *ownerBench) {
			const claimants = 8
			var all sync.WaitGroup
			for i := range claimants {
				all.Go(func() {
					if _, err := b.o.ClaimTask(b.ctx, acme, "x", claimed(number(i), "files")); err != nil {
						t.Errorf("ClaimTask: %v", err)
					}
				})
			}
			all.Go(func() {
				if err := b.o.RecordTask(b.ctx, acme, "x", minted(alice, "files")); err != nil {
					t.Errorf("RecordTask: %v", err)
				}
			})
			all.Wait()
			r := b.record(t, "x", alice)
			if len(r) > 2 {
				t.Errorf("%d entries, want the mint and a claim at most", len(r))
			}
			for i := range claimants {
				wantOwner(t, r, number(i), "", "files")
			}
			if v, err := r.For(alice, routes.TaskPolicy{}, func(*routes.TaskOwner) bool { return true }); err != nil || v.Owner == nil ||
				v.Owner.Source != routes.TaskMinted {
				t.Errorf("For: %+v, %v; want the mint", v.Owner, err)
			}
		},
	}
}
