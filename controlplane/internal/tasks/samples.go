package tasks

import (
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes"
)

const (
	// samplesKept is how many samples are kept of a backend.
	samplesKept = 64
	// sampleLife is how long a sample stands for the backend: about as long as the backend and the connections to it are what they
	// were.
	sampleLife = 2 * time.Second
	// probesPerBackend is how many looks may wait for one backend at a time, sampled ones included.
	probesPerBackend = 64
	// maxPeers bounds the backends of which samples are kept: discovery sources may come and go with theirs.
	maxPeers = 4096
)

// sample is how a backend lately answered for an id that it did not know.
type sample struct {
	shape  shape
	at     time.Time // when the answer was there
	took   time.Duration
	failed bool // it could not be asked
}

// peers keeps what is known of backends as probes met them.
type peers struct {
	seed maphash.Seed

	mu   sync.Mutex // guards what follows
	of   map[routes.BackendID]*peer
	late time.Duration // by how much timers are late: a mean that forgets
}

type peer struct {
	ring    [samplesKept]sample
	next    int // in ring
	running int // looks that wait
	used    time.Time
}

func newPeers() *peers { return &peers{seed: maphash.MakeSeed(), of: make(map[routes.BackendID]*peer)} }

// enter takes one of a backend's places; false: there is none left.
func (p *peers) enter(id routes.BackendID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.peer(id)
	if one == nil || one.running >= probesPerBackend {
		return false
	}
	one.running++
	return true
}

func (p *peers) leave(id routes.BackendID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[id].running--
}

// peer returns what is known of a backend; nil: too many are known. p.mu is held.
func (p *peers) peer(id routes.BackendID) *peer {
	now := time.Now()
	one := p.of[id]
	if one == nil {
		if len(p.of) >= maxPeers {
			for other, o := range p.of {
				if o.running == 0 && now.Sub(o.used) >= sampleLife {
					delete(p.of, other)
				}
			}
			if len(p.of) >= maxPeers {
				return nil
			}
		}
		one = new(peer)
		p.of[id] = one
	}
	one.used = now
	return one
}

// add keeps a sample; the oldest goes. The caller has entered.
func (p *peers) add(id routes.BackendID, s sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.of[id]
	one.ring[one.next] = s
	one.next = (one.next + 1) % samplesKept
}

// draw picks one of a backend's samples for ids of a shape at random; false: there is none that is young enough. The caller has
// entered.
func (p *peers) draw(id routes.BackendID, of shape) (sample, bool) {
	since := time.Now().Add(-sampleLife)
	p.mu.Lock()
	defer p.mu.Unlock()
	var drawn sample
	n := 0
	for _, s := range p.of[id].ring {
		if s.shape != of || !s.at.After(since) {
			continue
		}
		if n++; rand.IntN(n) == 0 {
			drawn = s
		}
	}
	return drawn, n > 0
}

// lateSamples is over how many timers the mean of their lateness reaches, about.
const lateSamples = 16

// woken is told by how much a timer was late.
func (p *peers) woken(late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late += (late - p.late) / lateSamples
}

// lateness is by how much a timer is late, on the average of the last ones. A sample has the lateness of its own goroutine's waking in
// it already; on a busy machine that of the timer that stands in for it would come on top, by milliseconds.
func (p *peers) lateness() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}
