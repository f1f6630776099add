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
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// DecodeYAML decodes doc into a struct, strictly: every unknown field, duplicate key and wrong type at once, each with its
// line, in the order of the lines. An empty document leaves into as it is; a second document is an error. What is no YAML, or no
// mapping at its root, is a *SyntaxError, and nothing of it is decoded.
func DecodeYAML(doc []byte, into any) error {
	var root yaml.Node
	dec, err := rootOf(doc, &root)
	if err != nil || root.Kind == 0 {
		return err
	}
	err = errors.Join(Problems(DecodeNode(&root, "", into))...)
	var second yaml.Node
	switch next := dec.Decode(&second); {
	case errors.Is(next, io.EOF):
		return err
	case next != nil:
		return errors.Join(err, syntaxError(doc, next))
	}
	return errors.Join(err, fmt.Errorf("line %d: a second document; one file holds one", second.Line))
}

// ParseYAML is DecodeYAML up to the first document's nodes: root is left as it is where doc is empty.
func ParseYAML(doc []byte, root *yaml.Node) error {
	_, err := rootOf(doc, root)
	return err
}

// rootOf parses the first document.
func rootOf(doc []byte, root *yaml.Node) (*yaml.Decoder, error) {
	dec := yaml.NewDecoder(bytes.NewReader(doc))
	var first yaml.Node
	if err := dec.Decode(&first); errors.Is(err, io.EOF) {
		return dec, nil
	} else if err != nil {
		return nil, syntaxError(doc, err)
	}
	if top := first.Content[0]; top.Kind != yaml.MappingNode && top.Tag != "!!null" {
		what := "a list"
		if top.Kind == yaml.ScalarNode {
			what = found(strings.TrimPrefix(top.Tag, "!!"))
		}
		return nil, &SyntaxError{fmt.Sprintf("line %d: want fields and their values, found %s", top.Line, what)}
	}
	*root = first
	return dec, nil
}

// DecodeNode is DecodeYAML on a part of a document, for use in an UnmarshalYAML method: yaml's own Node.Decode forgets
// to be strict. path, which may be empty, says in messages where the part stands. Its errors are of a type that yaml
// collects, so that the ones around them are found as well.
func DecodeNode(node *yaml.Node, path string, into any) error {
	c := checker{seen: map[visit]bool{}}
	c.check(node, reflect.TypeOf(into), path)
	problems := c.problems
	if err := node.Decode(into); err != nil {
		te, ok := errors.AsType[*yaml.TypeError](err)
		if !ok {
			return syntaxError(nil, err)
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

// SyntaxError is a document that is no YAML: nothing of it was decoded.
type SyntaxError struct{ text string }

func (e *SyntaxError) Error() string { return e.text }

// syntaxError puts yaml's error into words, with the line that it left out: it has none for the first line, for anchors, and for what
// is no text.
func syntaxError(doc []byte, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if doc == nil || lineOf(text) > 0 {
		return &SyntaxError{text}
	}
	line := 1
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		line = lineWith(doc, func(l []byte) bool { return bytes.Contains(l, []byte("*"+m[1])) })
	} else if strings.HasPrefix(text, "control characters") || strings.HasPrefix(text, "invalid ") {
		line = lineWith(doc, func(l []byte) bool { return !utf8.Valid(l) || bytes.ContainsFunc(l, unicode.IsControl) })
	}
	return &SyntaxError{fmt.Sprintf("line %d: %s", line, text)}
}

var unknownAnchor = regexp.MustCompile(`^unknown anchor '(.+)' referenced$`)

// lineWith is the number of the first line that is as asked; 1 where none is.
func lineWith(doc []byte, is func([]byte) bool) int {
	n := 0
	for l := range bytes.Lines(doc) {
		n++
		if is(bytes.Trim(l, "\t\r\n")) {
			return n
		}
	}
	return 1
}

// InFile puts the file's name before every single problem of err, so that each line that is printed says where to look. A nil err is
// nil.
func InFile(path string, err error) error {
	problems := Problems(err)
	for i, p := range problems {
		problems[i] = fmt.Errorf("%s: %w", path, p)
	}
	return errors.Join(problems...)
}
