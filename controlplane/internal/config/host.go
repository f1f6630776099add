package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-mcp/weir/routes"
)

func indexed(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

func (c *checker) virtualHost(e entry[hostBlock], cfg *Config) VirtualHost {
	path, h := "virtual_hosts."+e.Key, &e.Value
	if !routes.ValidID(e.Key) {
		c.fault(path, "%q can't name a virtual host: %s", e.Key, idGrammar)
	}
	out := VirtualHost{ID: routes.HostID(e.Key), Tasks: c.tasks(path+".tasks", h.Tasks)}
	if len(h.Backends) == 0 {
		c.warn(CodeUnused, path, "has no backends, so there is nothing to call")
	}
	names := map[string]string{} // kind and downstream name → the path of the alias that gives it
	for i := range h.Backends {
		at, b := indexed(path+".backends", i), &h.Backends[i]
		use := HostBackend{Name: routes.BackendID(b.Name), Source: b.Source, Prefix: b.Prefix}
		if b.Source != "" || b.Match != "" {
			use.Match = c.allOfSource(at, b, cfg.Sources)
		} else {
			c.namedBackend(at, b, cfg, out.Backends)
		}
		use.Tools = c.filter(at+".tools", &b.Tools, names, "tool")
		use.Prompts = c.filter(at+".prompts", &b.Prompts, names, "prompt")
		use.Resources = c.resources(at+".resources", &b.Resources)
		out.Backends = append(out.Backends, use)
	}
	return out
}

// namedBackend checks an entry that stands for one backend. Where there are sources, one of them may deliver it any time.
func (c *checker) namedBackend(at string, b *hostBackendBlock, cfg *Config, before []HostBackend) {
	switch id := routes.BackendID(b.Name); {
	case b.Name == "":
		c.fault(at+".name", "is required")
	case !routes.ValidID(b.Name) && len(cfg.Sources) > 0:
		c.fault(at+".name", "%q can't name a backend: %s", b.Name, idGrammar)
	case !defines(cfg.Backends, id) && len(cfg.Sources) == 0:
		c.fault(at+".name", "no backend %q is defined", b.Name)
	case slices.ContainsFunc(before, func(b HostBackend) bool { return b.Name == id }):
		c.fault(at+".name", "%q stands in this host already", b.Name)
	}
	if err := validPrefix(b.Prefix); err != nil {
		c.fault(at+".prefix", "%w", err)
	}
}

// The values of tasks.
const (
	UnrecordedClaim = "claim"
	UnrecordedProbe = "probe"
	UnrecordedDeny  = "deny"

	notFoundModern = -32602
	notFoundLegacy = -32002
)

func (c *checker) tasks(path string, t tasksBlock) routes.TaskPolicy {
	out := routes.TaskPolicy{Unrecorded: UnrecordedClaim, NotFound: notFoundModern}
	switch t.Unrecorded {
	case "":
	case UnrecordedClaim, UnrecordedProbe, UnrecordedDeny:
		out.Unrecorded = t.Unrecorded
	default:
		c.fault(path+".unrecorded", "%q is none of claim, probe, deny", t.Unrecorded)
	}
	switch t.NotFound {
	case 0:
	case notFoundModern, notFoundLegacy:
		out.NotFound = t.NotFound
	default:
		c.fault(path+".not_found", "%d is neither %d nor %d", t.NotFound, notFoundModern, notFoundLegacy)
	}
	return out
}

// maxAlias is the longest alias, in characters: a longer name would be cut, and an alias says what the name is.
const maxAlias = 64

func (c *checker) filter(path string, f *filterBlock, names map[string]string, kind string) Filter {
	out := Filter{
		Allow: c.globs(path+".allow", f.Allow, true),
		Deny:  c.globs(path+".deny", f.Deny, false),
	}
	for _, upstream := range sortedKeys(f.Alias) {
		at, downstream := path+".alias."+upstream, f.Alias[upstream]
		switch {
		case upstream == "":
			c.fault(at, "the upstream name is empty")
			continue
		case !validAlias(downstream):
			c.fault(at, "%q can't be a name: want 1 to %d characters, none of them a space or a control character", downstream, maxAlias)
			continue
		}
		if first, dup := names[kind+" "+downstream]; dup {
			c.fault(at, "%s gives the name %q already", first, downstream)
			continue
		}
		names[kind+" "+downstream] = at
		if out.Alias == nil {
			out.Alias = map[string]string{}
		}
		out.Alias[upstream] = downstream
	}
	return out
}

func validAlias(s string) bool {
	return s != "" && utf8.ValidString(s) && utf8.RuneCountInString(s) <= maxAlias &&
		!strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
}

// scheme is how an absolute URI begins: RFC 3986 § 3.1.
var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// maxURI bounds a URI prefix, in bytes, as URIs themselves are bounded.
const maxURI = 2 << 10

func (c *checker) resources(path string, r *resourcesBlock) ResourceFilter {
	out := ResourceFilter{
		Allow: c.globs(path+".allow", r.Allow, true),
		Deny:  c.globs(path+".deny", r.Deny, false),
	}
	for i, p := range r.Prefixes {
		at := indexed(path+".prefixes", i)
		switch {
		case !scheme.MatchString(p) || strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r == 0x7f }):
			c.fault(at, "%q is not the beginning of an absolute URI, such as file:///data/", p)
		case len(p) > maxURI:
			c.fault(at, "has %d bytes; at most %d are allowed", len(p), maxURI)
		case slices.Contains(out.Prefixes, p):
			c.fault(at, "%q stands here twice", p)
		default:
			out.Prefixes = append(out.Prefixes, p)
		}
	}
	return out
}
