package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// schemaVersion is the major version of the encoded catalog; a reader refuses any other one, and catalogs without one are
// of the first.
const schemaVersion = 1

// Encode encodes a catalog for the store: the same value gives the same bytes, and raw parts stand in them byte for byte,
// white space included. A raw part that is not JSON is an error.
func Encode(c *Catalog) ([]byte, error) {
	e := encoder{buf: make([]byte, 0, c.size())}
	e.begin('{')
	e.value("schema", schemaVersion)
	e.value("backend", c.Backend)
	e.value("protocol", c.Protocol)
	if c.Handshake != "" {
		e.value("handshake", c.Handshake)
	}
	e.raw("serverInfo", c.ServerInfo)
	e.raw("capabilities", c.Capabilities)
	if c.Instructions != "" {
		e.value("instructions", c.Instructions)
	}
	e.list("tools", &c.Tools)
	e.list("prompts", &c.Prompts)
	e.list("resources", &c.Resources)
	e.list("resourceTemplates", &c.ResourceTemplates)
	e.value("taken", c.Taken)
	e.end('}')
	if e.err != nil {
		return nil, fmt.Errorf("encode catalog of backend %q: %w", c.Backend, e.err)
	}
	return e.buf, nil
}

// Decode decodes what Encode wrote; members that this build does not know are skipped, another schema is an error. The
// result shares no memory with doc.
func Decode(doc []byte) (*Catalog, error) {
	var in struct {
		Schema *int `json:"schema"`
		Catalog
	}
	if err := json.Unmarshal(doc, &in); err != nil {
		return nil, fmt.Errorf("decode catalog: %w", err)
	}
	if in.Schema != nil && *in.Schema != schemaVersion {
		return nil, fmt.Errorf("decode catalog: it has schema %d, this build reads %d", *in.Schema, schemaVersion)
	}
	return &in.Catalog, nil
}

// Intact returns an error where an item is not the one that its digest names: somebody else than Encode had a hand in it.
func (c *Catalog) Intact() error {
	for _, l := range c.lists() {
		for i := range l.Items {
			if it := &l.Items[i]; routes.Digest(it.Raw) != it.Digest {
				return fmt.Errorf("catalog of backend %q: %q is not what its digest names", c.Backend, it.Name)
			}
		}
	}
	return nil
}

// size estimates the encoded length.
func (c *Catalog) size() int {
	n := 512 + len(c.ServerInfo) + len(c.Capabilities) + len(c.Instructions)
	for _, l := range c.lists() {
		for i := range l.Items {
			n += len(l.Items[i].Raw) + len(l.Items[i].Name) + 96
		}
	}
	return n
}

// encoder appends JSON. encoding/json would compact raw values and escape characters in them.
type encoder struct {
	buf   []byte
	first bool // nothing stands yet in the object or array that was begun last
	err   error
}

func (e *encoder) begin(c byte) { e.buf, e.first = append(e.buf, c), true }
func (e *encoder) end(c byte)   { e.buf, e.first = append(e.buf, c), false }

func (e *encoder) next() {
	if !e.first {
		e.buf = append(e.buf, ',')
	}
	e.first = false
}

// key appends a name that needs no escape.
func (e *encoder) key(name string) {
	e.next()
	e.buf = append(append(append(e.buf, '"'), name...), '"', ':')
}

func (e *encoder) value(name string, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		e.err = errors.Join(e.err, fmt.Errorf("%s: %w", name, err))
		return
	}
	e.key(name)
	e.buf = append(e.buf, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}

// raw appends a raw value; an absent one is left out.
func (e *encoder) raw(name string, v json.RawMessage) {
	if len(v) == 0 {
		return
	}
	if !json.Valid(v) {
		e.err = errors.Join(e.err, fmt.Errorf("%s: not JSON", name))
		return
	}
	e.key(name)
	e.buf = append(e.buf, v...)
}

// list appends a list; one without anything is left out.
func (e *encoder) list(name string, l *List) {
	if len(l.Items) == 0 && !l.Stale && l.Since.Equal(time.Time{}) && l.Reason == "" && l.TTL == nil {
		return
	}
	e.key(name)
	e.begin('{')
	if len(l.Items) > 0 {
		e.key("items")
		e.begin('[')
		for i := range l.Items {
			e.next()
			e.item(&l.Items[i])
		}
		e.end(']')
	}
	if l.Stale {
		e.value("stale", true)
	}
	if !l.Since.IsZero() {
		e.value("since", l.Since)
	}
	if l.Reason != "" {
		e.value("reason", l.Reason)
	}
	if l.TTL != nil {
		e.value("ttlMs", *l.TTL)
	}
	e.end('}')
}

func (e *encoder) item(it *Item) {
	e.begin('{')
	e.value("name", it.Name)
	e.value("digest", it.Digest)
	e.raw("raw", it.Raw)
	if it.Reject != "" {
		e.value("reject", it.Reject)
	}
	if it.Annotated {
		e.value("annotated", true)
	}
	e.end('}')
}
