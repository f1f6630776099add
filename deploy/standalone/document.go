package standalone

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-mcp/weir/deploy/process"
)

// document is a config file taken apart into what each plane reads. Both parts keep the line numbers of the file, so that a
// plane's own error messages name the line that the user sees; what is missing is appended after the last one.
type document struct {
	control, data         []string
	controlKeys, dataKeys map[string]*yaml.Node
}

// dropped names keys of the file that standalone decides itself.
var dropped = []string{"redis", "listen", "admin_listen", "ops_listen", "tls"}

// splitDocument takes a control plane's config file with an optional dataplane block apart. An empty file is fine.
func splitDocument(file []byte) (*document, error) {
	var root yaml.Node
	if err := process.ParseYAML(file, &root); err != nil {
		return nil, err
	}
	d := &document{controlKeys: map[string]*yaml.Node{}, dataKeys: map[string]*yaml.Node{}}
	if root.Kind == 0 {
		return d, nil
	}
	top := root.Content[0]
	if top.Kind != yaml.MappingNode || top.Style&yaml.FlowStyle != 0 {
		return nil, errors.New("line 1: the file must be a mapping, one key a line")
	}
	d.control = strings.Split(string(file), "\n")
	d.data = make([]string, len(d.control))
	for i := 0; i < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		end := len(d.control)
		if i+2 < len(top.Content) {
			end = top.Content[i+2].Line - 1
		}
		switch {
		case key.Value == "dataplane":
			if err := d.cutDataplane(key, value, end); err != nil {
				return nil, fmt.Errorf("dataplane: %w", err)
			}
		case isDropped(key.Value):
			blank(d.control[key.Line-1 : end])
		default:
			d.controlKeys[key.Value] = value
		}
	}
	return d, nil
}

// cutDataplane moves the lines of the dataplane block from the control plane's part to the dataplane's, one level up.
func (d *document) cutDataplane(key, value *yaml.Node, end int) error {
	if value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle != 0 {
		if err := unfold(value); err != nil {
			return err
		}
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		if len(value.Content) > 0 {
			d.data[key.Line-1] = string(bytes.TrimRight(text, "\n")) // in one element, so that what follows keeps its line
		}
	} else {
		d.copyBlock(key, value, end)
	}
	blank(d.control[key.Line-1 : end])
	if value.Kind != yaml.MappingNode {
		return nil // null, or a mistake that the dataplane's own loader reports
	}
	for i := 0; i < len(value.Content); i += 2 {
		if k := value.Content[i]; isDropped(k.Value) {
			next := end
			if i+2 < len(value.Content) {
				next = value.Content[i+2].Line - 1
			}
			blank(d.data[k.Line-1 : next])
			continue
		}
		d.dataKeys[value.Content[i].Value] = value.Content[i+1]
	}
	return nil
}

// copyBlock copies a block as it stands, with its indentation taken away.
func (d *document) copyBlock(key, value *yaml.Node, end int) {
	indent := 0
	if value.Kind == yaml.MappingNode {
		indent = value.Column - 1
	}
	for n := key.Line - 1; n < end; n++ {
		line := d.control[n]
		if n == key.Line-1 {
			_, line, _ = strings.Cut(line, ":")
			line = strings.Repeat(" ", indent) + line
		}
		if len(line)-len(strings.TrimLeft(line, " ")) >= indent {
			line = line[indent:]
		}
		d.data[n] = line
	}
}

// unfold turns a mapping in flow style into a block, to which more keys can be appended, and takes out of it what standalone
// decides itself.
func unfold(value *yaml.Node) error {
	value.Style &^= yaml.FlowStyle
	kept := value.Content[:0]
	for i := 0; i < len(value.Content); i += 2 {
		if k := value.Content[i]; k.Kind != yaml.ScalarNode {
			return fmt.Errorf("line %d: a key must be a name", k.Line)
		} else if !isDropped(k.Value) {
			kept = append(kept, k, value.Content[i+1])
		}
	}
	value.Content = kept
	return nil
}

func isDropped(key string) bool {
	for _, k := range dropped {
		if k == key {
			return true
		}
	}
	return false
}

func blank(lines []string) {
	for i := range lines {
		lines[i] = ""
	}
}

// hasControl reports whether the user's file sets a key of the control plane.
func (d *document) hasControl(key string) bool { _, ok := d.controlKeys[key]; return ok }

// addControl appends key: value to the control plane's part.
func (d *document) addControl(key string, value any) error {
	return add(&d.control, d.controlKeys, key, value)
}

// addData appends key: value to the dataplane's part, unless the user's block has the key.
func (d *document) addData(key string, value any) error {
	if _, ok := d.dataKeys[key]; ok {
		return nil
	}
	return add(&d.data, d.dataKeys, key, value)
}

func add(lines *[]string, keys map[string]*yaml.Node, key string, value any) error {
	var node yaml.Node
	if err := node.Encode(value); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	text, err := yaml.Marshal(map[string]*yaml.Node{key: &node})
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	*lines = append(*lines, string(bytes.TrimRight(text, "\n")))
	keys[key] = &node
	return nil
}

func (d *document) controlDoc() []byte { return []byte(strings.Join(d.control, "\n") + "\n") }
func (d *document) dataDoc() []byte    { return []byte(strings.Join(d.data, "\n") + "\n") }
