package routes

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Kind is what a downstream name names.
type Kind uint8

// The kinds of routes.
const (
	KindTool Kind = iota
	KindPrompt
	KindResource
	KindResourceTemplate // a template by its own text, as in lists and completion; Lookup(KindResource) matches URIs
)

func (k Kind) String() string {
	switch k {
	case KindTool:
		return "tool"
	case KindPrompt:
		return "prompt"
	case KindResource:
		return "resource"
	case KindResourceTemplate:
		return "resource template"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Target is where a look-up leads. Backend is shared and read-only.
type Target struct {
	ID       BackendID
	Backend  *Backend
	Upstream string // the name or URI to ask the backend for
}

// Index is the immutable look-up table of one document; safe for concurrent use. It uses the document's own maps, so that a
// route exists once in memory.
type Index struct {
	host     *VirtualHost
	backends map[BackendID]*backend
	unlisted []prefixGroup // templates and prefixes, sorted by literal
}

// backend is a Backend with its globs compiled.
type backend struct {
	Backend
	allow, deny []uriGlob
}

// prefixGroup holds the patterns that begin with the same literal text, in canonical form, those to be tried first at the
// front. Since groups are sorted, the groups whose literal begins a URI are the last one not after it and its parents.
type prefixGroup struct {
	literal  string
	parent   int // index of the group with the longest literal that begins this one; -1: none
	patterns []pattern
}

// pattern is a template, or a prefix when template is nil.
type pattern struct {
	source   string // as the document has it
	id       BackendID
	backend  *backend
	template *template
}

// NewIndex validates vh and builds its table. vh must not be changed afterwards. The error is that of
// [VirtualHost.Validate]: all faults, joined.
func NewIndex(vh *VirtualHost) (*Index, error) {
	if err := vh.Validate(); err != nil {
		return nil, err
	}
	ix := &Index{host: vh, backends: make(map[BackendID]*backend, len(vh.Backends))}
	for id, b := range vh.Backends {
		c := &backend{Backend: b}
		var err error
		if c.allow, err = parseURIGlobs(b.ResourceAllow); err != nil {
			return nil, err
		}
		if c.deny, err = parseURIGlobs(b.ResourceDeny); err != nil {
			return nil, err
		}
		ix.backends[id] = c
	}
	return ix, ix.addUnlisted()
}

func parseURIGlobs(globs []string) ([]uriGlob, error) {
	var compiled []uriGlob
	for _, s := range globs {
		g, err := parseURIGlob(s)
		if err != nil {
			return nil, err
		}
		compiled = append(compiled, g)
	}
	return compiled, nil
}

// addUnlisted builds the groups of templates and prefixes.
func (ix *Index) addUnlisted() error {
	groups := map[string][]pattern{}
	for source, r := range ix.host.ResourceTemplates {
		t, err := parseTemplate(source)
		if err != nil {
			return err
		}
		groups[t.literal] = append(groups[t.literal], pattern{source, r.Backend, ix.backends[r.Backend], t})
	}
	for source, r := range ix.host.ResourcePrefixes {
		literal := canonical(source)
		groups[literal] = append(groups[literal], pattern{source, r.Backend, ix.backends[r.Backend], nil})
	}
	rank := make(map[BackendID]int, len(ix.host.Order))
	for i, id := range ix.host.Order {
		rank[id] = i + 1
	}
	for literal, patterns := range groups {
		slices.SortFunc(patterns, func(a, b pattern) int {
			return cmp.Or(compareRank(rank[a.id], rank[b.id]), strings.Compare(string(a.id), string(b.id)),
				strings.Compare(a.source, b.source))
		})
		ix.unlisted = append(ix.unlisted, prefixGroup{literal: literal, patterns: patterns})
	}
	slices.SortFunc(ix.unlisted, func(a, b prefixGroup) int { return strings.Compare(a.literal, b.literal) })
	for i := range ix.unlisted {
		parent := i - 1
		for parent >= 0 && !strings.HasPrefix(ix.unlisted[i].literal, ix.unlisted[parent].literal) {
			parent = ix.unlisted[parent].parent
		}
		ix.unlisted[i].parent = parent
	}
	return nil
}

// compareRank puts rank 0, a backend that Order does not name, last.
func compareRank(a, b int) int { return cmp.Compare(uint(a)-1, uint(b)-1) }

// Host returns the document the index was built from; read-only.
func (ix *Index) Host() *VirtualHost { return ix.host }

// Lookup finds where a downstream name leads. An exact hit takes two map look-ups and no allocation.
//
// A URI that no route lists is held against templates and prefixes: the longest literal prefix wins, then the order of the
// host's backends. See unlisted.go for what such a URI must satisfy.
func (ix *Index) Lookup(kind Kind, name string) (Target, bool) {
	if r, ok := ix.exact(kind)[name]; ok {
		return Target{r.Backend, &ix.backends[r.Backend].Backend, r.Upstream}, true
	}
	if kind == KindResource && len(ix.unlisted) > 0 {
		if p, _ := ix.findUnlisted(name, nil); p != nil {
			return Target{p.id, &p.backend.Backend, name}, true
		}
	}
	return Target{}, false
}

func (ix *Index) exact(kind Kind) map[string]ServiceRoute {
	switch kind {
	case KindTool:
		return ix.host.Tools
	case KindPrompt:
		return ix.host.Prompts
	case KindResource:
		return ix.host.Resources
	case KindResourceTemplate:
		return ix.host.ResourceTemplates
	}
	return nil
}

// lastNotAfter returns the index of the last group whose literal is not after uri, -1 if there is none.
func (ix *Index) lastNotAfter(uri string) int {
	return sort.Search(len(ix.unlisted), func(i int) bool { return ix.unlisted[i].literal > uri }) - 1
}
