package catalog

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// seen is a catalog with tools, each NAME or NAME=DESCRIPTION.
func seen(serverInfo string, tools ...string) *Catalog {
	return &Catalog{
		Backend: "b", ServerInfo: json.RawMessage(serverInfo), Capabilities: json.RawMessage(`{"tools":{}, "prompts":{}}`),
		Tools: List{Items: Items(Tools, raws(tools...), nil), Since: at},
	}
}

const (
	info    = `{"name":"s","version":"1"}`
	echo    = `{"name":"echo","description":"says it","inputSchema":{"type":"object"}}`
	echoed  = `{ "inputSchema":{ "type":"object"},"description":"says it", "name":"echo"}` // the same, written otherwise
	altered = `{"name":"echo","description":"sends it away","inputSchema":{"type":"object","required":["x"]}}`
	other   = `{"name":"other","inputSchema":{}}`
)

func changedTools(p *Pins, c *Catalog) (out []string) {
	for _, ch := range p.Changes(c) {
		out = append(out, ch.Tool)
	}
	return out
}

func TestPins(t *testing.T) {
	first := seen(info, echo)
	pins := (*Pins)(nil).See(first)
	if pins.See(first) != pins {
		t.Error("the same catalog again makes other pins")
	}
	tests := map[string]struct {
		cat  *Catalog
		want []string
	}{
		"as approved":                       {first, nil},
		"written otherwise, the same said":  {seen(info, echoed), nil},
		"another definition":                {seen(info, altered), []string{"echo"}},
		"a new tool is approved":            {seen(info, echo, other), nil},
		"gone":                              {seen(info), nil},
		"gone and come back as another one": {seen(info, other, altered), []string{"echo"}},
		"what can't be published":           {seen(info, `{"name":"echo"}`), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, changedTools(pins.See(seen(info)).See(tt.cat), tt.cat)); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
		})
	}
	if (*Pins)(nil).Changed(&first.Tools.Items[0]) {
		t.Error("without pins something is changed")
	}
}

// What is gone stays pinned for thirty days, and no longer; it is noted once.
func TestPinsOfWhatIsGone(t *testing.T) {
	both, one := seen(info, echo, other), seen(info, other)
	unread := seen(info)
	unread.Tools.Stale = true
	day := 24 * time.Hour
	pins := (*Pins)(nil).See(both)
	gone := pins.Tidy(one, at)
	tests := map[string]struct {
		pins *Pins
		cat  *Catalog // nil: the backend is not configured
		in   time.Duration
		same bool     // nothing is noted
		want []string // the tools that are pinned
	}{
		"nothing is gone":                     {pins, both, 0, true, []string{"echo", "other"}},
		"a tool is gone":                      {pins, one, 0, false, []string{"echo", "other"}},
		"it still is":                         {gone, one, 29 * day, true, []string{"echo", "other"}},
		"it is forgotten":                     {gone, one, 31 * day, false, []string{"other"}},
		"it came back":                        {gone, both, 31 * day, false, []string{"echo", "other"}},
		"a list that can't be read":           {pins, unread, 31 * day, true, []string{"echo", "other"}},
		"the backend left the config":         {pins, nil, 0, false, []string{"echo", "other"}},
		"it is still away":                    {pins.Tidy(nil, at), nil, 29 * day, true, []string{"echo", "other"}},
		"it came back too":                    {pins.Tidy(nil, at), both, 31 * day, false, []string{"echo", "other"}},
		"it is forgotten as a whole":          {pins.Tidy(nil, at), nil, 31 * day, false, nil},
		"by a clock that is behind it is not": {gone, one, -day, true, []string{"echo", "other"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.pins.Tidy(tt.cat, at.Add(tt.in))
			var names []string
			if got != nil {
				names = slices.Sorted(maps.Keys(got.Tools))
			}
			if diff := cmp.Diff(tt.want, names); diff != "" || (got == tt.pins) != tt.same {
				t.Errorf("the same: %v; pinned (-want +got):\n%s", got == tt.pins, diff)
			}
			if got != nil && tt.cat == both && (!got.Left.IsZero() || !got.Tools["echo"].Gone.IsZero()) {
				t.Errorf("what came back counts as gone: %+v", got)
			}
		})
	}
}

func TestPinsApprove(t *testing.T) {
	pins := (*Pins)(nil).See(seen(info, echo, other))
	now := seen(`{"name":"s","version":"2"}`, altered, `{"name":"other","inputSchema":{"type":"object"}}`)
	one, unknown := pins.Approve(now, []string{"echo", "nobody"}, false)
	if diff := cmp.Diff([]string{"nobody"}, unknown); diff != "" {
		t.Errorf("unknown (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"other"}, changedTools(one, now)); diff != "" || one.Identity.Equal(IdentityOf(now)) {
		t.Errorf("after one tool: identity %+v, changed (-want +got):\n%s", one.Identity, diff)
	}
	all, _ := pins.Approve(now, nil, true)
	if len(changedTools(all, now)) != 0 || !all.Identity.Equal(IdentityOf(now)) {
		t.Errorf("after all: %+v", all)
	}
	if diff := cmp.Diff([]string{"echo", "other"}, changedTools(pins, now)); diff != "" {
		t.Errorf("the pins before were changed (-want +got):\n%s", diff)
	}
	doc, err := EncodePins(all)
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodePins(doc)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, back); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

func TestDiff(t *testing.T) {
	tests := map[string]struct {
		a, b string
		want []string // path was is
	}{
		"the same, written otherwise": {`{"a":1,"b":[1, 2]}`, `{"b":[1,2],"a":1}`, nil},
		"members":                     {`{"a":1,"gone":"x"}`, `{"a":2,"new":[]}`, []string{"/a 1 2", `/gone "x" `, "/new  []"}},
		"deep, in lists":              {`{"l":[{"x":1},2]}`, `{"l":[{"x":1.0},2,3]}`, []string{"/l/0/x 1 1.0", "/l/2  3"}},
		"names are escaped":           {`{"a/b~":1}`, `{"a/b~":null}`, []string{"/a~1b~0 1 null"}},
		"another kind":                {`{"a":{}}`, `{"a":[]}`, []string{"/a {} []"}},
		"no JSON":                     {`{`, `{}`, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range Diff(json.RawMessage(tt.a), json.RawMessage(tt.b)) {
				got = append(got, d.Path+" "+string(d.Approved)+" "+string(d.Present))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
