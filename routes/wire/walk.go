package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxDepth = 256     // how deep arrays and objects may nest in a client's message
	maxNames = 1 << 16 // how many members one object may have: telling duplicates takes 220 bytes a name
)

// checkStrict refuses what is not exactly one JSON value: bad grammar, a byte order mark, invalid UTF-8, lone surrogates,
// trailing data (-32700), duplicate names at any depth and extreme nesting or width (-32600).
func checkStrict(b []byte) *Error {
	if bytes.Count(b, []byte{':'}) > maxNames && tooWide(b) {
		return invalidRequest(fmt.Sprintf("an object with more than %d members", maxNames))
	}
	if jsontext.Value(b).IsValid() { // allocates nothing
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewReader(b)) // once more, for the reason
	_, err := d.ReadValue()
	if err == nil {
		if _, err = d.ReadToken(); err == nil {
			return parseError("data after the message")
		}
	}
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName) && ok:
		return invalidRequest(fmt.Sprintf("duplicate member name at byte %d", syntax.ByteOffset))
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return parseError("the body ends before the message does")
	case ok && nesting(b[:min(int(syntax.ByteOffset)+1, len(b))]) > maxDepth*2: // jsontext gives up at a depth of its own
		return errTooDeep()
	case ok:
		return parseError(fmt.Sprintf("at byte %d", syntax.ByteOffset))
	}
	return parseError("not JSON")
}

// nesting is how many arrays and objects are open at the end of b. b need not be well-formed.
func nesting(b []byte) int {
	depth := 0
	for w := trust(b); w.i < len(b); w.i++ {
		switch b[w.i] {
		case '"':
			w.skipString()
			w.i--
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
	}
	return depth
}

// tooWide reports whether an object of b has more than maxNames members. b need not be well-formed.
func tooWide(b []byte) bool {
	var names [maxDepth + 1]int // by depth; deeper down is refused anyway
	depth := 0
	for w := trust(b); w.i < len(b); w.i++ {
		switch b[w.i] {
		case '"':
			w.skipString()
			w.i--
		case '{', '[':
			if depth++; depth <= maxDepth {
				names[depth] = 0
			}
		case '}', ']':
			depth = max(0, depth-1)
		case ':':
			if depth > maxDepth {
				continue
			}
			if names[depth]++; names[depth] > maxNames {
				return true
			}
		}
	}
	return false
}

// walker steps through JSON. A trusted one knows it to be well-formed; on anything else it would stop somewhere inside b. The
// other kind checks what it steps over, and is bad when it is not sure of it: then what it found does not count. Slices that
// it returns are sub-slices of b.
type walker struct {
	quick
	trusted bool
	bad     bool
	first   bool // no member of the innermost entered object was seen yet
	depth   int  // of entered objects, and of what a trusted walker is in
	deep    bool // a trusted walker saw more than maxDepth levels
	bases   [maxEntered]int
}

const maxEntered = 8 // how many objects inside each other a checking walker may enter

// trust returns a walker for JSON that is known to be well-formed.
func trust(b []byte) walker { return walker{quick: quick{b: b}, trusted: true} }

// check returns a walker that checks; strict as in [quick].
func check(b []byte, strict bool) walker { return walker{quick: quick{b: b, strict: strict}} }

// peek returns the byte at the position, 0 at the end.
func (w *walker) peek() byte {
	if w.i < len(w.b) {
		return w.b[w.i]
	}
	return 0
}

// enter steps over the '{' at the position.
func (w *walker) enter() {
	w.i++
	w.first = true
	w.nest()
	if w.trusted {
		return
	}
	if w.depth >= maxEntered {
		w.bad = true
		return
	}
	w.bases[w.depth] = w.top
}

func (w *walker) nest() {
	if w.depth++; w.depth > maxDepth {
		w.deep = true
	}
}

// member returns the next name of the object that was entered, without quotes and as written, and stops at its value. At
// the end of the object it steps over the '}' and returns false.
func (w *walker) member() (name []byte, ok bool) {
	if !w.trusted {
		return w.checkedMember()
	}
	w.space()
	if w.peek() == ',' {
		w.i++
		w.space()
	}
	if w.peek() != '"' {
		w.i++
		w.depth--
		return nil, false
	}
	start := w.i + 1
	w.skipString()
	name = w.b[start:max(start, w.i-1)]
	w.space()
	w.i++ // the colon
	w.space()
	return name, true
}

func (w *walker) checkedMember() (name []byte, ok bool) {
	switch {
	case w.bad:
		return nil, false
	case w.next('}'):
		w.top = w.bases[w.depth]
		w.depth--
		w.first = false
		return nil, false
	case !w.first && !w.next(','):
		w.bad = true
		return nil, false
	}
	w.first = false
	w.space()
	start := w.i + 1
	if !w.name(w.bases[w.depth]) {
		w.bad = true
		return nil, false
	}
	name = w.b[start : w.i-1]
	if !w.next(':') {
		w.bad = true
		return nil, false
	}
	w.space()
	return name, true
}

// sure reports whether a checking walker, having stepped over one value, is sure that it was all of b.
func (w *walker) sure() bool {
	w.space()
	return !w.bad && w.i == len(w.b)
}

// value steps over the value at the position and returns it.
func (w *walker) value() json.RawMessage {
	start := min(w.i, len(w.b)) // beyond it only where a trusted walker should not have been
	switch {
	case !w.trusted:
		w.bad = w.bad || !w.quick.value(w.depth)
	case w.peek() == '"':
		w.skipString()
	case w.peek() == '{' || w.peek() == '[':
		w.container()
	default:
		w.scalar()
	}
	end := min(w.i, len(w.b))
	return w.b[start:end:end]
}

// object reads the object at the position whole.
func (w *walker) object() Object {
	o := make(Object, 0, 8)
	w.enter()
	for {
		raw, ok := w.member()
		if !ok {
			return o
		}
		o = append(o, Member{unquote(raw), w.value()})
	}
}

// skipString steps over the string at the position.
func (w *walker) skipString() {
	w.i++
	for w.i < len(w.b) {
		n := bytes.IndexByte(w.b[w.i:], '"')
		if n < 0 {
			w.i = len(w.b)
			return
		}
		end := w.i + n
		slashes := 0
		for j := end - 1; j >= w.i && w.b[j] == '\\'; j-- {
			slashes++
		}
		w.i = end + 1
		if slashes%2 == 0 {
			return
		}
	}
}

// scalar steps over a number or a literal.
func (w *walker) scalar() {
	for w.i < len(w.b) {
		switch w.b[w.i] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return
		}
		w.i++
	}
}

// container steps over the array or object at the position.
func (w *walker) container() {
	base := w.depth
	for w.i < len(w.b) {
		switch w.b[w.i] {
		case '"':
			w.skipString()
			continue
		case '{', '[':
			w.nest()
		case '}', ']':
			if w.depth--; w.depth == base {
				w.i++
				return
			}
		}
		w.i++
	}
}

// unquote decodes what stands between the quotes of a JSON string. Names that every message has cost no allocation.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return intern(raw)
	}
	quoted := make([]byte, 0, len(raw)+2)
	quoted = append(append(append(quoted, '"'), raw...), '"')
	out, _ := jsontext.AppendUnquote(nil, quoted) // well-formed; lone surrogates become U+FFFD
	return string(out)
}

func intern(b []byte) string {
	switch string(b) {
	case "jsonrpc":
		return "jsonrpc"
	case "2.0":
		return "2.0"
	case "id":
		return "id"
	case "method":
		return "method"
	case "params":
		return "params"
	case "name":
		return "name"
	case "arguments":
		return "arguments"
	case "uri":
		return "uri"
	case "taskId":
		return "taskId"
	case "_meta":
		return "_meta"
	case "result":
		return "result"
	case "content":
		return "content"
	case "resultType":
		return "resultType"
	case "complete":
		return "complete"
	case MetaProgressToken:
		return MetaProgressToken
	case MetaProtocolVersion:
		return MetaProtocolVersion
	case MetaClientInfo:
		return MetaClientInfo
	case MetaClientCapabilities:
		return MetaClientCapabilities
	case "traceparent":
		return "traceparent"
	case "tools/call":
		return "tools/call"
	case "resources/read":
		return "resources/read"
	case "prompts/get":
		return "prompts/get"
	case "notifications/progress":
		return "notifications/progress"
	case "notifications/message":
		return "notifications/message"
	case LatestModern:
		return LatestModern
	}
	return string(b)
}

// array returns the elements of the array at the position.
func (w *walker) array() []json.RawMessage {
	var out []json.RawMessage
	w.i++
	w.nest()
	for {
		w.space()
		if w.peek() == ',' {
			w.i++
			w.space()
		}
		if c := w.peek(); c == ']' || c == 0 {
			w.i++
			w.depth--
			return out
		}
		out = append(out, w.value())
	}
}
