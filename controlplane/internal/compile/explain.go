package compile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// Step is one thing that had a say in whether a name is published, and where it leads.
type Step struct {
	// Step is what decided: backend, list, definition, filter, name, pin, template, collision.
	Step     string           `json:"step"`
	Backend  routes.BackendID `json:"backend,omitempty"`
	Upstream string           `json:"upstream,omitempty"` // the item's name or URI at the backend
	Outcome  string           `json:"outcome"`            // passes, stops, notes
	Text     string           `json:"text"`
}

// The outcomes of a step.
const (
	Passes = "passes"
	Stops  = "stops"
	Notes  = "notes"
)

// maxSteps bounds an explanation.
const maxSteps = 200

// Explain says what the rules make of a name, or URI, or template, as a client would use it, in the order in which they are
// applied. It looks at items that would get the name, and at those that are called so at their backend.
func (c *Compiler) Explain(host *config.VirtualHost, of routes.Kind, name string) []Step {
	h := hostCompiler{in: &c.in, host: host, known: c.known, prev: cmp.Or(c.in.Previous[host.ID], &routes.VirtualHost{})}
	e := explainer{hostCompiler: &h, kind: kindOf(of), name: name}
	members := h.members()
	for _, p := range h.problems { // what kept a backend out, or makes it stand by what is published
		outcome := Stops
		if slices.ContainsFunc(members, func(m member) bool { return m.use.Name == p.Backend }) {
			outcome = Notes
		}
		e.add(Step{Step: "backend", Backend: p.Backend, Outcome: outcome, Text: p.Text})
	}
	for i := range members {
		e.member(&members[i])
	}
	e.collision(members)
	return e.steps
}

func kindOf(k routes.Kind) kind {
	switch k {
	case routes.KindPrompt:
		return kindPrompt
	case routes.KindResource:
		return kindResource
	case routes.KindResourceTemplate:
		return kindTemplate
	}
	return kindTool
}

type explainer struct {
	*hostCompiler
	kind       kind
	name       string
	candidates int // items that are let through under the name
	steps      []Step
}

func (e *explainer) add(s Step) {
	if len(e.steps) < maxSteps {
		e.steps = append(e.steps, s)
	}
}

// member follows the items of one backend that the name may be about.
func (e *explainer) member(m *member) {
	if m.cat == nil {
		for _, upstream := range e.standing(e.kind, m.use.Name) {
			if o, _ := m.offer(e.kind, upstream); o.name == e.name {
				e.item(m, upstream, nil)
			}
		}
		return
	}
	list := anyList(m.cat, e.kind)
	if list.Stale {
		e.add(Step{Step: "list", Backend: m.use.Name, Outcome: Notes, Text: fmt.Sprintf("its list of %ss could not be read the last time, so "+
			"that the last good one counts: %s", e.kind, list.Reason)})
	}
	found := false
	for i := range list.Items {
		it := &list.Items[i]
		if o, _ := m.offer(e.kind, it.Name); o.name == e.name || it.Name == e.name {
			e.item(m, it.Name, it)
			found = true
		}
	}
	if !found {
		e.add(Step{Step: "list", Backend: m.use.Name, Outcome: Stops, Text: fmt.Sprintf("none of its %d %ss is, or would get, this name",
			len(list.Items), e.kind)})
	}
}

// item follows one item; it is nil where only what stands published tells of it.
func (e *explainer) item(m *member, upstream string, it *catalog.Item) {
	step := func(name, outcome, format string, args ...any) {
		e.add(Step{Step: name, Backend: m.use.Name, Upstream: upstream, Outcome: outcome, Text: fmt.Sprintf(format, args...)})
	}
	if it != nil && it.Reject != "" {
		step("definition", Stops, "%s", it.Reject)
		return
	}
	o, let := m.offer(e.kind, upstream)
	filter := e.filterOf(m)
	if !let {
		step("filter", Stops, "%s", refusedBy(filter, upstream))
		return
	}
	if len(filter.Allow)+len(filter.Deny) > 0 {
		step("filter", Passes, "allow and deny let it through")
	}
	switch {
	case o.aliased:
		step("name", Passes, "an alias names it %q", o.name)
	case o.name != upstream && o.name != m.use.Prefix+upstream:
		step("name", Passes, "with the prefix %q it has over %d characters and is shortened to %q", m.use.Prefix, maxName, o.name)
	case o.name != upstream:
		step("name", Passes, "the prefix %q makes it %q", m.use.Prefix, o.name)
	default:
		step("name", Passes, "it keeps its name")
	}
	if o.name != e.name {
		step("name", Stops, "clients know it as %q, not as %q", o.name, e.name)
		return
	}
	if e.kind == kindTemplate {
		if err := routes.CheckTemplate(upstream); err != nil {
			step("template", Stops, "it can't be served: %s", err)
			return
		}
	}
	conf := e.known[m.use.Name]
	if e.kind == kindTool && it != nil && conf.Pin != config.PinOff && conf.Pin != "" {
		switch changed := e.in.Pins[m.use.Name].Changed(it); {
		case changed && conf.Pin == config.PinBlock:
			step("pin", Stops, "it is defined otherwise than it was approved, and withheld until it is approved")
		case changed:
			step("pin", Notes, "it is defined otherwise than it was approved")
		default:
			step("pin", Passes, "it is defined as it was approved")
		}
	}
	e.candidates++
}

func (e *explainer) filterOf(m *member) config.Filter {
	switch e.kind {
	case kindTool:
		return m.use.Tools
	case kindPrompt:
		return m.use.Prompts
	}
	return config.Filter{Allow: m.use.Resources.Allow, Deny: m.use.Resources.Deny}
}

func refusedBy(f config.Filter, upstream string) string {
	for _, g := range f.Deny {
		if g.Match(upstream) {
			return fmt.Sprintf("deny: %q matches it", g.String())
		}
	}
	return fmt.Sprintf("allow: none of %q matches it", globStrings(f.Allow))
}

// collision says who got the name where several wanted it.
func (e *explainer) collision(members []member) {
	if e.candidates < 2 {
		return
	}
	all := e.offers(e.kind, members)
	if e.kind == kindTemplate {
		all = e.checkTemplates(all)
	}
	table := map[kind]map[string]routes.ServiceRoute{
		kindTool: e.prev.Tools, kindPrompt: e.prev.Prompts, kindResource: e.prev.Resources, kindTemplate: e.prev.ResourceTemplates,
	}[e.kind]
	all = slices.DeleteFunc(all, func(o offer) bool { return o.name != e.name })
	for _, won := range e.settle(e.kind, slices.Clone(all), table) {
		why := "it comes first in the order of the host's list"
		switch {
		case holds(table, &won):
			why = "it holds the name: whoever stands published keeps it while it offers the item"
		case won.withheld:
			why = "it is withheld, and nobody else gets its name meanwhile"
		case won.aliased:
			why = "its alias goes before a name that came out the same"
		}
		e.add(Step{Step: "collision", Backend: won.backend, Upstream: won.upstream, Outcome: Passes, Text: why})
		for _, o := range all {
			if o.backend != won.backend || o.upstream != won.upstream {
				e.add(Step{Step: "collision", Backend: o.backend, Upstream: o.upstream, Outcome: Stops,
					Text: fmt.Sprintf("the name is taken by %q of backend %s", won.upstream, won.backend)})
			}
		}
	}
}
