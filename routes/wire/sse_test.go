package wire

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// readEvents reads a whole stream, as strings, and the error that ended it.
func readEvents(r io.Reader, limit int64) ([]string, error) {
	var out []string
	for e := NewEventReader(r, limit); ; {
		data, err := e.Next()
		if err != nil {
			return out, err
		}
		out = append(out, string(data))
	}
}

func TestEventReader(t *testing.T) {
	tests := map[string]struct {
		stream string
		want   []string
	}{
		"nothing":                         {"", nil},
		"LF":                              {"data: a\n\ndata: b\n\n", []string{"a", "b"}},
		"CRLF":                            {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		"CR":                              {"data: a\r\rdata: b\r\r", []string{"a", "b"}},
		"a mixture":                       {"data: a\r\n\ndata: b\n\rdata: c\r\r\n", []string{"a", "b", "c"}},
		"a BOM at the start":              {"\xef\xbb\xbfdata: a\n\n", []string{"a"}},
		"a BOM further on is no field":    {"data: a\n\n\xef\xbb\xbfdata: b\n\n", []string{"a"}},
		"a BOM cut off":                   {"\xef\xbb", nil},
		"no space after the colon":        {"data:a\n\n", []string{"a"}},
		"only one space is dropped":       {"data:  a \n\n", []string{" a "}},
		"several lines":                   {"data: a\ndata:\ndata: b\n\n", []string{"a\n\nb"}},
		"a comment":                       {": hi\n\n:\ndata: a\n:x\ndata: b\n\n", []string{"a\nb"}},
		"ids and retry times":             {"id: 7\nretry: 5\ndata: a\nid\n\n", []string{"a"}},
		"a priming event":                 {"id: 7\ndata:\n\ndata: a\n\n", []string{"a"}},
		"data without a colon":            {"data\n\ndata: a\n\n", []string{"a"}},
		"data without a colon, and more":  {"data\ndata: a\n\n", []string{"\na"}},
		"an event without data":           {"event: message\n\ndata: a\n\n", []string{"a"}},
		"type message":                    {"event: message\ndata: a\n\n", []string{"a"}},
		"another type":                    {"event: ping\ndata: a\n\ndata: b\n\n", []string{"b"}},
		"another type after the data":     {"data: a\nevent: ping\n\ndata: b\n\n", []string{"b"}},
		"a type that is taken back":       {"event: ping\nevent:\ndata: a\n\n", []string{"a"}},
		"a type taken back without colon": {"event: ping\nevent\ndata: a\n\n", []string{"a"}},
		"a type that starts like message": {"event: messages\ndata: a\n\n", nil},
		"a long type":                     {"event: message" + strings.Repeat("x", 1000) + "\ndata: a\n\n", nil},
		"a field that starts like data":   {"data2: a\ndatas\ndata: b\n\n", []string{"b"}},
		"a field in capitals":             {"DATA: a\n\n", nil},
		"a field with a space":            {"data : a\n data: b\n\n", nil},
		"a long field":                    {strings.Repeat("data", 100) + ": a\n\ndata: b\n\n", []string{"b"}},
		"a colon in the data":             {"data: {\"a\":1}\n\n", []string{`{"a":1}`}},
		"no blank line at the end":        {"data: a\n\ndata: b\n", []string{"a", "b"}},
		"no line end at the end":          {"data: a\n\ndata: b", []string{"a", "b"}},
		"an id at the end":                {"data: a\n\nid: 5", []string{"a"}},
		"many blank lines":                {"\n\n\r\r\n\ndata: a\n\n\n\n", []string{"a"}},
		"NUL and bytes that are no UTF-8": {"data: \x00\xff\n\n", []string{"\x00\xff"}},
		"a line over the buffer":          {"data: " + strings.Repeat("x", 100000) + "\n\n", []string{strings.Repeat("x", 100000)}},
		"a comment over the buffer":       {":" + strings.Repeat("x", 100000) + "\ndata: a\n\n", []string{"a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"at once":           strings.NewReader(tt.stream),
				"byte by byte":      iotest.OneByteReader(strings.NewReader(tt.stream)),
				"with an early EOF": iotest.DataErrReader(strings.NewReader(tt.stream)),
				"in halves":         iotest.HalfReader(strings.NewReader(tt.stream)),
			} {
				got, err := readEvents(r, 0)
				if !errors.Is(err, io.EOF) {
					t.Errorf("%s: ended with %v", how, err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s: events (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

func TestEventReaderLimit(t *testing.T) {
	for name, tt := range map[string]struct {
		stream string
		events int
		err    error
	}{
		"exactly the limit":        {"data: 12345678\n\n", 1, io.EOF},
		"one more":                 {"data: 123456789\n\n", 0, ErrEventTooLarge},
		"lines together":           {"data: 1234\ndata: 5678\n\n", 0, ErrEventTooLarge},
		"lines with their LF":      {"data: 1234\ndata: 567\n\n", 1, io.EOF},
		"empty lines count":        {strings.Repeat("data:\n", 20) + "\n", 0, ErrEventTooLarge},
		"also without a colon":     {strings.Repeat("data\n", 20) + "\n", 0, ErrEventTooLarge},
		"comments do not count":    {":" + strings.Repeat("x", 100) + "\ndata: a\n\n", 1, io.EOF},
		"ids do not count":         {"id:" + strings.Repeat("x", 100) + "\ndata: a\n\n", 1, io.EOF},
		"each event by itself":     {strings.Repeat("data: 12345678\n\n", 10), 10, io.EOF},
		"those before it are fine": {"data: a\n\ndata: 123456789\n\ndata: b\n\n", 1, ErrEventTooLarge},
	} {
		got, err := readEvents(strings.NewReader(tt.stream), 8)
		if len(got) != tt.events || !errors.Is(err, tt.err) {
			t.Errorf("%s: %d events and %v, want %d and %v", name, len(got), err, tt.events, tt.err)
		}
	}
}

func TestEventReaderKeepsTheReadersError(t *testing.T) {
	broken := errors.New("broken")
	got, err := readEvents(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), 0)
	if diff := cmp.Diff([]string{"a"}, got); diff != "" || !errors.Is(err, broken) {
		t.Errorf("ended with %v; events (-want +got):\n%s", err, diff)
	}
	e := NewEventReader(iotest.ErrReader(broken), 0)
	for range 2 {
		if data, err := e.Next(); data != nil || !errors.Is(err, broken) {
			t.Errorf("got %q, %v", data, err)
		}
	}
	if _, err := readEvents(nothing{}, 0); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that reads nothing for ever: %v", err)
	}
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

// Events must be handed out when they are complete, not when more bytes come.
func TestEventReaderIsPrompt(t *testing.T) {
	for name, lineEnd := range map[string]string{"LF": "\n", "CRLF": "\r\n", "CR": "\r"} {
		pr, pw := io.Pipe()
		e := NewEventReader(pr, 0)
		go func() { _, _ = io.WriteString(pw, "data: a"+lineEnd+lineEnd) }()
		if data, err := e.Next(); string(data) != "a" || err != nil {
			t.Errorf("%s: got %q, %v", name, data, err)
		}
		_ = pw.Close()
		if data, err := e.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: then %q, %v", name, data, err)
		}
	}
}

func TestEventReaderGivesItsSlicesAway(t *testing.T) {
	e := NewEventReader(strings.NewReader("data: aaaa\n\ndata: bbbb\n\n"), 0)
	first, _ := e.Next()
	second, _ := e.Next()
	if string(first) != "aaaa" || string(second) != "bbbb" {
		t.Errorf("first %q, second %q", first, second)
	}
}

func TestAppendEvent(t *testing.T) {
	for doc, want := range map[string]string{
		`{"a":1}`:                     "data: {\"a\":1}\n\n",
		"{\"a\":1}\r\n":               "data: {\"a\":1}\n\n",
		"{\n\"a\":\n1}":               "data: {\ndata: \"a\":\ndata: 1}\n\n",
		"{\r\n\"a\":\r1}":             "data: {\ndata: \"a\":\ndata: 1}\n\n",
		"{\n\n}":                      "data: {\ndata: \ndata: }\n\n",
		"  {\"a\":\"\\n\"}":           "data:   {\"a\":\"\\n\"}\n\n",
		"data: x":                     "data: data: x\n\n",
		"{\"a\":1}\n\nevent: x\n\n{}": "data: {\"a\":1}\ndata: \ndata: event: x\ndata: \ndata: {}\n\n",
	} {
		if got := string(appendEvent(nil, []byte(doc))); got != want {
			t.Errorf("%q becomes %q, want %q", doc, got, want)
		}
	}
}

// What is written as an event is read as it was, but for CR and the white space at the end.
// Large events are read to where they shall be, whatever ends their lines and however the stream is cut into reads; their memory is lent
// again once it was released, and never before.
func TestLargeEvents(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var buffers Buffers
	for _, lineEnd := range []string{"\n", "\r", "\r\n"} {
		var stream strings.Builder
		var want []string
		for i, size := range []int{10, believed - 1, believed, 5, 80_000, 300_000, 1, 1_400_000, 70_000} {
			text := strings.Repeat(string(rune('a'+i)), size)
			if i%3 == 2 { // of several lines, the second one large too
				text += "\n" + text + "\n"
			}
			want = append(want, text)
			stream.WriteString("id: 1" + lineEnd)
			for line := range strings.SplitSeq(text, "\n") {
				stream.WriteString("data:" + []string{"", " "}[i%2] + line + lineEnd)
			}
			stream.WriteString(lineEnd)
		}
		e := buffers.NewEventReader(&choppy{r: strings.NewReader(stream.String()), rng: rng}, 0)
		for i, text := range want {
			got, err := e.Next()
			if err != nil || string(got) != text || cap(got) != len(got) {
				t.Fatalf("%q, event %d: %d bytes, want %d: %v", lineEnd, i, len(got), len(text), err)
			}
			if m := e.Memory(); len(text) > believed && m == nil || len(text) < believed/2 && m != nil {
				t.Errorf("%q, event %d of %d bytes: lent memory: %t", lineEnd, i, len(text), m != nil)
			}
			e.Memory().Release()
		}
		if got, err := e.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%d bytes more, %v", len(got), err)
		}
	}
}

func TestLargeEventsAreBounded(t *testing.T) {
	const limit = 300_000
	for name, tt := range map[string]struct {
		data string
		want error
	}{
		"the limit":              {"data:" + strings.Repeat("x", limit) + "\n\n", nil},
		"one over it":            {"data:" + strings.Repeat("x", limit+1) + "\n\n", ErrEventTooLarge},
		"one over it in lines":   {"data:" + strings.Repeat("x", limit-10) + "\ndata:" + strings.Repeat("x", 10) + "\n\n", ErrEventTooLarge},
		"an endless line":        {"data:" + strings.Repeat("x", 3*limit), ErrEventTooLarge},
		"cut within":             {"data:" + strings.Repeat("x", limit/2), nil}, // its JSON shows
		"a large event's end":    {"data:" + strings.Repeat("x", limit) + "\n:" + strings.Repeat("y", 3*limit) + "\n\n", nil},
		"large, of another type": {"event: ping\ndata:" + strings.Repeat("x", limit) + "\n\n", io.EOF},
	} {
		e := new(Buffers).NewEventReader(strings.NewReader(tt.data), limit)
		got, err := e.Next()
		if !errors.Is(err, tt.want) || len(got) > limit || cap(e.data.bytes) > 2*limit || cap(e.buf) > 2*limit {
			t.Errorf("%s: %d bytes, %v, want %v; room for %d and %d", name, len(got), err, tt.want, cap(e.data.bytes), cap(e.buf))
		}
	}
}

// choppy reads as much at a time as chance will have it.
type choppy struct {
	r   io.Reader
	rng *rand.Rand
}

func (c *choppy) Read(p []byte) (int, error) {
	return c.r.Read(p[:min(len(p), 1+c.rng.IntN(40_000))])
}

func FuzzEventRoundTrip(f *testing.F) {
	f.Add([]byte("{\n}"), []byte("\r\rid: 5"))
	f.Add([]byte("a"), []byte(":"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		stream := appendEvent(appendEvent(nil, a), b)
		got, err := readEvents(bytes.NewReader(stream), 0)
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		var want []string
		for _, doc := range [][]byte{a, b} {
			s := strings.ReplaceAll(strings.ReplaceAll(string(bytes.TrimRight(doc, " \t\r\n")), "\r\n", "\n"), "\r", "\n")
			if s != "" {
				want = append(want, s)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("events (-want +got):\n%s", diff)
		}
	})
}

// However the bytes arrive, the events are the same.
func FuzzEventReader(f *testing.F) {
	for _, s := range []string{"data: a\n\n", "\xef\xbb\xbfdata:a\r\n\r\nevent:x\rdata\r\r", ":c\nid\ndata: \n\n", "data: a"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		want, err := readEvents(bytes.NewReader(stream), 64)
		got, err1 := readEvents(iotest.OneByteReader(bytes.NewReader(stream)), 64)
		if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err1, err) {
			t.Fatalf("%v and %v; events (-at once +byte by byte):\n%s", err, err1, diff)
		}
		for _, e := range want {
			if e == "" || len(e) > 64 || strings.Contains(e, "\r") {
				t.Fatalf("event %q", e)
			}
		}
	})
}
