package wire

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/weir-mcp/weir/routes/access"
)

func TestClassesHoldWhatTheyShould(t *testing.T) {
	for n := smallest; n <= 20<<20; n += 4093 {
		class := classOf(n)
		if sizeOf(class) < n || class > 0 && sizeOf(class-1) >= n {
			t.Fatalf("%d bytes: class %d of %d", n, class, sizeOf(class))
		}
	}
	for class := range classes {
		if got := classOf(sizeOf(class)); got != class {
			t.Errorf("%d bytes come back to class %d, want %d", sizeOf(class), got, class)
		}
	}
}

func TestMemoryIsUsedAgainOnceAllHaveReleasedIt(t *testing.T) {
	var b Buffers
	first, m := b.lend(1 << 20)
	m.Hold()
	m.Release()
	if other, _ := b.lend(1 << 20); &other[0] == &first[0] {
		t.Fatal("memory that is held was lent")
	}
	m.Release()
	if again, _ := b.lend(1 << 20); &again[0] != &first[0] {
		t.Error("memory that was released was not lent again")
	}
	defer func() {
		if recover() == nil {
			t.Error("released twice without a word")
		}
	}()
	m.Release()
}

func TestMemoryThatIsKeptIsBounded(t *testing.T) {
	var b Buffers
	var all []*Memory
	for range 64 {
		_, m := b.lend(1 << 20)
		all = append(all, m)
	}
	for _, m := range all {
		m.Release()
	}
	if n := len(b.free[classOf(1<<20)]) * sizeOf(classOf(1<<20)); b.kept != n || n > keptBytes || n < keptBytes-sizeOf(4) {
		t.Errorf("%d bytes kept, counted as %d", n, b.kept)
	}
}

func TestSmallAndHugeMemoryIsPlain(t *testing.T) {
	var b Buffers
	for name, n := range map[string]int{"small": smallest - 1, "huge": 20<<20 + 1} {
		if got, m := b.lend(n); m != nil || len(got) != n {
			t.Errorf("%s: %d bytes, lent: %t", name, len(got), m != nil)
		}
	}
	var none *Buffers
	if got, m := none.lend(1 << 20); m != nil || len(got) != 1<<20 {
		t.Errorf("of no Buffers: %d bytes, lent: %t", len(got), m != nil)
	}
	none.lend(1)
	var m *Memory
	m.Hold()
	m.Release()
}

// A body never shows what was in its memory before, and is whole however it arrives; memory goes back after a failure too.
func TestBodiesInMemoryThatIsUsedAgain(t *testing.T) {
	var b Buffers
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 20 {
				body := bytes.Repeat([]byte{byte('a' + worker)}, 70_000+i*50_000)
				announced := int64(len(body))
				if i%3 == 0 {
					announced = -1
				}
				got, m, err := b.ReadBody(iotest.HalfReader(bytes.NewReader(body)), announced, 4<<20)
				if err != nil || !bytes.Equal(got, body) || cap(got) != len(got) {
					t.Errorf("%d bytes with room for %d, want %d: %v", len(got), cap(got), len(body), err)
				}
				m.Release()
				if _, m, err := b.ReadBody(bytes.NewReader(body), -1, 60_000); !errors.Is(err, ErrBodyTooLarge) || m != nil {
					t.Errorf("over the limit: %v", err)
				}
				broken := errors.New("broken")
				if _, m, err := b.ReadBody(io.MultiReader(bytes.NewReader(body), iotest.ErrReader(broken)), -1, 4<<20); !errors.Is(err, broken) || m != nil {
					t.Errorf("a broken body: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// A request's memory is taken back where Dispatch says so, once it has returned, and from nobody who still holds it.
func TestTheMemoryOfARequest(t *testing.T) {
	var held *Memory
	for name, tt := range map[string]struct {
		dispatch func(w *Response, r *Request)
		back     bool
	}{
		"not a word":      {func(w *Response, _ *Request) { w.Result([]byte("{}")) }, false},
		"may be used":     {func(w *Response, _ *Request) { w.Reuse(); w.Result([]byte("{}")) }, true},
		"not answered":    {func(w *Response, _ *Request) { w.Reuse() }, true},
		"held":            {func(w *Response, r *Request) { w.Reuse(); held = r.Memory; held.Hold(); w.Result([]byte("{}")) }, false},
		"after a panic":   {func(w *Response, _ *Request) { w.Reuse(); panic("oops") }, false},
		"after its abort": {func(w *Response, _ *Request) { w.Reuse(); panic(http.ErrAbortHandler) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := NewEndpoint(Options{Anonymous: access.Anonymous("acme"), Dispatch: func(w *Response, r *Request) {
				if string(r.Params[0].Value) == "" || r.Memory == nil {
					t.Error("a large request without memory")
				}
				tt.dispatch(w, r)
			}})
			if err != nil {
				t.Fatal(err)
			}
			r := post(t.Context(), "http://weir.test/mcp", strings.NewReader(
				`{"jsonrpc":"2.0","id":"i","method":"tools/call","params":{"name":"a","arguments":{"x":"`+strings.Repeat("x", 100_000)+`"}}}`))
			w := httptest.NewRecorder()
			func() {
				defer func() { _ = recover() }() // net/http's part
				e.ServeHTTP(w, r)
			}()
			if w.Body.Len() > 0 && !strings.Contains(w.Body.String(), `"id":"i"`) {
				t.Errorf("answer %s", w.Body)
			}
			if back := e.bodies.kept > sizeOf(0); back != tt.back { // the smallest held the body's beginning
				t.Errorf("%d bytes were taken back, want the request's: %t", e.bodies.kept, tt.back)
			}
		})
	}
	held.Release()
}

func TestReleasedMemoryIsPoisonedInTests(t *testing.T) {
	if !poison {
		t.Skip("only under the race detector")
	}
	var b Buffers
	got, m, err := b.ReadBody(bytes.NewReader(bytes.Repeat([]byte("x"), 100_000)), -1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	m.Release()
	if got[0] != poisoned || got[len(got)-1] != poisoned {
		t.Errorf("released memory still shows %q", got[:10])
	}
}
