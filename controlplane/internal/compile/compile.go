package compile

import (
	"cmp"

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
	// Pins is what was approved of backends whose definitions are pinned. A backend that is absent has nothing to compare with.
	Pins map[routes.BackendID]*catalog.Pins
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
	c := For(in)
	out := Output{
		Hosts:    make(map[routes.HostID]*routes.VirtualHost, len(in.Config.VirtualHosts)),
		Lists:    make(map[routes.HostID]*routes.HostList, len(in.Config.VirtualHosts)),
		Problems: c.Backends(),
	}
	for i := range in.Config.VirtualHosts {
		host := &in.Config.VirtualHosts[i]
		h := c.Host(host)
		out.Hosts[host.ID], out.Lists[host.ID] = h.Document, h.List
		out.Problems = append(out.Problems, h.Problems...)
	}
	return out
}

// Compiler compiles one input host by host: what it says of a host depends on the config, the catalogs of the host's own
// backends and the host's own previous document, so that a caller may keep it while these stay the same.
type Compiler struct {
	in    Input
	known map[routes.BackendID]*config.Backend
}

// For prepares to compile in.
func For(in Input) *Compiler {
	c := &Compiler{in: in, known: make(map[routes.BackendID]*config.Backend, len(in.Config.Backends))}
	for i := range in.Config.Backends {
		c.known[in.Config.Backends[i].ID] = &in.Config.Backends[i]
	}
	return c
}

// Backends returns the problems of the backends as such, however many hosts use them.
func (c *Compiler) Backends() []Problem {
	var out []Problem
	for i := range c.in.Config.Backends {
		b := &c.in.Config.Backends[i]
		out = append(out, backendProblems(b.ID, c.in.Catalogs[b.ID])...)
		out = append(out, pinProblems(b, c.in.Catalogs[b.ID], c.in.Pins[b.ID])...)
	}
	return out
}

// Host is one compiled host.
type Host struct {
	Document *routes.VirtualHost
	List     *routes.HostList
	Problems []Problem
}

// Whole reports whether every backend that the config names was heard of, by a catalog or by the routes that stand published.
// Until then names are missing for no fault of theirs.
func (h Host) Whole() bool { return len(h.List.Missing) == 0 }

// Host compiles one host of the config.
func (c *Compiler) Host(host *config.VirtualHost) Host {
	h := hostCompiler{
		in: &c.in, host: host, known: c.known,
		prev: cmp.Or(c.in.Previous[host.ID], &routes.VirtualHost{}),
	}
	doc, list := h.compile()
	return Host{doc, list, h.problems}
}

// hostCompiler compiles one host.
type hostCompiler struct {
	in       *Input
	host     *config.VirtualHost
	known    map[routes.BackendID]*config.Backend
	prev     *routes.VirtualHost // never nil
	problems []Problem
	missing  []routes.BackendID // in the order of the config
}

func (c *hostCompiler) problem(code string, backend routes.BackendID, subject, text string) {
	c.problems = appendProblem(c.problems, Problem{Code: code, Host: c.host.ID, Backend: backend, Subject: subject, Text: text})
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

	tools := unwithheld(c.settle(kindTool, c.offers(kindTool, members), c.prev.Tools))
	prompts := c.settle(kindPrompt, c.offers(kindPrompt, members), c.prev.Prompts)
	resources := c.settle(kindResource, c.offers(kindResource, members), c.prev.Resources)
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
		Missing: c.missing,
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
