package controlplane

import (
	"context"
	"slices"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
)

// decisionFollower follows what is published, and tells when operators decided something, or may have.
type decisionFollower struct {
	*redisstore.Reader
	decided func()
}

// Follow is the Reader's.
func (f decisionFollower) Follow(ctx context.Context, apply func([]routes.Event), state func(reachable bool, err error)) error {
	return f.Reader.Follow(ctx, func(events []routes.Event) {
		if slices.ContainsFunc(events, func(e routes.Event) bool { return e.Decision || e.Reset }) {
			f.decided()
		}
		apply(events)
	}, state)
}
