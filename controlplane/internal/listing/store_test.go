package listing

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

func (b *bench) names() []string {
	b.t.Helper()
	return b.modern("acme", "tools/list", "{}").page(b.t).names()
}

func TestChangesArriveWithoutAPoll(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.publish([]*catalog.Catalog{toolCatalog("a", def("x", `{"name":"x"}`))}, routestest.Host("acme").Tool("x", "a", "x"))
		cat := toolCatalog("a", def("x", `{"name":"x"}`), def("y", `{"name":"y"}`))
		doc, err := catalog.Encode(cat)
		if err != nil {
			t.Fatal(err)
		}
		change := routestest.Host("acme").Tool("x", "a", "x").Tool("y", "a", "y").Change(t, b.lease, b.revision+1)
		err = b.Publish(t.Context(), b.lease, routes.Batch{
			Catalogs: []routes.CatalogChange{{Backend: "a", Digest: "2", Document: doc}}, Hosts: []routes.HostChange{change},
		})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for synctest.Wait(); len(b.names()) != 2; synctest.Wait() {
			time.Sleep(10 * time.Millisecond)
			if time.Since(begin) > 250*time.Millisecond {
				t.Fatal("not listed 250 ms after the publish")
			}
		}
	})
}

func TestAbsentHosts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.settle()
		if a := b.modern("acme", "tools/list", "{}"); a.status != 503 || a.header.Get("Retry-After") == "" {
			t.Errorf("nothing published yet: %d; want 503 with Retry-After", a.status)
		}
		if b.store.Complete() {
			t.Error("complete before anything was published")
		}
		b.publish([]*catalog.Catalog{toolCatalog("a", def("x", `{"name":"x"}`))}, routestest.Host("acme").Tool("x", "a", "x"))
		if a := b.modern("nobody", "tools/list", "{}"); a.status != 503 {
			t.Errorf("not complete yet: %d; want 503", a.status)
		}
		b.complete()
		if !b.store.Complete() {
			t.Error("not complete")
		}
		if a := b.modern("nobody", "tools/list", "{}"); a.status != 404 {
			t.Errorf("complete: %d; want 404", a.status)
		}
		b.SetDown(true)
		b.settle()
		if a := b.modern("nobody", "tools/list", "{}"); a.status != 503 {
			t.Errorf("store away: %d; want 503, since it may have been published meanwhile", a.status)
		}
	})
}

func TestARemovedHostIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.publish([]*catalog.Catalog{toolCatalog("a", def("x", `{"name":"x"}`))}, routestest.Host("acme").Tool("x", "a", "x"))
		b.complete()
		if err := b.Publish(t.Context(), b.lease, routes.Batch{Hosts: []routes.HostChange{routestest.Removal("acme", b.revision+1)}}); err != nil {
			t.Fatal(err)
		}
		b.settle()
		if a := b.modern("acme", "tools/list", "{}"); a.status != 404 {
			t.Errorf("%d, want 404", a.status)
		}
		if _, ok := b.store.Documents()["acme"]; ok {
			t.Error("its document is still held")
		}
	})
}

func TestWarmViewsOutliveTheStore(t *testing.T) {
	for name, fault := range map[string]func(*bench){
		"away":               func(b *bench) { b.SetDown(true) },
		"lost its data":      func(b *bench) { b.Flush(); b.Disconnect() },
		"away, then no data": func(b *bench) { b.SetDown(true); b.settle(); b.Flush(); b.SetDown(false) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.publish([]*catalog.Catalog{toolCatalog("a", def("x", `{"name":"x"}`))}, routestest.Host("acme").Tool("x", "a", "x"))
				b.complete()
				fault(b)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := b.names(); !slices.Equal(got, []string{"x"}) {
					t.Errorf("tools %v, want what was read", got)
				}
				if b.store.Documents()["acme"] == nil {
					t.Error("the document is gone, on which a new leader builds")
				}
			})
		})
	}
}

func TestANewIncarnationIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.publish([]*catalog.Catalog{toolCatalog("a", def("x", `{"name":"x"}`))}, routestest.Host("acme").Tool("x", "a", "x"))
		b.Flush()
		b.Disconnect()
		b.settle()
		var err error
		if b.lease, err = b.Acquire(t.Context(), "next", time.Hour, 0); err != nil {
			t.Fatal(err)
		}
		b.revision = 0
		b.publish([]*catalog.Catalog{toolCatalog("a", def("y", `{"name":"y"}`))}, routestest.Host("acme").Tool("y", "a", "y"))
		if got := b.names(); !slices.Equal(got, []string{"y"}) {
			t.Errorf("tools %v, want those of the new incarnation", got)
		}
	})
}

// What can't be used leaves the last good view.
func TestUnusableDocumentsChangeNothing(t *testing.T) {
	for name, spoil := range map[string]func(*routes.HostChange){
		"torn document":  func(c *routes.HostChange) { c.Document = []byte(`{`) },
		"unknown schema": func(c *routes.HostChange) { c.Document = []byte(`{"schema":99,"id":"acme"}`) },
		"invalid": func(c *routes.HostChange) {
			c.Document = []byte(`{"schema":1,"id":"acme","tools":{"x":{"backend":"z"}}}`)
		},
		"torn list": func(c *routes.HostChange) { c.List = []byte(`[`) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.publish([]*catalog.Catalog{toolCatalog("a", def("x", `{"name":"x"}`))}, routestest.Host("acme").Tool("x", "a", "x"))
				c := routestest.Host("acme").Tool("y", "a", "y").Change(t, b.lease, b.revision+1)
				spoil(&c)
				if err := b.Publish(t.Context(), b.lease, routes.Batch{Hosts: []routes.HostChange{c}}); err != nil {
					t.Fatal(err)
				}
				b.settle()
				if got := b.names(); !slices.Equal(got, []string{"x"}) {
					t.Errorf("tools %v, want the last good ones", got)
				}
			})
		})
	}
}

// A catalog is written before the hosts that refer to it: in between, a host's list refers to definitions that are gone from it.
func TestACatalogThatMovedOnKeepsWhatIsListed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.publish([]*catalog.Catalog{toolCatalog("a", def("x", `{"name":"x"}`))}, routestest.Host("acme").Tool("p_x", "a", "x"))
		b.publish([]*catalog.Catalog{toolCatalog("a", def("y", `{"name":"y"}`))}) // the host's change is still to come
		if got := b.names(); !slices.Equal(got, []string{"p_x"}) {
			t.Errorf("tools %v, want what the host's list says", got)
		}
	})
}

func TestResolveErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewStore(StoreOptions{Changes: routestest.NewMemory(), Hosts: routestest.NewMemory(), Catalogs: routestest.NewMemory()})
		if err != nil {
			t.Fatal(err)
		}
		srv, err := NewServer(ServerOptions{Store: s})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := srv.Resolve(t.Context(), "acme"); !errors.Is(err, routes.ErrUnavailable) {
			t.Errorf("before anything was read: %v, want ErrUnavailable", err)
		}
	})
}

// racing publishes once more while a host is being read.
type racing struct {
	*routestest.Memory
	once    func()
	reading bool
}

func (r *racing) List(ctx context.Context, id routes.HostID) ([]byte, error) {
	raw, err := r.Memory.List(ctx, id)
	if !r.reading {
		r.reading = true
		r.once()
		synctest.Wait() // the event has arrived
	}
	return raw, err
}

func TestAChangeDuringAReadIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false)
		b.publish([]*catalog.Catalog{toolCatalog("a", def("x", `{"name":"x"}`), def("y", `{"name":"y"}`))}, routestest.Host("other"))
		b.complete() // from now on only events tell
		next := routestest.Host("acme").Tool("y", "a", "y").Change(t, b.lease, b.revision+2)
		b.store.o.Hosts = &racing{Memory: b.Memory, once: func() {
			if err := b.Publish(t.Context(), b.lease, routes.Batch{Hosts: []routes.HostChange{next}}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}}
		b.publish(nil, routestest.Host("acme").Tool("x", "a", "x"))
		if got := b.names(); !slices.Equal(got, []string{"y"}) {
			t.Errorf("tools %v, want those of the change that came meanwhile", got)
		}
	})
}
