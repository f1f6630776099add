package controlplane

import (
	"context"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/tasks"
	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/redisstore"
)

// makeLocator makes what keeps owner records, and what finds tasks that have none.
func (s *Server) makeLocator(store redisstore.Options) (err error) {
	log := s.log.Named("tasks")
	store.Report = func(err error) { log.Warn("owner record is not readable", zap.Error(err)) }
	if s.owners, err = redisstore.NewOwners(store); err != nil {
		return err
	}
	s.locator, err = tasks.New(tasks.Options{
		Owners: s.owners, Backends: s.egress, Version: process.BuildVersion(),
		Log: log, Audit: s.log.Named("audit"), Registry: s.o.Registry,
	})
	return err
}

// callers are the clients of dataplanes, judged as the plane's own clients are: by the front in force.
type callers struct{ s *Server }

// Verify is admin.Callers'.
func (c callers) Verify(ctx context.Context, token, resource string) (*access.Identity, error) {
	f := c.s.front.Load()
	if f.verifier == nil {
		return f.anonymous, nil
	}
	return f.verifier.Verify(ctx, token, resource)
}

// Resolve is admin.Callers'.
func (c callers) Resolve(ctx context.Context, host routes.HostID) (*routes.Index, error) {
	return c.s.lists.Resolve(ctx, host)
}
