package call

import (
	"net/http"
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

// slots counts the calls that run, by who makes them and by where they go.
type slots struct {
	perPrincipal, perBackend int // 0 and less: no bound

	mu         sync.Mutex // guards what follows
	principals map[access.Principal]int
	backends   map[routes.BackendID]int
}

func newSlots(perPrincipal, perBackend int) *slots {
	return &slots{
		perPrincipal: perPrincipal, perBackend: perBackend,
		principals: map[access.Principal]int{}, backends: map[routes.BackendID]int{},
	}
}

// full says which bound was met.
type full uint8

const (
	free full = iota
	principalFull
	backendFull
)

// enter takes a slot, or says why there is none. An empty backend counts for the principal alone.
func (s *slots) enter(p access.Principal, b routes.BackendID) full {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.perPrincipal > 0 && s.principals[p] >= s.perPrincipal:
		return principalFull
	case b != "" && s.perBackend > 0 && s.backends[b] >= s.perBackend:
		return backendFull
	}
	s.principals[p]++
	if b != "" {
		s.backends[b]++
	}
	return free
}

func (s *slots) leave(p access.Principal, b routes.BackendID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.principals[p]--; s.principals[p] <= 0 {
		delete(s.principals, p)
	}
	if b == "" {
		return
	}
	if s.backends[b]--; s.backends[b] <= 0 {
		delete(s.backends, b)
	}
}

// retrySlot is what a client is told to wait: calls are short as a rule.
const retrySlot = time.Second

// enter refuses a call over a bound: 429 to a caller who has too many, -32603 where a backend has.
func (c *call) enter() *wire.Error {
	switch c.h.slots.enter(c.r.Identity.Principal, c.target.ID) {
	case principalFull:
		err := wire.InternalRetry(wire.ReasonOverloaded, "too many of your calls are running", retrySlot)
		err.Status, err.RetryAfter = http.StatusTooManyRequests, retrySlot
		c.outcome = "principal_full"
		return err
	case backendFull:
		c.outcome = "backend_full"
		return wire.InternalRetry(wire.ReasonOverloaded, "", retrySlot)
	}
	return nil
}

func (c *call) leave() { c.h.slots.leave(c.r.Identity.Principal, c.target.ID) }
