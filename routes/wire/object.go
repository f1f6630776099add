package wire

import (
	"encoding/json"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Member is one member of a JSON object in source order; Value is its exact text.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Object is a JSON object that keeps order and exact values. Names are unique (strict decoding). Values are sub-slices of
// what was parsed: nobody may write to them.
type Object []Member

// ParseObject decodes strictly: duplicate names at any depth, depth over 256, trailing data and invalid UTF-8 are errors
// (*[Error], with -32700 or -32600). Values are sub-slices of raw, which must not change afterwards.
func ParseObject(raw []byte) (Object, error) {
	w := check(raw, true)
	if w.space(); w.peek() == '{' {
		if o := w.object(); w.sure() {
			return o, nil
		}
	}
	if err := checkStrict(raw); err != nil {
		return nil, err
	}
	w = trust(raw)
	if w.space(); w.peek() != '{' {
		return nil, invalidRequest("not a JSON object")
	}
	o := w.object()
	if w.deep {
		return nil, errTooDeep()
	}
	return o, nil
}

// Get returns the exact text of a member, and whether it is there.
func (o Object) Get(name string) (json.RawMessage, bool) {
	for i := range o {
		if o[i].Name == name {
			return o[i].Value, true
		}
	}
	return nil, false
}

// Text returns a member that is a string, decoded; false when it is absent or something else.
func (o Object) Text(name string) (string, bool) {
	raw, ok := o.Get(name)
	if !ok {
		return "", false
	}
	return text(raw)
}

// With returns a copy in which the member has value v, in its old place, or at the end when it is new.
func (o Object) With(name string, v json.RawMessage) Object {
	out := make(Object, len(o), len(o)+1)
	copy(out, o)
	for i := range out {
		if out[i].Name == name {
			out[i].Value = v
			return out
		}
	}
	return append(out, Member{name, v})
}

// Without returns a copy that lacks the named members.
func (o Object) Without(names ...string) Object {
	out := make(Object, 0, len(o))
	for _, m := range o {
		if !slices.Contains(names, m.Name) {
			out = append(out, m)
		}
	}
	return out
}

// Append appends the object as JSON to dst: names are quoted anew, values are copied as they are. A nil Object is {}.
func (o Object) Append(dst []byte) []byte {
	dst = append(dst, '{')
	for i, m := range o {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendQuoted(dst, m.Name)
		dst = append(dst, ':')
		if len(m.Value) == 0 {
			dst = append(dst, "null"...)
		}
		dst = append(dst, m.Value...)
	}
	return append(dst, '}')
}

// MarshalJSON returns the object as JSON.
func (o Object) MarshalJSON() ([]byte, error) { return o.Append(make([]byte, 0, o.size())), nil }

// size estimates the length of the object's JSON.
func (o Object) size() int {
	n := 2
	for _, m := range o {
		n += len(m.Name) + len(m.Value) + 4
	}
	return n
}

// Quote returns s as a JSON string. Bytes that are no UTF-8 become U+FFFD.
func Quote(s string) json.RawMessage { return appendQuoted(make([]byte, 0, len(s)+2), s) }

func appendQuoted(dst []byte, s string) []byte {
	out, _ := jsontext.AppendQuote(dst, s) // the error only reports bytes that were replaced by U+FFFD
	return out
}

// text decodes a JSON string; false when raw is something else.
func text(raw json.RawMessage) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	return unquote(raw[1 : len(raw)-1]), true
}
