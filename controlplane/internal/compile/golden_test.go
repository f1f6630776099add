package compile

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

var update = flag.Bool("update", false, "rewrite the golden output in testdata")

// base is what every config needs and no case is about.
const base = `redis: redis://127.0.0.1:6379/0
auth: {issuers: [{issuer: https://idp.example, audiences: [weir], algorithms: [RS256], public_key_file: idp.pub}]}
`

// catalogJSON is a catalog in shorthand.
type catalogJSON struct {
	Protocol     string            `json:"protocol"`  // empty: 2026-07-28
	Handshake    routes.Handshake  `json:"handshake"` // legacy only
	Capabilities json.RawMessage   `json:"capabilities"`
	Instructions string            `json:"instructions"`
	Tools        []json.RawMessage `json:"tools"` // each a name, or the whole definition
	Prompts      []json.RawMessage `json:"prompts"`
	Resources    []json.RawMessage `json:"resources"`
	Templates    []json.RawMessage `json:"templates"`
	Stale        map[string]string `json:"stale"`     // list → reason: the last good items stand above
	Never        map[string]string `json:"never"`     // list → reason: it was never read
	Reject       map[string]string `json:"reject"`    // item → reason
	Annotated    []string          `json:"annotated"` // tools with x-mcp-header
}

var taken = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)

func (c catalogJSON) catalog(t *testing.T, id routes.BackendID) *catalog.Catalog {
	t.Helper()
	out := &catalog.Catalog{
		Backend: id, Protocol: c.Protocol, Handshake: c.Handshake, Capabilities: c.Capabilities, Instructions: c.Instructions, Taken: taken,
		Tools: c.list(t, "tools", "name", c.Tools), Prompts: c.list(t, "prompts", "name", c.Prompts),
		Resources: c.list(t, "resources", "uri", c.Resources), ResourceTemplates: c.list(t, "templates", "uriTemplate", c.Templates),
	}
	if out.Protocol == "" {
		out.Protocol = "2026-07-28"
	}
	return out
}

func (c catalogJSON) list(t *testing.T, kind, key string, items []json.RawMessage) catalog.List {
	t.Helper()
	l := catalog.List{Since: taken}
	if reason, ok := c.Stale[kind]; ok {
		l.Stale, l.Reason = true, reason
	}
	if reason, ok := c.Never[kind]; ok {
		l = catalog.List{Stale: true, Reason: reason}
	}
	for _, raw := range items {
		var name string
		if json.Unmarshal(raw, &name) == nil {
			raw = json.RawMessage(fmt.Sprintf(`{%q:%q}`, key, name))
		} else if err := json.Unmarshal(objectOf(raw)[key], &name); err != nil {
			t.Fatalf("item %s: %v", raw, err)
		}
		it := catalog.Item{Name: name, Raw: raw, Digest: routes.Digest(raw), Reject: c.Reject[name]}
		for _, a := range c.Annotated {
			it.Annotated = it.Annotated || a == name
		}
		l.Items = append(l.Items, it)
	}
	return l
}

// TestGolden compiles each file's config.yaml, catalogs.json, approved.json and previous.json. The comment on top of a file says what it guards.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out := Compile(goldenInput(t, ar))
			for id, doc := range out.Hosts {
				if err := doc.Validate(); err != nil {
					t.Errorf("host %s: %v", id, err)
				}
			}
			got := []txtar.File{
				{Name: "hosts.json", Data: indent(t, out.Hosts)},
				{Name: "lists.json", Data: indent(t, namesOf(out.Lists))},
				{Name: "problems.json", Data: indent(t, out.Problems)},
			}
			if *update {
				rewrite(t, file, ar, got)
				return
			}
			for _, f := range got {
				if diff := cmp.Diff(string(section(ar, f.Name)), string(f.Data)); diff != "" {
					t.Errorf("%s (-want +got; go test -update rewrites):\n%s", f.Name, diff)
				}
			}
		})
	}
}

func goldenInput(t *testing.T, ar *txtar.Archive) Input {
	t.Helper()
	cfg, _, err := config.Parse(append([]byte(base), section(ar, "config.yaml")...))
	if err != nil {
		t.Fatalf("config.yaml: %v", err)
	}
	in := Input{Config: cfg, Catalogs: map[routes.BackendID]*catalog.Catalog{}, ServerVersion: "1.2.3"}
	var cats map[routes.BackendID]catalogJSON
	unmarshal(t, section(ar, "catalogs.json"), &cats)
	for id, c := range cats {
		in.Catalogs[id] = c.catalog(t, id)
	}
	var approved map[routes.BackendID]catalogJSON // what it was when it was approved
	if doc := section(ar, "approved.json"); doc != nil {
		unmarshal(t, doc, &approved)
	}
	in.Pins = map[routes.BackendID]*catalog.Pins{}
	for id, c := range approved {
		in.Pins[id] = (*catalog.Pins)(nil).See(c.catalog(t, id))
	}
	if prev := section(ar, "previous.json"); prev != nil {
		unmarshal(t, prev, &in.Previous)
	}
	return in
}

// namesOf leaves out what the documents show already.
func namesOf(lists map[routes.HostID]*routes.HostList) map[routes.HostID]map[string][]string {
	out := map[routes.HostID]map[string][]string{}
	for id, l := range lists {
		m := map[string][]string{}
		for kind, entries := range map[string][]routes.ListEntry{
			"tools": l.Tools, "prompts": l.Prompts, "resources": l.Resources, "resourceTemplates": l.ResourceTemplates,
		} {
			for _, e := range entries {
				m[kind] = append(m[kind], e.Name)
			}
		}
		for _, b := range l.Missing {
			m["missing"] = append(m["missing"], string(b))
		}
		out[id] = m
	}
	return out
}

func unmarshal(t *testing.T, doc []byte, into any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		t.Fatalf("%v in\n%s", err, doc)
	}
}

func indent(t *testing.T, v any) []byte {
	t.Helper()
	doc, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(doc, '\n')
}

func section(ar *txtar.Archive, name string) []byte {
	for _, f := range ar.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func rewrite(t *testing.T, file string, ar *txtar.Archive, got []txtar.File) {
	t.Helper()
	out := &txtar.Archive{Comment: ar.Comment}
	for _, f := range ar.Files {
		switch f.Name {
		case "hosts.json", "lists.json", "problems.json":
		default:
			out.Files = append(out.Files, f)
		}
	}
	out.Files = append(out.Files, got...)
	if err := os.WriteFile(file, txtar.Format(out), 0o644); err != nil {
		t.Fatal(err)
	}
}
