package wire

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// Buffers lends memory for large messages and takes it back, so that a megabyte costs neither a fresh megabyte to clear nor a
// garbage collection. What is lent is not cleared: a borrower sees only what was read into it. Safe for concurrent use; the
// zero value is ready, and a nil one lends memory that is never used again.
type Buffers struct {
	mu   sync.Mutex // guards what follows
	free [classes][][]byte
	kept int // bytes in free
}

const (
	// The sizes that are lent are five quarters of a power of two: payloads like to be a power of two, and their envelope comes on
	// top. Smaller ones are left to the garbage collector, and so are those over the largest.
	smallest  = 64 << 10
	classes   = 9 // 80 KiB to 20 MiB
	keptBytes = 32 << 20
)

func classOf(n int) int { return bits.Len(uint((n*4+4)/5-1) >> bits.Len(smallest-1)) }

func sizeOf(class int) int { return smallest << class * 5 / 4 }

// Memory is a piece of what Buffers lend. It is used again when everybody who holds it has released it; when somebody forgets
// to, it is garbage like any other. The methods of a nil one do nothing.
type Memory struct {
	from  *Buffers
	bytes []byte
	holds atomic.Int32
}

// lend returns n bytes or more, of any content, and who holds them: the caller. The Memory is nil when the bytes are plain ones.
func (b *Buffers) lend(n int) ([]byte, *Memory) {
	class := classOf(n)
	if b == nil || n < smallest || class >= classes {
		return make([]byte, n), nil
	}
	m := &Memory{from: b}
	m.holds.Store(1)
	b.mu.Lock()
	if last := len(b.free[class]) - 1; last >= 0 { // the latest is the one that is still in the processor's cache
		m.bytes = b.free[class][last]
		b.free[class] = b.free[class][:last]
		b.kept -= len(m.bytes)
	}
	b.mu.Unlock()
	if m.bytes == nil {
		m.bytes = make([]byte, sizeOf(class))
	}
	return m.bytes, m
}

// Hold adds a holder, who may look at the memory until it calls Release. Only who holds it already may call it.
func (m *Memory) Hold() {
	if m != nil {
		m.holds.Add(1)
	}
}

// Release ends what lend or one Hold began.
func (m *Memory) Release() {
	if m == nil {
		return
	}
	switch n := m.holds.Add(-1); {
	case n < 0:
		panic("memory released twice") // somebody else's message may be in it
	case n > 0:
		return
	}
	if poison {
		m.bytes[0] = poisoned
		for n := 1; n < len(m.bytes); n *= 2 {
			copy(m.bytes[n:], m.bytes[:n])
		}
	}
	b := m.from
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept+len(m.bytes) <= keptBytes {
		class := classOf(len(m.bytes))
		b.free[class] = append(b.free[class], m.bytes)
		b.kept += len(m.bytes)
	}
	m.bytes = nil
}

// Gatherer gathers bytes that come one after another, in memory that grows and is lent once it is large. The zero value lends nothing.
// It is not safe for concurrent use.
type Gatherer struct {
	from   *Buffers
	bytes  []byte
	memory *Memory
}

// Gatherer returns one that borrows from b.
func (b *Buffers) Gatherer() Gatherer { return Gatherer{from: b} }

// Bytes is what was gathered since the last Take.
func (g *Gatherer) Bytes() []byte { return g.bytes }

// Append adds a copy of p.
func (g *Gatherer) Append(p []byte) {
	g.room(len(p), 0)
	g.bytes = append(g.bytes, p...)
}

// room makes room for n bytes more. Large memory doubles, or grows fourfold where that clears none, so that what is gathered is copied
// twice at most and not five times; not over the limit, though, unless it is zero.
func (g *Gatherer) room(n int, limit int64) {
	need := len(g.bytes) + n
	if need <= cap(g.bytes) {
		return
	}
	size := 2 * cap(g.bytes)
	if g.memory != nil {
		size *= 2
	}
	if limit > 0 {
		size = int(min(int64(size), limit))
	}
	grown, memory := g.from.lend(max(need, size))
	copy(grown, g.bytes)
	g.memory.Release()
	g.bytes, g.memory = grown[:len(g.bytes)], memory
}

// Take returns what was gathered and begins anew. The caller holds the memory.
func (g *Gatherer) Take() ([]byte, *Memory) {
	taken, memory := g.bytes, g.memory
	g.bytes, g.memory = nil, nil
	return taken[:len(taken):len(taken)], memory
}

// poisoned is what released memory is filled with where tests run under the race detector: whoever still looks at it fails.
const poisoned = 0xdb
