package routes

import (
	"fmt"
	"strings"
)

// maxMatchWork bounds the regular expressions of one look-up, in units of template.cost: about 15 ms at worst, where a backend
// has hundreds of templates with one literal prefix and a client sends 2 KiB. An honest look-up takes a few hundred units;
// 1,000 templates of three variables take a URI of 80 bytes. Compiling, once for each expression that is plausible for the
// first time, is not counted: else the same URI would be found or not depending on who asked before.
const maxMatchWork = 1 << 18

// findUnlisted finds the template or prefix that serves a URI which no route lists. Such a URI is untrusted text that no
// compiler saw, therefore:
//
//   - It is at most MaxUnlistedURI bytes, has no NUL and no segment "..", percent-encoded or not: "..", resolved by the
//     backend, leads out of the prefix that the operator or the template named. Encoded slashes are fine: RFC 6570 writes a
//     slash in the value of {name} as %2F.
//   - ResourceAllow and ResourceDeny of the pattern's backend hold for both readings of the URI (see folded): a deny when
//     either is denied, an allow only when both are allowed.
//   - A pattern whose backend's globs keep the URI out is passed over and the next one is asked, as if it were not there.
//     The globs say what one backend contributes to the host, for tools and listed resources as for templates: a tool that
//     is denied on one backend is served by another that offers it. Stopping at the first denied pattern would protect
//     nothing (another backend can list that very URI, and lists go first) and would break a split of one template
//     between two backends by their globs. To keep a URI out of a host, deny it on each backend that could serve it.
//
// note, if not nil, is told what became of each pattern in turn; reason says why nothing was found.
func (ix *Index) findUnlisted(uri string, note func(p *pattern, outcome string)) (found *pattern, reason string) {
	if len(uri) > MaxUnlistedURI {
		return nil, fmt.Sprintf("no such resource, and a URI of over %d bytes matches no template or prefix", MaxUnlistedURI)
	}
	canon := canonical(uri)
	work, folding := 0, ""
	for i := ix.lastNotAfter(canon); i >= 0; i = ix.unlisted[i].parent {
		g := &ix.unlisted[i]
		if !strings.HasPrefix(canon, g.literal) {
			continue
		}
		if folding == "" {
			folding = folded(uri)
			if strings.IndexByte(folding, 0) >= 0 || climbs(folding) {
				return nil, `no such resource, and a URI with a segment ".." or a NUL matches no template or prefix`
			}
		}
		for j := range g.patterns {
			p := &g.patterns[j]
			if t := p.template; t != nil {
				if !t.plausible(canon) {
					tell(note, p, "does not match")
					continue
				}
				if work += t.cost(canon); work > maxMatchWork {
					return nil, "gave up: too many templates with one literal prefix for a URI of this length"
				}
				if !t.match(canon) {
					tell(note, p, "does not match")
					continue
				}
			}
			if refusal := p.backend.refuses(uri, folding); refusal != "" {
				tell(note, p, refusal)
				continue
			}
			tell(note, p, "matches")
			return p, ""
		}
	}
	return nil, "no such resource, and no template or prefix matches"
}

func tell(note func(*pattern, string), p *pattern, outcome string) {
	if note != nil {
		note(p, outcome)
	}
}

// refuses says which rule of the backend keeps a URI out; empty: none does.
func (b *backend) refuses(uri, folding string) string {
	for _, g := range b.deny {
		if g.either(uri, folding) {
			return "denied by " + g.String()
		}
	}
	for _, g := range b.allow {
		if g.both(uri, folding) {
			return ""
		}
	}
	if len(b.allow) > 0 {
		return "allowed by no glob"
	}
	return ""
}

// Explanation says how a look-up went, for people.
type Explanation struct {
	Target Target // zero when nothing was found
	Step   string // exact, template or prefix: which step decided; empty when nothing was found
	Rule   string // the name, template or prefix that decided
	Reason string // why nothing was found; else empty
	Tried  []Attempt
}

// Attempt is one template or prefix that was held against a URI, in the order of trying.
type Attempt struct {
	Rule    string
	Backend BackendID
	Outcome string // "matches", "does not match", "denied by GLOB", "allowed by no glob"
}

// Explain runs Lookup and says what decided. It is for the admin API: it allocates, and names backends.
func (ix *Index) Explain(kind Kind, name string) Explanation {
	target, ok := ix.Lookup(kind, name)
	if _, exact := ix.exact(kind)[name]; exact && ok {
		return Explanation{Target: target, Step: "exact", Rule: name}
	}
	e := Explanation{Target: target}
	if kind != KindResource {
		e.Reason = fmt.Sprintf("no such %s", kind)
		return e
	}
	p, reason := ix.findUnlisted(name, func(p *pattern, outcome string) {
		e.Tried = append(e.Tried, Attempt{Rule: p.source, Backend: p.id, Outcome: outcome})
	})
	e.Reason = reason
	if p != nil {
		e.Rule, e.Step = p.source, "template"
		if p.template == nil {
			e.Step = "prefix"
		}
	}
	return e
}
