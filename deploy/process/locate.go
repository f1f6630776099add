package process

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Locate gives each single problem in err that starts with the path of a field ("backends.a.url: …", "auth.issuers[0].leeway: …") the
// line of doc where that field stands, or else the nearest one around it, and puts them in the order of the lines.
// Problems that have a line already keep it. A nil err is nil.
func Locate(doc []byte, err error) error {
	if err == nil {
		return nil
	}
	lineAt := Lines(doc)
	problems := Problems(err)
	for i, p := range problems {
		if lineOf(p.Error()) > 0 {
			continue
		}
		path, _, _ := strings.Cut(p.Error(), ": ")
		if line := lineAt(path); line > 0 {
			problems[i] = fmt.Errorf("line %d: %w", line, p)
		}
	}
	slices.SortStableFunc(problems, func(a, b error) int { return cmp.Compare(lineOf(a.Error()), lineOf(b.Error())) })
	return errors.Join(problems...)
}

// Lines returns a function that tells the line of a field by its path: the line of its key, or of the nearest field around it; 0
// where there is none, and for a doc that is no YAML.
func Lines(doc []byte) func(path string) int {
	var root yaml.Node
	x := lineIndex{}
	if yaml.NewDecoder(bytes.NewReader(doc)).Decode(&root) == nil {
		x.add(&root, "", 0)
	}
	return x.line
}

// maxDepth ends the walk of a document whose anchors refer to themselves.
const maxDepth = 32

// lineIndex maps the path of each field to the line of its key.
type lineIndex map[string]int

func (x lineIndex) add(n *yaml.Node, path string, depth int) {
	if depth > maxDepth || len(x) > 1<<20 {
		return
	}
	switch n.Kind {
	case yaml.DocumentNode:
		for _, c := range n.Content {
			x.add(c, path, depth+1)
		}
	case yaml.AliasNode:
		x.add(n.Alias, path, depth+1)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			at := k.Value
			if path != "" {
				at = path + "." + k.Value
			}
			x[at] = k.Line
			x.add(n.Content[i+1], at, depth+1)
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			at := path + "[" + strconv.Itoa(i) + "]"
			x[at] = c.Line
			x.add(c, at, depth+1)
		}
	}
}

// line is the line of path, or of the nearest path that contains it; 0: none.
func (x lineIndex) line(path string) int {
	for path != "" {
		if line, ok := x[path]; ok {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 0
}
