package routestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

func leaseCases() map[string]func(*testing.T, *bench) {
	return map[string]func(*testing.T, *bench){
		"an empty store has no leader, no incarnation and no hosts": func(t *testing.T, b *bench) {
			if m := b.meta(t); m != (routes.Meta{}) {
				t.Errorf("Meta = %+v, want zero", m)
			}
			owner, epoch, err := b.r.Leader(b.ctx)
			if owner != "" || epoch != 0 || err != nil {
				t.Errorf("Leader = %q, %d, %v; want nobody", owner, epoch, err)
			}
			if index := b.index(t); len(index) != 0 {
				t.Errorf("Index = %v, want none", index)
			}
		},
		"the first leader makes the incarnation": func(t *testing.T, b *bench) {
			l := b.lead(t)
			if l.Owner != "one" || l.Incarnation == "" || l.Epoch == 0 {
				t.Errorf("lease %+v has empty fields", l)
			}
			if m := b.meta(t); m != (routes.Meta{Incarnation: l.Incarnation}) {
				t.Errorf("Meta = %+v, want the incarnation of %+v", m, l)
			}
			owner, epoch, err := b.r.Leader(b.ctx)
			if owner != "one" || epoch != l.Epoch || err != nil {
				t.Errorf("Leader = %q, %d, %v; want one, %d", owner, epoch, err, l.Epoch)
			}
		},
		"a lease is held against everybody, the same owner too": func(t *testing.T, b *bench) {
			l := b.lead(t)
			for _, owner := range []string{"two", "one"} {
				_, err := b.NewWriter(t).Acquire(b.ctx, owner, longTTL, 0)
				wantErr(t, "Acquire by "+owner, err, routes.ErrNotLeader)
				if errors.Is(err, routes.ErrConfigOutdated) {
					t.Errorf("Acquire by %s: %v; the lease is held, that is all", owner, err)
				}
			}
			wantErr(t, "Renew", b.w.Renew(b.ctx, l, longTTL), nil)
		},
		"a released lease is free at once and can't write": func(t *testing.T, b *bench) {
			old := b.lead(t)
			for range 2 { // a reply may get lost
				wantErr(t, "Release", b.w.Release(b.ctx, old), nil)
			}
			wantErr(t, "Publish", b.w.Publish(b.ctx, old, routes.Batch{Hosts: []routes.HostChange{Removal("a", 1)}}), routes.ErrFenced)
			wantErr(t, "Renew", b.w.Renew(b.ctx, old, longTTL), routes.ErrFenced)
			l := b.lead(t)
			if l.Incarnation != old.Incarnation || l.Epoch <= old.Epoch {
				t.Errorf("next lease %+v after %+v: want the same incarnation and a higher epoch", l, old)
			}
		},
		"a leader that lost its lease while it slept writes nothing": func(t *testing.T, b *bench) {
			old, err := b.w.Acquire(b.ctx, "sleeper", shortTTL, 0)
			if err != nil {
				t.Fatal(err)
			}
			b.publish(t, old, Host("a").Tool("x", "b", "x").Change(t, old, 1))
			w := b.NewWriter(t)
			var l routes.Lease
			eventually(t, "Acquire after the lease ran out", func() (err error) {
				l, err = w.Acquire(b.ctx, "two", longTTL, 0)
				return err
			})
			before, beforeMeta := b.index(t), b.meta(t)
			// The sleeper wakes.
			for _, h := range []routes.HostChange{Removal("a", 9), Host("new").Tool("x", "b", "x").Change(t, old, 9)} {
				wantErr(t, "Publish", b.w.Publish(b.ctx, old, routes.Batch{Hosts: []routes.HostChange{h}}), routes.ErrFenced)
			}
			catalog := routes.CatalogChange{Backend: "b", Digest: "d", Document: []byte("{}")}
			wantErr(t, "Publish", b.w.Publish(b.ctx, old, routes.Batch{Catalogs: []routes.CatalogChange{catalog}}), routes.ErrFenced)
			wantErr(t, "MarkComplete", b.w.MarkComplete(b.ctx, old), routes.ErrFenced)
			wantErr(t, "Renew", b.w.Renew(b.ctx, old, longTTL), routes.ErrFenced)
			wantErr(t, "Release", b.w.Release(b.ctx, old), routes.ErrFenced)
			if diff := cmp.Diff(before, b.index(t)); diff != "" {
				t.Errorf("the index changed (-before +after):\n%s", diff)
			}
			if m := b.meta(t); m != beforeMeta {
				t.Errorf("Meta changed from %+v to %+v", beforeMeta, m)
			}
			if catalogs, err := b.r.Catalogs(b.ctx); len(catalogs) != 0 || err != nil {
				t.Errorf("Catalogs = %v, %v; want none", catalogs, err)
			}
			wantErr(t, "Renew of the new leader", w.Renew(b.ctx, l, longTTL), nil)
		},
		"a lease that ran out without a successor is taken up again": func(t *testing.T, b *bench) {
			l, err := b.w.Acquire(b.ctx, "one", shortTTL, 0)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the lease runs out", func() error {
				if owner, _, err := b.r.Leader(b.ctx); owner != "" || err != nil {
					return fmt.Errorf("%q leads, %v", owner, err)
				}
				return nil
			})
			wantErr(t, "Publish", b.w.Publish(b.ctx, l, routes.Batch{Hosts: []routes.HostChange{Removal("a", 1)}}), nil)
			wantErr(t, "Renew", b.w.Renew(b.ctx, l, longTTL), nil)
			_, err = b.NewWriter(t).Acquire(b.ctx, "two", longTTL, 0)
			wantErr(t, "Acquire by two", err, routes.ErrNotLeader)
		},
		"one of many who acquire at once leads": func(t *testing.T, b *bench) {
			const n = 8
			leases, errs := make([]routes.Lease, n), make([]error, n)
			var wg sync.WaitGroup
			for i := range n {
				w := b.NewWriter(t)
				wg.Go(func() { leases[i], errs[i] = w.Acquire(b.ctx, fmt.Sprint("owner", i), longTTL, 0) })
			}
			wg.Wait()
			won := 0
			for i, err := range errs {
				if err == nil {
					won++
					continue
				}
				wantErr(t, fmt.Sprint("Acquire ", i), err, routes.ErrNotLeader)
			}
			if won != 1 {
				t.Errorf("%d lead: %v", won, leases)
			}
		},
		"an older config_version does not lead after a newer one": func(t *testing.T, b *bench) {
			acquire := func(version int64) error {
				l, err := b.w.Acquire(b.ctx, "one", longTTL, version)
				if err == nil {
					err = b.w.Release(b.ctx, l)
				}
				return err
			}
			wantErr(t, "9", acquire(9), nil)
			wantErr(t, "10", acquire(10), nil) // by number, not by text
			wantErr(t, "9 after 10", acquire(9), routes.ErrNotLeader)
			wantErr(t, "9 after 10", acquire(9), routes.ErrConfigOutdated)
			wantErr(t, "none after 10", acquire(0), routes.ErrNotLeader)
			wantErr(t, "10 again", acquire(10), nil)
			wantErr(t, "the largest", acquire(1<<63-1), nil)
			wantErr(t, "the largest but one", acquire(1<<63-2), routes.ErrNotLeader)
			if acquire(-1) == nil {
				t.Error("a negative version leads")
			}
		},
		"after data loss the leader is fenced, and what follows is another incarnation": func(t *testing.T, b *bench) {
			old := b.lead(t)
			b.publish(t, old, Host("a").Tool("x", "b", "x").Change(t, old, 5))
			b.complete(t, old)
			b.Flush(t)
			b.wantAbsent(t, "a", routes.ErrNotPublished)
			wantErr(t, "Renew", b.w.Renew(b.ctx, old, longTTL), routes.ErrFenced)
			wantErr(t, "Publish", b.w.Publish(b.ctx, old, routes.Batch{Hosts: []routes.HostChange{Removal("a", 6)}}), routes.ErrFenced)
			wantErr(t, "MarkComplete", b.w.MarkComplete(b.ctx, old), routes.ErrFenced)
			l := b.lead(t)
			if l.Incarnation == old.Incarnation {
				t.Errorf("incarnation %q twice", l.Incarnation)
			}
			if m := b.meta(t); m.Complete || m.Sequence != 0 {
				t.Errorf("Meta = %+v, want nothing published", m)
			}
			c := Host("a").Tool("x", "b", "x").Change(t, l, 1)
			b.publish(t, l, c)
			b.wantHost(t, l, c)
		},
		"what can't be meant is refused": func(t *testing.T, b *bench) {
			if _, err := b.w.Acquire(b.ctx, "", longTTL, 0); err == nil {
				t.Error("an empty owner leads")
			}
			if _, err := b.w.Acquire(b.ctx, "one", 0, 0); err == nil {
				t.Error("a lease of no time is taken")
			}
			l := b.lead(t)
			if err := b.w.Renew(b.ctx, l, -1); err == nil {
				t.Error("a lease is renewed to the past")
			}
			catalog := routes.CatalogChange{Backend: "b", Document: []byte("{}")}
			for name, batch := range map[string]routes.Batch{
				"a host twice":         {Hosts: []routes.HostChange{Removal("a", 1), Removal("a", 2)}},
				"a host without id":    {Hosts: []routes.HostChange{Removal("", 1)}},
				"a catalog twice":      {Catalogs: []routes.CatalogChange{catalog, catalog}},
				"a catalog of nothing": {Catalogs: []routes.CatalogChange{{Digest: "d"}}},
			} {
				if err := b.w.Publish(b.ctx, l, batch); err == nil {
					t.Errorf("%s is published", name)
				}
			}
			wantErr(t, "an empty batch", b.w.Publish(b.ctx, l, routes.Batch{}), nil)
		},
	}
}

func publishCases() map[string]func(*testing.T, *bench) {
	return map[string]func(*testing.T, *bench){
		"what is published is read byte for byte": func(t *testing.T, b *bench) {
			l := b.lead(t)
			c := Host("acme").Tool("a", "b", "up").Prompt("p", "b", "p").Resource("file:///x", "c").Change(t, l, 7)
			b.publish(t, l, c)
			b.wantHost(t, l, c)
			if m := b.meta(t); m.Sequence != 1 {
				t.Errorf("Meta = %+v, want sequence 1", m)
			}
		},
		"any bytes and any ids are kept apart": func(t *testing.T, b *bench) {
			l := b.lead(t)
			all := make([]byte, 256)
			for i := range all {
				all[i] = byte(i)
			}
			var changes []routes.HostChange
			var catalogs []routes.CatalogChange
			for i, id := range oddIDs() {
				document := append([]byte(fmt.Sprint(i)), all...)
				changes = append(changes, routes.HostChange{ID: id, Revision: 1, Digest: string(id), Document: document, List: all})
				catalogs = append(catalogs, routes.CatalogChange{Backend: routes.BackendID(id), Digest: string(id), Document: document})
			}
			if err := b.w.Publish(b.ctx, l, routes.Batch{Catalogs: catalogs, Hosts: changes}); err != nil {
				t.Fatal(err)
			}
			for i, c := range changes {
				b.wantHost(t, l, c)
				document, digest, err := b.r.Catalog(b.ctx, catalogs[i].Backend)
				if !bytes.Equal(document, catalogs[i].Document) || digest != catalogs[i].Digest || err != nil {
					t.Errorf("Catalog(%q) = %q, %q, %v", catalogs[i].Backend, document, digest, err)
				}
			}
			if index := b.index(t); len(index) != len(changes) {
				t.Errorf("the index has %d lines, want %d", len(index), len(changes))
			}
			hosts, err := b.r.Hosts(b.ctx, oddIDs())
			if len(hosts) != len(changes) || err != nil {
				t.Errorf("Hosts: %d, %v; want %d", len(hosts), err, len(changes))
			}
		},
		"a repeated write is not written twice": func(t *testing.T, b *bench) {
			l := b.lead(t)
			batch := routes.Batch{Hosts: []routes.HostChange{Host("a").Tool("x", "b", "x").Change(t, l, 1), Removal("gone", 1)}}
			for range 3 {
				wantErr(t, "Publish", b.w.Publish(b.ctx, l, batch), nil)
			}
			if m := b.meta(t); m.Sequence != 2 {
				t.Errorf("sequence %d, want 2", m.Sequence)
			}
		},
		"a change of one call that is stale keeps the others out": func(t *testing.T, b *bench) {
			l := b.lead(t)
			c := Host("a").Tool("x", "b", "x").Change(t, l, 10) // as text, 9 is greater
			b.publish(t, l, c)
			other := Host("a").Tool("y", "b", "y")
			for name, stale := range map[string]routes.HostChange{
				"a lower revision":                        other.Change(t, l, 9),
				"the same revision with another document": other.Change(t, l, 10),
				"the same revision as a removal":          Removal("a", 10),
			} {
				err := b.w.Publish(b.ctx, l, routes.Batch{Hosts: []routes.HostChange{Removal("new", 1), stale}})
				wantErr(t, name, err, routes.ErrStale)
			}
			b.wantHost(t, l, c)
			if index := b.index(t); len(index) != 1 {
				t.Errorf("Index = %v, want one host", index)
			}
		},
		"a later leader may begin again at the first revision": func(t *testing.T, b *bench) {
			old := b.lead(t)
			b.publish(t, old, Host("a").Tool("x", "b", "x").Change(t, old, 10))
			wantErr(t, "Release", b.w.Release(b.ctx, old), nil)
			l := b.lead(t)
			c := Host("a").Tool("y", "b", "y").Change(t, l, 1)
			b.publish(t, l, c)
			b.wantHost(t, l, c)
		},
		"revisions of any size are ordered": func(t *testing.T, b *bench) {
			l := b.lead(t)
			const largest = 1<<64 - 1
			b.publish(t, l, Host("a").Tool("x", "b", "x").Change(t, l, largest-1))
			c := Host("a").Tool("y", "b", "y").Change(t, l, largest)
			b.publish(t, l, c)
			b.wantHost(t, l, c)
		},
		"a thousand hosts in one batch": func(t *testing.T, b *bench) {
			l := b.lead(t)
			ids := hostNames(1000)
			batch := routes.Batch{}
			for _, id := range ids {
				batch.Hosts = append(batch.Hosts, Host(id).Tool("x", "b", "x").Change(t, l, 1))
			}
			for i := range 100 {
				id := routes.BackendID(fmt.Sprint("backend", i))
				batch.Catalogs = append(batch.Catalogs, routes.CatalogChange{Backend: id, Digest: "d", Document: []byte("{}")})
			}
			wantErr(t, "Publish", b.w.Publish(b.ctx, l, batch), nil)
			hosts, err := b.r.Hosts(b.ctx, append(ids, "absent"))
			if err != nil || len(hosts) != len(ids) {
				t.Errorf("Hosts: %d, %v; want %d", len(hosts), err, len(ids))
			}
			if m := b.meta(t); m.Sequence != 1000 {
				t.Errorf("sequence %d, want 1000", m.Sequence)
			}
			if catalogs, err := b.r.Catalogs(b.ctx); len(catalogs) != 100 || err != nil {
				t.Errorf("Catalogs: %d, %v; want 100", len(catalogs), err)
			}
		},
		"a document of megabytes": func(t *testing.T, b *bench) {
			l := b.lead(t)
			large := bytes.Repeat([]byte("x"), 3<<20)
			c := routes.HostChange{ID: "large", Revision: 1, Digest: "d", Document: large, List: []byte("{}")}
			small := Host("small").Tool("x", "b", "x").Change(t, l, 1)
			b.publish(t, l, small, c)
			b.wantHost(t, l, c)
			b.wantHost(t, l, small)
		},
		"a caller who leaves is not told that the store is away": func(t *testing.T, b *bench) {
			l := b.lead(t)
			ctx, cancel := context.WithCancel(b.ctx)
			cancel()
			wantErr(t, "Publish", b.w.Publish(ctx, l, routes.Batch{Hosts: []routes.HostChange{Removal("a", 1)}}), context.Canceled)
			_, err := b.r.Host(ctx, "a")
			wantErr(t, "Host", err, context.Canceled)
			b.wantAbsent(t, "a", routes.ErrNotPublished)
		},
	}
}
