package routestest

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

// Decider stores what operators decide.
type Decider interface {
	Decide(ctx context.Context, subject, expected string, doc []byte) error
}

// Rememberer reads what operators decided, and how hosts were before.
type Rememberer interface {
	Decisions(ctx context.Context) (map[string]string, routes.Meta, error)
	Decision(ctx context.Context, subject string) (doc []byte, digest string, err error)
	History(ctx context.Context, id routes.HostID) ([]routes.Revision, error)
}

// archived makes a change that the history tells of.
func archived(h routes.HostChange, archive string) routes.HostChange {
	h.Archive = []byte(archive)
	return h
}

func (b *bench) history(t *testing.T, id routes.HostID) []routes.Revision {
	t.Helper()
	revisions, err := b.r.History(b.ctx, id)
	if err != nil {
		t.Fatalf("History(%q): %v", id, err)
	}
	return revisions
}

// told are a history's revisions and what was kept of them.
func told(revisions []routes.Revision) []string {
	var out []string
	for _, r := range revisions {
		out = append(out, fmt.Sprintf("%d %s", r.Version.Revision, r.Archive))
	}
	return out
}

func decideCases() map[string]func(*testing.T, *bench) {
	return map[string]func(*testing.T, *bench){
		"a history is whole, newest first": func(t *testing.T, b *bench) {
			l := b.lead(t)
			odd := "line\nbreak \x00\xff}"
			first := archived(Host("a").Tool("x", "b", "x").Change(t, l, 1), odd)
			b.publish(t, l, first, archived(Host("other").Tool("x", "b", "x").Change(t, l, 1), "other"))
			b.publish(t, l, archived(Host("a").Tool("y", "b", "y").Change(t, l, 2), "two"))
			b.publish(t, l, Host("a").Tool("z", "b", "z").Change(t, l, 3)) // nothing to keep
			got := b.history(t, "a")
			if diff := cmp.Diff([]string{"2 two", "1 " + odd}, told(got)); diff != "" {
				t.Fatalf("history (-want +got):\n%s", diff)
			}
			want := routes.Version{Incarnation: l.Incarnation, Epoch: l.Epoch, Revision: 1}
			if r := got[1]; r.Version != want || r.Digest != first.Digest || r.Time.IsZero() || got[0].Time.Before(r.Time) {
				t.Errorf("entry %+v, want version %+v, digest %s and a time", r, want, first.Digest)
			}
			if none := b.history(t, "nobody"); len(none) != 0 {
				t.Errorf("history of a host that was never published: %v", none)
			}
		},
		"a history keeps the newest revisions": func(t *testing.T, b *bench) {
			l := b.lead(t)
			for i := range uint64(routes.HistoryLength + 5) {
				b.publish(t, l, archived(Host("a").Tool(fmt.Sprint(i), "b", "x").Change(t, l, i+1), "x"))
			}
			got := b.history(t, "a")
			if len(got) != routes.HistoryLength || got[0].Version.Revision != routes.HistoryLength+5 || got[len(got)-1].Version.Revision != 6 {
				t.Errorf("history %v, want the newest %d", told(got), routes.HistoryLength)
			}
		},
		"what is not written is not in the history": func(t *testing.T, b *bench) {
			old := b.lead(t)
			change := archived(Host("a").Tool("x", "b", "x").Change(t, old, 5), "x")
			b.publish(t, old, change)
			b.publish(t, old, change) // repeated
			stale := archived(Host("a").Tool("y", "b", "y").Change(t, old, 4), "stale")
			wantErr(t, "Publish", b.w.Publish(b.ctx, old, routes.Batch{Hosts: []routes.HostChange{stale}}), routes.ErrStale)
			wantErr(t, "Release", b.w.Release(b.ctx, old), nil)
			b.lead(t)
			fenced := archived(Host("a").Tool("z", "b", "z").Change(t, old, 6), "fenced")
			wantErr(t, "Publish", b.w.Publish(b.ctx, old, routes.Batch{Hosts: []routes.HostChange{fenced}}), routes.ErrFenced)
			if diff := cmp.Diff([]string{"5 x"}, told(b.history(t, "a"))); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
		},
		"a removed host has no history": func(t *testing.T, b *bench) {
			l := b.lead(t)
			b.publish(t, l, archived(Host("a").Tool("x", "b", "x").Change(t, l, 1), "x"))
			b.publish(t, l, Removal("a", 2))
			if got := b.history(t, "a"); len(got) != 0 {
				t.Errorf("history %v, want none", told(got))
			}
		},
		"a decision stands until it is taken back, whoever leads": func(t *testing.T, b *bench) {
			_, _, err := b.r.Decision(b.ctx, "pins/b")
			wantErr(t, "Decision", err, routes.ErrNotPublished)
			doc := []byte("decided\x00\n")
			wantErr(t, "Decide", b.w.Decide(b.ctx, "pins/b", "", doc), nil) // nobody leads
			wantErr(t, "Decide", b.w.Decide(b.ctx, "pins/b", "", doc), nil) // a reply got lost
			got, digest, err := b.r.Decision(b.ctx, "pins/b")
			if string(got) != string(doc) || digest != routes.Digest(doc) || err != nil {
				t.Errorf("Decision = %q, %q, %v; want %q", got, digest, err, doc)
			}
			l := b.lead(t)
			all, meta, err := b.r.Decisions(b.ctx)
			if diff := cmp.Diff(map[string]string{"pins/b": digest}, all); diff != "" || meta.Incarnation != l.Incarnation || err != nil {
				t.Errorf("Decisions: %+v, %v (-want +got):\n%s", meta, err, diff)
			}
			wantErr(t, "Decide", b.w.Decide(b.ctx, "pins/b", digest, nil), nil)
			if all, _, err := b.r.Decisions(b.ctx); len(all) != 0 || err != nil {
				t.Errorf("Decisions = %v, %v; want none", all, err)
			}
		},
		"of two who decide at once the second learns of it": func(t *testing.T, b *bench) {
			wantErr(t, "Decide", b.w.Decide(b.ctx, "s", "", []byte("1")), nil)
			first := routes.Digest([]byte("1"))
			wantErr(t, "Decide", b.w.Decide(b.ctx, "s", first, []byte("2")), nil)
			wantErr(t, "Decide", b.w.Decide(b.ctx, "s", first, []byte("3")), routes.ErrConflict)
			wantErr(t, "Decide", b.w.Decide(b.ctx, "s", "", []byte("3")), routes.ErrConflict)
			wantErr(t, "Decide", b.w.Decide(b.ctx, "s", first, nil), routes.ErrConflict)
			if doc, _, err := b.r.Decision(b.ctx, "s"); string(doc) != "2" || err != nil {
				t.Errorf("Decision = %q, %v; want 2", doc, err)
			}
			if err := b.w.Decide(b.ctx, "", "", []byte("x")); err == nil {
				t.Error("a decision on nothing was taken")
			}
		},
		"followers hear of decisions, and go on": func(t *testing.T, b *bench) {
			l := b.lead(t)
			w := b.watch(t)
			wantErr(t, "Decide", b.w.Decide(b.ctx, "s", "", []byte("1")), nil)
			w.until(t, "a decision", func(e routes.Event) bool { return e.Decision })
			b.publish(t, l, Host("a").Tool("x", "b", "x").Change(t, l, 1))
			w.until(t, "a host", func(e routes.Event) bool { return e.Host == "a" })
			for _, e := range w.seen {
				if e.Reset {
					t.Errorf("events %+v: a Reset, though nothing was missed", w.seen)
				}
			}
		},
	}
}
