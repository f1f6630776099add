package source

import (
	"fmt"
	"slices"

	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// Merge makes one config out of the file's and the sets of its sources: backends of sources beside the file's own, and entries of
// hosts that stand for all of a source replaced by one entry for each of its backends, in the order of their ids. It is pure;
// neither input is changed. A source without a set counts as one that has not had its chance.
//
// Nothing in the outcome of one backend depends on another one, but for a name that two want: the file goes before the sources,
// an earlier source before a later one.
func Merge(file *config.Config, sets map[string]*Set) (*config.Config, []compile.Problem) {
	if len(file.Sources) == 0 {
		return file, nil
	}
	m := merger{out: *file, owner: make(map[routes.BackendID]string), of: make(map[string][]config.Backend), settled: make(map[string]bool)}
	m.backends(file, sets)
	m.out.VirtualHosts = make([]config.VirtualHost, len(file.VirtualHosts))
	for i := range file.VirtualHosts {
		m.out.VirtualHosts[i] = m.host(&file.VirtualHosts[i])
	}
	return &m.out, m.problems
}

type merger struct {
	out      config.Config
	problems []compile.Problem
	owner    map[routes.BackendID]string // the source that a backend is from; empty: the file
	of       map[string][]config.Backend // the backends of each source that were taken, by id
	settled  map[string]bool
}

func (m *merger) refuse(source string, id routes.BackendID, format string, args ...any) {
	m.problems = append(m.problems, compile.Problem{Code: compile.CodeSourceRefused, Backend: id, Subject: source, Text: fmt.Sprintf(format, args...)})
}

func (m *merger) backends(file *config.Config, sets map[string]*Set) {
	m.out.Backends = slices.Clone(file.Backends)
	for i := range file.Backends {
		m.owner[file.Backends[i].ID] = ""
	}
	for i := range file.Sources {
		s := &file.Sources[i]
		set := sets[s.Name]
		if set == nil {
			set = &Set{}
		}
		m.settled[s.Name] = set.Settled
		m.out.Awaiting = m.out.Awaiting || !set.Settled
		for _, b := range set.Backends {
			if owner, taken := m.owner[b.ID]; taken {
				by := "source " + owner
				if owner == "" {
					by = "the config file"
				}
				m.refuse(s.Name, b.ID, "the backend is not taken from source %s: %s has one of this name", s.Name, by)
				continue
			}
			b.Route.AllowPrivate = s.AllowPrivate
			m.owner[b.ID] = s.Name
			m.of[s.Name] = append(m.of[s.Name], b)
			m.out.Backends = append(m.out.Backends, b)
		}
	}
}

func (m *merger) host(h *config.VirtualHost) config.VirtualHost {
	out := *h
	out.Backends = make([]config.HostBackend, 0, len(h.Backends))
	listed := make(map[routes.BackendID]bool, len(h.Backends)) // an entry of its own goes before that of its source
	for i := range h.Backends {
		listed[h.Backends[i].Name] = true
	}
	for i := range h.Backends {
		use := h.Backends[i]
		if use.Source == "" {
			_, defined := m.owner[use.Name]
			out.Awaits = out.Awaits || !defined && m.out.Awaiting
			out.Backends = append(out.Backends, use)
			continue
		}
		out.Awaits = out.Awaits || !m.settled[use.Source]
		for i := range m.of[use.Source] {
			b := &m.of[use.Source][i]
			id := b.ID
			if listed[id] || !use.Match.Match(string(id)) {
				continue
			}
			one := use
			one.Name, one.Source, one.Match = id, "", routes.Glob{}
			var err error
			if one.Prefix, err = config.ExpandPrefix(use.Prefix, b); err != nil {
				m.problems = append(m.problems, compile.Problem{Code: compile.CodeSourceRefused, Host: h.ID, Backend: id, Subject: use.Source,
					Text: "the backend is not in this host: its " + err.Error()})
				continue
			}
			listed[id] = true
			out.Backends = append(out.Backends, one)
		}
	}
	return out
}
