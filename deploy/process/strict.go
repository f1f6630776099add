package process

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// visit is a node checked against a type: anchors are checked once, however often they are used.
type visit struct {
	node *yaml.Node
	typ  reflect.Type
}

// checker finds what yaml's decoder hides: all of a document's unknown fields and duplicate keys. The decoder stops at
// a mapping's first duplicate, and inside an UnmarshalYAML it takes unknown fields.
type checker struct {
	problems []string
	seen     map[visit]bool
}

var (
	nodeType        = reflect.TypeFor[yaml.Node]()
	unmarshalerType = reflect.TypeFor[yaml.Unmarshaler]()
)

// check walks node against typ; duplicates are taken out of the tree, so that the decoder goes on behind them.
func (c *checker) check(node *yaml.Node, typ reflect.Type, path string) {
	for typ != nil && typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if c.seen[visit{node, typ}] {
		return
	}
	c.seen[visit{node, typ}] = true
	switch node.Kind {
	case yaml.DocumentNode:
		for _, n := range node.Content {
			c.check(n, typ, path)
		}
	case yaml.AliasNode:
		c.check(node.Alias, typ, path)
	case yaml.MappingNode:
		c.duplicates(node)
		c.mapping(node, typ, path)
	case yaml.SequenceNode:
		var elem reflect.Type
		if typ != nil && (typ.Kind() == reflect.Slice || typ.Kind() == reflect.Array) && typ != nodeType {
			elem = typ.Elem()
		}
		for i, n := range node.Content {
			c.check(n, elem, path+"["+strconv.Itoa(i)+"]")
		}
	}
}

func (c *checker) duplicates(node *yaml.Node) {
	first := make(map[string]int, len(node.Content)/2)
	kept := node.Content[:0:0]
	for i := 0; i+1 < len(node.Content); i += 2 {
		k := node.Content[i]
		if line, dup := first[k.Value]; dup && k.Kind == yaml.ScalarNode {
			c.problems = append(c.problems, fmt.Sprintf("line %d: key %s already set at line %d", k.Line, k.Value, line))
			continue
		}
		if k.Kind == yaml.ScalarNode {
			first[k.Value] = k.Line
		}
		kept = append(kept, k, node.Content[i+1])
	}
	node.Content = kept
}

func (c *checker) mapping(node *yaml.Node, typ reflect.Type, path string) {
	var fields map[string]reflect.Type
	var value reflect.Type
	switch {
	case typ == nil || typ == nodeType || reflect.PointerTo(typ).Implements(unmarshalerType):
		// Not ours to judge: an UnmarshalYAML calls DecodeNode itself. Only duplicates are looked for.
	case typ.Kind() == reflect.Struct:
		fields = yamlFields(typ)
	case typ.Kind() == reflect.Map:
		value = typ.Elem()
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		k, v := node.Content[i], node.Content[i+1]
		if k.Tag == "!!merge" {
			c.merge(v, typ, path)
			continue
		}
		at := k.Value
		if path != "" {
			at = path + "." + k.Value
		}
		if fields == nil {
			c.check(v, value, at)
			continue
		}
		ft, known := fields[k.Value]
		if !known {
			where := ""
			if path != "" {
				where = " in " + path
			}
			c.problems = append(c.problems, fmt.Sprintf("line %d: field %s not found%s", k.Line, k.Value, where))
			continue
		}
		c.check(v, ft, at)
	}
}

// merge checks what a << key brings in: one mapping, or a list of them.
func (c *checker) merge(v *yaml.Node, typ reflect.Type, path string) {
	if v.Kind == yaml.SequenceNode {
		for _, n := range v.Content {
			c.check(n, typ, path)
		}
		return
	}
	c.check(v, typ, path)
}

// yamlFields lists the keys that yaml takes for a struct, with their types.
func yamlFields(t reflect.Type) map[string]reflect.Type {
	out := make(map[string]reflect.Type, t.NumField())
	for f := range t.Fields() {
		if !f.IsExported() && !f.Anonymous {
			continue
		}
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-":
		case slices.Contains(strings.Split(opts, ","), "inline"):
			ft := f.Type
			for ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			if ft.Kind() == reflect.Struct {
				for k, v := range yamlFields(ft) {
					out[k] = v
				}
			}
		default:
			out[cmp.Or(name, strings.ToLower(f.Name))] = f.Type
		}
	}
	return out
}
