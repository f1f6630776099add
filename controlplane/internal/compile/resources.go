package compile

import (
	"fmt"
	"strings"

	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// checkTemplates leaves out the templates that no look-up could serve, each with a problem.
func (c *hostCompiler) checkTemplates(offers []offer) []offer {
	var out []offer
	for _, o := range offers {
		if err := routes.CheckTemplate(o.upstream); err != nil {
			c.problem(CodeTemplateRefused, o.backend, o.upstream, "the template is not published: "+err.Error())
			continue
		}
		out = append(out, o)
	}
	return out
}

// literalPrefix is what stands before the first expression.
func literalPrefix(template string) string {
	prefix, _, _ := strings.Cut(template, "{")
	return prefix
}

// limitTemplates keeps at most 1,000 templates of a host: those that stand published first, then in order.
func (c *hostCompiler) limitTemplates(offers []offer) []offer {
	if len(offers) <= routes.MaxTemplates {
		return offers
	}
	room := routes.MaxTemplates
	for i := range offers {
		if holds(c.prev.ResourceTemplates, &offers[i]) {
			room--
		}
	}
	out := make([]offer, 0, routes.MaxTemplates)
	for i := range offers {
		if !holds(c.prev.ResourceTemplates, &offers[i]) {
			if room <= 0 {
				continue
			}
			room--
		}
		out = append(out, offers[i])
	}
	c.problem(CodeTooManyTemplates, "", "", fmt.Sprintf("%d resource templates are not published: a host has at most %d",
		len(offers)-len(out), routes.MaxTemplates))
	return out
}

// templateAllowed applies globs to a template as far as the compiler can: what it expands to is checked again by the
// dataplane, against the same globs. A template is left out when a deny glob covers it as written, or when none of its
// expansions could match an allow glob, because they begin differently.
func templateAllowed(f config.ResourceFilter, template string) bool {
	for _, g := range f.Deny {
		if g.Match(template) {
			return false
		}
	}
	if len(f.Allow) == 0 {
		return true
	}
	begin := plain(literalPrefix(template))
	for _, g := range f.Allow {
		glob := g.String()
		if i := strings.IndexAny(glob, "*?"); i >= 0 {
			glob = glob[:i]
		}
		glob = plain(glob)
		if strings.HasPrefix(glob, begin) || strings.HasPrefix(begin, glob) {
			return true
		}
	}
	return false
}

// plain is the beginning of s in which no byte could be percent-encoded in one spelling and literal in another.
func plain(s string) string {
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte("-._~:/?#[]@$&+,;=", c) < 0 {
			return s[:i]
		}
	}
	return s
}

// prefixOffers are the literal prefixes that the config opens for URIs that nobody lists.
func (c *hostCompiler) prefixOffers(members []member) []offer {
	var out []offer
	for i := range members {
		m := &members[i]
		seen := make(map[string]bool)
		for _, p := range m.use.Resources.Prefixes {
			if seen[p] {
				continue
			}
			seen[p] = true
			if err := routes.CheckPrefix(p); err != nil {
				c.problem(CodeTemplateRefused, m.use.Name, p, "the resource prefix is not published: "+err.Error())
				continue
			}
			out = append(out, offer{name: p, backend: m.use.Name, upstream: p})
		}
	}
	return out
}
