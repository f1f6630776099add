package wire

import (
	"errors"
	"io"
)

// ErrBodyTooLarge: a body has more bytes than its limit.
var ErrBodyTooLarge = errors.New("body over the limit")

// believed is how much is allocated on the word of an announced length alone, in bytes.
const believed = 64 << 10

// ReadBody reads r to its end, at most limit bytes; over that the error is ErrBodyTooLarge. announced is the length that a header
// states, negative if none does. It is believed once the first 64 KiB have come: whoever announces much and sends nothing costs
// little, and a large body is copied once at most.
func ReadBody(r io.Reader, announced, limit int64) ([]byte, error) {
	if announced > limit {
		return nil, ErrBodyTooLarge
	}
	size := int64(2 << 10)
	if announced >= 0 {
		size = min(announced, believed) + 1 // one more, so that the read that finds the end does not grow it
	}
	buf := make([]byte, 0, size)
	for {
		if len(buf) == cap(buf) {
			larger := make([]byte, len(buf), max(2*int64(len(buf)), announced+1))
			copy(larger, buf)
			buf = larger
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return nil, ErrBodyTooLarge
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}
