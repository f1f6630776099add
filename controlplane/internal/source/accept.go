package source

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// Refusal is an entry of a good report that was not taken.
type Refusal struct {
	Entry string // its name, or where it stands
	Text  string
}

// accept makes a set out of a complete report: backends by id, each once. A refused entry keeps what its name stood for before,
// so that a slip in a registry takes nothing away; of several with one name the one that stood before goes on, else the first.
func accept(source string, before []config.Backend, entries []Entry) ([]config.Backend, []Refusal) {
	stood := make(map[routes.BackendID]*config.Backend, len(before))
	for i := range before {
		stood[before[i].ID] = &before[i]
	}
	taken := make(map[routes.BackendID]config.Backend, len(entries))
	var refused []Refusal
	var bad []int
	for i := range entries {
		e := &entries[i]
		if err := e.check(); err != nil {
			refused = append(refused, Refusal{e.label(), err.Error()})
			bad = append(bad, i)
			continue
		}
		b := e.backend(source)
		if _, twice := taken[b.ID]; twice {
			refused = append(refused, Refusal{e.label(), "another entry of the source has the same name"})
			if was := stood[b.ID]; was == nil || !same(was, &b) {
				continue
			}
		}
		taken[b.ID] = b
	}
	for _, i := range bad {
		id := routes.BackendID(entries[i].Name)
		if _, good := taken[id]; !good && stood[id] != nil {
			taken[id] = *stood[id]
		}
	}
	return slices.SortedFunc(maps.Values(taken), func(a, b config.Backend) int { return cmp.Compare(a.ID, b.ID) }), refused
}

// same compares what a source may say of a backend.
func same(a, b *config.Backend) bool {
	return a.ID == b.ID && a.Route.URL == b.Route.URL && a.Route.Timeouts == b.Route.Timeouts && a.Route.SourcePrefix == b.Route.SourcePrefix
}

// Standing finds, by source, the backends that stand published: what a source that is down was last known to have. Documents of
// hosts are read in the order of their ids, so that the outcome is the same each time.
func Standing(docs map[routes.HostID]*routes.VirtualHost) map[string][]Entry {
	seen := make(map[routes.BackendID]bool)
	out := make(map[string][]Entry)
	for _, host := range slices.Sorted(maps.Keys(docs)) {
		for _, id := range slices.Sorted(maps.Keys(docs[host].Backends)) {
			b := docs[host].Backends[id]
			if b.Source == "" || !b.Discovered || seen[id] {
				continue
			}
			seen[id] = true
			out[b.Source] = append(out[b.Source], Entry{Name: string(id), URL: b.URL, Prefix: b.SourcePrefix, Timeouts: b.Timeouts})
		}
	}
	return out
}
