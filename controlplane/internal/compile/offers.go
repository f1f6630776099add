package compile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
)

// kind is one of the namespaces of a host.
type kind string

const (
	kindTool     kind = "tool"
	kindPrompt   kind = "prompt"
	kindResource kind = "resource"
	kindTemplate kind = "resource template"
	kindPrefix   kind = "resource prefix"
)

// offer is one item that a backend puts up under a downstream name (or URI, template, prefix).
type offer struct {
	name     string
	backend  routes.BackendID
	upstream string
	aliased  bool
	item     *catalog.Item // nil: from what stands published, or a prefix
	withheld bool          // it keeps its name to itself, and is not published
}

// offers collects, in the order of the host's list and of each backend's own, what every member offers of one kind after
// allow, deny and the checks of discovery.
func (c *hostCompiler) offers(k kind, members []member) []offer {
	var out []offer
	for i := range members {
		m := &members[i]
		list := listOf(m.cat, k)
		if list == nil { // never heard: what stands published stays
			for _, upstream := range c.standing(k, m.use.Name) {
				if o, ok := m.offer(k, upstream); ok {
					out = append(out, o)
				}
			}
			continue
		}
		seen := make(map[string]bool, len(list.Items))
		for j := range list.Items {
			item := &list.Items[j]
			switch {
			case item.Reject != "": // reported once for the backend, not per host
				continue
			case seen[item.Name]:
				continue // as above
			}
			seen[item.Name] = true
			if o, ok := m.offer(k, item.Name); ok {
				o.item = item
				o.withheld = k == kindTool && m.blocked(item)
				out = append(out, o)
			}
		}
		c.unusedAliases(k, m, seen)
	}
	return out
}

// offer applies the host's filter and naming to one upstream item.
func (m *member) offer(k kind, upstream string) (offer, bool) {
	o := offer{name: upstream, backend: m.use.Name, upstream: upstream}
	switch k {
	case kindTool:
		o.name, o.aliased = downstream(m.use.Prefix, m.use.Tools, upstream)
		return o, allowed(m.use.Tools.Allow, m.use.Tools.Deny, upstream)
	case kindPrompt:
		o.name, o.aliased = downstream(m.use.Prefix, m.use.Prompts, upstream)
		return o, allowed(m.use.Prompts.Allow, m.use.Prompts.Deny, upstream)
	case kindTemplate:
		return o, templateAllowed(m.use.Resources, upstream)
	}
	return o, allowed(m.use.Resources.Allow, m.use.Resources.Deny, upstream)
}

// listOf is a kind's list, or nil when no walk over it has ever succeeded: a list that failed is not an empty list.
func listOf(cat *catalog.Catalog, k kind) *catalog.List {
	if cat == nil {
		return nil
	}
	list := anyList(cat, k)
	if list.Stale && list.Since.IsZero() {
		return nil
	}
	return list
}

func anyList(cat *catalog.Catalog, k kind) *catalog.List {
	switch k {
	case kindPrompt:
		return &cat.Prompts
	case kindResource:
		return &cat.Resources
	case kindTemplate:
		return &cat.ResourceTemplates
	}
	return &cat.Tools
}

// standing is what the previous document routes to a backend, by upstream name, sorted.
func (c *hostCompiler) standing(k kind, id routes.BackendID) []string {
	table := c.prev.Tools
	switch k {
	case kindPrompt:
		table = c.prev.Prompts
	case kindResource:
		table = c.prev.Resources
	case kindTemplate:
		table = c.prev.ResourceTemplates
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if table[name].Backend == id {
			out = append(out, table[name].Upstream)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *hostCompiler) unusedAliases(k kind, m *member, seen map[string]bool) {
	var alias map[string]string
	switch k {
	case kindTool:
		alias = m.use.Tools.Alias
	case kindPrompt:
		alias = m.use.Prompts.Alias
	}
	for _, upstream := range slices.Sorted(maps.Keys(alias)) {
		if !seen[upstream] {
			c.problem(CodeAliasUnused, m.use.Name, upstream,
				fmt.Sprintf("the backend offers no %s %q that alias %q could name", k, upstream, alias[upstream]))
		}
	}
}

// settle decides who gets each name. Whoever holds it in what stands published keeps it while it still offers the same item;
// among new ones the order of offers decides, and within one backend an explicit alias goes before a name that merely came
// out the same. The winners are returned in the order of offers; each loser is a problem.
func (c *hostCompiler) settle(k kind, offers []offer, prev map[string]routes.ServiceRoute) []offer {
	winner := make(map[string]int, len(offers))
	for i := range offers {
		o := &offers[i]
		j, taken := winner[o.name]
		if !taken || (!holds(prev, &offers[j]) && (holds(prev, o) || keeps(o, &offers[j]))) {
			winner[o.name] = i
		}
	}
	var out []offer
	for i, o := range offers {
		if w := winner[o.name]; w != i {
			c.problem(takenCode(k), o.backend, o.name, fmt.Sprintf("%s %q of backend %s is not published: %q is already exposed by backend %s",
				k, o.upstream, o.backend, o.name, offers[w].backend))
			continue
		}
		out = append(out, o)
	}
	return out
}

// holds reports whether o is the very item that stands published under its name.
func holds(prev map[string]routes.ServiceRoute, o *offer) bool {
	return prev[o.name] == routes.ServiceRoute{Backend: o.backend, Upstream: o.upstream}
}

// keeps reports whether o goes before other, though it came later. What is withheld held its name until it changed: nobody else
// may have it meanwhile.
func keeps(o, other *offer) bool {
	if o.withheld != other.withheld {
		return o.withheld
	}
	return outranks(o, other)
}

func outranks(o, other *offer) bool { return o.backend == other.backend && o.aliased && !other.aliased }

func takenCode(k kind) string {
	switch k {
	case kindTool, kindPrompt:
		return CodeNameTaken
	}
	return CodeURITaken
}
