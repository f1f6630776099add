package egress

import (
	"bytes"
	"io"
)

// plainLines rewrites an event stream for the SDK, whose reader knows less than the standard asks for: it ends lines at LF only,
// takes a byte order mark for a part of the first field's name, and gives up on a line without a colon. What comes out has LF,
// no mark, no comments and no unknown fields; every other byte stays. It holds back nothing that it has read.
// Source: WHATWG HTML, 9.2.6 (interpreting an event stream).
type plainLines struct {
	io.ReadCloser
	in, out []byte // what was read, and what became of it
	err     error

	bom     int // bytes of a mark that were seen at the start; -1: past it
	name    []byte
	state   lineState
	afterCR bool // a LF that comes next belongs to the CR before it
}

type lineState uint8

const (
	inName lineState = iota // the field's name is not complete
	inKept                  // the rest of the line is delivered
	inDropped
)

// maxField is one more than the longest field name that matters.
const maxField = len("event") + 1

const (
	plainBuffer = 8 << 10 // bytes read at once
	plainMost   = 64 << 10
)

func newPlainLines(r io.ReadCloser) *plainLines {
	return &plainLines{ReadCloser: r, name: make([]byte, 0, maxField)}
}

// next reads once and returns what becomes of that, which is valid until the next call. It may be nothing, or come with the error
// that ended the stream.
func (l *plainLines) next() ([]byte, error) {
	if l.err != nil {
		return nil, l.err
	}
	if l.in == nil {
		l.in = make([]byte, plainBuffer)
	}
	var n int
	n, l.err = l.ReadCloser.Read(l.in)
	if l.out = l.rewrite(l.out[:0], l.in[:n]); l.err == io.EOF {
		l.out = l.last(l.out)
	}
	if n == len(l.in) && n < plainMost {
		l.in = make([]byte, plainMost) // there is much to come
	}
	return l.out, l.err
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// rewrite appends to out what becomes of in.
func (l *plainLines) rewrite(out, in []byte) []byte {
	for l.bom >= 0 && len(in) > 0 {
		if in[0] != byteOrderMark[l.bom] {
			in = append(byteOrderMark[:l.bom:l.bom], in...) // it was none
			l.bom = -1
			break
		}
		in = in[1:]
		if l.bom++; l.bom == len(byteOrderMark) {
			l.bom = -1
		}
	}
	for len(in) > 0 {
		if l.afterCR {
			l.afterCR = false
			if in[0] == '\n' {
				in = in[1:]
				continue
			}
		}
		end := bytes.IndexByte(in, '\n')
		line := in
		if end >= 0 {
			line = in[:end]
		}
		if cr := bytes.IndexByte(line, '\r'); cr >= 0 {
			end = cr
		}
		if end < 0 {
			return l.piece(out, in)
		}
		out = l.piece(out, in[:end])
		out = l.endLine(out)
		l.afterCR = in[end] == '\r'
		in = in[end+1:]
	}
	return out
}

// piece takes a part of a line.
func (l *plainLines) piece(out, part []byte) []byte {
	if l.state == inName {
		colon := bytes.IndexByte(part, ':')
		if colon < 0 {
			l.name = append(l.name, part[:min(len(part), maxField-len(l.name))]...)
			return out
		}
		l.name = append(l.name, part[:min(colon, maxField-len(l.name))]...)
		if l.state = inDropped; l.known() {
			l.state = inKept
			out = append(out, l.name...)
		}
		part = part[colon:]
	}
	if l.state == inKept {
		out = append(out, part...)
	}
	return out
}

func (l *plainLines) endLine(out []byte) []byte {
	switch {
	case l.state == inName && len(l.name) == 0, l.state == inKept:
		out = append(out, '\n')
	case l.state == inName && l.known(): // a name without a colon has the empty value
		out = append(append(out, l.name...), ":\n"...)
	}
	l.state, l.name = inName, l.name[:0]
	return out
}

// last delivers what the end of the stream completes.
func (l *plainLines) last(out []byte) []byte {
	if l.state == inName && l.known() {
		return l.endLine(out)
	}
	return out
}

func (l *plainLines) known() bool {
	switch string(l.name) {
	case "data", "event", "id", "retry":
		return true
	}
	return false
}
