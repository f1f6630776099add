// Package history is what is kept of the earlier revisions of a host, how two of them differ, and the hold that an operator
// puts on a host. It is values only.
package history

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// Counts is how much a revision has of each kind.
type Counts struct {
	Tools             int `json:"tools"`
	Prompts           int `json:"prompts"`
	Resources         int `json:"resources"`
	ResourceTemplates int `json:"resourceTemplates"`
	ResourcePrefixes  int `json:"resourcePrefixes,omitempty"`
}

// head begins an archive, on a line of its own, so that a history can be shown without unpacking it.
type head struct {
	Counts Counts `json:"counts"`
	Table  int    `json:"table"` // bytes of the table; the list follows it
	List   int    `json:"list"`
}

// maxUnpacked bounds what an archive may unpack to, in bytes.
const maxUnpacked = 256 << 20

// Pack makes the archive of a revision of its document and the encodings of its table and list. The table needs no version.
func Pack(doc *routes.VirtualHost, table, list []byte) ([]byte, error) {
	h, err := json.Marshal(head{Table: len(table), List: len(list), Counts: Counts{
		Tools: len(doc.Tools), Prompts: len(doc.Prompts), Resources: len(doc.Resources),
		ResourceTemplates: len(doc.ResourceTemplates), ResourcePrefixes: len(doc.ResourcePrefixes),
	}})
	if err != nil {
		return nil, fmt.Errorf("pack revision: %w", err)
	}
	out := bytes.NewBuffer(append(h, '\n'))
	w, err := flate.NewWriter(out, flate.BestSpeed)
	if err != nil {
		return nil, fmt.Errorf("pack revision: %w", err)
	}
	_, err1 := w.Write(table)
	_, err2 := w.Write(list)
	if err := errors.Join(err1, err2, w.Close()); err != nil {
		return nil, fmt.Errorf("pack revision: %w", err)
	}
	return out.Bytes(), nil
}

func split(archive []byte) (h head, packed []byte, err error) {
	line, packed, ok := bytes.Cut(archive, []byte("\n"))
	if !ok {
		return head{}, nil, errors.New("unpack revision: it has no head")
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return head{}, nil, fmt.Errorf("unpack revision: %w", err)
	}
	if h.Table < 0 || h.List < 0 || h.Table > maxUnpacked || h.List > maxUnpacked-h.Table {
		return head{}, nil, errors.New("unpack revision: its sizes make no sense")
	}
	return h, packed, nil
}

// CountsOf reads how much a revision has, without unpacking it.
func CountsOf(archive []byte) (Counts, error) {
	h, _, err := split(archive)
	return h.Counts, err
}

// Unpack is the inverse of Pack. The document has no version.
func Unpack(archive []byte) (*routes.VirtualHost, *routes.HostList, error) {
	h, packed, err := split(archive)
	if err != nil {
		return nil, nil, err
	}
	both := make([]byte, h.Table+h.List)
	if _, err := io.ReadFull(flate.NewReader(bytes.NewReader(packed)), both); err != nil {
		return nil, nil, fmt.Errorf("unpack revision: %w", err)
	}
	doc, err := routes.DecodeHost(both[:h.Table])
	if err != nil {
		return nil, nil, fmt.Errorf("unpack revision: %w", err)
	}
	list, err := routes.DecodeList(both[h.Table:])
	if err != nil {
		return nil, nil, fmt.Errorf("unpack revision: %w", err)
	}
	return doc, list, nil
}

// Hold is what an operator decided of a host: to publish an earlier revision until further notice.
type Hold struct {
	Version routes.Version `json:"version"` // of the revision that is held
	Since   time.Time      `json:"since"`
	Archive []byte         `json:"archive"`
}

// HoldSubject and PinsSubject name decisions in the store.
func HoldSubject(id routes.HostID) string { return holdSubject + string(id) }

// PinsSubject names what was approved of a backend.
func PinsSubject(id routes.BackendID) string { return pinsSubject + string(id) }

const (
	holdSubject = "hold/"
	pinsSubject = "pins/"
)

// SubjectOf is the inverse of HoldSubject and PinsSubject: one of the two is set, or none.
func SubjectOf(subject string) (host routes.HostID, backend routes.BackendID) {
	if id, ok := strings.CutPrefix(subject, holdSubject); ok {
		return routes.HostID(id), ""
	}
	if id, ok := strings.CutPrefix(subject, pinsSubject); ok {
		return "", routes.BackendID(id)
	}
	return "", ""
}

// Difference is how a host changed from one revision to another.
type Difference struct {
	Tools             Names `json:"tools,omitzero"`
	Prompts           Names `json:"prompts,omitzero"`
	Resources         Names `json:"resources,omitzero"`
	ResourceTemplates Names `json:"resourceTemplates,omitzero"`
	ResourcePrefixes  Names `json:"resourcePrefixes,omitzero"`
	// Backends are those whose connection (URL, headers, timeouts …) or existence in the host changed; their contents are not
	// shown.
	Backends Names `json:"backends,omitzero"`
	// Policy names other members of the document that changed.
	Policy []string `json:"policy,omitempty"`
}

// Names are downstream names, sorted.
type Names struct {
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	// Changed ones lead elsewhere or are defined otherwise.
	Changed []string `json:"changed,omitempty"`
}

// Compare says how a host changed from one revision to another.
func Compare(from, to *routes.VirtualHost, fromList, toList *routes.HostList) Difference {
	d := Difference{
		Tools:             names(from.Tools, to.Tools, digests(fromList.Tools), digests(toList.Tools)),
		Prompts:           names(from.Prompts, to.Prompts, digests(fromList.Prompts), digests(toList.Prompts)),
		Resources:         names(from.Resources, to.Resources, digests(fromList.Resources), digests(toList.Resources)),
		ResourceTemplates: names(from.ResourceTemplates, to.ResourceTemplates, digests(fromList.ResourceTemplates), digests(toList.ResourceTemplates)),
		ResourcePrefixes:  names(from.ResourcePrefixes, to.ResourcePrefixes, nil, nil),
		Backends:          backends(from.Backends, to.Backends),
	}
	for name, differs := range map[string]bool{
		"capabilities": !bytes.Equal(from.Capabilities, to.Capabilities),
		"instructions": from.Instructions != to.Instructions,
		"order":        !slices.Equal(from.Order, to.Order),
		"plugins":      !sameJSON(from.Plugins, to.Plugins),
		"serverInfo":   !bytes.Equal(from.ServerInfo, to.ServerInfo),
		"tasks":        from.Tasks != to.Tasks,
	} {
		if differs {
			d.Policy = append(d.Policy, name)
		}
	}
	slices.Sort(d.Policy)
	return d
}

func digests(entries []routes.ListEntry) map[string]string {
	out := make(map[string]string, len(entries))
	for _, e := range entries {
		out[e.Name] = e.Digest
	}
	return out
}

func names(from, to map[string]routes.ServiceRoute, fromDigests, toDigests map[string]string) Names {
	return compare(from, to, func(name string) bool {
		return from[name] != to[name] || fromDigests[name] != toDigests[name]
	})
}

// backends compares all of a backend, but for the schemas of its tools, which change with the tools.
func backends(from, to map[routes.BackendID]routes.Backend) Names {
	return compare(from, to, func(id routes.BackendID) bool {
		a, b := from[id], to[id]
		a.ToolSchemas, b.ToolSchemas = nil, nil
		return !sameJSON(a, b)
	})
}

func compare[K ~string, V any](from, to map[K]V, changed func(K) bool) Names {
	var n Names
	for _, k := range slices.Sorted(maps.Keys(to)) {
		if _, stood := from[k]; !stood {
			n.Added = append(n.Added, string(k))
		} else if changed(k) {
			n.Changed = append(n.Changed, string(k))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(from)) {
		if _, stands := to[k]; !stands {
			n.Removed = append(n.Removed, string(k))
		}
	}
	return n
}

func sameJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}
