package process

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// DecodeYAML decodes doc into a struct, strictly: every unknown field, duplicate key and wrong type at once, each with its
// line, in the order of the lines. An empty document leaves into as it is; a second document is an error.
func DecodeYAML(doc []byte, into any) error {
	dec := yaml.NewDecoder(bytes.NewReader(doc))
	var root yaml.Node
	if err := dec.Decode(&root); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return syntaxError(err)
	}
	err := errors.Join(Problems(DecodeNode(&root, into))...)
	var second yaml.Node
	switch next := dec.Decode(&second); {
	case errors.Is(next, io.EOF):
		return err
	case next != nil:
		return errors.Join(err, syntaxError(next))
	}
	return errors.Join(err, fmt.Errorf("line %d: a second document; one file holds one", second.Line))
}

// DecodeNode is DecodeYAML on a part of a document, for use in an UnmarshalYAML method: yaml's own Node.Decode forgets
// to be strict. Its errors are of a type that yaml collects, so that the ones around them are found as well.
func DecodeNode(node *yaml.Node, into any) error {
	c := checker{seen: map[visit]bool{}}
	c.check(node, reflect.TypeOf(into), "")
	problems := c.problems
	if err := node.Decode(into); err != nil {
		te, ok := errors.AsType[*yaml.TypeError](err)
		if !ok {
			return syntaxError(err)
		}
		for _, p := range te.Errors {
			if !strings.Contains(p, "already defined at line") { // the checker said so, for every mapping
				problems = append(problems, plain(p))
			}
		}
	}
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b string) int { return cmp.Compare(lineOf(a), lineOf(b)) })
	return &yaml.TypeError{Errors: slices.Compact(problems)}
}

// Problems splits an error of DecodeYAML, or any joined one, into its single problems.
func Problems(err error) []error {
	if err == nil {
		return nil
	}
	if te, ok := err.(*yaml.TypeError); ok {
		out := make([]error, 0, len(te.Errors))
		for _, p := range te.Errors {
			out = append(out, errors.New(p))
		}
		return out
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range joined.Unwrap() {
			out = append(out, Problems(e)...)
		}
		return out
	}
	return []error{err}
}

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

var (
	mismatch = regexp.MustCompile("^(line \\d+): cannot unmarshal !!(\\w+)(?: `.*`)? into (.+)$")
	setTwice = regexp.MustCompile(`^(line \d+: field \S+ already set) in type .+$`)
	lineNo   = regexp.MustCompile(`^line (\d+)`)
)

// plain puts yaml's message into words without Go types and without the value, which may be a secret.
func plain(p string) string {
	if m := setTwice.FindStringSubmatch(p); m != nil {
		return m[1]
	}
	m := mismatch.FindStringSubmatch(p)
	if m == nil {
		return p
	}
	return fmt.Sprintf("%s: want %s, found %s", m[1], wanted(m[3]), found(m[2]))
}

func found(tag string) string {
	switch tag {
	case "map":
		return "a mapping"
	case "seq":
		return "a list"
	case "str":
		return "a string"
	case "int", "float":
		return "a number"
	case "bool":
		return "true or false"
	}
	return "!!" + tag
}

func wanted(goType string) string {
	switch {
	case goType == "time.Duration":
		return "a duration such as 30s"
	case goType == "string":
		return "a string"
	case goType == "bool":
		return "true or false"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		return "a whole number in range"
	case strings.HasPrefix(goType, "float"):
		return "a number"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	}
	return "a mapping"
}

func lineOf(p string) int {
	m := lineNo.FindStringSubmatch(p)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // digits only; overlong ones sort first
	return n
}

func syntaxError(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
}
