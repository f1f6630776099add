package wire

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// quick judges the grammar of most messages while it steps through them, so that one pass both checks and finds: four times as
// fast as jsontext for text, and a walk saved for structures. It says yes only when it is sure; jsontext decides about the
// rest, and always about what is refused and why. A fuzz test keeps it from saying yes where jsontext says no.
type quick struct {
	b      []byte
	i      int
	strict bool // also no duplicate names, and UTF-8 only

	// names are those of the objects that are open, as they stand between quotes: the innermost object's last.
	names [quickNames]span
	top   int

	escaped bool // the last string has an escape
}

type span struct{ from, to int }

const quickNames = 64 // of all open objects together; more is left to jsontext

func (q *quick) space() {
	for q.i < len(q.b) {
		switch q.b[q.i] {
		case ' ', '\t', '\n', '\r':
			q.i++
		default:
			return
		}
	}
}

// next steps over white space and then over c, if c is there.
func (q *quick) next(c byte) bool {
	if q.i < len(q.b) && q.b[q.i] == c { // most documents have no white space
		q.i++
		return true
	}
	q.space()
	if q.i < len(q.b) && q.b[q.i] == c {
		q.i++
		return true
	}
	return false
}

func (q *quick) value(depth int) bool {
	if q.i >= len(q.b) {
		return false
	}
	switch c := q.b[q.i]; c {
	case '"':
		return q.str()
	case '{':
		return depth < maxDepth && q.object(depth+1)
	case '[':
		return depth < maxDepth && q.array(depth+1)
	case 't':
		return q.literal("true")
	case 'f':
		return q.literal("false")
	case 'n':
		return q.literal("null")
	default:
		return q.number()
	}
}

func (q *quick) literal(s string) bool {
	if len(q.b)-q.i < len(s) || string(q.b[q.i:q.i+len(s)]) != s {
		return false
	}
	q.i += len(s)
	return true
}

func (q *quick) array(depth int) bool {
	q.i++
	if q.next(']') {
		return true
	}
	for {
		q.space()
		if !q.value(depth) {
			return false
		}
		if q.next(']') {
			return true
		}
		if !q.next(',') {
			return false
		}
	}
}

func (q *quick) object(depth int) bool {
	base := q.top
	q.i++
	if q.next('}') {
		return true
	}
	for {
		q.space()
		if !q.name(base) || !q.next(':') {
			return false
		}
		q.space()
		if !q.value(depth) {
			return false
		}
		if q.next('}') {
			q.top = base
			return true
		}
		if !q.next(',') {
			return false
		}
	}
}

// name takes a name that the object, whose names begin at base, does not have yet. One with an escape is left to jsontext.
func (q *quick) name(base int) bool {
	if q.i >= len(q.b) || q.b[q.i] != '"' {
		return false
	}
	from := q.i + 1
	if !q.str() {
		return false
	}
	if !q.strict {
		return true
	}
	name := q.b[from : q.i-1]
	for _, s := range q.names[base:q.top] {
		if string(q.b[s.from:s.to]) == string(name) {
			return false
		}
	}
	if q.escaped || q.top == quickNames {
		return false
	}
	q.names[q.top] = span{from, q.i - 1}
	q.top++
	return true
}

const (
	everyByte = 0x0101010101010101
	highBits  = 0x8080808080808080
)

// special marks the bytes of x that end or complicate a string: quotes, backslashes, control characters, bytes over 0x7f. The
// lowest mark is right; those above it may be wrong, as a marked byte borrows from the next one.
func special(x uint64) uint64 {
	quote, slash := x^everyByte*'"', x^everyByte*'\\'
	return ((quote - everyByte) | (slash - everyByte) | (x - everyByte*0x20) | x) & highBits
}

// str steps over the string at the position.
func (q *quick) str() bool {
	q.i++
	q.escaped = false
	start, foreign := q.i, false
	for {
		q.plain()
		if q.i >= len(q.b) {
			return false
		}
		switch c := q.b[q.i]; {
		case c == '"':
			ok := !foreign || !q.strict || utf8.Valid(q.b[start:q.i])
			q.i++
			return ok
		case c == '\\':
			q.escaped = true
			if !q.escape() {
				return false
			}
		case c < 0x20:
			return false
		default:
			foreign = true
			for q.i < len(q.b) && q.b[q.i] >= utf8.RuneSelf {
				q.i++
			}
		}
	}
}

const (
	longRun = 256     // after so many plain bytes there may be many more
	stretch = 2 << 10 // is looked at three times while it is in the processor's nearest cache
)

// plain steps over bytes of a string that are nothing special.
func (q *quick) plain() {
	s := q.b[q.i:]
	for run := 0; len(s) >= 32; run += 32 {
		if run == longRun {
			s = s[plainStretches(s):]
			break
		}
		a, b := binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:])
		c, d := binary.LittleEndian.Uint64(s[16:]), binary.LittleEndian.Uint64(s[24:])
		if special(a)|special(b)|special(c)|special(d) != 0 {
			break
		}
		s = s[32:]
	}
	for len(s) >= 8 {
		marks := special(binary.LittleEndian.Uint64(s))
		if marks != 0 {
			q.i = len(q.b) - len(s) + bits.TrailingZeros64(marks)/8
			return
		}
		s = s[8:]
	}
	q.i = len(q.b) - len(s)
	for _, c := range s {
		if c == '"' || c == '\\' || c < 0x20 || c >= utf8.RuneSelf {
			return
		}
		q.i++
	}
}

// plainStretches returns how many bytes of s are surely nothing special; what follows them is less than 64 bytes further on. Quotes
// and backslashes are left to IndexByte, which has an instruction for 32 bytes at a time, and the rest is three operations a word.
func plainStretches(s []byte) int {
	const spaces = everyByte * 0x20
	at := 0
	for more := true; more; {
		next := s[at:min(len(s), at+stretch)]
		if n := bytes.IndexByte(next, '"'); n >= 0 {
			next = next[:n]
		}
		if n := bytes.IndexByte(next, '\\'); n >= 0 {
			next = next[:n]
		}
		more = len(next) == stretch
		for len(next) >= 64 {
			w := (*[64]byte)(next)
			a, b := binary.LittleEndian.Uint64(w[0:]), binary.LittleEndian.Uint64(w[8:])
			c, d := binary.LittleEndian.Uint64(w[16:]), binary.LittleEndian.Uint64(w[24:])
			e, f := binary.LittleEndian.Uint64(w[32:]), binary.LittleEndian.Uint64(w[40:])
			g, h := binary.LittleEndian.Uint64(w[48:]), binary.LittleEndian.Uint64(w[56:])
			low := (a - spaces) | (b - spaces) | (c - spaces) | (d - spaces) | (e - spaces) | (f - spaces) | (g - spaces) | (h - spaces)
			if (a|b|c|d|e|f|g|h|low)&highBits != 0 {
				return at
			}
			next = next[64:]
			at += 64
		}
	}
	return at
}

// escape steps over the escape at the position. Surrogates are left to jsontext where they matter.
func (q *quick) escape() bool {
	if q.i+1 >= len(q.b) {
		return false
	}
	switch q.b[q.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		q.i += 2
		return true
	case 'u':
		if q.i+6 > len(q.b) {
			return false
		}
		hex := q.b[q.i+2 : q.i+6]
		for _, c := range hex {
			if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
				return false
			}
		}
		if q.strict && hex[0]|0x20 == 'd' && hex[1] >= '8' {
			return false
		}
		q.i += 6
		return true
	}
	return false
}

// number steps over the number at the position.
func (q *quick) number() bool {
	if q.b[q.i] == '-' {
		q.i++
	}
	zero := q.i < len(q.b) && q.b[q.i] == '0'
	if n := q.digits(); n == 0 || zero && n > 1 {
		return false
	}
	if q.i < len(q.b) && q.b[q.i] == '.' {
		q.i++
		if q.digits() == 0 {
			return false
		}
	}
	if q.i < len(q.b) && q.b[q.i]|0x20 == 'e' {
		q.i++
		if q.i < len(q.b) && (q.b[q.i] == '+' || q.b[q.i] == '-') {
			q.i++
		}
		return q.digits() > 0
	}
	return true
}

// digits steps over digits and counts them.
func (q *quick) digits() int {
	start := q.i
	for q.i < len(q.b) && q.b[q.i]-'0' <= 9 {
		q.i++
	}
	return q.i - start
}
