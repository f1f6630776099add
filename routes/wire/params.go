package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// ParamSpec is what a tool's input schema asks to be mirrored into Mcp-Param-* headers, compiled. It is immutable; nil asks
// for nothing.
// Source: MCP 2026-07-28, basic/transports/streamable-http (Custom Headers from Tool Parameters).
type ParamSpec struct{ params []param }

type param struct {
	header string   // canonical, with the prefix
	path   []string // names of properties from the root
}

// ParseParamSpec compiles a tool's input schema. An error says which of the rules of x-mcp-header the schema breaks: such a
// tool must be left out of lists.
func ParseParamSpec(schema json.RawMessage) (*ParamSpec, error) {
	if !bytes.Contains(schema, []byte(keyAnnotation)) && !bytes.Contains(schema, []byte(`\u`)) {
		return nil, nil // most schemas
	}
	root, err := ParseObject(schema)
	if err != nil {
		return nil, fmt.Errorf("input schema: %w", err)
	}
	var a annotations
	if err := a.schema(root, nil, true); err != nil {
		return nil, err
	}
	if len(a.params) == 0 {
		return nil, nil
	}
	return &ParamSpec{params: a.params}, nil
}

// ValidateAnnotations checks the x-mcp-header annotations of a tool's input schema.
func ValidateAnnotations(schema json.RawMessage) error {
	_, err := ParseParamSpec(schema)
	return err
}

// CheckParams compares Mcp-Param-* headers with arguments; see [ParamSpec.Check]. A schema that breaks the rules asks for
// nothing.
func CheckParams(schema, arguments json.RawMessage, h http.Header) *Error {
	spec, err := ParseParamSpec(schema)
	if err != nil {
		return nil
	}
	return spec.Check(arguments, h)
}

// ParamHeaders computes Mcp-Param-* headers from arguments; see [ParamSpec.Headers].
func ParamHeaders(schema, arguments json.RawMessage) (http.Header, *Error) {
	spec, err := ParseParamSpec(schema)
	if err != nil {
		return nil, nil
	}
	return spec.Headers(arguments)
}

// annotations walks a schema and collects what is annotated.
type annotations struct{ params []param }

const keyAnnotation = "x-mcp-header"

// schema walks one schema. reachable: the chain from the root had properties keys only; path is that chain.
func (a *annotations) schema(o Object, path []string, reachable bool) error {
	if raw, ok := o.Get(keyAnnotation); ok {
		if err := a.annotation(raw, o, path, reachable); err != nil {
			return fmt.Errorf("property %q: %w", strings.Join(path, "."), err)
		}
	}
	for _, m := range o {
		var err error
		switch m.Name {
		case "enum", "const", "default", "examples", "example", keyAnnotation: // data, no schemas
		case "properties":
			err = a.named(m.Value, path, reachable)
		case "patternProperties", "$defs", "definitions", "dependentSchemas":
			err = a.named(m.Value, path, false)
		default:
			err = a.anywhere(m.Value, path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// named walks a map of names to schemas.
func (a *annotations) named(raw json.RawMessage, path []string, reachable bool) error {
	if !isObject(raw) {
		return nil
	}
	w := trust(raw)
	for _, m := range w.object() {
		if !isObject(m.Value) {
			continue
		}
		sub := trust(m.Value)
		if err := a.schema(sub.object(), append(path[:len(path):len(path)], m.Name), reachable); err != nil {
			return err
		}
	}
	return nil
}

// anywhere walks a value that may hold schemas out of reach.
func (a *annotations) anywhere(raw json.RawMessage, path []string) error {
	switch w := trust(raw); w.peek() {
	case '{':
		return a.schema(w.object(), path, false)
	case '[':
		for _, v := range w.array() {
			if err := a.anywhere(v, path); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *annotations) annotation(raw json.RawMessage, o Object, path []string, reachable bool) error {
	name, ok := text(raw)
	switch {
	case !ok || name == "":
		return fmt.Errorf("%s must be a string that is not empty", keyAnnotation)
	case !isToken(name):
		return fmt.Errorf("%s is no header name", keyAnnotation)
	case !reachable || len(path) == 0:
		return fmt.Errorf("%s stands where properties alone do not lead", keyAnnotation)
	case !primitive(o):
		return fmt.Errorf("%s needs the type string, integer or boolean", keyAnnotation)
	}
	header := textproto.CanonicalMIMEHeaderKey(headerParamPrefix + name)
	for _, p := range a.params {
		if p.header == header {
			return fmt.Errorf("%s %q is used twice", keyAnnotation, name)
		}
	}
	a.params = append(a.params, param{header, path})
	return nil
}

// primitive reports whether a schema's type is one that may be mirrored; it may also allow null, which is not mirrored.
func primitive(o Object) bool {
	raw, _ := o.Get("type")
	if t, ok := text(raw); ok {
		return t == "string" || t == "integer" || t == "boolean"
	}
	w := trust(raw)
	if w.peek() != '[' {
		return false
	}
	n := 0
	for _, v := range w.array() {
		switch t, _ := text(v); t {
		case "null":
		case "string", "integer", "boolean":
			n++
		default:
			return false
		}
	}
	return n == 1
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			continue
		}
		if strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// Check compares the Mcp-Param-* headers of a tools/call with its arguments (nil: none): a value needs its header, null and
// absent must not have one, repeats must be equal, integers are compared as numbers. Headers that the schema does not
// know are ignored. The error is a -32020; or a -32600 for an argument that is named like one on the way in another case.
func (s *ParamSpec) Check(arguments json.RawMessage, h http.Header) *Error {
	if s == nil {
		return nil
	}
	for _, p := range s.params {
		raw, err := p.find(arguments)
		if err != nil {
			return err
		}
		values := h[p.header]
		if raw == nil {
			if len(values) > 0 {
				return headerMismatch("the " + p.header + " header has no argument")
			}
			continue
		}
		want, ok := mirrored(raw)
		switch {
		case !ok:
			return headerMismatch("the argument of the " + p.header + " header can't be mirrored")
		case len(values) == 0:
			return headerMismatch("the " + p.header + " header is missing")
		}
		for _, v := range values {
			got, err := DecodeHeaderValue(v)
			if err != nil {
				return headerMismatch("the " + p.header + " header: " + err.Error())
			}
			if got != want && !(isNumber(raw) && sameInteger(got, want)) {
				return headerMismatch("the " + p.header + " header does not match its argument")
			}
		}
	}
	return nil
}

// Headers computes the Mcp-Param-* headers for arguments (nil: none). The error is a -32602 for an argument that can't be
// mirrored, or as in [ParamSpec.Check] for one in another case.
func (s *ParamSpec) Headers(arguments json.RawMessage) (http.Header, *Error) {
	if s == nil {
		return nil, nil
	}
	h := make(http.Header, len(s.params))
	for _, p := range s.params {
		raw, err := p.find(arguments)
		if err != nil {
			return nil, err
		}
		if raw == nil {
			continue
		}
		v, ok := mirrored(raw)
		if !ok {
			return nil, invalidParams("arguments." + strings.Join(p.path, ".") + " must be a string, a boolean or an integer below 2^53")
		}
		h[p.header] = []string{EncodeHeaderValue(v)}
	}
	return h, nil
}

// find returns the argument at the path; nil when it is absent or null.
func (p param) find(raw json.RawMessage) (json.RawMessage, *Error) {
	for _, name := range p.path {
		w := trust(raw)
		if w.space(); w.peek() != '{' {
			return nil, nil
		}
		raw = nil
		for w.enter(); ; {
			n, ok := w.member()
			if !ok {
				break
			}
			got, v := unquote(n), w.value()
			switch {
			case got == name:
				raw = v
			case strings.EqualFold(got, name):
				return nil, invalidRequest("an argument is named like " + name + " in another case")
			}
		}
	}
	if string(raw) == "null" {
		return nil, nil
	}
	return raw, nil
}

func isNumber(raw json.RawMessage) bool {
	return len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// mirrored returns the text that stands for an argument in a header, before encoding.
func mirrored(raw json.RawMessage) (string, bool) {
	switch {
	case len(raw) == 0:
		return "", false
	case raw[0] == '"':
		return text(raw)
	case isNumber(raw):
		n, ok := integer(string(raw))
		return strconv.FormatInt(n, 10), ok
	case string(raw) == "true" || string(raw) == "false":
		return string(raw), true
	}
	return "", false
}

func sameInteger(a, b string) bool {
	x, okX := integer(a)
	y, okY := integer(b)
	return okX && okY && x == y
}

// integer reads a JSON number that is an integer within ±(2^53−1), such as 42, 42.0 or 4.2e1, exactly.
func integer(s string) (int64, bool) {
	const limit = 1<<53 - 1
	negative := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	mantissa, exponent := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e := strings.TrimPrefix(s[i+1:], "+")
		if e == "" || e[0] == '+' || len(e) > 8 {
			return 0, false // out of any range that matters
		}
		n, err := strconv.Atoi(e)
		if err != nil {
			return 0, false
		}
		mantissa, exponent = s[:i], n
	}
	whole, fraction, point := strings.Cut(mantissa, ".")
	if !digits(whole) || point && !digits(fraction) || len(whole) > 1 && whole[0] == '0' {
		return 0, false
	}
	all := strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(all, "0")
	zeros := len(all) - len(trimmed) + exponent - len(fraction)
	if trimmed == "" {
		return 0, true
	}
	if zeros < 0 || zeros > 16 || len(trimmed)+zeros > 16 {
		return 0, false
	}
	n, err := strconv.ParseInt(trimmed+strings.Repeat("0", zeros), 10, 64)
	if err != nil || n > limit {
		return 0, false
	}
	if negative {
		n = -n
	}
	return n, true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
