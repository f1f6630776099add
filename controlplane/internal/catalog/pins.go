package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// Pins is what was approved of one backend: who it says that it is, and the definition of each tool. What is seen for the first
// time counts as approved. A tool that vanishes stays pinned for a while: what comes back under its name must be what was approved.
// It is read-only once made.
type Pins struct {
	Identity Identity       `json:"identity"`
	Tools    map[string]Pin `json:"tools,omitempty"`
	// Left is since when the backend is not configured any more; zero: it is.
	Left time.Time `json:"left,omitzero"`
}

// Pin is one approved definition. Raw is left out where it is too large to be shown.
type Pin struct {
	Digest string          `json:"digest"` // of the bytes that were approved
	Canon  string          `json:"canon"`  // of what they say, whatever the order of members and the white space
	Raw    json.RawMessage `json:"raw,omitempty"`
	Gone   time.Time       `json:"gone,omitzero"` // since when the backend does not list the tool; zero: it does
}

// Remembered is how long pins outlive what they are of: a tool that the backend does not list any more, a backend that is not
// configured.
const Remembered = 30 * 24 * time.Hour

// Identity is who a backend says that it is.
type Identity struct {
	Name         string          `json:"name,omitempty"`
	Version      string          `json:"version,omitempty"`
	Capabilities json.RawMessage `json:"capabilities,omitempty"` // canonical
}

const (
	maxPinned    = 64 << 10 // bytes of a definition that are kept for the diff
	maxPinnedAll = 10_000   // tools of one backend that are pinned; those beyond can't be approved one by one
)

// IdentityOf is who a backend says that it is.
func IdentityOf(c *Catalog) Identity {
	var info struct{ Name, Version string }
	_ = json.Unmarshal(c.ServerInfo, &info) // what is no object names nobody
	id := Identity{Name: info.Name, Version: info.Version}
	if canon, err := canonical(c.Capabilities); err == nil && len(c.Capabilities) > 0 {
		id.Capabilities = canon
	}
	return id
}

// Equal reports whether two identities are the same.
func (id Identity) Equal(other Identity) bool {
	return id.Name == other.Name && id.Version == other.Version && bytes.Equal(id.Capabilities, other.Capabilities)
}

func pinOf(it *Item) Pin {
	p := Pin{Digest: it.Digest, Canon: canonDigest(it.Raw)}
	if len(it.Raw) <= maxPinned {
		p.Raw = it.Raw
	}
	return p
}

// See pins what a catalog shows for the first time; p may be nil. It returns p itself where there is nothing new.
func (p *Pins) See(c *Catalog) *Pins {
	next := p
	if p == nil {
		next = &Pins{Identity: IdentityOf(c)}
	}
	grown := false
	for i := range c.Tools.Items {
		it := &c.Tools.Items[i]
		if _, known := next.Tools[it.Name]; known || it.Reject != "" || len(next.Tools) >= maxPinnedAll {
			continue
		}
		if !grown {
			next, grown = &Pins{Identity: next.Identity, Tools: maps.Clone(next.Tools)}, true
			if next.Tools == nil {
				next.Tools = make(map[string]Pin, len(c.Tools.Items))
			}
		}
		next.Tools[it.Name] = pinOf(it)
	}
	return next
}

// Tidy notes what is gone as of now, and forgets what has been for longer than Remembered. c is nil where the backend is not
// configured. It returns p itself where there is nothing to note, and nil where nothing of it is to be kept.
func (p *Pins) Tidy(c *Catalog, now time.Time) *Pins {
	if p == nil {
		return nil
	}
	if c == nil {
		switch {
		case p.Left.IsZero():
			left := *p
			left.Left = now
			return &left
		case now.Sub(p.Left) > Remembered:
			return nil
		}
		return p
	}
	listed := make(map[string]bool, len(c.Tools.Items))
	for i := range c.Tools.Items {
		listed[c.Tools.Items[i].Name] = true
	}
	next := &Pins{Identity: p.Identity, Tools: make(map[string]Pin, len(p.Tools))}
	noted := !p.Left.IsZero()
	for name, pin := range p.Tools {
		switch gone := !listed[name]; {
		case gone && pin.Gone.IsZero() && !c.Tools.Stale: // a list that could not be read takes nothing away
			pin.Gone, noted = now, true
		case gone && !pin.Gone.IsZero() && now.Sub(pin.Gone) > Remembered:
			noted = true
			continue
		case !gone && !pin.Gone.IsZero():
			pin.Gone, noted = time.Time{}, true
		}
		next.Tools[name] = pin
	}
	if !noted {
		return p
	}
	return next
}

// Approve pins what a catalog shows now of the named tools; with all it pins every tool and the identity. Names that the catalog
// does not have are returned as unknown. p may be nil.
func (p *Pins) Approve(c *Catalog, tools []string, all bool) (next *Pins, unknown []string) {
	next = &Pins{Tools: map[string]Pin{}}
	if p != nil {
		next.Identity = p.Identity
		maps.Copy(next.Tools, p.Tools)
	}
	if all || p == nil {
		next.Identity = IdentityOf(c)
	}
	found := map[string]bool{}
	for i := range c.Tools.Items {
		it := &c.Tools.Items[i]
		if it.Reject != "" || !all && !slices.Contains(tools, it.Name) {
			continue
		}
		found[it.Name] = true
		next.Tools[it.Name] = pinOf(it)
	}
	for _, name := range tools {
		if !found[name] {
			unknown = append(unknown, name)
		}
	}
	return next, unknown
}

// Changed reports whether a tool is defined otherwise than it was approved. What nobody has seen yet is not changed; without
// pins nothing is.
func (p *Pins) Changed(it *Item) bool {
	if p == nil || it.Reject != "" {
		return false
	}
	pin, known := p.Tools[it.Name]
	return known && pin.Digest != it.Digest && pin.Canon != canonDigest(it.Raw)
}

// Change is one tool that is defined otherwise than it was approved.
type Change struct {
	Tool        string       `json:"tool"`
	Approved    Side         `json:"approved"`
	Present     Side         `json:"present"`
	Differences []Difference `json:"differences,omitempty"`
}

// Side is one of the two definitions.
type Side struct {
	Digest     string          `json:"digest"`
	Definition json.RawMessage `json:"definition,omitempty"` // absent: too large to be kept
}

// Difference is one place where two JSON values differ.
type Difference struct {
	Path     string          `json:"path"`               // a JSON pointer; empty: the whole value
	Approved json.RawMessage `json:"approved,omitempty"` // absent: the member is new
	Present  json.RawMessage `json:"present,omitempty"`  // absent: the member is gone
}

// Changes are the tools of a catalog that are defined otherwise than they were approved, in the catalog's order.
func (p *Pins) Changes(c *Catalog) []Change {
	var out []Change
	for i := range c.Tools.Items {
		it := &c.Tools.Items[i]
		if !p.Changed(it) {
			continue
		}
		pin := p.Tools[it.Name]
		change := Change{Tool: it.Name, Approved: Side{pin.Digest, pin.Raw}, Present: Side{Digest: it.Digest}}
		if len(it.Raw) <= maxPinned {
			change.Present.Definition = it.Raw
		}
		if pin.Raw != nil {
			change.Differences = Diff(pin.Raw, it.Raw)
		}
		out = append(out, change)
	}
	return out
}

// maxDifferences bounds what Diff returns.
const maxDifferences = 100

// Diff returns where two JSON values differ, in the order of their paths, at most the first hundred places. A list is compared
// place by place.
func Diff(approved, present json.RawMessage) []Difference {
	a, errA := parse(approved)
	b, errB := parse(present)
	if errA != nil || errB != nil {
		return nil
	}
	var out []Difference
	diff("", a, b, &out)
	return out
}

// absent stands for a member that one side does not have.
type absent struct{}

func diff(path string, a, b any, out *[]Difference) {
	if len(*out) == maxDifferences {
		return
	}
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			keys := slices.Sorted(maps.Keys(x))
			for k := range y {
				if _, both := x[k]; !both {
					keys = append(keys, k)
				}
			}
			slices.Sort(keys)
			for _, k := range keys {
				diff(path+"/"+escape(k), member(x, k), member(y, k), out)
			}
			return
		}
	case []any:
		if y, ok := b.([]any); ok {
			for i := range max(len(x), len(y)) {
				diff(fmt.Sprintf("%s/%d", path, i), element(x, i), element(y, i), out)
			}
			return
		}
	}
	if was, is := render(a), render(b); !bytes.Equal(was, is) {
		*out = append(*out, Difference{Path: path, Approved: was, Present: is})
	}
}

// escape makes a token of a JSON pointer (RFC 6901, section 3).
func escape(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

func member(m map[string]any, k string) any {
	if v, ok := m[k]; ok {
		return v
	}
	return absent{}
}

func element(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return absent{}
}

// EncodePins and DecodePins are the stored form.
func EncodePins(p *Pins) ([]byte, error) {
	doc, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode pins: %w", err)
	}
	return doc, nil
}

// DecodePins decodes what EncodePins wrote.
func DecodePins(doc []byte) (*Pins, error) {
	p := new(Pins)
	if err := json.Unmarshal(doc, p); err != nil {
		return nil, fmt.Errorf("decode pins: %w", err)
	}
	return p, nil
}

// canonDigest is over what a JSON value says. What is no JSON is taken by its bytes.
func canonDigest(raw []byte) string {
	canon, err := canonical(raw)
	if err != nil {
		canon = raw
	}
	return routes.Digest(canon)
}

// canonical is a JSON value with sorted members and no white space; numbers keep their text.
func canonical(raw []byte) ([]byte, error) {
	v, err := parse(raw)
	if err != nil {
		return nil, err
	}
	return render(v), nil
}

func parse(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}

// render is the inverse of parse; nil for what is absent.
func render(v any) json.RawMessage {
	if _, none := v.(absent); none {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil { // what was decoded can be encoded
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
