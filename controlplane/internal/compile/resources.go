package compile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-mcp/weir/controlplane/internal/config"
)

// Bounds of CONTRACT, "templates".
const (
	maxTemplateVariables = 8
	maxTemplates         = 1000 // a host
)

// literalScheme is a URI scheme (RFC 3986 § 3.1) before the first expression of a template.
var literalScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// checkURIs leaves out the resources whose URI is too long to be looked up, each with a problem.
func (c *hostCompiler) checkURIs(offers []offer) []offer {
	return slices.DeleteFunc(offers, func(o offer) bool {
		if len(o.upstream) <= maxURI {
			return false
		}
		c.problem(CodeURIRefused, o.backend, o.upstream[:maxURI], fmt.Sprintf("the resource is not published: its URI is longer than %d bytes", maxURI))
		return true
	})
}

// checkTemplates leaves out the templates that no look-up could serve, each with a problem.
func (c *hostCompiler) checkTemplates(offers []offer) []offer {
	var out []offer
	for _, o := range offers {
		if fault := templateFault(o.upstream); fault != "" {
			c.problem(CodeTemplateRefused, o.backend, o.upstream, "the template is not published: "+fault)
			continue
		}
		out = append(out, o)
	}
	return out
}

// templateFault says why a template can't be published; empty: it can.
func templateFault(template string) string {
	if len(template) > maxURI {
		return fmt.Sprintf("it is longer than %d bytes", maxURI)
	}
	if !literalScheme.MatchString(literalPrefix(template)) {
		return "it has no literal scheme, so that it could stand for any other backend's URI"
	}
	if n := templateVariables(template); n > maxTemplateVariables {
		return fmt.Sprintf("it has %d variables, at most %d are served", n, maxTemplateVariables)
	}
	return ""
}

// templateVariables counts the variables of every expression.
func templateVariables(template string) int {
	n := 0
	for rest := template; ; {
		_, after, found := strings.Cut(rest, "{")
		if !found {
			return n
		}
		expr, tail, _ := strings.Cut(after, "}")
		n += strings.Count(expr, ",") + 1
		rest = tail
	}
}

// literalPrefix is what stands before the first expression.
func literalPrefix(template string) string {
	prefix, _, _ := strings.Cut(template, "{")
	return prefix
}

// limitTemplates keeps at most 1,000 templates of a host: those that stand published first, then in order.
func (c *hostCompiler) limitTemplates(offers []offer) []offer {
	if len(offers) <= maxTemplates {
		return offers
	}
	room := maxTemplates
	for i := range offers {
		if holds(c.prev.ResourceTemplates, &offers[i]) {
			room--
		}
	}
	out := make([]offer, 0, maxTemplates)
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
		len(offers)-len(out), maxTemplates))
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
	begin := literalPrefix(template)
	for _, g := range f.Allow {
		glob := g.String()
		if i := strings.IndexAny(glob, "*?"); i >= 0 {
			glob = glob[:i]
		}
		if strings.HasPrefix(glob, begin) || strings.HasPrefix(begin, glob) {
			return true
		}
	}
	return false
}

// prefixOffers are the literal prefixes that the config opens for URIs that nobody lists.
func (c *hostCompiler) prefixOffers(members []member) []offer {
	var out []offer
	for i := range members {
		m := &members[i]
		seen := make(map[string]bool)
		for _, p := range m.use.Resources.Prefixes {
			if !seen[p] {
				out = append(out, offer{name: p, backend: m.use.Name, upstream: p})
			}
			seen[p] = true
		}
	}
	return out
}
