package catalog

import (
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// Walk is what one round of discovery found of a backend.
type Walk struct {
	Backend                  routes.BackendID
	Protocol                 string
	Handshake                routes.Handshake
	ServerInfo, Capabilities json.RawMessage
	Instructions             string
	// Lists are the results by Kind.
	Lists [kinds]Result
	// Ended is when the round ended.
	Ended time.Time
}

// Result is the outcome of one walk over all pages of one list.
type Result struct {
	Items []Item
	TTL   *int64 // the shortest ttlMs of the pages; nil: none was said
	// Failed says why the walk broke off: Items then count for nothing. Empty: it was complete.
	Failed string
}

// Merge makes the next catalog of the previous one (nil: there is none) and a round's walk. Items vanish only after a complete
// walk; a list whose walk failed keeps its last good items, stale. Neither argument is changed; the result shares items with
// them.
func Merge(previous *Catalog, w Walk) *Catalog {
	next := &Catalog{
		Backend: w.Backend, Protocol: w.Protocol, Handshake: w.Handshake,
		ServerInfo: w.ServerInfo, Capabilities: w.Capabilities, Instructions: w.Instructions, Taken: w.Ended,
	}
	lists := next.lists()
	for k := range kinds {
		if r := &w.Lists[k]; r.Failed == "" {
			*lists[k] = List{Items: r.Items, TTL: r.TTL, Since: w.Ended}
			continue
		}
		var last List
		next.Taken = time.Time{}
		if previous != nil {
			last, next.Taken = *previous.lists()[k], previous.Taken
		}
		*lists[k] = last.failed(w.Lists[k].Failed)
	}
	return next
}

// Stale makes the next catalog after a round that did not come as far as the lists. A backend without a catalog has none
// afterwards either.
func Stale(previous *Catalog, reason string) *Catalog {
	if previous == nil {
		return nil
	}
	next := *previous
	for _, l := range next.lists() {
		*l = l.failed(reason)
	}
	return &next
}

func (l List) failed(reason string) List {
	l.Stale, l.Reason = true, reason
	return l
}

// lists are the catalog's lists by Kind.
func (c *Catalog) lists() [kinds]*List {
	return [kinds]*List{Tools: &c.Tools, Prompts: &c.Prompts, Resources: &c.Resources, ResourceTemplates: &c.ResourceTemplates}
}

// List returns the list of one kind.
func (c *Catalog) List(k Kind) *List { return c.lists()[k] }

// Digest is over all that a catalog says but its times, which every round changes: catalogs of one digest are published
// alike. The digest of nil is empty.
func (c *Catalog) Digest() string {
	if c == nil {
		return ""
	}
	parts := [][]byte{[]byte(c.Backend), []byte(c.Protocol), []byte(c.Handshake), c.ServerInfo, c.Capabilities, []byte(c.Instructions)}
	for _, l := range c.lists() {
		parts = append(parts, number(int64(len(l.Items))), flags(l.Stale, l.Since.IsZero(), l.TTL != nil), []byte(l.Reason))
		if l.TTL != nil {
			parts = append(parts, number(*l.TTL))
		}
		for i := range l.Items {
			it := &l.Items[i]
			parts = append(parts, []byte(it.Name), []byte(it.Digest), []byte(it.Reject), flags(it.Annotated))
		}
	}
	return routes.Digest(parts...)
}

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func flags(set ...bool) []byte {
	out := make([]byte, len(set))
	for i, s := range set {
		if s {
			out[i] = 1
		}
	}
	return out
}
