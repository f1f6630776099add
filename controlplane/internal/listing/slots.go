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
// its other callers nor the lists. A list of tasks asks several backends, several times each.
const (
	completionsPerPrincipal = 32
	completionsPerBackend   = 64
	taskListsPerPrincipal   = 8
	taskListsInAll          = 64
)

// slots counts the calls of one kind that run, by who asks and by where they go.
type slots struct {
	perPrincipal, perBackend int

	mu         sync.Mutex // guards what follows
	principals map[access.Principal]int
	backends   map[routes.BackendID]int
}

func newSlots(perPrincipal, perBackend int) *slots {
	return &slots{perPrincipal: perPrincipal, perBackend: perBackend, principals: make(map[access.Principal]int), backends: make(map[routes.BackendID]int)}
}

// enter takes a slot, or refuses as the dataplane does: 429 to a caller who has too many, -32603 where a backend has. An empty id
// stands for several backends at once.
func (s *slots) enter(p access.Principal, b routes.BackendID) (leave func(), _ *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.principals[p] >= s.perPrincipal {
		err := wire.InternalRetry(wire.ReasonOverloaded, "too many of your requests of this kind are running", time.Second)
		err.Status, err.RetryAfter = http.StatusTooManyRequests, time.Second
		return nil, err
	}
	if s.backends[b] >= s.perBackend {
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
