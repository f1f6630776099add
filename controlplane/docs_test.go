package controlplane

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// docs/metrics.md lists every metric that the source names.
func TestMetricsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Control plane\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := find("(?m)^\\| `(weir_[a-z_]+)` \\|", section)
	var named []string
	err = fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		named = append(named, find(`Name:\s+"(weir_[a-z_]+)"`, string(source))...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(documented)
	slices.Sort(named)
	if diff := cmp.Diff(named, documented); diff != "" {
		t.Errorf("metrics of the code (-) and of docs/metrics.md (+):\n%s", diff)
	}
}

func find(pattern, in string) (out []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(in, -1) {
		out = append(out, m[1])
	}
	return out
}
