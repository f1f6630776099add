package egress

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/weir-mcp/weir/routes/wire"
)

// Whether a response is set aside or not, the caller gets the same; only what the SDK's own reader would refuse stays refused.
func TestLargeResponsesOnALegacyStream(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 1<<20)
	const note = `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}` + "\n\n"
	for name, tt := range map[string]struct {
		stream string // ID is the request's id, TEXT a megabyte
		broken string // the reason of the failure, empty for none
		notes  int
	}{
		"alone":                     {stream: `data: {"jsonrpc":"2.0","id":ID,"result":{"text":"TEXT"}}` + "\n\n"},
		"with id, type and retry":   {stream: "id: 1\nevent: message\nretry: 5\n" + `data:{"jsonrpc":"2.0","id":ID,"result":{"text":"TEXT"}}` + "\n\n"},
		"CRLF, after notifications": {stream: strings.ReplaceAll(note+note+`data: {"jsonrpc":"2.0","id":ID,"result":{"text":"TEXT"}}`+"\n\n", "\n", "\r\n"), notes: 2},
		"in two lines":              {stream: `data: {"jsonrpc":"2.0","id":ID,` + "\n" + `data: "result":{"text":"TEXT"}}` + "\n\n"},
		"without its end":           {stream: `data: {"jsonrpc":"2.0","id":ID,"result":{"text":"TEXT"}}`},
		"the id in another way":     {stream: `data: {"jsonrpc":"2.0","id":ID.0,"result":{"text":"TEXT"}}` + "\n\n"},
		"after a large notification": {
			stream: `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"TEXT"}}` + "\n\n" + `data: {"jsonrpc":"2.0","id":ID,"result":{"text":"TEXT"}}` + "\n\n", notes: 1,
		},
		"after a large event of another type": {stream: "event: ping\ndata: TEXT\n\n" + `data: {"jsonrpc":"2.0","id":ID,"result":{"text":"TEXT"}}` + "\n\n"},
		"after a foreign response":            {stream: `data: {"jsonrpc":"2.0","id":"other","result":{"text":"TEXTTEXT"}}` + "\n\n" + `data: {"jsonrpc":"2.0","id":ID,"result":{"text":"TEXT"}}` + "\n\n"},
		"torn":                                {stream: `data: {"jsonrpc":"2.0","id":ID,"result":{"text":"TEXT`, broken: ReasonBadResponse},
		"no JSON":                             {stream: `data: {"jsonrpc":"2.0","id":ID,"result":{"text":"TEXT}` + "\n\n", broken: ReasonBadResponse},
		"a result that is none":               {stream: `data: {"jsonrpc":"2.0","id":ID,"result":["TEXT"]}` + "\n\n", broken: ReasonBadResponse},
		"over the limit":                      {stream: `data: {"jsonrpc":"2.0","id":ID,"result":{"text":"TEXTTEXTTEXT"}}` + "\n\n", broken: ReasonTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &legacyServer{call: func(w http.ResponseWriter, _ *http.Request, id string) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, strings.NewReplacer("ID", id, "TEXT", text).Replace(tt.stream))
			}}
			msgs, streaming, err := collect(t, newClient(t, Options{ResponseLimit: 2<<20 + 1000}), legacyCall(newBackend(t, s).URL))
			if tt.broken != "" {
				if f, ok := errors.AsType[*Failure](err); !ok || f.Reason != tt.broken || !f.Sent {
					t.Errorf("%d messages, %v; want %s", len(msgs), err, tt.broken)
				}
				return
			}
			if err != nil || !streaming || len(msgs) != tt.notes+1 {
				t.Fatalf("%d messages, want %d: %v", len(msgs), tt.notes+1, err)
			}
			last := msgs[tt.notes]
			if want := `{"jsonrpc":"2.0","id":"client","result":{"text":"` + text + `"}}`; !last.Final || docOf(last) != want || last.Status != 0 {
				t.Errorf("status %d, %.80s… of %d bytes", last.Status, docOf(last), len(docOf(last)))
			}
		})
	}
}

// A large error, and what stands at a result's top, is known as it is of a small one.
func TestWhatIsSetAsideIsScanned(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 100_000)
	for name, tt := range map[string]struct{ member, taskID string }{
		"an error": {`"error":{"code":-32602,"message":"` + text + `","data":{"n":1.0}}`, ""},
		"a task":   {`"result":{"task":{"taskId":"t"},"x":"` + text + `"}`, `{"taskId":"t"}`},
	} {
		for _, stream := range []bool{true, false} {
			s := &legacyServer{call: func(w http.ResponseWriter, _ *http.Request, id string) {
				if doc := `{"jsonrpc":"2.0","id":` + id + `,` + tt.member + `}`; stream {
					event(w, doc)
				} else {
					w.Header().Set("Content-Type", "application/json")
					io.WriteString(w, doc)
				}
			}}
			msgs, _, err := collect(t, newClient(t, Options{}), legacyCall(newBackend(t, s).URL))
			if err != nil || len(msgs) != 1 || docOf(msgs[0]) != `{"jsonrpc":"2.0","id":"client",`+tt.member+`}` || string(msgs[0].Top.Task) != tt.taskID {
				t.Errorf("%s, stream %t: %d messages, %v", name, stream, len(msgs), err)
			}
		}
	}
}

// Nothing but a large response is changed, however the stream arrives.
func TestAsideReaderPassesEverythingElse(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("y", largeEvent)
	response := `{"jsonrpc":"2.0","id":7,"result":{"text":"` + large + `"}}`
	for name, tt := range map[string]struct{ in, want string }{
		"small events":         {"id:1\ndata:{}\n\n\n\ndata: " + okDoc + "\n\ndata:x", "id:1\ndata:{}\n\n\n\ndata: " + okDoc + "\n\ndata:x"},
		"a response":           {"id:1\ndata: " + response + "\n\ndata:x\n\n", "id:1\ndata:" + string(instead(7)) + "\n\ndata:x\n\n"},
		"two data lines":       {"data:" + large + "\ndata:" + response + "\n\n", "data:" + large + "\ndata:" + response + "\n\n"},
		"another type":         {"data:" + response + "\nevent:x\n\n", "data:" + response + "\nevent:x\n\n"},
		"the end is missing":   {"data:" + response + "\n", "data:" + response + "\n"},
		"over the limit":       {"data:" + strings.Repeat("z", 200_000) + "\n\ndata:" + response + "\n\n", "data:" + strings.Repeat("z", 200_000) + "\n\ndata:" + string(instead(7)) + "\n\n"},
		"no data in much else": {"id:" + large + "\n\n", "id:" + large + "\n\n"},
	} {
		readers := map[string]io.Reader{"at once": strings.NewReader(tt.in), "by halves": iotest.HalfReader(strings.NewReader(tt.in))}
		if len(tt.in) < 1000 {
			readers["byte by byte"] = iotest.OneByteReader(strings.NewReader(tt.in))
		}
		for how, r := range readers {
			s := &sdkExchange{number: 7}
			var buffers wire.Buffers
			got, err := io.ReadAll(newAsideReader(newPlainLines(io.NopCloser(r)), s, &buffers, 100_000))
			if string(got) != tt.want || err != nil {
				t.Errorf("%s, %s: %d bytes, want %d: %v", name, how, len(got), len(tt.want), err)
			}
			if kept := s.fetch(); (kept != nil) != strings.Contains(tt.want, string(instead(7))) {
				t.Errorf("%s, %s: kept %t", name, how, kept != nil)
			}
		}
	}
}

// FuzzAsideReader: a stream reads the same with and without.
func FuzzAsideReader(f *testing.F) {
	f.Add([]byte("id: 1\r\ndata: {}\r\rdata\nevent: x\n:\n\n"), uint8(3), true)
	f.Add([]byte("data: a\n\n\n\ndata: b\n"), uint8(0), false)
	f.Fuzz(func(t *testing.T, in []byte, size uint8, large bool) {
		if large { // an event that is looked at
			in = slices.Concat(in, fmt.Appendf(nil, "\n\ndata:{%q:1}\n\n", strings.Repeat("k", largeEvent)), in)
		}
		want, _ := written(strings.NewReader(string(in)))
		r := newAsideReader(newPlainLines(io.NopCloser(strings.NewReader(string(in)))), &sdkExchange{number: 1}, new(wire.Buffers), 10_000+int64(size)<<8)
		got, err := io.ReadAll(r)
		if string(got) != want || err != nil {
			t.Fatalf("%q\n%q: %v", got[:min(len(got), 300)], want[:min(len(want), 300)], err)
		}
	})
}
