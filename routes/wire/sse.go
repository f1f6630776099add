package wire

import (
	"bytes"
	"errors"
	"io"
)

// ErrEventTooLarge: an event's data went over the reader's limit.
var ErrEventTooLarge = errors.New("event over the size limit")

// EventReader reads an event stream. Lines end with CR, LF or CRLF; a BOM at the start, comments, ids, retry times and empty
// events are skipped, and so are events of any type but "message", the default one. Not safe for concurrent use.
// Source: WHATWG HTML, 9.2.6 (interpreting an event stream).
type EventReader struct {
	r     io.Reader
	limit int64

	buf      []byte // what was read and not looked at yet: buf[pos:]
	pos      int
	cr       int // index of the next CR at or after pos, len(buf) when there is none
	err      error
	started  bool // the BOM was looked for
	afterCR  bool // a LF that comes next belongs to the CR before it
	name     []byte
	inValue  bool // the line's field name is complete
	oneSpace bool // a space that comes next belongs to the colon before it

	data    Gatherer
	last    *Memory // of the event that was returned last
	hasData bool    // a data line was seen, perhaps an empty one
	event   []byte
}

const (
	eventBuffer  = 16 << 10  // bytes asked for at once
	dataBuffer   = 256 << 10 // within large events
	maxFieldName = 16        // longer than any name that matters
	maxEventType = 64        // longer than any type that matters
)

// NewEventReader returns a reader of r. maxEvent bounds the data of one event in bytes; zero means 16 MiB. Everything that is
// skipped costs no memory.
func NewEventReader(r io.Reader, maxEvent int64) *EventReader {
	return (*Buffers)(nil).NewEventReader(r, maxEvent)
}

// NewEventReader is [NewEventReader] with large events in memory that is lent; see [EventReader.Memory].
func (b *Buffers) NewEventReader(r io.Reader, maxEvent int64) *EventReader {
	if maxEvent == 0 {
		maxEvent = 16 << 20
	}
	return &EventReader{r: r, limit: maxEvent, data: b.Gatherer()}
}

// Memory is what the event that Next returned last lies in; nil: in memory that nobody uses again. The caller holds it.
func (e *EventReader) Memory() *Memory { return e.last }

// Next returns the data of the next event, lines joined by LF; the slice is the caller's. At the end of the stream it returns
// io.EOF; an event that only lacks its blank line then still counts (its JSON shows whether it is whole). Other errors are the reader's, or
// [ErrEventTooLarge]; after one the reader is of no more use.
func (e *EventReader) Next() ([]byte, error) {
	for {
		if e.pos == len(e.buf) {
			switch {
			case e.err != nil:
				return e.end()
			case e.large():
				e.fillData()
			default:
				e.fill()
			}
			continue
		}
		line, ended := e.fragment()
		if err := e.take(line); err != nil {
			e.err = err
			e.pos = len(e.buf)
			return nil, err
		}
		if !ended {
			continue
		}
		data, err := e.endLine()
		if err != nil {
			e.err = err
			e.pos = len(e.buf)
			return nil, err
		}
		if data != nil {
			return data, nil
		}
	}
}

// end returns what the end of the stream completes.
func (e *EventReader) end() ([]byte, error) {
	if !errors.Is(e.err, io.EOF) {
		return nil, e.err
	}
	if len(e.name) > 0 || e.inValue {
		if _, err := e.endLine(); err != nil {
			e.err = err
			return nil, err
		}
	}
	if data, _ := e.endLine(); data != nil {
		return data, nil
	}
	return nil, e.err
}

func (e *EventReader) fill() {
	if e.buf == nil {
		e.buf = make([]byte, eventBuffer)
	}
	n := e.read(e.buf[:cap(e.buf)])
	e.buf, e.pos = e.buf[:n], 0
	if !e.started && n > 0 {
		e.skipBOM()
	}
	if e.afterCR && e.pos < len(e.buf) {
		if e.buf[e.pos] == '\n' {
			e.pos++
		}
		e.afterCR = false
	}
	e.findCR()
}

func (e *EventReader) read(p []byte) (n int) {
	for range 100 { // as bufio: a reader that returns nothing for ever is broken
		n, e.err = e.r.Read(p)
		if n > 0 || e.err != nil {
			return n
		}
	}
	e.err = io.ErrNoProgress
	return 0
}

// large reports whether the stream is within a line of so much data that what follows is read to where it shall be.
func (e *EventReader) large() bool {
	return e.inValue && !e.oneSpace && len(e.data.bytes) >= believed && int64(len(e.data.bytes)) < e.limit && string(e.name) == "data"
}

// fillData reads on to the end of the data that is there, up to the line's end.
func (e *EventReader) fillData() {
	e.data.room(1, e.limit)
	start := len(e.data.bytes)
	n := e.read(e.data.bytes[start:min(int64(cap(e.data.bytes)), e.limit, int64(start+dataBuffer))])
	piece := e.data.bytes[start : start+n]
	e.data.bytes = e.data.bytes[:start+n]
	e.buf, e.pos = e.buf[:0], 0
	end := n
	for _, c := range []byte("\r\n") {
		if i := bytes.IndexByte(piece[:end], c); i >= 0 {
			end = i
		}
	}
	if end < n {
		e.buf, e.data.bytes = append(e.buf, piece[end:]...), e.data.bytes[:start+end]
	}
	e.findCR()
}

// skipBOM reads on until three bytes are there, as a BOM may arrive in parts.
func (e *EventReader) skipBOM() {
	bom := []byte("\xef\xbb\xbf")
	for e.err == nil && len(e.buf) < len(bom) && bytes.HasPrefix(bom, e.buf) {
		var n int
		n, e.err = e.r.Read(e.buf[len(e.buf):cap(e.buf)])
		e.buf = e.buf[:len(e.buf)+n]
	}
	e.started = true
	if bytes.HasPrefix(e.buf, bom) {
		e.pos = len(bom)
	}
}

func (e *EventReader) findCR() {
	e.cr = len(e.buf)
	if n := bytes.IndexByte(e.buf[e.pos:], '\r'); n >= 0 {
		e.cr = e.pos + n
	}
}

// fragment returns the rest of the current line, as far as it was read, and whether the line ends there.
func (e *EventReader) fragment() (line []byte, ended bool) {
	end := e.cr
	if n := bytes.IndexByte(e.buf[e.pos:e.cr], '\n'); n >= 0 {
		end = e.pos + n
	}
	line = e.buf[e.pos:end]
	if end == len(e.buf) {
		e.pos = end
		return line, false
	}
	e.pos = end + 1
	if end == e.cr {
		switch {
		case e.pos == len(e.buf):
			e.afterCR = true
		case e.buf[e.pos] == '\n':
			e.pos++
		}
		e.findCR()
	}
	return line, true
}

// take adds a piece of a line to the field it belongs to.
func (e *EventReader) take(line []byte) error {
	if !e.inValue {
		colon := bytes.IndexByte(line, ':')
		if colon < 0 {
			e.name = appendUpTo(e.name, line, maxFieldName)
			return nil
		}
		e.name = appendUpTo(e.name, line[:colon], maxFieldName)
		line = line[colon+1:]
		e.inValue, e.oneSpace = true, true
		switch string(e.name) {
		case "event":
			e.event = e.event[:0]
		case "data":
			if err := e.startData(); err != nil {
				return err
			}
		}
	}
	if e.oneSpace && len(line) > 0 {
		e.oneSpace = false
		if line[0] == ' ' {
			line = line[1:]
		}
	}
	switch string(e.name) {
	case "data":
		if int64(len(e.data.bytes))+int64(len(line)) > e.limit {
			return ErrEventTooLarge
		}
		e.data.room(len(line), e.limit)
		e.data.Append(line)
	case "event":
		e.event = appendUpTo(e.event, line, maxEventType)
	}
	return nil
}

// startData begins a data line: lines are joined by LF.
func (e *EventReader) startData() error {
	if e.hasData {
		if int64(len(e.data.bytes)) >= e.limit {
			return ErrEventTooLarge
		}
		e.data.room(1, e.limit)
		e.data.bytes = append(e.data.bytes, '\n')
	}
	e.hasData = true
	return nil
}

func appendUpTo(dst, src []byte, limit int) []byte {
	return append(dst, src[:min(len(src), max(0, limit-len(dst)))]...)
}

// endLine finishes a line. A blank one ends the event, whose data is returned unless it is empty or of another type.
func (e *EventReader) endLine() ([]byte, error) {
	if e.inValue || len(e.name) > 0 {
		var err error
		if !e.inValue { // a name without a colon has the empty value
			switch string(e.name) {
			case "event":
				e.event = e.event[:0]
			case "data":
				err = e.startData()
			}
		}
		e.name, e.inValue = e.name[:0], false
		return nil, err
	}
	data, memory := e.data.Take()
	kind := string(e.event)
	e.hasData, e.event = false, e.event[:0]
	if len(data) == 0 || kind != "" && kind != "message" {
		memory.Release()
		return nil, nil
	}
	e.last = memory
	return data, nil
}

// appendEvent appends doc as one event to dst. A line break inside doc, which JSON allows between tokens only, becomes a
// line of its own: a reader joins the lines by LF, so that LF keeps its bytes and CR and CRLF turn into LF.
func appendEvent(dst, doc []byte) []byte {
	doc = bytes.TrimRight(doc, " \t\r\n")
	for {
		dst = append(dst, "data: "...)
		n := bytes.IndexAny(doc, "\r\n")
		if n < 0 {
			dst = append(dst, doc...)
			return append(dst, "\n\n"...)
		}
		dst = append(append(dst, doc[:n]...), '\n')
		if doc[n] == '\r' && n+1 < len(doc) && doc[n+1] == '\n' {
			n++
		}
		doc = doc[n+1:]
	}
}
