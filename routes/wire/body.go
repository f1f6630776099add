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
	body, _, err := (*Buffers)(nil).ReadBody(r, announced, limit)
	return body, err
}

// ReadBody is [ReadBody] into memory that is lent: the caller holds it, and may look at the body until it releases it.
func (b *Buffers) ReadBody(r io.Reader, announced, limit int64) ([]byte, *Memory, error) {
	if announced > limit {
		return nil, nil, ErrBodyTooLarge
	}
	size := int64(2 << 10)
	if announced >= 0 {
		size = min(announced, believed) + 1 // one more, so that the read that finds the end does not grow it
	}
	buf, memory := b.lend(int(size))
	n := 0
	for {
		if n == len(buf) {
			larger, at := b.lend(int(max(2*int64(n), announced+1)))
			copy(larger, buf)
			memory.Release()
			buf, memory = larger, at
		}
		read, err := r.Read(buf[n:])
		n += read
		switch {
		case int64(n) > limit:
			err = ErrBodyTooLarge
		case err == io.EOF:
			return buf[:n:n], memory, nil
		case err == nil:
			continue
		}
		memory.Release()
		return nil, nil, err
	}
}
