package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadBody(t *testing.T) {
	for name, tt := range map[string]struct {
		size      int
		announced int64
		limit     int64
		want      error
	}{
		"nothing":                           {0, 0, 10, nil},
		"as announced":                      {300, 300, 1000, nil},
		"unannounced":                       {100_000, -1, 200_000, nil},
		"large, as announced":               {1 << 20, 1 << 20, 4 << 20, nil},
		"exactly the limit":                 {1000, -1, 1000, nil},
		"one over the limit":                {1001, -1, 1000, ErrBodyTooLarge},
		"announced over the limit":          {0, 1001, 1000, ErrBodyTooLarge},
		"more than announced, in the limit": {500, 300, 1000, nil},
	} {
		t.Run(name, func(t *testing.T) {
			body := bytes.Repeat([]byte("x"), tt.size)
			for _, r := range []io.Reader{bytes.NewReader(body), iotest.HalfReader(bytes.NewReader(body)), iotest.DataErrReader(bytes.NewReader(body))} {
				got, err := ReadBody(r, tt.announced, tt.limit)
				if !errors.Is(err, tt.want) || err == nil && !bytes.Equal(got, body) {
					t.Errorf("%d bytes, %v; want %d, %v", len(got), err, tt.size, tt.want)
				}
			}
		})
	}
	broken := errors.New("broken")
	if _, err := ReadBody(io.MultiReader(strings.NewReader("x"), iotest.ErrReader(broken)), -1, 10); !errors.Is(err, broken) {
		t.Errorf("error %v, want the reader's", err)
	}
}

// What is only announced is not allocated.
func TestReadBodyBelievesBytesNotWords(t *testing.T) {
	res := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = ReadBody(strings.NewReader("x"), 4<<20, 4<<20)
		}
	})
	if got := res.AllocedBytesPerOp(); got > 2*believed {
		t.Errorf("one byte of an announced 4 MiB cost %d bytes", got)
	}
}
