package redisstore_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

// Whatever is recorded and claimed, Redis and the store in memory, which says the rules in another language, tell the same of it.
func TestOwnersInRedisAreThoseInMemory(t *testing.T) {
	r := routestest.StartRedis(t, routestest.RedisOptions{})
	most := routestest.OwnerLimits{Tasks: 3, Entries: 4}
	inRedis := newOwners(t, open(t, redisstore.Config{URL: r.URL()}), most)
	ctx, runs := t.Context(), 0
	principals := []string{"ann", "ben", "cy"}
	rapid.Check(t, func(t *rapid.T) {
		runs++
		hosts := []routes.HostID{routes.HostID(fmt.Sprint("host-", runs)), routes.HostID(fmt.Sprint("other-", runs))}
		ids := []string{fmt.Sprint("1-", runs), fmt.Sprint("2-", runs), fmt.Sprint("3-", runs), fmt.Sprint("4-", runs)}
		memory := routestest.NewMemory()
		memory.SetMaxTasks(most.Tasks)
		memory.SetMaxTaskOwners(most.Entries)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			id, host := rapid.SampledFrom(ids).Draw(t, "id"), rapid.SampledFrom(hosts).Draw(t, "host")
			o := routes.TaskOwner{
				Principal: rapid.SampledFrom(principals).Draw(t, "principal"),
				Backend:   rapid.SampledFrom([]routes.BackendID{"a", "b"}).Draw(t, "backend"),
				Source:    rapid.SampledFrom([]routes.TaskSource{routes.TaskMinted, routes.TaskClaimed, routes.TaskShared}).Draw(t, "source"),
				Tool:      rapid.SampledFrom([]string{"", "start"}).Draw(t, "tool"),
				Created:   time.Unix(rapid.Int64Range(1, 3).Draw(t, "created"), 0).UTC(),
				Life:      time.Duration(rapid.Int64Range(1, 3).Draw(t, "life")) * time.Hour,
			}
			var got, want routes.TaskRecord
			var gotErr, wantErr error
			if o.Source == routes.TaskShared {
				o.Principal = routes.AnyPrincipal
			}
			if o.Source == routes.TaskMinted {
				gotErr, wantErr = inRedis.RecordTask(ctx, host, id, o), memory.RecordTask(ctx, host, id, o)
			} else {
				got, gotErr = inRedis.ClaimTask(ctx, host, id, o)
				want, wantErr = memory.ClaimTask(ctx, host, id, o)
			}
			if errors.Is(gotErr, routes.ErrTooManyTasks) != errors.Is(wantErr, routes.ErrTooManyTasks) || (gotErr == nil) != (wantErr == nil) {
				t.Fatalf("%+v: Redis says %v, memory %v", o, gotErr, wantErr)
			}
			if diff := gocmp.Diff(plain(want), plain(got)); diff != "" {
				t.Fatalf("%+v (-memory +Redis):\n%s", o, diff)
			}
		}
		host := rapid.SampledFrom(hosts).Draw(t, "host to look at")
		for _, id := range ids {
			got, err1 := inRedis.TaskRecord(ctx, host, id, "ann")
			want, err2 := memory.TaskRecord(ctx, host, id, "ann")
			if diff := gocmp.Diff(plain(want), plain(got)); diff != "" || err1 != nil || err2 != nil {
				t.Fatalf("TaskRecord(%q): %v, %v (-memory +Redis):\n%s", id, err1, err2, diff)
			}
		}
		for _, principal := range append(slices.Clone(principals), routes.AnyPrincipal) {
			got, err1 := inRedis.PrincipalTasks(ctx, host, principal)
			want, err2 := memory.PrincipalTasks(ctx, host, principal)
			for i := range got {
				got[i].Expires = time.Time{}
			}
			for i := range want {
				want[i].Expires = time.Time{}
			}
			if diff := gocmp.Diff(want, got); diff != "" || err1 != nil || err2 != nil {
				t.Fatalf("PrincipalTasks(%q): %v, %v (-memory +Redis):\n%s", principal, err1, err2, diff)
			}
		}
		got, err1 := inRedis.HostTasks(ctx, host, 100)
		want, err2 := memory.HostTasks(ctx, host, 100)
		if err1 != nil || err2 != nil || got.Count != want.Count || len(got.Principals) != len(want.Principals) || got.More || want.More {
			t.Fatalf("HostTasks: %v, %v\nmemory %+v\nRedis %+v", err1, err2, want, got)
		}
	})
}

// plain puts a record in order and leaves out when its entries end, which differs by the milliseconds between the two.
func plain(r routes.TaskRecord) routes.TaskRecord {
	r = slices.Clone(r)
	for i := range r {
		r[i].Expires = time.Time{}
	}
	slices.SortFunc(r, func(a, b routes.TaskOwner) int {
		return cmp.Or(strings.Compare(a.Principal, b.Principal), strings.Compare(string(a.Backend), string(b.Backend)))
	})
	return r
}
