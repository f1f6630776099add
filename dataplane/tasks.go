package dataplane

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/dataplane/internal/tasks"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/redisstore"
)

// newTasks wires who remembers tasks and who is asked for others.
func (s *Server) newTasks(o redisstore.Options, reg prometheus.Registerer) (*tasks.Locator, error) {
	log := s.log.Named("tasks")
	o.Report = func(err error) { log.Warn("owner record can't be read", zap.Error(err)) }
	owners, err := redisstore.NewOwners(o)
	if err != nil {
		return nil, err
	}
	if s.tasks, err = tasks.New(tasks.Options{Store: owners, Outage: owners.Recovered, Log: log, Registerer: reg}); err != nil {
		return nil, err
	}
	ask := tasks.LocatorOptions{Token: s.cfg.ControlPlane.Token, Registerer: reg}
	switch {
	case s.o.Internal != nil:
		ask.Transport, ask.Base = handlerTransport{s.o.Internal}, &url.URL{Scheme: "http", Host: "control-plane"}
	case s.cfg.ControlPlane.AdminURL != "":
		if ask.Base, err = url.Parse(s.cfg.ControlPlane.AdminURL); err != nil {
			return nil, fmt.Errorf("control_plane.admin_url: %w", err)
		}
		ask.Transport = egress.HTTPClient(egress.ClientOptions{TLS: s.cfg.ControlPlane.TLS}).Transport
	}
	return tasks.NewLocator(ask)
}

// warn says at the start what will fail later on for want of config.
func (s *Server) warn() {
	for _, w := range s.cfg.Warnings() {
		if s.o.Internal == nil {
			s.log.Warn(w)
		}
	}
}

// writeTasks writes the owner records that still wait for Redis, until the drain's deadline; where a part failed, and ctx did not end,
// for a moment only.
func (s *Server) writeTasks(ctx context.Context) {
	left := lastWords
	if began := s.drainBegan.Load(); began != nil && ctx.Err() != nil {
		left = max(left, s.cfg.Drain.Delay+s.cfg.Drain.Deadline-time.Since(*began))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	defer cancel()
	s.tasks.Drain(ctx)
}
