package compile

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Codes are what operators search for: each stands in docs/problems.md, once, in order.
func TestEveryProblemCodeIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/problems.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllSubmatch(doc, -1) {
		documented = append(documented, string(m[1]))
	}
	var codes []string
	for _, file := range []string{"problems.go", "../config/config.go"} {
		codes = append(codes, codesIn(t, file)...)
	}
	slices.Sort(codes)
	codes = slices.Compact(codes) // the config warns of some that the compiler meets as well
	if diff := cmp.Diff(codes, documented); diff != "" {
		t.Errorf("docs/problems.md (-code +documented):\n%s", diff)
	}
}

// codesIn are the values of a file's constants that are named Code….
func codesIn(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Code") {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			code, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			codes = append(codes, code)
		}
		return true
	})
	if len(codes) == 0 {
		t.Fatalf("%s: no codes found", file)
	}
	return codes
}
