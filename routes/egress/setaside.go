package egress

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"

	"github.com/weir-mcp/weir/routes/wire"
)

// The SDK decodes every message and encodes its parts anew, which takes ten times as long as all else for a large response. So
// that a response does not go through its hands it is set aside, and the SDK, whose state must follow, gets an empty one.

// aside is a response that was set aside.
type aside struct {
	scan   wire.Scan
	memory *wire.Memory
}

// instead is what the SDK gets in the place of the response to a request.
func instead(id int64) []byte { return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{}}`, id) }

// whole reads a JSON answer, which is one message.
func (a *legacyAnswer) whole(resp *http.Response) (Message, error) {
	doc, memory, err := a.l.c.buffers.ReadBody(resp.Body, resp.ContentLength, a.l.c.opts.ResponseLimit)
	resp.Body.Close()
	if err != nil {
		return Message{}, a.x.exchange.failed(err)
	}
	a.memory = memory
	a.finished.Store(true)
	if _, err := a.l.conn.Read(a.x.ctx); err != nil { // what stands for it
		return Message{}, a.x.readFailed(a.l, err)
	}
	s, err := wire.ScanMessage(doc)
	if err := answers(&s, err, strconv.AppendInt(nil, a.x.number, 10)); err != nil {
		return Message{}, a.x.bad(err)
	}
	return a.scanned(&s, http.StatusOK), nil
}

// scanned is the message of a response that was scanned and not decoded.
func (a *legacyAnswer) scanned(s *wire.Scan, status int) Message {
	m := a.message(s.Result, s.Error, status)
	m.Top = s.ResultScan
	return m
}

// largeEvent is from how many bytes on an event is looked at.
const largeEvent = 32 << 10

// asideReader sets a large response aside that comes as an event. It reads what plainLines wrote, passes on whole events, and holds
// nothing but the one that is not complete, up to limit: what is longer passes, and the SDK refuses it.
type asideReader struct {
	*plainLines
	s     *sdkExchange
	limit int64

	out     []byte // what was not delivered yet
	event   wire.Gatherer
	passing bool // the event under way is over the limit
	blank   bool // the last byte read ended a line
	err     error
}

func newAsideReader(l *plainLines, s *sdkExchange, buffers *wire.Buffers, limit int64) *asideReader {
	return &asideReader{plainLines: l, s: s, limit: limit, event: buffers.Gatherer(), blank: true}
}

func (r *asideReader) Read(p []byte) (int, error) {
	for len(r.out) == 0 && r.err == nil && len(p) > 0 {
		var in []byte
		for in, r.err = r.next(); len(in) > 0; {
			in = r.take(in)
		}
		if r.err != nil { // the rest is no event, or one that only lacks its end
			rest, _ := r.event.Take()
			r.pass(rest)
		}
	}
	n := copy(p, r.out)
	if r.out = r.out[n:]; len(r.out) > 0 {
		return n, nil
	}
	return n, r.err
}

// take takes in up to the end of an event, or all of it, and returns what is left.
func (r *asideReader) take(in []byte) []byte {
	end := r.eventEnd(in)
	part, rest := in, in[len(in):]
	if end >= 0 {
		part, rest = in[:end], in[end:]
	}
	r.blank = part[len(part)-1] == '\n'
	if !r.passing && int64(len(r.event.Bytes())+len(part)) > r.limit {
		held, _ := r.event.Take()
		r.pass(held)
		r.passing = true
	}
	switch {
	case r.passing:
		r.pass(part)
		r.passing = end < 0
	case end < 0:
		r.event.Append(part)
	case len(r.event.Bytes()) == 0: // most events come in one piece, and are small
		r.finish(part, nil)
	default:
		r.event.Append(part)
		r.finish(r.event.Take())
	}
	return rest
}

// eventEnd returns where the first blank line of in ends, -1 if there is none.
func (r *asideReader) eventEnd(in []byte) int {
	if r.blank && in[0] == '\n' {
		return 1
	}
	if n := bytes.Index(in, []byte("\n\n")); n >= 0 {
		return n + 2
	}
	return -1
}

// finish passes on an event, of which a large response is set aside.
func (r *asideReader) finish(event []byte, memory *wire.Memory) {
	if from, to := onlyData(event); to > 0 && r.s.setAside(event[from:to:to], memory) {
		r.out = append(append(append(r.out, event[:from]...), instead(r.s.number)...), event[to:]...)
		return
	}
	if r.pass(event); memory != nil {
		r.out = bytes.Clone(r.out) // it may lie there
		memory.Release()
	}
}

// pass passes on what is valid until the next read: without a copy, where nothing else is waiting.
func (r *asideReader) pass(p []byte) {
	if len(r.out) == 0 {
		r.out = p[:len(p):len(p)]
		return
	}
	r.out = append(r.out, p...)
}

// onlyData returns where the data of a large message is that stands in one line; zero for any other event.
func onlyData(event []byte) (from, to int) {
	if len(event) < largeEvent {
		return 0, 0
	}
	at := 0
	for line := range bytes.Lines(event) {
		name, value, _ := bytes.Cut(line, []byte{':'})
		switch string(name) {
		case "event":
			if kind := string(bytes.TrimSpace(value)); kind != "" && kind != "message" {
				return 0, 0
			}
		case "data":
			if to > 0 {
				return 0, 0
			}
			from, to = at+len("data:"), at+len(line)-1
		}
		at += len(line)
	}
	return from, to
}

// setAside keeps a message that is the response to the request; false: it is another one, or none at all.
func (s *sdkExchange) setAside(doc []byte, memory *wire.Memory) bool {
	scan, err := wire.ScanMessage(doc)
	if answers(&scan, err, strconv.AppendInt(nil, s.number, 10)) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aside = &aside{scan, memory}
	return true
}

// fetch returns the response that was set aside, nil if none was.
func (s *sdkExchange) fetch() *aside {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.aside
}
