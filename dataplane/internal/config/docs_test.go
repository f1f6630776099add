package config

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/redisstore"
)

// docs/config.md lists every field of the file; redis and auth are described with the control plane's.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Dataplane\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		documented = append(documented, m[1])
	}
	fields := fieldsOf(reflect.TypeFor[Config](), "")
	slices.Sort(documented)
	slices.Sort(fields)
	if diff := cmp.Diff(fields, documented); diff != "" {
		t.Errorf("fields of the code (-) and of docs/config.md (+):\n%s", diff)
	}
}

func fieldsOf(t reflect.Type, path string) (out []string) {
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[redisstore.Config]() || t == reflect.TypeFor[access.Config]() {
		return nil
	}
	for f := range t.Fields() {
		name := f.Tag.Get("yaml")
		if name == "-" || name == "" {
			continue
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		out = append(append(out, at), fieldsOf(f.Type, at)...)
	}
	return out
}
