package egress

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes/wire"
)

// written is what plainLines make of a stream.
func written(r io.Reader) (string, error) {
	var all strings.Builder
	for l := newPlainLines(io.NopCloser(r)); ; {
		out, err := l.next()
		all.Write(out)
		if err != nil {
			return all.String(), err
		}
	}
}

func plain(t *testing.T, r io.Reader) string {
	t.Helper()
	got, err := written(r)
	if err != io.EOF {
		t.Fatal(err)
	}
	return got
}

func TestPlainLines(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"plain already":             {"id: 7\ndata: {}\n\n", "id: 7\ndata: {}\n\n"},
		"CRLF":                      {"id: 7\r\ndata: {}\r\n\r\n", "id: 7\ndata: {}\n\n"},
		"CR":                        {"id: 7\rdata: {}\r\r", "id: 7\ndata: {}\n\n"},
		"mixed":                     {"data: a\r\n\ndata: b\r\r\ndata: c\n\r\n", "data: a\n\ndata: b\n\ndata: c\n\n"},
		"a byte order mark":         {"\xef\xbb\xbfdata: a\n\n", "data: a\n\n"},
		"half a byte order mark":    {"\xef\xbbdata: a\n\n", "\n"},
		"a mark later on is a byte": {"data: a\xef\xbb\xbf\n\n", "data: a\xef\xbb\xbf\n\n"},
		"comments and other fields": {": c\n:\nfoo: bar\nfoo\ndatas: x\neventual\nData: y\ndata: a:b\n\n", "data: a:b\n\n"},
		"names without a colon":     {"data\ndata\nid\nretry\nevent\n\n", "data:\ndata:\nid:\nretry:\nevent:\n\n"},
		"no end":                    {"data: a", "data: a"},
		"no end and no colon":       {"data: a\ndata", "data: a\ndata:\n"},
		"nothing":                   {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, plain(t, strings.NewReader(tt.in))); diff != "" {
				t.Errorf("at once (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, plain(t, iotest.OneByteReader(strings.NewReader(tt.in)))); diff != "" {
				t.Errorf("byte by byte (-want +got):\n%s", diff)
			}
		})
	}
	broken := io.MultiReader(strings.NewReader("data: a\r"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if got, err := written(broken); got != "data: a\n" || err != io.ErrUnexpectedEOF {
		t.Errorf("a broken stream: %q, %v", got, err)
	}
}

// What the standard sees in a stream, it sees in the rewritten one.
func FuzzPlainLines(f *testing.F) {
	f.Add([]byte("\xef\xbb\xbfid: 1\r\ndata: {}\r\rdata\nevent: x\n:\n\n"))
	f.Add([]byte("data: a\n\rdata\r\n\xef\xbb"))
	f.Fuzz(func(t *testing.T, in []byte) {
		read := func(r io.Reader) (out []string) {
			for events := wire.NewEventReader(r, 0); ; {
				data, err := events.Next()
				if err != nil {
					return out
				}
				out = append(out, string(data))
			}
		}
		want := read(bytes.NewReader(in))
		for name, r := range map[string]io.Reader{"at once": bytes.NewReader(in), "byte by byte": iotest.OneByteReader(bytes.NewReader(in))} {
			got := plain(t, r)
			if diff := cmp.Diff(want, read(strings.NewReader(got))); diff != "" {
				t.Errorf("%s: events (-want +got):\n%s", name, diff)
			}
			if strings.ContainsRune(got, '\r') {
				t.Errorf("%s: a CR in %q", name, got)
			}
		}
	})
}
