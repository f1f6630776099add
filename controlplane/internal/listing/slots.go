package listing

import (
	"net/http"
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

// How many completions run at once: a client asks at each key that its user presses, and a backend that hangs must cost neither
// its other callers nor the lists.
const (
	completionsPerPrincipal = 32
	completionsPerBackend   = 64
)

// slots counts the completions that run, by who asks and by where they go.
type slots struct {
	mu         sync.Mutex // guards what follows
	principals map[access.Principal]int
	backends   map[routes.BackendID]int
}

func newSlots() *slots {
	return &slots{principals: make(map[access.Principal]int), backends: make(map[routes.BackendID]int)}
}

// enter takes a slot, or refuses as the dataplane does: 429 to a caller who has too many, -32603 where a backend has.
func (s *slots) enter(p access.Principal, b routes.BackendID) (leave func(), _ *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.principals[p] >= completionsPerPrincipal {
		err := wire.InternalRetry(wire.ReasonOverloaded, "too many of your completions are running", time.Second)
		err.Status, err.RetryAfter = http.StatusTooManyRequests, time.Second
		return nil, err
	}
	if s.backends[b] >= completionsPerBackend {
		return nil, wire.InternalRetry(wire.ReasonOverloaded, "", time.Second)
	}
	s.principals[p]++
	s.backends[b]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.principals[p]--; s.principals[p] == 0 {
			delete(s.principals, p)
		}
		if s.backends[b]--; s.backends[b] == 0 {
			delete(s.backends, b)
		}
	}, nil
}
