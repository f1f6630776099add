package routestest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	routestest.Contract(t, func(*testing.T) routestest.Fixture {
		m := routestest.NewMemory()
		return routestest.Fixture{
			NewWriter: func(*testing.T) routestest.Writer { return m },
			NewReader: func(*testing.T) routestest.Reader { return m },
			Flush:     func(*testing.T) { m.Flush() },
		}
	})
}

// log is what a follower was told, each call a line.
type log struct{ lines []string }

func (l *log) apply(events []routes.Event) {
	for _, e := range events {
		switch {
		case e.Reset:
			l.lines = append(l.lines, "reset")
		case e.Removed:
			l.lines = append(l.lines, "removed "+string(e.Host))
		default:
			l.lines = append(l.lines, "changed "+string(e.Host))
		}
	}
}

func (l *log) state(reachable bool, err error) {
	switch {
	case reachable && err == nil:
		l.lines = append(l.lines, "reachable")
	case errors.Is(err, routes.ErrUnavailable):
		l.lines = append(l.lines, "away")
	}
}

func (l *log) want(t *testing.T, lines ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(lines, l.lines); diff != "" {
		t.Errorf("the follower was told (-want +got):\n%s", diff)
	}
	l.lines = nil
}

func TestMemoryFailsAsItIsToldInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := routestest.NewMemory()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var l log
		done := make(chan error)
		go func() { done <- m.Follow(ctx, l.apply, l.state) }()
		l.want(t, "reachable", "reset")

		lease, err := m.Acquire(ctx, "one", time.Minute, 0)
		if err != nil {
			t.Fatal(err)
		}
		publish := func(id routes.HostID, revision uint64) {
			t.Helper()
			change := routestest.Host(id).Tool("x", "b", "x").Change(t, lease, revision)
			if err := m.Publish(ctx, lease, routes.Batch{Hosts: []routes.HostChange{change}}); err != nil {
				t.Fatal(err)
			}
		}
		publish("a", 1)
		l.want(t, "reset", "changed a") // the first incarnation is a new one
		publish("a", 2)
		l.want(t, "changed a")

		m.SetDown(true)
		l.want(t, "away")
		if _, err := m.Host(ctx, "a"); !errors.Is(err, routes.ErrUnavailable) {
			t.Errorf("Host: %v, want ErrUnavailable", err)
		}
		m.SetDown(false)
		l.want(t, "reachable", "reset")
		m.Disconnect()
		l.want(t, "reachable", "reset")

		time.Sleep(time.Minute) // the bubble's: the lease runs out
		if owner, _, err := m.Leader(ctx); owner != "" || err != nil {
			t.Errorf("Leader = %q, %v; want nobody", owner, err)
		}
		m.Flush()
		l.want(t)
		if lease, err = m.Acquire(ctx, "two", time.Minute, 0); err != nil {
			t.Fatal(err)
		}
		publish("b", 1)
		l.want(t, "reset", "changed b")

		cancel()
		if err := <-done; err != nil {
			t.Errorf("Follow: %v", err)
		}
	})
}

func TestBuildersMakeValidDocuments(t *testing.T) {
	b := routestest.Host("acme").
		Backend("gh", routes.Backend{URL: "http://127.0.0.1:1/mcp", Protocol: "2025-11-25", Handshake: routes.HandshakeRequired}).
		Tool("gh__create", "gh", "create").Prompt("ask", "other", "ask").
		Resource("file:///a", "gh").Template("file:///{path}", "gh").Prefix("mem://x/", "other").
		Edit(func(vh *routes.VirtualHost) { vh.Instructions = "be brief" })
	ix := b.Index(t)
	for _, tt := range []struct {
		kind     routes.Kind
		name     string
		backend  routes.BackendID
		upstream string
	}{
		{routes.KindTool, "gh__create", "gh", "create"}, {routes.KindPrompt, "ask", "other", "ask"},
		{routes.KindResource, "file:///a", "gh", "file:///a"}, {routes.KindResource, "file:///b", "gh", "file:///b"},
		{routes.KindResource, "mem://x/1", "other", "mem://x/1"},
	} {
		target, ok := ix.Lookup(tt.kind, tt.name)
		if !ok || target.ID != tt.backend || target.Upstream != tt.upstream {
			t.Errorf("%v %q leads to %q, %q, %v", tt.kind, tt.name, target.ID, target.Upstream, ok)
		}
	}
	l := routes.Lease{Owner: "one", Incarnation: "i", Epoch: 2}
	c := b.Change(t, l, 3)
	vh, err := routes.DecodeHost(c.Document)
	if err != nil || vh.Version() != (routes.Version{Incarnation: "i", Epoch: 2, Revision: 3}) || vh.Instructions != "be brief" {
		t.Errorf("document %+v, %v", vh, err)
	}
	if again := b.Change(t, l, 4); again.Digest != c.Digest {
		t.Error("the digest depends on the revision")
	}
	if list, err := routes.DecodeList(c.List); err != nil || len(list.Tools) != 1 || len(list.ResourceTemplates) != 1 {
		t.Errorf("list %+v, %v", list, err)
	}
}

func TestMemoryKeepsTheContractOfOwners(t *testing.T) {
	routestest.OwnersContract(t, func(*testing.T) routestest.OwnersFixture {
		m := routestest.NewMemory()
		return routestest.OwnersFixture{
			NewOwners: func(_ *testing.T, most routestest.OwnerLimits) routestest.Owners {
				m.SetMaxTasks(most.Tasks)
				m.SetMaxTaskOwners(most.Entries)
				return m
			},
			Flush: func(*testing.T) { m.Flush() },
		}
	})
}
