package compile

import (
	"fmt"
	"maps"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// Held makes of a host that an operator holds at an earlier revision what is published: the names, routes and policy of then.
// What is a fact and no decision is of now: how a backend speaks, and how its items are defined. A tool that is withheld is
// withheld here too. now is what the host would be without the hold; doc and list are only read.
func (c *Compiler) Held(now Host, doc *routes.VirtualHost, list *routes.HostList) Host {
	held := *doc
	held.Incarnation, held.Epoch, held.Revision = "", 0, 0
	held.Schema = routes.SchemaVersion
	held.Tools = maps.Clone(doc.Tools)
	held.Backends = maps.Clone(doc.Backends)
	for id, b := range held.Backends {
		current, stands := now.Document.Backends[id]
		if !stands || current.URL != b.URL {
			continue
		}
		b.Protocol, b.Handshake, b.Capabilities = current.Protocol, current.Handshake, current.Capabilities
		if len(current.ToolSchemas) > 0 {
			schemas := maps.Clone(current.ToolSchemas)
			for name, schema := range b.ToolSchemas {
				if _, known := schemas[name]; !known {
					schemas[name] = schema
				}
			}
			b.ToolSchemas = schemas
		}
		held.Backends[id] = b
	}
	items := c.itemsOf(kindTool)
	for name, r := range held.Tools {
		if c.withheld(r.Backend, items(r.Backend)[r.Upstream]) {
			delete(held.Tools, name)
		}
	}
	out := Host{Document: &held, Problems: now.Problems}
	out.List = &routes.HostList{
		Tools: c.present(kindTool, list.Tools), Prompts: c.present(kindPrompt, list.Prompts),
		Resources: c.present(kindResource, list.Resources), ResourceTemplates: c.present(kindTemplate, list.ResourceTemplates),
		Missing: now.List.Missing,
	}
	return out
}

// HeldProblem says that a host is held, and how that ends.
func HeldProblem(host routes.HostID, revision uint64) Problem {
	return Problem{Code: CodeHostHeld, Host: host, Text: fmt.Sprintf("the host is held at what it was at revision %d: what config and "+
		"backends say since is not published; POST /api/v1/virtual-hosts/%s/rollback {\"revision\": 0} resumes", revision, host)}
}

// withheld reports whether a tool waits for approval; it is nil where the backend offers none of the name.
func (c *Compiler) withheld(id routes.BackendID, it *catalog.Item) bool {
	conf := c.known[id]
	return conf != nil && conf.Pin == config.PinBlock && it != nil && c.in.Pins[id].Changed(it)
}

// present are the entries of an earlier list with the definitions of now. What its backend has no more is left out; of a backend
// that was never heard of nothing is known.
func (c *Compiler) present(k kind, entries []routes.ListEntry) []routes.ListEntry {
	var out []routes.ListEntry
	items := c.itemsOf(k)
	for _, e := range entries {
		if offered := items(e.Backend); offered != nil {
			it := offered[e.Upstream]
			if it == nil || k == kindTool && c.withheld(e.Backend, it) {
				continue
			}
			e.Digest = it.Digest
		}
		out = append(out, e)
	}
	return out
}

// itemsOf returns what a backend offers of a kind, by upstream name; nil: it was never heard of.
func (c *Compiler) itemsOf(k kind) func(routes.BackendID) map[string]*catalog.Item {
	known := make(map[routes.BackendID]map[string]*catalog.Item)
	return func(id routes.BackendID) map[string]*catalog.Item {
		if items, ok := known[id]; ok {
			return items
		}
		list := listOf(c.in.Catalogs[id], k)
		if list == nil {
			known[id] = nil
			return nil
		}
		items := make(map[string]*catalog.Item, len(list.Items))
		for i := range list.Items {
			it := &list.Items[i]
			if _, first := items[it.Name]; !first && it.Reject == "" {
				items[it.Name] = it
			}
		}
		known[id] = items
		return items
	}
}
