package compile

import (
	"fmt"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
)

// blocked reports whether a tool of the member is not published until it is approved.
func (m *member) blocked(it *catalog.Item) bool { return m.pins.Changed(it) }

// unwithheld leaves out what won its name and is not published.
func unwithheld(offers []offer) []offer {
	var out []offer
	for _, o := range offers {
		if !o.withheld {
			out = append(out, o)
		}
	}
	return out
}

// pinProblems are the changes of a pinned backend since it was approved.
func pinProblems(b *config.Backend, cat *catalog.Catalog, pins *catalog.Pins) []Problem {
	if b.Pin == config.PinOff || b.Pin == "" || cat == nil || pins == nil {
		return nil
	}
	var out []Problem
	add := func(code, subject, text string) {
		out = appendProblem(out, Problem{Code: code, Backend: b.ID, Subject: subject, Text: text})
	}
	see := fmt.Sprintf("GET /api/v1/backends/%s/changes shows the difference, POST …/approve accepts it", b.ID)
	if was, is := pins.Identity, catalog.IdentityOf(cat); !was.Equal(is) {
		what := "it declares other capabilities"
		if was.Name != is.Name || was.Version != is.Version {
			what = fmt.Sprintf("it was %q version %q, it is %q version %q", was.Name, was.Version, is.Name, is.Version)
		}
		add(CodeBackendChanged, "", "the backend is not who it was when it was approved: "+what+"; "+see)
	}
	for i := range cat.Tools.Items {
		it := &cat.Tools.Items[i]
		switch {
		case !pins.Changed(it):
		case b.Pin == config.PinBlock:
			add(CodeToolWithheld, it.Name, "the tool is defined otherwise than it was approved, and not published until it is: "+see)
		default:
			add(CodeToolChanged, it.Name, "the tool is defined otherwise than it was approved, and published all the same: "+see)
		}
	}
	return out
}
