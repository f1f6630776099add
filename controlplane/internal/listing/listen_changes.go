package listing

import (
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
)

// change is what differs in one of the three lists.
type change struct {
	any   bool
	order bool       // the same entries stand in another order
	names []entryKey // added, removed, or with another definition
}

type entryKey struct {
	kind routes.Kind
	name string
}

// visible reports whether a token that sees only a part of the list sees the change.
func (c *change) visible(scopes access.Scopes) bool {
	if !c.any || c.order {
		return c.any
	}
	for _, e := range c.names {
		if scopes.Allows(e.kind, e.name) {
			return true
		}
	}
	return false
}

// changesOf compares what two views of a host list. before may be nil: then everything is new.
func changesOf(before, next *view) (out [3]change) {
	for kind := range next.kinds {
		var old []entry
		if before != nil {
			old = before.kinds[kind].entries
		}
		of := &out[listOf(routes.Kind(kind))]
		compare(of, routes.Kind(kind), old, next.kinds[kind].entries)
	}
	return out
}

func listOf(kind routes.Kind) listKind {
	switch kind {
	case routes.KindTool:
		return toolsList
	case routes.KindPrompt:
		return promptsList
	}
	return resourcesList
}

func compare(c *change, kind routes.Kind, old, new []entry) {
	if sameEntries(old, new) {
		return
	}
	c.any = true
	was := make(map[string]string, len(old))
	for i := range old {
		was[old[i].name] = old[i].item.digest
	}
	differ := len(c.names)
	for i := range new {
		digest, ok := was[new[i].name]
		if !ok || digest != new[i].item.digest {
			c.names = append(c.names, entryKey{kind, new[i].name})
		}
		delete(was, new[i].name)
	}
	for name := range was {
		c.names = append(c.names, entryKey{kind, name})
	}
	c.order = c.order || len(c.names) == differ
}

func sameEntries(a, b []entry) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].name != b[i].name || a[i].item != b[i].item && a[i].item.digest != b[i].item.digest {
			return false
		}
	}
	return true
}
