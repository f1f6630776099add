package controlplane

import (
	"context"
	"errors"

	"github.com/weir-mcp/weir/controlplane/internal/listing"
	"github.com/weir-mcp/weir/controlplane/internal/watch"
	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

// listenOptions is what subscriptions/listen needs: the hub of upstream subscriptions, and whether a caller may still listen.
func (s *Server) listenOptions() (o listing.ListenOptions, err error) {
	who := wire.Object{{Name: "name", Value: wire.Quote("weir")}, {Name: "version", Value: wire.Quote(process.BuildVersion())}}
	s.watch, err = watch.New(watch.Options{Upstream: s.egress, Log: s.log.Named("watch"), Registry: s.o.Registry, ClientInfo: who.Append(nil)})
	return listing.ListenOptions{Watch: s.watch, Revoked: s.revoked}, err
}

// taskOptions is what lists and streams about tasks need. makeLocator and listenOptions come before.
func (s *Server) taskOptions() listing.TaskOptions {
	return listing.TaskOptions{Owners: s.owners, Locate: s.locateListened, Follow: s.watch}
}

// locateListened finds the task that a modern client wants to listen to.
func (s *Server) locateListened(ctx context.Context, id *access.Identity, vh *routes.VirtualHost, task string) *routes.TaskOwner {
	return s.locator.Locate(ctx, id, vh, task, wire.Modern).Owner
}

// revoked reports whether a token that was good once is no longer, by the verifier in force.
func (s *Server) revoked(id *access.Identity) bool {
	v := s.front.Load().verifier
	return v != nil && errors.Is(v.Recheck(context.Background(), id, false), access.ErrUnauthorized)
}

// Drain ends the open streams of subscriptions/listen with their completion result, and from now on those that are opened: they
// would keep a server that finishes its requests from ending. Run does it at its own end; whoever serves Handler does it before.
func (s *Server) Drain() { s.lists.Drain() }
