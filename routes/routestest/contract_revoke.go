package routestest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

// tokenRevocation and subjectRevocation make one.
func tokenRevocation(jti string, until time.Time) routes.Revocation {
	return routes.Revocation{Issuer: "https://idp.test", TokenID: jti, Until: until}
}

func subjectRevocation(subject string, before, until time.Time) routes.Revocation {
	return routes.Revocation{Issuer: "https://idp.test", Subject: subject, IssuedBefore: before, Until: until}
}

func (b *bench) revoke(t *testing.T, all ...routes.Revocation) {
	t.Helper()
	if err := b.w.Revoke(b.ctx, all); err != nil {
		t.Fatalf("Revoke: %v", err)
	}
}

// wantRevocations checks what stands, in any order.
func (b *bench) wantRevocations(t *testing.T, want ...routes.Revocation) {
	t.Helper()
	got, unreadable, err := b.r.Revocations(b.ctx)
	if err != nil || len(unreadable) > 0 {
		t.Fatalf("Revocations: %v, unreadable %q", err, unreadable)
	}
	sort := func(list []routes.Revocation) {
		slices.SortFunc(list, func(a, b routes.Revocation) int { return strings.Compare(a.Key(), b.Key()) })
	}
	sort(got)
	sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Revocations (-want +got):\n%s", diff)
	}
}

func revokeCases() map[string]func(*testing.T, *bench) {
	soon := time.Date(2090, 1, 1, 12, 0, 0, 500, time.UTC)
	later := soon.Add(time.Hour)
	return map[string]func(*testing.T, *bench){
		"nobody need lead for a revocation, and an empty store gets its incarnation by it": func(t *testing.T, b *bench) {
			b.wantRevocations(t)
			r := tokenRevocation("a", soon)
			b.revoke(t, r)
			b.wantRevocations(t, r)
			m := b.meta(t)
			if m.Incarnation == "" || m.Sequence != 1 || m.Complete {
				t.Errorf("Meta = %+v, want an incarnation at sequence 1, not complete", m)
			}
			l := b.lead(t)
			if l.Incarnation != m.Incarnation {
				t.Errorf("the first leader's incarnation is %q, want %q", l.Incarnation, m.Incarnation)
			}
			c := Host("a").Tool("x", "b", "x").Change(t, l, 1)
			b.publish(t, l, c)
			b.wantHost(t, l, c)
			b.revoke(t, tokenRevocation("b", soon)) // beside a leader, whose lease still holds
			wantErr(t, "Renew", b.w.Renew(b.ctx, l, longTTL), nil)
		},
		"of two ends the later one stands": func(t *testing.T, b *bench) {
			b.revoke(t, tokenRevocation("a", later))
			b.revoke(t, tokenRevocation("a", soon))
			b.wantRevocations(t, tokenRevocation("a", later))
			b.revoke(t, tokenRevocation("a", later.Add(time.Hour)))
			b.wantRevocations(t, tokenRevocation("a", later.Add(time.Hour)))
		},
		"what stands is not told again": func(t *testing.T, b *bench) {
			b.lead(t) // else the first event would be a reset, for the incarnation
			w := b.watch(t)
			b.revoke(t, tokenRevocation("a", soon))
			b.revoke(t, tokenRevocation("a", soon)) // the reply got lost
			b.revoke(t, tokenRevocation("b", soon))
			w.untilRevoked(t, "b")
			want := []routes.Event{
				{Revocations: []routes.Revocation{tokenRevocation("a", soon)}}, {Revocations: []routes.Revocation{tokenRevocation("b", soon)}},
			}
			if diff := cmp.Diff(want, w.seen); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		},
		"issuers, kinds and moments are apart": func(t *testing.T, b *bench) {
			other := tokenRevocation("a", soon)
			other.Issuer = "https://other.test"
			all := []routes.Revocation{
				tokenRevocation("a", soon), other, subjectRevocation("a", soon, later), subjectRevocation("a", later, soon),
				subjectRevocation("ünï \"'\x00}", soon, later),
			}
			b.revoke(t, all...)
			b.wantRevocations(t, all...)
		},
		"many are written, read and told": func(t *testing.T, b *bench) {
			w := b.watch(t)
			var all []routes.Revocation
			for i := range 2500 {
				all = append(all, tokenRevocation(fmt.Sprint("token ", i), soon))
			}
			b.revoke(t, all...)
			b.wantRevocations(t, all...)
			w.untilRevoked(t, "token 2499")
			told := 0
			for _, e := range w.seen {
				told += len(e.Revocations)
			}
			if told != len(all) {
				t.Errorf("%d told, want %d", told, len(all))
			}
		},
		"what is not valid is not written": func(t *testing.T, b *bench) {
			if err := b.w.Revoke(b.ctx, []routes.Revocation{tokenRevocation("a", soon), {Issuer: "x"}}); err == nil {
				t.Error("no error")
			}
			b.wantRevocations(t)
		},
		"only what has ended is dropped": func(t *testing.T, b *bench) {
			ended, runs := tokenRevocation("a", time.Now().UTC().Add(-time.Hour)), tokenRevocation("b", soon)
			b.revoke(t, ended, runs)
			wantErr(t, "DropRevocations", b.w.DropRevocations(b.ctx, []string{ended.Key(), "unknown"}), nil)
			b.wantRevocations(t, runs)
		},
		"what was lost on its own is noticed": func(t *testing.T, b *bench) {
			l := b.lead(t)
			b.publish(t, l, Host("a").Tool("x", "b", "x").Change(t, l, 1), Host("c").Tool("x", "b", "x").Change(t, l, 1))
			batch := routes.Batch{Catalogs: []routes.CatalogChange{{Backend: "b", Digest: "d", Document: []byte("{}")}}}
			wantErr(t, "Publish", b.w.Publish(b.ctx, l, batch), nil)
			hosts, catalogs, err := b.r.Lost(b.ctx, []routes.HostID{"a", "ghost", "c"}, []routes.BackendID{"b", "none"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]routes.HostID{"ghost"}, hosts); diff != "" {
				t.Errorf("hosts (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]routes.BackendID{"none"}, catalogs); diff != "" {
				t.Errorf("catalogs (-want +got):\n%s", diff)
			}
		},
	}
}

// untilRevoked collects events until one is about a token.
func (w *watcher) untilRevoked(t *testing.T, jti string) {
	t.Helper()
	w.until(t, "the revocation of "+jti, func(e routes.Event) bool {
		return slices.ContainsFunc(e.Revocations, func(r routes.Revocation) bool { return r.TokenID == jti })
	})
}
