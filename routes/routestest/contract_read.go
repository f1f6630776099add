package routestest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

func readCases() map[string]func(*testing.T, *bench) {
	return map[string]func(*testing.T, *bench){
		"an absent host is unknown only once everything was published": func(t *testing.T, b *bench) {
			b.wantAbsent(t, "ghost", routes.ErrNotPublished)
			l := b.lead(t)
			b.publish(t, l, Host("a").Tool("x", "b", "x").Change(t, l, 1))
			b.wantAbsent(t, "ghost", routes.ErrNotPublished)
			b.complete(t, l)
			b.wantAbsent(t, "ghost", routes.ErrUnknownHost)
			if m := b.meta(t); !m.Complete {
				t.Errorf("Meta = %+v, want complete", m)
			}
			// The mark outlives the leader.
			wantErr(t, "Release", b.w.Release(b.ctx, l), nil)
			b.lead(t)
			b.wantAbsent(t, "ghost", routes.ErrUnknownHost)
		},
		"a removed host is unknown at once, and its tombstone stays": func(t *testing.T, b *bench) {
			l := b.lead(t)
			c := Host("a").Tool("x", "b", "x")
			b.publish(t, l, c.Change(t, l, 1))
			b.publish(t, l, Removal("a", 2))
			b.wantAbsent(t, "a", routes.ErrUnknownHost)
			v := routes.Version{Incarnation: l.Incarnation, Epoch: l.Epoch, Revision: 2}
			hosts, err := b.r.Hosts(b.ctx, []routes.HostID{"a", "absent"})
			if err != nil {
				t.Fatal(err)
			}
			want := map[routes.HostID]routes.HostRecord{"a": {ID: "a", Version: v, Sequence: 2, Digest: "removed", Removed: true}}
			if diff := cmp.Diff(want, hosts); diff != "" {
				t.Errorf("Hosts (-want +got):\n%s", diff)
			}
			index, meta, err := b.r.Index(b.ctx)
			wantErr(t, "Index", err, nil)
			if diff := cmp.Diff(map[routes.HostID]routes.HostEntry{"a": {Version: v, Sequence: 2, Digest: "removed", Removed: true}}, index); diff != "" {
				t.Errorf("Index (-want +got):\n%s", diff)
			}
			if meta != (routes.Meta{Incarnation: l.Incarnation, Sequence: 2}) {
				t.Errorf("meta of the index: %+v", meta)
			}
			again := c.Change(t, l, 3)
			b.publish(t, l, again)
			b.wantHost(t, l, again)
		},
		"catalogs are replaced and removed": func(t *testing.T, b *bench) {
			l := b.lead(t)
			_, _, err := b.r.Catalog(b.ctx, "b")
			wantErr(t, "Catalog of nobody", err, routes.ErrNotPublished)
			put := func(digest, document string) {
				t.Helper()
				c := routes.CatalogChange{Backend: "b", Digest: digest}
				if document != "" {
					c.Document = []byte(document)
				}
				wantErr(t, "Publish", b.w.Publish(b.ctx, l, routes.Batch{Catalogs: []routes.CatalogChange{c}}), nil)
			}
			for _, document := range []string{`{"v":1}`, `{"v":2}`} {
				put("of "+document, document)
				got, digest, err := b.r.Catalog(b.ctx, "b")
				if string(got) != document || digest != "of "+document || err != nil {
					t.Errorf("Catalog = %q, %q, %v; want %q", got, digest, err, document)
				}
			}
			put("", "")
			_, _, err = b.r.Catalog(b.ctx, "b")
			wantErr(t, "Catalog after its removal", err, routes.ErrNotPublished)
			if catalogs, err := b.r.Catalogs(b.ctx); len(catalogs) != 0 || err != nil {
				t.Errorf("Catalogs = %v, %v; want none", catalogs, err)
			}
			if m := b.meta(t); m.Sequence != 0 {
				t.Errorf("sequence %d: catalogs are no changes of hosts", m.Sequence)
			}
		},
		"a dataplane's status lasts as long as it said": func(t *testing.T, b *bench) {
			wantErr(t, "PutStatus", b.r.PutStatus(b.ctx, "stays", []byte("old"), longTTL), nil)
			wantErr(t, "PutStatus", b.r.PutStatus(b.ctx, "stays", []byte("new"), longTTL), nil)
			wantErr(t, "PutStatus", b.r.PutStatus(b.ctx, "odd {id}\n", []byte{0, 255}, longTTL), nil)
			wantErr(t, "PutStatus", b.r.PutStatus(b.ctx, "leaves", []byte("soon gone"), shortTTL), nil)
			if b.r.PutStatus(b.ctx, "", nil, longTTL) == nil || b.r.PutStatus(b.ctx, "x", nil, 0) == nil {
				t.Error("a status without name, or for no time, is stored")
			}
			want := map[string][]byte{"stays": []byte("new"), "odd {id}\n": {0, 255}}
			eventually(t, "one status expires", func() error {
				statuses, err := b.NewReader(t).Statuses(b.ctx)
				if diff := cmp.Diff(want, statuses); diff != "" || err != nil {
					return fmt.Errorf("%v, statuses (-want +got):\n%s", err, diff)
				}
				return nil
			})
		},
	}
}

func followCases() map[string]func(*testing.T, *bench) {
	return map[string]func(*testing.T, *bench){
		"a follower hears of each change once and in order": func(t *testing.T, b *bench) {
			l := b.lead(t)
			b.publish(t, l, Host("before").Tool("x", "b", "x").Change(t, l, 1))
			w := b.watch(t)
			c := Host("a").Tool("x", "b", "x").Change(t, l, 1)
			b.publish(t, l, c)
			b.publish(t, l, c) // repeated
			b.publish(t, l, Removal("a", 2), Host("b").Tool("x", "b", "x").Change(t, l, 1))
			w.untilHost(t, "b", 1)
			version := func(revision uint64) routes.Version {
				return routes.Version{Incarnation: l.Incarnation, Epoch: l.Epoch, Revision: revision}
			}
			want := []routes.Event{
				{Host: "a", Version: version(1)}, {Host: "a", Version: version(2), Removed: true}, {Host: "b", Version: version(1)},
			}
			if diff := cmp.Diff(want, w.seen); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		},
		"a change of leader is no reset": func(t *testing.T, b *bench) {
			l := b.lead(t)
			w := b.watch(t)
			b.publish(t, l, Removal("a", 1))
			wantErr(t, "Release", b.w.Release(b.ctx, l), nil)
			l = b.lead(t)
			b.publish(t, l, Removal("a", 2))
			w.untilHost(t, "a", 2)
			if len(w.seen) != 2 || w.seen[0].Reset || w.seen[1].Reset {
				t.Errorf("events %+v, want two without a reset", w.seen)
			}
		},
		"a follower of an empty store is reset when the first leader publishes, or sees it all": func(t *testing.T, b *bench) {
			w := b.watch(t)
			l := b.lead(t)
			b.publish(t, l, Removal("a", 1), Removal("b", 1))
			w.untilHost(t, "b", 1)
			if !w.seen[0].Reset {
				t.Errorf("events %+v, want a reset for the new incarnation first", w.seen)
			}
		},
		"after data loss a reset comes before what is new": func(t *testing.T, b *bench) {
			l := b.lead(t)
			b.publish(t, l, Removal("a", 1), Removal("b", 1))
			w := b.watch(t)
			b.publish(t, l, Removal("c", 1))
			w.untilHost(t, "c", 1)
			w.seen = nil
			b.Flush(t)
			wantErr(t, "Renew", b.w.Renew(b.ctx, l, longTTL), routes.ErrFenced)
			l = b.lead(t)
			b.publish(t, l, Removal("d", 1))
			// Where all of it happens within one millisecond the stream can't tell: then the reset comes by looking, after d.
			w.until(t, "a reset", func(e routes.Event) bool { return e.Reset })
			at := slices.IndexFunc(w.seen, func(e routes.Event) bool { return e.Host == "d" })
			if at >= 0 && !slices.ContainsFunc(w.seen[:at], func(e routes.Event) bool { return e.Reset }) {
				t.Errorf("events %+v, want a reset before d", w.seen)
			}
			b.publish(t, l, Removal("e", 1))
			w.untilHost(t, "e", 1)
		},
		"a thousand changes at once reach two followers whole": func(t *testing.T, b *bench) {
			l := b.lead(t)
			watchers := []*watcher{b.watch(t), b.watch(t)}
			var changes []routes.HostChange
			ids := hostNames(1000)
			for _, id := range ids {
				changes = append(changes, Host(id).Tool("x", "b", "x").Change(t, l, 1))
			}
			b.publish(t, l, changes...)
			for _, w := range watchers {
				w.untilHost(t, ids[len(ids)-1], 1)
				var got []routes.HostID
				for _, e := range w.seen {
					got = append(got, e.Host)
				}
				if diff := cmp.Diff(ids, got); diff != "" {
					t.Errorf("hosts (-want +got):\n%s", diff)
				}
			}
		},
		"odd ids pass the stream": func(t *testing.T, b *bench) {
			l := b.lead(t)
			w := b.watch(t)
			for _, id := range oddIDs() {
				b.publish(t, l, Removal(id, 1))
				w.untilHost(t, id, 1)
			}
		},
	}
}
