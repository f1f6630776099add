package tasks

import (
	"sync"

	"github.com/weir-mcp/weir/routes"
)

// probesPerBackend is how many looks may wait for one backend at a time: one that hangs must not hold more.
const probesPerBackend = 64

// places counts the looks that wait, by backend.
type places struct {
	mu    sync.Mutex // guards taken
	taken map[routes.BackendID]int
}

// enter takes one of a backend's places; false: there is none left.
func (p *places) enter(id routes.BackendID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[id] >= probesPerBackend {
		return false
	}
	if p.taken == nil {
		p.taken = make(map[routes.BackendID]int)
	}
	p.taken[id]++
	return true
}

func (p *places) leave(id routes.BackendID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[id]--; p.taken[id] == 0 {
		delete(p.taken, id)
	}
}
