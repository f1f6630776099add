package source

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
)

var update = flag.Bool("update", false, "rewrite the golden output in testdata")

// base is what every config needs and no case is about.
const base = `redis: redis://127.0.0.1:6379/0
auth: {issuers: [{issuer: https://idp.example, audiences: [weir], algorithms: [RS256], public_key_file: idp.pub}]}
`

// report is one good report in shorthand: names and URLs.
type report []struct{ Name, URL, Prefix, Origin string }

func (r report) entries() []Entry {
	var out []Entry
	for _, e := range r {
		out = append(out, Entry{Name: e.Name, URL: e.URL, Prefix: e.Prefix, Origin: e.Origin})
	}
	return out
}

// merged is what a golden file shows of the outcome.
type merged struct {
	Awaiting bool
	Backends map[string]string   // id → source and URL
	Hosts    map[string][]string // entries as NAME PREFIX
	Awaits   []string            `json:",omitempty"` // hosts
}

// TestGolden lets the reports of each file follow each other, source by source, and merges the outcome with its config.yaml. The
// comment on top of a file says what it guards.
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
			got := golden(t, ar)
			if *update {
				ar.Files = append(inputs(ar), got...)
				if err := os.WriteFile(file, txtar.Format(ar), 0o600); err != nil {
					t.Fatal(err)
				}
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

func golden(t *testing.T, ar *txtar.Archive) []txtar.File {
	t.Helper()
	file, _, err := config.Parse(append([]byte(base), section(ar, "config.yaml")...))
	if err != nil {
		t.Fatal(err)
	}
	var reports map[string][]report
	if err := json.Unmarshal(section(ar, "reports.json"), &reports); err != nil {
		t.Fatal(err)
	}
	heard := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	sets := map[string]*Set{}
	problems := []compile.Problem{}
	for _, s := range file.Sources {
		if reports[s.Name] == nil {
			continue // was not heard
		}
		set := &Set{Source: s.Name, Heard: heard, Settled: true}
		for _, r := range reports[s.Name] {
			set.Backends, set.Refused = accept(s.Name, set.Backends, r.entries())
		}
		sets[s.Name] = set
		problems = append(problems, set.Problems(heard)...)
	}
	cfg, found := Merge(file, sets)
	out := merged{Awaiting: cfg.Awaiting, Backends: map[string]string{}, Hosts: map[string][]string{}}
	for _, b := range cfg.Backends {
		what := b.Route.Source + " " + b.Route.URL
		if b.Route.AllowPrivate {
			what += " private"
		}
		if b.Route.Discovered != (b.Route.Source != "") {
			t.Errorf("backend %s: Discovered is %v, source %q", b.ID, b.Route.Discovered, b.Route.Source)
		}
		out.Backends[string(b.ID)] = strings.TrimSpace(what)
	}
	for _, h := range cfg.VirtualHosts {
		out.Hosts[string(h.ID)] = []string{}
		for _, b := range h.Backends {
			if b.Source != "" {
				t.Errorf("host %s: an entry of source %s is left", h.ID, b.Source)
			}
			out.Hosts[string(h.ID)] = append(out.Hosts[string(h.ID)], strings.TrimSpace(string(b.Name)+" "+b.Prefix))
		}
		if h.Awaits {
			out.Awaits = append(out.Awaits, string(h.ID))
		}
	}
	return []txtar.File{{Name: "merged.json", Data: indent(t, out)}, {Name: "problems.json", Data: indent(t, append(problems, found...))}}
}

func inputs(ar *txtar.Archive) (out []txtar.File) {
	for _, f := range ar.Files {
		if f.Name == "config.yaml" || f.Name == "reports.json" {
			out = append(out, f)
		}
	}
	return out
}

func section(ar *txtar.Archive, name string) []byte {
	for _, f := range ar.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func indent(t *testing.T, v any) []byte {
	t.Helper()
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return doc.Bytes()
}
