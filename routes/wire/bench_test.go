package wire

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weir-mcp/weir/routes/access"
)

// modernCall is the body of a tools/call with about n bytes of arguments, flat text or many small values.
func modernCall(n int, flat bool) []byte {
	arguments := `{"text":"` + strings.Repeat("a", n) + `"}`
	if !flat {
		var b strings.Builder
		b.WriteString(`{"rows":[`)
		for i := 0; b.Len() < n; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"id":%d,"name":"row %d","ok":true}`, i, i)
		}
		arguments = b.String() + "]}"
	}
	return []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":` + arguments + `,"_meta":{` + triple + `}}}`)
}

var bodies = map[string][]byte{
	"300B":        modernCall(30, true),
	"64KiB/text":  modernCall(64<<10, true),
	"64KiB/items": modernCall(64<<10, false),
	"64KiB/lines": bytes.ReplaceAll(modernCall(64<<10, true), []byte(strings.Repeat("a", 40)), []byte(`\n\"a\":\t`+strings.Repeat("a", 32))),
	"64KiB/日本語":   bytes.ReplaceAll(modernCall(64<<10, true), []byte("aaaaaaaaa"), []byte("日本語")),
	"1MiB/text":   modernCall(1<<20, true),
	"1MiB/items":  modernCall(1<<20, false),
}

func BenchmarkDecodeMessage(b *testing.B) {
	for name, body := range bodies {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := DecodeMessage(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkScanMessage(b *testing.B) {
	for name, body := range bodies {
		doc := bytes.Replace(body, []byte(`"method":"tools/call","params"`), []byte(`"result"`), 1)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				if s, err := ScanMessage(doc); err != nil || s.Kind != KindResponse {
					b.Fatal(s, err)
				}
			}
		})
	}
}

func BenchmarkEventReader(b *testing.B) {
	for name, size := range map[string]int{"100B": 100, "4KiB": 4 << 10, "1MiB": 1 << 20} {
		stream := bytes.Repeat(appendEvent(nil, []byte(`{"a":"`+strings.Repeat("x", size)+`"}`)), 4)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(stream)))
			for b.Loop() {
				for e := NewEventReader(bytes.NewReader(stream), 0); ; {
					if _, err := e.Next(); err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// discard is a ResponseWriter that costs as little as can be.
type discard struct{ h http.Header }

func (d discard) Header() http.Header            { return d.h }
func (discard) Write(p []byte) (int, error)      { return len(p), nil }
func (discard) WriteHeader(int)                  {}
func (discard) FlushError() error                { return nil }
func (discard) SetReadDeadline(time.Time) error  { return nil }
func (discard) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkEndpoint is a whole modern tools/call without network, token and look-up.
func BenchmarkEndpoint(b *testing.B) {
	e, err := NewEndpoint(Options{
		Anonymous: access.Anonymous("acme"), PublicURL: "https://mcp.example",
		Dispatch: func(w *Response, _ *Request) { w.Raw(0, []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)) },
		OnDone:   func(Summary) {},
	})
	if err != nil {
		b.Fatal(err)
	}
	body := bodies["300B"]
	r := httptest.NewRequest(http.MethodPost, "http://mcp.example/servers/acme/mcp", nil)
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {LatestModern}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"echo"}, "User-Agent": {"bench"},
	}
	r.ContentLength = int64(len(body))
	w := discard{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		r.Body = io.NopCloser(bytes.NewReader(body))
		e.ServeHTTP(w, r)
	}
}
