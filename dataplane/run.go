package dataplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-mcp/weir/dataplane/internal/call"
	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes"
)

const (
	// statusEvery is how often the dataplane reports itself, and statusTTL how long a report is believed.
	statusEvery = 5 * time.Second
	statusTTL   = 30 * time.Second
	// lastWords is how long requests that outlived the drain deadline have to tell their clients.
	lastWords = time.Second
)

// Run serves until ctx ends, then drains (Config.Drain): it goes on accepting for the delay with /readyz at 503, and then finishes
// what runs until the deadline, and connections that are kept alive until they were idle for the delay. What still runs then gets
// an error. It returns nil on an orderly end.
func (s *Server) Run(ctx context.Context) error {
	defer s.close()
	s.warn()
	var mcp, ops net.Listener
	if !s.o.NoListeners {
		var err error
		if mcp, err = process.ListenReporting(s.cfg.Listen, s.cfg.TLS, process.ReloadLogger(s.log, "mcp")); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		if ops, err = process.Listen(s.cfg.OpsListen, process.ListenTLS{}); err != nil {
			return errors.Join(fmt.Errorf("ops_listen: %w", err), mcp.Close())
		}
		if s.o.Stderr != nil {
			fmt.Fprintf(s.o.Stderr, "ready listen=%s ops=%s\n", mcp.Addr(), ops.Addr())
		}
	}
	// The parts outlive ctx: requests that are being finished need them.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts, work := errgroup.WithContext(work)
	parts.Go(func() error { return s.snapshots.Run(work) })
	parts.Go(func() error { return s.report(work) })
	parts.Go(func() error { return s.waitReady(work) })
	parts.Go(func() error { return s.tasks.Run(work) })
	if s.revocations != nil {
		parts.Go(func() error { return s.revocations.Run(work) })
	}
	if s.verifier != nil {
		parts.Go(func() error { return s.verifier.Run(work) })
	}
	if ops != nil {
		parts.Go(func() error {
			srv := process.NewServer(process.OpsHandler(s.o.Registry, s.readiness), s.log)
			cut, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a hanging scrape delays no end
			defer cancel()
			context.AfterFunc(work, func() { time.AfterFunc(lastWords, cancel) })
			return process.Serve(work, srv, ops, cut)
		})
	}
	parts.Go(func() error {
		defer stop()
		err := s.serve(ctx, work, mcp)
		s.writeTasks(ctx)
		return err
	})
	return orderly(parts.Wait())
}

// serve serves MCP on ln, which may be nil, until ctx ends and the drain is over, or a part fails.
func (s *Server) serve(ctx, failed context.Context, ln net.Listener) error {
	if ln == nil {
		select {
		case <-ctx.Done():
		case <-failed.Done():
		}
		s.beginDrain()
		return nil
	}
	accepting, stopAccepting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAccepting()
	cut, cutNow := context.WithCancel(context.WithoutCancel(ctx))
	defer cutNow()
	requests, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	srv := process.NewServer(s.endpoint, s.log)
	srv.BaseContext = func(net.Listener) context.Context { return requests }
	done := make(chan error, 1)
	go func() { done <- process.ServeLingering(accepting, srv, ln, cut, s.cfg.Drain.Delay) }()

	select {
	case err := <-done:
		return err
	case <-failed.Done():
		cutNow()
	case <-ctx.Done():
		s.drain(done, failed, stopAccepting, func() { end(call.ErrStopping) })
		cutNow()
	}
	stopAccepting()
	return <-done
}

func (s *Server) beginDrain() {
	s.drainBegan.Store(new(time.Now()))
	s.draining.Store(true)
}

// drain waits as Config.Drain says. It leaves what done brought in done.
func (s *Server) drain(done chan error, failed context.Context, stopAccepting, end func()) {
	s.beginDrain()
	s.log.Info("draining", zap.Duration("delay", s.cfg.Drain.Delay), zap.Duration("deadline", s.cfg.Drain.Deadline))
	over := func(d time.Duration) bool {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case err := <-done:
			done <- err
			return true
		case <-failed.Done():
			return true
		case <-t.C:
			return false
		}
	}
	if over(s.cfg.Drain.Delay) {
		return
	}
	stopAccepting()
	if over(s.cfg.Drain.Deadline) {
		return
	}
	s.log.Warn("drain deadline passed, ending what still runs")
	end()
	over(lastWords)
}

// report tells the control plane, through the store, what this dataplane serves.
func (s *Server) report(ctx context.Context) error {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		doc, err := json.Marshal(routes.DataplaneStatus{
			ID: s.name, Version: process.BuildVersion(), Started: s.started.UTC(), Time: time.Now().UTC(), Hosts: s.snapshots.Status(),
		})
		if err != nil {
			return fmt.Errorf("encode status: %w", err)
		}
		if err := s.reader.PutStatus(ctx, s.name, doc, statusTTL); err != nil && ctx.Err() == nil {
			s.log.Debug("status not stored", zap.Error(err)) // the follower says that the store is away
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.snapshots.Changed():
			select { // several hosts change at once, as a rule
			case <-ctx.Done():
				return nil
			case <-time.After(statusEvery / 10):
			}
		case <-tick.C:
		}
	}
}

func (s *Server) close() {
	s.backends.Close()
	if err := s.redis.Close(); err != nil {
		s.log.Debug("close redis", zap.Error(err))
	}
}

// orderly is nil for an end that was asked for.
func orderly(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
