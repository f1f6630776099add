package compile

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// A hold brings back names and routes; how backends speak and what their items say is of now, and what is withheld stays so.
func TestHeld(t *testing.T) {
	cfg, _, err := config.Parse([]byte(base + `backends:
  a: {url: "http://a.example/mcp", pin: block}
  b: {url: "http://b.example/mcp"}
virtual_hosts:
  acme: {backends: [{name: a, prefix: new_}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	tools := func(defs ...string) (list []json.RawMessage) {
		for _, d := range defs {
			list = append(list, json.RawMessage(d))
		}
		return list
	}
	now := catalogJSON{Protocol: "2026-07-28", Tools: tools(`"kept"`, `{"name":"evil","description":"changed"}`, `{"name":"x","description":"v2"}`)}.catalog(t, "a")
	approved := catalogJSON{Tools: tools(`{"name":"evil","description":"good"}`, `{"name":"x","description":"v2"}`)}.catalog(t, "a")
	c := For(Input{Config: cfg, Catalogs: map[routes.BackendID]*catalog.Catalog{"a": now}, ServerVersion: "1",
		Pins: map[routes.BackendID]*catalog.Pins{"a": (*catalog.Pins)(nil).See(approved)}})
	route := func(id routes.BackendID, name string) routes.ServiceRoute {
		return routes.ServiceRoute{Backend: id, Upstream: name}
	}
	doc := &routes.VirtualHost{Schema: 1, ID: "acme", Incarnation: "i", Epoch: 3, Revision: 7,
		Order: []routes.BackendID{"a", "b"},
		Backends: map[routes.BackendID]routes.Backend{
			"a": {URL: "http://a.example/mcp", Protocol: "2025-11-25", Handshake: routes.HandshakeRequired},
			"b": {URL: "http://old.example/mcp", Protocol: "2025-11-25"},
		},
		Tools: map[string]routes.ServiceRoute{
			"kept": route("a", "kept"), "evil": route("a", "evil"), "x": route("a", "x"), "gone": route("a", "gone"), "y": route("b", "y"),
		},
	}
	list := &routes.HostList{Tools: []routes.ListEntry{
		{Name: "kept", Backend: "a", Upstream: "kept", Digest: "old"}, {Name: "evil", Backend: "a", Upstream: "evil", Digest: "old"},
		{Name: "x", Backend: "a", Upstream: "x", Digest: "old"}, {Name: "gone", Backend: "a", Upstream: "gone", Digest: "old"},
		{Name: "y", Backend: "b", Upstream: "y", Digest: "old"},
	}}
	held := c.Held(c.Host(&cfg.VirtualHosts[0]), doc, list)

	want := &routes.VirtualHost{Schema: 1, ID: "acme", Order: doc.Order,
		Backends: map[routes.BackendID]routes.Backend{
			"a": {URL: "http://a.example/mcp", Protocol: "2026-07-28"},
			"b": {URL: "http://old.example/mcp", Protocol: "2025-11-25"},
		},
		Tools: map[string]routes.ServiceRoute{
			"kept": route("a", "kept"), "x": route("a", "x"), "gone": route("a", "gone"), "y": route("b", "y"),
		},
	}
	if diff := cmp.Diff(want, held.Document); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
	wantList := []routes.ListEntry{
		{Name: "kept", Backend: "a", Upstream: "kept", Digest: now.Tools.Items[0].Digest},
		{Name: "x", Backend: "a", Upstream: "x", Digest: now.Tools.Items[2].Digest},
		{Name: "y", Backend: "b", Upstream: "y", Digest: "old"},
	}
	if diff := cmp.Diff(wantList, held.List.Tools); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if _, stands := doc.Tools["evil"]; !stands || doc.Revision != 7 {
		t.Error("the document of the history was changed")
	}
}
