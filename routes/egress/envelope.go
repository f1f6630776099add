package egress

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weir-mcp/weir/routes/wire"
)

var (
	errForeignID = errors.New("the response has another request's id")
	errNoAnswer  = errors.New("the answer is no response")
)

// upstreamID returns the id to send for the client's: the same text, unless it is a number that a backend could not give back. The
// Go SDK and everything in JavaScript read numbers as doubles, and 2^53+1 comes back as 2^53.
func upstreamID(id json.RawMessage) json.RawMessage {
	if len(id) > 0 && id[0] == '"' {
		return id
	}
	digits := bytes.TrimPrefix(id, []byte("-"))
	if len(digits) == 0 || len(digits) > 15 {
		return json.RawMessage("1")
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return json.RawMessage("1")
		}
	}
	return id
}

// responseOf makes the final message of a backend's response. The document is the backend's, byte for byte, unless it wrote our id
// in another way: then the client's own text is to stand in it.
func responseOf(doc []byte, s *wire.Scan, id json.RawMessage) Message {
	m := Message{Final: true, Result: s.Result, Error: s.Error, Top: s.ResultScan, id: id}
	if bytes.Equal(s.ID, id) {
		m.Doc = doc
	}
	return m
}

// unquote decodes a JSON string; "" when raw is none.
func unquote(raw json.RawMessage) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	out, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return ""
	}
	return string(out)
}

// sameJSON reports whether two JSON scalars mean the same: strings by their characters, numbers by their exact value. Backends
// may write an id or a progress token in another way than we did.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return len(a) > 0
	}
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	if a[0] == '"' || b[0] == '"' {
		return a[0] == b[0] && unquote(a) == unquote(b)
	}
	x, ok := parseDecimal(a)
	y, ok2 := parseDecimal(b)
	return ok && ok2 && x == y
}

// decimal is a JSON number in one canonical form: ±0.digits × 10^exp, digits without zeros at either end.
type decimal struct {
	negative bool
	digits   string
	exp      int
}

func parseDecimal(raw json.RawMessage) (decimal, bool) {
	var d decimal
	s := string(raw)
	if s != "" && s[0] == '-' {
		d.negative, s = true, s[1:]
	}
	mantissa := s
	if i := bytes.IndexAny([]byte(s), "eE"); i >= 0 {
		mantissa = s[:i]
		sign, digits := 1, s[i+1:]
		if digits != "" && (digits[0] == '+' || digits[0] == '-') {
			if digits[0] == '-' {
				sign = -1
			}
			digits = digits[1:]
		}
		for _, c := range []byte(digits) {
			if c < '0' || c > '9' || d.exp > 1<<40 {
				return decimal{}, false
			}
			d.exp = d.exp*10 + int(c-'0')
		}
		d.exp *= sign
	}
	seenPoint := false
	var digits []byte
	for _, c := range []byte(mantissa) {
		switch {
		case c == '.' && !seenPoint:
			seenPoint = true
			continue
		case c < '0' || c > '9':
			return decimal{}, false
		}
		if len(digits) > 0 || c != '0' {
			digits = append(digits, c)
			if !seenPoint {
				d.exp++
			}
		} else if seenPoint {
			d.exp--
		}
	}
	d.digits = string(bytes.TrimRight(digits, "0"))
	if len(digits) == 0 {
		return decimal{}, mantissa != ""
	}
	return d, true
}

// progressToken returns the progressToken of a notifications/progress, nil when there is none.
func progressToken(params json.RawMessage) json.RawMessage { return member(params, "progressToken") }

// member returns the exact text of one member of a JSON object, nil when it is absent, doubled, or params is no object.
func member(object json.RawMessage, name string) json.RawMessage {
	d := jsontext.NewDecoder(bytes.NewBuffer(object), jsontext.AllowDuplicateNames(true))
	if d.PeekKind() != '{' {
		return nil
	}
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	var found json.RawMessage
	for d.PeekKind() == '"' {
		tok, err := d.ReadToken()
		if err != nil {
			return nil
		}
		match := tok.String() == name
		v, err := d.ReadValue()
		if err != nil {
			return nil
		}
		if match {
			if found != nil {
				return nil
			}
			end := int(d.InputOffset())
			found = object[end-len(v) : end : end]
		}
	}
	return found
}
