package routes_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestGlossaryPointsSomewhere keeps the links of docs/glossary.md and of the decision about look-ups alive.
func TestGlossaryPointsSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)\)`)
	for _, page := range []string{"../docs/glossary.md", "../docs/decisions/0010-unlisted-uris.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			if target := filepath.Join(filepath.Dir(page), string(m[1])); !exists(target) {
				t.Errorf("%s: nothing at %s", page, m[1])
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
