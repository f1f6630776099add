package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// pageOf is one page of tools/list as a client sees it.
type pageOf struct {
	names []string
	next  string // empty: the last one
	code  int    // of an error; 0: none
	meta  string
}

func (c client) page(cursor string) (pageOf, error) {
	params := "{}"
	if cursor != "" {
		params = fmt.Sprintf(`{"cursor":%q}`, cursor)
	}
	a, err := c.call("1", "tools/list", params)
	if err != nil {
		return pageOf{}, err
	}
	if a.rpc.Error != nil {
		return pageOf{code: a.rpc.Error.Code}, nil
	}
	var r struct {
		Tools      []struct{ Name string }
		NextCursor string
		Meta       json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(a.rpc.Result, &r); err != nil {
		return pageOf{}, fmt.Errorf("%d %s: %w", a.status, a.body, err)
	}
	p := pageOf{next: r.NextCursor, meta: string(r.Meta)}
	for _, tool := range r.Tools {
		p.names = append(p.names, tool.Name)
	}
	return p, nil
}

// errBeginAgain: a cursor is of a revision that is gone, which the client is told.
var errBeginAgain = errors.New("a cursor is not good any more")

// walk reads a list to its end.
func (c client) walk() (names []string, pages int, err error) {
	for cursor := ""; ; {
		p, err := c.page(cursor)
		switch {
		case err != nil:
			return nil, pages, err
		case p.code == -32602 && cursor != "":
			return nil, pages, errBeginAgain
		case p.code != 0:
			return nil, pages, fmt.Errorf("error %d", p.code)
		}
		pages++
		names = append(names, p.names...)
		if cursor = p.next; cursor == "" {
			return names, pages, nil
		}
	}
}

// Lists of three pages, at the backend and of the host, stay whole while the backend changes without end, breaks off in the midst of
// its list, and every change is published: a client that pages sees each tool that was there all the time, once.
func TestListsOfThreePagesStayWhole(t *testing.T) {
	t.Parallel()
	b := newPagedBackend(t, 10)
	const steady = 27
	tools := func(change int) []string {
		var out []string
		if change%2 == 1 { // in front, so that everything behind it moves
			out = append(out, toolOf("aa", "comes and goes"))
		}
		for i := range steady {
			description := "stays"
			if i == change%steady {
				description = fmt.Sprintf("change %d", change)
			}
			out = append(out, toolOf(fmt.Sprintf("t%02d", i), description))
		}
		return out
	}
	b.offer("1", tools(0))
	p := newPair(t, fmt.Sprintf("  paged: {url: %q}\n", b.url+"/1"), "  acme:\n    backends: [{name: paged, prefix: p__}]\nlisting: {page_size: 10}\n")
	var want []string
	for i := range steady {
		want = append(want, fmt.Sprintf("p__t%02d", i))
	}

	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	var walks, again atomic.Int64
	for n := range p.data {
		for _, version := range []string{"2026-07-28", "2025-11-25"} {
			c := p.client(t, n, "acme", version)
			wg.Go(func() {
				for ctx.Err() == nil {
					got, pages, err := c.walk()
					if errors.Is(err, errBeginAgain) {
						again.Add(1)
						continue
					}
					if err != nil {
						t.Errorf("dataplane %d, %s: %v", n, version, err)
						return
					}
					if walks.Add(1); pages != 3 {
						t.Errorf("%d pages, want 3", pages)
					}
					got = slices.DeleteFunc(got, func(name string) bool { return name == "p__aa" })
					if !slices.Equal(got, want) {
						t.Errorf("dataplane %d, %s: tools %v", n, version, got)
						return
					}
				}
			})
		}
	}
	for change := 1; change <= 40; change++ {
		if change%10 == 5 { // a walk that breaks off takes nothing away
			b.breakAt("1", 1+change/10%3)
			p.refresh(t, "paged")
			eventually(t, "the list is stale", func() error { return p.hasProblem("list_stale", "") })
			b.breakAt("1", 0)
		}
		before := b.walked("1")
		b.offer("1", tools(change))
		p.refresh(t, "paged")
		eventually(t, "the change was discovered", func() error {
			if b.walked("1") == before {
				return errNotYet
			}
			return nil
		})
	}
	done := walks.Load()
	eventually(t, "clients page to the end", func() error {
		if walks.Load() < max(done, 20)+4 {
			return errNotYet
		}
		return nil
	})
	t.Logf("%d walks, %d were told to begin again", walks.Load(), again.Load())
	if walks.Load() < again.Load() {
		t.Errorf("%d walks, and %d were told to begin again", walks.Load(), again.Load())
	}
}

// What becomes of a cursor: it is good for its list of its host, for a minute after the next revision, and over a restart.
func TestCursors(t *testing.T) {
	t.Parallel()
	b := newPagedBackend(t, 100)
	offer := func(change int) {
		var tools []string
		for i := range 25 {
			tools = append(tools, toolOf(fmt.Sprintf("t%02d", i), fmt.Sprint("change ", change)))
		}
		b.offer("1", tools)
	}
	offer(0)
	p := newPair(t, fmt.Sprintf("  paged: {url: %q}\n", b.url+"/1"),
		"  acme:\n    backends: [{name: paged}]\n  globex:\n    backends: [{name: paged}]\nlisting: {page_size: 10}\n")
	c := p.client(t, 0, "acme", "2026-07-28")
	first := func() pageOf {
		t.Helper()
		got, err := c.page("")
		if err != nil || len(got.names) != 10 || got.next == "" {
			t.Fatalf("first page %+v, %v", got, err)
		}
		return got
	}
	follow := func(who client, cursor string, want int) {
		t.Helper()
		got, err := who.page(cursor)
		if err != nil || got.code != want {
			t.Errorf("cursor %s: %+v, %v; want code %d", cursor, got, err, want)
		}
		if want == 0 && (len(got.names) != 10 || got.names[0] != "t10") {
			t.Errorf("cursor %s: %v, want ten tools from t10 on", cursor, got.names)
		}
	}
	// change publishes another revision, and waits until the list is of it.
	changes := 0
	change := func() {
		t.Helper()
		before := first().next
		changes++
		offer(changes)
		p.refresh(t, "paged")
		eventually(t, "another revision is listed", func() error {
			got, err := c.page("")
			if err == nil && got.next == before {
				err = errNotYet
			}
			return err
		})
	}
	cursor := first().next
	follow(c, cursor, 0)
	for _, who := range []client{p.client(t, 1, "acme", "2025-11-25"), {url: p.control.url(), token: c.token, version: c.version}} {
		follow(who, cursor, 0) // another dataplane and era, and the control plane itself
	}
	for name, bad := range map[string]string{
		"torn": cursor[:len(cursor)-1], "longer": cursor + "AA", "edited": "B" + cursor[1:], "nonsense": "zzz", "huge": strings.Repeat("A", 70000),
	} {
		got, err := c.page(bad)
		if err != nil || got.code != -32602 {
			t.Errorf("a cursor that is %s: %+v, %v; want -32602", name, got, err)
		}
	}
	follow(p.client(t, 0, "globex", "2026-07-28"), cursor, -32602)
	a, err := c.call("1", "prompts/list", fmt.Sprintf(`{"cursor":%q}`, cursor))
	if err != nil || a.rpc.Error == nil || a.rpc.Error.Code != -32602 {
		t.Errorf("a cursor of another list: %+v, %v; want -32602", a, err)
	}

	change()
	follow(c, cursor, 0) // one revision ago
	for range 5 {
		change()
	}
	follow(c, cursor, -32602)

	cursor = first().next
	p.control.kill()
	p.restartControl(t)
	eventually(t, "lists are served again", func() error { _, err := c.page(""); return err })
	follow(c, cursor, 0)
	if _, pages, err := c.walk(); err != nil || pages != 3 {
		t.Errorf("%d pages, %v", pages, err)
	}
}
