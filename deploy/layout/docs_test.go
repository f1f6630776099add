package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// mdLink is an inline link of Markdown: its target without a title.
var mdLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// Every relative link of every page leads to a file.
func TestLinksLeadSomewhere(t *testing.T) {
	checked := 0
	for _, page := range pages(t) {
		doc, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mdLink.FindAllStringSubmatch(string(doc), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			checked++
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), target)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[1])
			}
		}
	}
	if checked == 0 {
		t.Error("no link was checked")
	}
}

// A page that nothing links to is not found.
func TestPagesAreLinked(t *testing.T) {
	for index, pattern := range map[string]string{
		"README.md":                "docs/*.md",
		"docs/decisions/README.md": "docs/decisions/0*.md",
	} {
		doc, err := os.ReadFile(filepath.Join(root, index))
		if err != nil {
			t.Fatal(err)
		}
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(matches) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(matches), err)
		}
		for _, page := range matches {
			rel, err := filepath.Rel(filepath.Dir(filepath.Join(root, index)), page)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(doc), "("+filepath.ToSlash(rel)+")") {
				t.Errorf("%s does not link to %s", index, rel)
			}
		}
	}
}

func pages(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, dir := range []string{root, filepath.Join(root, "docs"), filepath.Join(root, "docs/decisions")} {
		matches, err := filepath.Glob(filepath.Join(dir, "*.md"))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, matches...)
	}
	return out
}
