package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A backend that answers a gigabyte: the client hears of it, the backend is cut off soon, and it costs no memory.
func TestAGigabyteIsCutAtTheLimit(t *testing.T) {
	t.Parallel()
	const gigabyte = 1 << 30
	var written atomic.Int64
	pour := func(w http.ResponseWriter, head string) {
		io.WriteString(w, head)
		chunk := strings.Repeat("x", 64<<10)
		for sum := 0; sum < gigabyte; sum += len(chunk) {
			n, err := io.WriteString(w, chunk)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
	kinds := map[string]func(w http.ResponseWriter, m message){
		"JSON": func(w http.ResponseWriter, m message) {
			w.Header().Set("Content-Type", "application/json")
			pour(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"x":"`)
		},
		"JSON of an announced length": func(w http.ResponseWriter, m message) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", fmt.Sprint(gigabyte))
			pour(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"x":"`)
		},
		"JSON of spaces": func(w http.ResponseWriter, m message) {
			w.Header().Set("Content-Type", "application/json")
			for range gigabyte >> 16 {
				n, err := io.WriteString(w, strings.Repeat(" ", 64<<10))
				if written.Add(int64(n)); err != nil {
					return
				}
			}
		},
		"one event without an end": func(w http.ResponseWriter, m message) {
			stream(w)
			pour(w, `data: {"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"x":"`)
		},
		"one event of many lines": func(w http.ResponseWriter, m message) {
			stream(w)
			for range gigabyte >> 10 {
				n, err := io.WriteString(w, "data: "+strings.Repeat("x", 1<<10)+"\n")
				if written.Add(int64(n)); err != nil {
					return
				}
			}
		},
	}
	inEachCellWith(t, "  limits: {response: 1MiB}\n", func(w http.ResponseWriter, _ *http.Request, m message) {
		if kind := kinds[m.argument("kind")]; kind != nil {
			kind(w, m)
			return
		}
		writeResult(w, m, done("ok"))
	}, func(t *testing.T, g *gateway, c client, b *scripted) {
		c.must(t, "tools/call", `{"name":"b__run","arguments":{}}`)
		before := residentKiB(t, g.cmd.Process.Pid)
		for kind := range kinds {
			written.Store(0)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					a, err := c.call("1", "tools/call", `{"name":"b__run","arguments":{"kind":"`+kind+`"}}`)
					if err != nil || a.rpc.Error == nil || string(a.rpc.Error.Data) != `{"reason":"too_large","sent":true}` || len(a.body) > 1000 {
						t.Errorf("%s: %.300v, %v", kind, a, err)
					}
				})
			}
			wg.Wait()
			if n := written.Load(); n > 4*(32<<20) {
				t.Errorf("%s: the backend wrote %d MiB before it was cut off", kind, n>>20)
			}
		}
		grown := residentKiB(t, g.cmd.Process.Pid) - before
		t.Logf("the process grew by %d KiB", grown)
		if grown > 96<<10 && !raceEnabled {
			t.Errorf("the process grew by %d KiB", grown)
		}
		c.must(t, "tools/call", `{"name":"b__run","arguments":{}}`)
	})
}

// The limit is one event's, not a stream's: many events may be more.
func TestALongStreamIsNoLargeAnswer(t *testing.T) {
	t.Parallel()
	pad := strings.Repeat("x", 32<<10)
	const steps = 300
	inEachCellWith(t, "  limits: {response: 64KiB}\n", func(w http.ResponseWriter, _ *http.Request, m message) {
		stream(w)
		for i := range steps {
			io.WriteString(w, event(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":%d,"message":%q}}`, i, pad)))
		}
		write(w, event(resultOf(m, done("end"))))
	}, func(t *testing.T, _ *gateway, c client, b *scripted) {
		a, err := c.call("1", "tools/call", fmt.Sprintf(withProgress, "a"))
		if err != nil || len(a.events) != steps+1 || a.rpc.Result == nil {
			t.Errorf("%.300v, %v", a, err)
		}
	})
}
