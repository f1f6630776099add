package listing

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// item is one definition: the backend's bytes, and where the value of its name stands in them.
type item struct {
	digest   string
	raw      json.RawMessage
	from, to int   // raw[from:to] is the value of name; both 0: it has none
	legacy   *item // what a legacy client is shown instead; nil: the same
}

// in returns the item as clients of an era are shown it.
func (it *item) in(era wire.Era) *item {
	if era == wire.Legacy && it.legacy != nil {
		return it.legacy
	}
	return it
}

// backendItems are the definitions of one backend. It is immutable.
type backendItems struct {
	digest string // of the catalog
	items  [4]map[string]*item
	stale  [4]bool
	ttl    [4]*int64
}

// find returns a definition, nil when there is none. A nil backendItems has none.
func (b *backendItems) find(kind routes.Kind, digest string) *item {
	if b == nil {
		return nil
	}
	return b.items[kind][digest]
}

// newBackendItems takes the published items out of a catalog. An item whose name can't be found is left out: a definition
// must never be shown under a name that does not lead to it.
func newBackendItems(digest string, cat *catalog.Catalog) *backendItems {
	b := &backendItems{digest: digest}
	for kind, list := range [4]*catalog.List{
		routes.KindTool: &cat.Tools, routes.KindPrompt: &cat.Prompts,
		routes.KindResource: &cat.Resources, routes.KindResourceTemplate: &cat.ResourceTemplates,
	} {
		b.stale[kind], b.ttl[kind] = list.Stale, list.TTL
		b.items[kind] = make(map[string]*item, len(list.Items))
		for i := range list.Items {
			in := &list.Items[i]
			if in.Reject != "" {
				continue
			}
			it, err := newItem(routes.Kind(kind), in.Digest, in.Raw)
			if err != nil {
				continue
			}
			if legacy := legacyTool(in.Raw); kind == int(routes.KindTool) && legacy != nil {
				if it.legacy, err = newItem(routes.KindTool, in.Digest, legacy); err != nil {
					continue
				}
			}
			b.items[kind][in.Digest] = it
		}
	}
	return b
}

func newItem(kind routes.Kind, digest string, raw json.RawMessage) (*item, error) {
	it := &item{digest: digest, raw: raw}
	if kind == routes.KindTool || kind == routes.KindPrompt {
		var err error
		if it.from, it.to, err = nameOf(raw); err != nil {
			return nil, err
		}
	}
	return it, nil
}

var errNoName = errors.New("definition has no name")

// nameOf finds the value of the member "name" of a JSON object.
func nameOf(raw []byte) (from, to int, err error) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return 0, 0, errors.Join(errNoName, err)
	}
	for dec.PeekKind() != '}' {
		member, err := dec.ReadToken()
		if err != nil {
			return 0, 0, err
		}
		if member.String() != "name" {
			if err := dec.SkipValue(); err != nil {
				return 0, 0, err
			}
			continue
		}
		value, err := dec.ReadValue()
		if err != nil {
			return 0, 0, err
		}
		end := int(dec.InputOffset())
		return end - len(value), end, nil
	}
	return 0, 0, errNoName
}

// append appends the definition to dst, under the entry's name.
func (e *entry) append(dst []byte, era wire.Era) []byte {
	it := e.item.in(era)
	if !e.renamed {
		return append(dst, it.raw...)
	}
	dst = append(dst, it.raw[:it.from]...)
	dst = appendQuoted(dst, e.name)
	return append(dst, it.raw[it.to:]...)
}

// size is about what append appends, at most.
func (e *entry) size() int { return len(e.item.raw) + len(e.name) + 2 }

// appendQuoted appends s as a JSON string. Names are valid UTF-8: they came out of JSON.
func appendQuoted(dst []byte, s string) []byte {
	quoted, err := jsontext.AppendQuote(dst, s)
	if err != nil { // what was invalid is replaced
		return quoted
	}
	return quoted
}
