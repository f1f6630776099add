package listing

import (
	"slices"
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// view is one host as it stands published, ready to be listed. It is immutable.
type view struct {
	version routes.Version
	doc     *routes.VirtualHost
	list    *routes.HostList
	kinds   [4]kindView // by routes.Kind
	index   func() (*routes.Index, error)
	// older is the view of the revision before, for cursors that were handed out by it, until it ends.
	older *view
	ends  time.Time // when a superseded view is forgotten; zero: it is not superseded
}

// kindView is one list of a host.
type kindView struct {
	entries []entry
	// partial names the backends whose items are missing or from an earlier walk.
	partial []routes.BackendID
	ttl     *int64 // shortest of the backends' own, in ms; nil: none said
}

// entry is one line of a list.
type entry struct {
	name string // downstream
	item *item
	// renamed: the definition's name is replaced by name.
	renamed bool
}

// superseded is how long the cursors of a revision stay good after the next one, and depth how many revisions are kept.
const (
	superseded = time.Minute
	depth      = 4
)

// newView builds a view. before is the host's present view, nil when there is none.
func newView(version routes.Version, doc *routes.VirtualHost, list *routes.HostList, cats map[routes.BackendID]*backendItems, before *view, now time.Time) *view {
	v := &view{version: version, doc: doc, list: list}
	v.index = sync.OnceValues(func() (*routes.Index, error) { return routes.NewIndex(doc) })
	for kind, entries := range [4][]routes.ListEntry{
		routes.KindTool: list.Tools, routes.KindPrompt: list.Prompts,
		routes.KindResource: list.Resources, routes.KindResourceTemplate: list.ResourceTemplates,
	} {
		v.kinds[kind] = newKind(routes.Kind(kind), entries, doc.Order, list.Missing, cats, before)
	}
	if before == nil {
		return v
	}
	if before.version == version {
		v.older = before.older
		return v
	}
	old := *before
	old.ends = now.Add(superseded)
	v.older = old.prune(now, depth)
	return v
}

func newKind(kind routes.Kind, entries []routes.ListEntry, order, missing []routes.BackendID, cats map[routes.BackendID]*backendItems, before *view) kindView {
	k := kindView{entries: make([]entry, 0, len(entries)), partial: slices.Clone(missing)}
	lost := func(id routes.BackendID) {
		if !slices.Contains(k.partial, id) {
			k.partial = append(k.partial, id)
		}
	}
	for _, id := range order {
		cat := cats[id]
		if cat == nil {
			lost(id)
			continue
		}
		if cat.stale[kind] {
			lost(id)
		}
		if ttl := cat.ttl[kind]; ttl != nil && (k.ttl == nil || *ttl < *k.ttl) {
			k.ttl = ttl
		}
	}
	kept := before.items(kind)
	for _, e := range entries {
		it := cats[e.Backend].find(kind, e.Digest)
		if it == nil {
			it = kept[e.Digest] // the catalog has moved on, the host's list has not yet
		}
		if it == nil {
			lost(e.Backend)
			continue
		}
		k.entries = append(k.entries, entry{name: e.Name, item: it, renamed: e.Name != e.Upstream})
	}
	slices.Sort(k.partial)
	return k
}

// items are the definitions that a view shows, by digest.
func (v *view) items(kind routes.Kind) map[string]*item {
	if v == nil {
		return nil
	}
	m := make(map[string]*item, len(v.kinds[kind].entries))
	for _, e := range v.kinds[kind].entries {
		m[e.item.digest] = e.item
	}
	return m
}

// prune returns the chain of views from v on without those that ended, at most n of them.
func (v *view) prune(now time.Time, n int) *view {
	if v == nil || n == 0 || (!v.ends.IsZero() && !now.Before(v.ends)) {
		return nil
	}
	older := v.older.prune(now, n-1)
	if older == v.older {
		return v
	}
	pruned := *v
	pruned.older = older
	return &pruned
}

// uses reports whether the view was built from a backend's catalog.
func (v *view) uses(id routes.BackendID) bool { return slices.Contains(v.doc.Order, id) }
