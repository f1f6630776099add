package config

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// TestDocs keeps docs/config.md in step with the file's fields.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Control plane\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		documented = append(documented, m[1])
	}
	fields := fieldsOf(reflect.TypeFor[file](), "")
	slices.Sort(documented)
	slices.Sort(fields)
	if diff := cmp.Diff(fields, documented); diff != "" {
		t.Errorf("fields of the code (-) and of docs/config.md (+):\n%s", diff)
	}
}

// fieldsOf lists the paths of a type's YAML fields: NAME for a key of a mapping, [] for an entry of a list.
func fieldsOf(t reflect.Type, path string) (out []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[yaml.Node]():
	case strings.HasPrefix(t.Name(), "ordered["):
		entry, _ := t.Elem().FieldByName("Value")
		return fieldsOf(entry.Type, path+".NAME")
	case t.Kind() == reflect.Map:
		return append(fieldsOf(t.Elem(), path+".NAME"), path+".NAME")
	case t.Kind() == reflect.Slice:
		return fieldsOf(t.Elem(), path+"[]")
	case t.Kind() == reflect.Struct:
		for f := range t.Fields() {
			name := f.Tag.Get("yaml")
			if name == "-" || name == "" {
				continue
			}
			at := strings.TrimPrefix(path+"."+name, ".")
			out = append(append(out, at), fieldsOf(f.Type, at)...)
		}
	}
	return out
}
