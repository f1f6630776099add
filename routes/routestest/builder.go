package routestest

import (
	"encoding/json"
	"testing"

	"github.com/weir-mcp/weir/routes"
)

// HostBuilder builds the document of a host and its list. Names are listed in the order in which they were added.
type HostBuilder struct {
	vh   routes.VirtualHost
	list routes.HostList
}

// Host begins a document. What it names later and was not given as a Backend is a modern backend at http://<id>.invalid/mcp.
func Host(id routes.HostID) *HostBuilder {
	return &HostBuilder{vh: routes.VirtualHost{
		Schema: routes.SchemaVersion, ID: id,
		Backends:          map[routes.BackendID]routes.Backend{},
		Tools:             map[string]routes.ServiceRoute{},
		Prompts:           map[string]routes.ServiceRoute{},
		Resources:         map[string]routes.ServiceRoute{},
		ResourceTemplates: map[string]routes.ServiceRoute{},
		ResourcePrefixes:  map[string]routes.ServiceRoute{},
		Capabilities:      json.RawMessage(`{"tools":{}}`),
		ServerInfo:        json.RawMessage(`{"name":"test","version":"0"}`),
	}}
}

// Backend adds a backend, or replaces it.
func (b *HostBuilder) Backend(id routes.BackendID, backend routes.Backend) *HostBuilder {
	if _, known := b.vh.Backends[id]; !known {
		b.vh.Order = append(b.vh.Order, id)
	}
	b.vh.Backends[id] = backend
	return b
}

// Tool adds a tool: what clients call it, whose it is, and what its backend calls it.
func (b *HostBuilder) Tool(name string, backend routes.BackendID, upstream string) *HostBuilder {
	b.vh.Tools[name] = b.route(backend, upstream)
	b.list.Tools = append(b.list.Tools, entry(name, backend, upstream))
	return b
}

// Prompt adds a prompt.
func (b *HostBuilder) Prompt(name string, backend routes.BackendID, upstream string) *HostBuilder {
	b.vh.Prompts[name] = b.route(backend, upstream)
	b.list.Prompts = append(b.list.Prompts, entry(name, backend, upstream))
	return b
}

// Resource adds a resource.
func (b *HostBuilder) Resource(uri string, backend routes.BackendID) *HostBuilder {
	b.vh.Resources[uri] = b.route(backend, uri)
	b.list.Resources = append(b.list.Resources, entry(uri, backend, uri))
	return b
}

// Template adds an RFC 6570 template.
func (b *HostBuilder) Template(template string, backend routes.BackendID) *HostBuilder {
	b.vh.ResourceTemplates[template] = b.route(backend, template)
	b.list.ResourceTemplates = append(b.list.ResourceTemplates, entry(template, backend, template))
	return b
}

// Prefix adds a literal prefix of URIs.
func (b *HostBuilder) Prefix(prefix string, backend routes.BackendID) *HostBuilder {
	b.vh.ResourcePrefixes[prefix] = b.route(backend, prefix)
	return b
}

// Edit changes what the other methods don't reach.
func (b *HostBuilder) Edit(edit func(*routes.VirtualHost)) *HostBuilder {
	edit(&b.vh)
	return b
}

func (b *HostBuilder) route(backend routes.BackendID, upstream string) routes.ServiceRoute {
	if _, known := b.vh.Backends[backend]; !known {
		b.Backend(backend, routes.Backend{URL: "http://" + string(backend) + ".invalid/mcp", Protocol: "2026-07-28"})
	}
	return routes.ServiceRoute{Backend: backend, Upstream: upstream}
}

func entry(name string, backend routes.BackendID, upstream string) routes.ListEntry {
	return routes.ListEntry{Name: name, Backend: backend, Upstream: upstream, Digest: routes.Digest([]byte(upstream))}
}

// Document returns the document, at no version yet. Both share their maps with the builder.
func (b *HostBuilder) Document() *routes.VirtualHost { vh := b.vh; return &vh }

// List returns the list that goes with it.
func (b *HostBuilder) List() *routes.HostList { l := b.list; return &l }

// Index returns the look-up table of the document; it must be valid.
func (b *HostBuilder) Index(t testing.TB) *routes.Index {
	t.Helper()
	ix, err := routes.NewIndex(b.Document())
	if err != nil {
		t.Fatalf("host %q: %v", b.vh.ID, err)
	}
	return ix
}

// Change returns what a leader publishes for this host at a revision.
func (b *HostBuilder) Change(t testing.TB, l routes.Lease, revision uint64) routes.HostChange {
	t.Helper()
	vh := b.vh
	unversioned, err := routes.EncodeHost(&vh)
	if err != nil {
		t.Fatalf("host %q: %v", vh.ID, err)
	}
	vh.Incarnation, vh.Epoch, vh.Revision = l.Incarnation, l.Epoch, revision
	document, err := routes.EncodeHost(&vh)
	if err != nil {
		t.Fatalf("host %q: %v", vh.ID, err)
	}
	list, err := routes.EncodeList(&b.list)
	if err != nil {
		t.Fatalf("list of host %q: %v", vh.ID, err)
	}
	return routes.HostChange{ID: vh.ID, Revision: revision, Digest: routes.Digest(unversioned, list), Document: document, List: list}
}

// Removal returns what a leader publishes to remove a host.
func Removal(id routes.HostID, revision uint64) routes.HostChange {
	return routes.HostChange{ID: id, Revision: revision, Digest: "removed"}
}
