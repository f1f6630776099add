// Package layout keeps the architecture: who may import whom, and what a package may be called. Each rule says why it exists,
// so that a failure explains itself. Source: DESIGN § 3, STYLE "Who may import whom"; docs/architecture.md.
package layout

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weir-mcp/weir"

// pkg is what `go list -json` says of a package. Imports are those of its non-test files.
type pkg struct {
	ImportPath string
	Name       string
	Doc        string
	Imports    []string
	GoFiles    []string
}

func (p pkg) rel() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

// rule limits the imports of the packages below some folders.
type rule struct {
	of    []string // folders, or "=folder" for exactly that package
	never []string // imports with this prefix are refused; "" stands for all of ours
	only  []string // of our own packages, only these may be imported
	why   string
}

var rules = map[string]rule{
	"the control plane never imports the dataplane": {
		of: []string{"controlplane"}, never: []string{module + "/dataplane"},
		why: "the planes meet in package routes and in Redis only, so that either can be replaced or scaled alone",
	},
	"the dataplane never imports the control plane": {
		of: []string{"dataplane"}, never: []string{module + "/controlplane"},
		why: "the planes meet in package routes and in Redis only, so that either can be replaced or scaled alone",
	},
	"routes is a leaf": {
		of: []string{"=routes"}, only: []string{},
		never: []string{"net/http", "github.com/redis", "go.uber.org/zap"},
		why:   "the contract between the planes is values: no network, no Redis, no log",
	},
	"the shared packages know no plane": {
		of: []string{"routes"}, never: []string{module + "/controlplane", module + "/dataplane"},
		why: "both planes use them",
	},
	"a store returns errors and does not log": {
		of: []string{"routes/redisstore"}, never: []string{"go.uber.org/zap"}, only: []string{"routes", "routes/redisstore"},
		why: "its callers know whether an error matters",
	},
	"the wire knows no Redis": {
		of: []string{"routes/wire", "routes/egress", "routes/access"}, never: []string{"github.com/redis", "go.uber.org/zap"},
		why: "they speak HTTP; what is published reaches them as values",
	},
	"compile and catalog are pure": {
		of:    []string{"controlplane/internal/compile", "controlplane/internal/catalog"},
		never: []string{"net", "os", "github.com/redis", "go.uber.org/zap"},
		why:   "same input, same bytes: no network, no clock, no logger",
	},
	"the snapshot and the headers do not know each other": {
		of:    []string{"dataplane/internal/snapshot", "dataplane/internal/headers"},
		never: []string{"github.com/redis", module + "/dataplane/internal/call"},
		why:   "the call handler joins them",
	},
	"only the program links the cluster's client": {
		of:    []string{"=controlplane", "controlplane/internal", "dataplane", "deploy", "routes"},
		never: []string{module + "/controlplane/internal/source/kubernetes"},
		why:   "it is most of the program's dependencies; controlplane/cmd passes it in by controlplane.Options",
	},
	"a call knows no Redis": {
		of: []string{"dataplane/internal/call"}, never: []string{"github.com/redis", module + "/routes/redisstore"},
		why: "the dataplane's hot path reads immutable snapshots through local interfaces",
	},
}

func TestImports(t *testing.T) {
	pkgs := list(t)
	for name, r := range rules {
		t.Run(name, func(t *testing.T) {
			matched := 0
			for _, p := range pkgs {
				if !r.covers(p.rel()) {
					continue
				}
				matched++
				for _, imp := range p.Imports {
					if r.refuses(imp) {
						t.Errorf("%s imports %s: %s", p.rel(), imp, r.why)
					}
				}
			}
			if matched == 0 {
				t.Errorf("no package is covered by %v: the rule checks nothing", r.of)
			}
		})
	}
}

func (r rule) covers(rel string) bool {
	return slices.ContainsFunc(r.of, func(f string) bool {
		if exact, ok := strings.CutPrefix(f, "="); ok {
			return rel == exact
		}
		return rel == f || strings.HasPrefix(rel, f+"/")
	})
}

func (r rule) refuses(imp string) bool {
	if own, ok := strings.CutPrefix(imp, module+"/"); ok && r.only != nil && !slices.Contains(r.only, own) {
		return true
	}
	return slices.ContainsFunc(r.never, func(n string) bool { return imp == n || strings.HasPrefix(imp, n+"/") })
}

func TestNames(t *testing.T) {
	for _, p := range list(t) {
		if base := path.Base(p.ImportPath); slices.Contains([]string{"util", "utils", "common", "helpers", "types"}, base) {
			t.Errorf("%s: a function lives with its noun, not in %q", p.rel(), base)
		}
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment: it is where a reader starts", p.rel())
		}
	}
}

func TestE2EStaysOutside(t *testing.T) {
	for _, p := range list(t) {
		if !strings.HasPrefix(p.rel(), "deploy/") {
			continue
		}
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp, module+"/controlplane/internal") || strings.HasPrefix(imp, module+"/dataplane/internal") {
				t.Errorf("%s imports %s: what is deployed uses the planes as libraries", p.rel(), imp)
			}
		}
	}
}

// list asks the go command about every package of the module; test files of the e2e package count as imports too.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Doc,Imports,GoFiles", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}
