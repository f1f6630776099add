package compile

import (
	"cmp"
	"slices"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// Input of one compilation. It is only read.
type Input struct {
	Config   *config.Config
	Catalogs map[routes.BackendID]*catalog.Catalog
	// Previous is what stands published, per host: whoever holds a name keeps it. A host that was never published is absent.
	Previous map[routes.HostID]*routes.VirtualHost
	// ServerVersion is the version that hosts show to clients; empty means "dev".
	ServerVersion string
}

// Output of one compilation. Documents carry no incarnation, epoch or revision; the publisher sets them.
type Output struct {
	Hosts    map[routes.HostID]*routes.VirtualHost
	Lists    map[routes.HostID]*routes.HostList
	Problems []Problem // in the order of the config
}

// Compile compiles every host of the config. It is pure: same input, same output, byte for byte. The output shares memory
// with the input and must be read only as well.
func Compile(in Input) Output {
	out := Output{
		Hosts: make(map[routes.HostID]*routes.VirtualHost, len(in.Config.VirtualHosts)),
		Lists: make(map[routes.HostID]*routes.HostList, len(in.Config.VirtualHosts)),
	}
	known := make(map[routes.BackendID]*config.Backend, len(in.Config.Backends))
	for i := range in.Config.Backends {
		known[in.Config.Backends[i].ID] = &in.Config.Backends[i]
	}
	for i := range in.Config.Backends {
		b := &in.Config.Backends[i]
		out.Problems = append(out.Problems, backendProblems(b, in.Catalogs[b.ID])...)
	}
	for i := range in.Config.VirtualHosts {
		vh := &in.Config.VirtualHosts[i]
		c := hostCompiler{
			in: &in, host: vh, known: known,
			prev: cmp.Or(in.Previous[vh.ID], &routes.VirtualHost{}),
		}
		doc, list := c.compile()
		out.Hosts[vh.ID], out.Lists[vh.ID] = doc, list
		out.Problems = append(out.Problems, c.problems...)
	}
	return out
}

// Whole reports whether every backend that vh names was heard of: by a catalog, or by the routes that stand published. Until
// then a first document of the host would lack names for no fault of theirs.
func Whole(in Input, vh *config.VirtualHost) bool {
	prev := in.Previous[vh.ID]
	return !slices.ContainsFunc(vh.Backends, func(hb config.HostBackend) bool {
		if in.Catalogs[hb.Name] != nil {
			return false
		}
		if prev == nil {
			return true
		}
		_, stands := prev.Backends[hb.Name]
		return !stands
	})
}

// hostCompiler compiles one host.
type hostCompiler struct {
	in       *Input
	host     *config.VirtualHost
	known    map[routes.BackendID]*config.Backend
	prev     *routes.VirtualHost // never nil
	problems []Problem
}

func (c *hostCompiler) problem(code string, backend routes.BackendID, subject, text string) {
	c.problems = append(c.problems, Problem{Code: code, Host: c.host.ID, Backend: backend, Subject: subject, Text: text})
}

func (c *hostCompiler) compile() (*routes.VirtualHost, *routes.HostList) {
	doc := &routes.VirtualHost{
		Schema:   routes.SchemaVersion,
		ID:       c.host.ID,
		Backends: make(map[routes.BackendID]routes.Backend, len(c.host.Backends)),
		Tasks:    c.host.Tasks,
		Plugins:  pluginsFor(c.in.Config.Plugins, c.host.ID),
	}
	members := c.members()
	for i := range members {
		doc.Order = append(doc.Order, members[i].use.Name)
	}

	tools := c.settle(kindTool, c.offers(kindTool, members), c.prev.Tools)
	prompts := c.settle(kindPrompt, c.offers(kindPrompt, members), c.prev.Prompts)
	resources := c.settle(kindResource, c.checkURIs(c.offers(kindResource, members)), c.prev.Resources)
	templates := c.settle(kindTemplate, c.checkTemplates(c.offers(kindTemplate, members)), c.prev.ResourceTemplates)
	prefixes := c.settle(kindPrefix, c.prefixOffers(members), c.prev.ResourcePrefixes)
	templates = c.limitTemplates(templates)

	doc.Tools, doc.Prompts = routesOf(tools), routesOf(prompts)
	doc.Resources, doc.ResourceTemplates, doc.ResourcePrefixes = routesOf(resources), routesOf(templates), routesOf(prefixes)
	for i := range members {
		m := &members[i]
		m.route.ToolSchemas = c.toolSchemas(m, tools)
		doc.Backends[m.use.Name] = m.route
	}

	doc.Capabilities = capabilities(members, doc)
	doc.ServerInfo = serverInfo(c.host.ID, c.in.ServerVersion)
	doc.Instructions = c.instructions(members)

	list := &routes.HostList{
		Tools: entriesOf(tools), Prompts: entriesOf(prompts),
		Resources: entriesOf(resources), ResourceTemplates: entriesOf(templates),
	}
	return doc, list
}

// routesOf is the table of what was settled; nil when there is nothing.
func routesOf(offers []offer) map[string]routes.ServiceRoute {
	if len(offers) == 0 {
		return nil
	}
	table := make(map[string]routes.ServiceRoute, len(offers))
	for _, o := range offers {
		table[o.name] = routes.ServiceRoute{Backend: o.backend, Upstream: o.upstream}
	}
	return table
}

// entriesOf is the list of what was settled. What only an earlier document tells of has a route but no definition to show.
func entriesOf(offers []offer) []routes.ListEntry {
	var list []routes.ListEntry
	for _, o := range offers {
		if o.item != nil {
			list = append(list, routes.ListEntry{Name: o.name, Backend: o.backend, Upstream: o.upstream, Digest: o.item.Digest})
		}
	}
	return list
}

// pluginsFor picks the plugins that may run on a host. Their conditions on tools are the dataplane's to evaluate.
func pluginsFor(all []routes.PluginRef, host routes.HostID) []routes.PluginRef {
	var out []routes.PluginRef
	for _, p := range all {
		if len(p.When.Hosts) == 0 || matchesAny(p.When.Hosts, string(host)) {
			out = append(out, p)
		}
	}
	return out
}
