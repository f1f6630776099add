package controlplane

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-mcp/weir/controlplane/internal/publish"
	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes"
)

const (
	// drain is how long running requests may take after the end was asked for.
	drain = 5 * time.Second
	// linger is how long a connection that a dataplane or a front door keeps alive stays open then, so that no list is lost in it.
	linger = 2 * time.Second
)

// Run serves until ctx ends or a part fails; everything that it started has ended when it returns. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	defer s.egress.Close()
	defer func() {
		if err := s.redis.Close(); err != nil {
			s.log.Warn("Redis client not closed", zap.Error(err))
		}
	}()
	listeners, err := s.listen()
	if err != nil {
		return err
	}

	g, ctx := errgroup.WithContext(ctx)
	var parts sync.WaitGroup // everything but the ops listener, which outlives the rest
	part := func(f func(context.Context) error) {
		parts.Add(1)
		g.Go(func() error {
			defer parts.Done()
			return f(ctx)
		})
	}
	cut, cutAll := context.WithCancel(context.WithoutCancel(ctx))
	defer cutAll()
	stopOps, opsStopped := context.WithCancel(context.WithoutCancel(ctx))
	defer opsStopped()

	part(s.sources.Run)
	part(s.followSources)
	part(s.discover)
	part(s.published.Run)
	part(s.publisher.Run)
	part(s.watch.Run)
	part(s.runAuth)
	part(s.revocations.Run)
	part(s.eviction.run)
	part(s.waitReady)
	part(s.reloadOnHangup)
	part(func(ctx context.Context) error { return s.drain(ctx, cutAll) })
	if listeners != nil {
		mcp := process.NewServer(s.Handler(), s.log)
		adm := process.NewServer(s.AdminHandler(), s.log)
		ops := process.NewServer(process.OpsHandler(s.o.Registry, s.readiness), s.log)
		part(func(ctx context.Context) error { return process.ServeLingering(ctx, mcp, listeners.mcp, cut, linger) })
		part(func(ctx context.Context) error { return process.Serve(ctx, adm, listeners.admin, cut) })
		part(func(ctx context.Context) error { return s.sayReady(ctx, listeners) })
		g.Go(func() error { return process.Serve(stopOps, ops, listeners.ops, cut) })
	}
	g.Go(func() error { parts.Wait(); opsStopped(); return nil })
	return g.Wait()
}

// discover begins with the catalogs that stand in Redis, if it can be reached, so that a backend that is down keeps its routes.
func (s *Server) discover(ctx context.Context) error {
	var ids []routes.BackendID
	for _, b := range s.config.Load().Backends {
		ids = append(ids, b.ID)
	}
	if cats, err := publish.ReadCatalogs(ctx, s.reader, ids, s.log); err != nil {
		s.log.Warn("stored catalogs not read, discovery begins without", zap.Error(err))
	} else if len(cats) > 0 {
		s.discovery.Seed(cats)
	}
	return s.discovery.Run(ctx)
}

// drain marks the end for readiness and lets running requests have their time.
func (s *Server) drain(ctx context.Context, cut func()) error {
	<-ctx.Done()
	s.draining.Store(true)
	s.Drain()
	time.AfterFunc(drain, cut) // harmless when everything has ended before
	return nil
}

// listeners are the plane's own.
type listeners struct{ mcp, admin, ops net.Listener }

// listen opens them; nil without an error where somebody else serves.
func (s *Server) listen() (*listeners, error) {
	if s.o.NoListeners {
		return nil, nil
	}
	cfg := s.config.Load()
	var l listeners
	for _, one := range []struct {
		name string
		addr string
		tls  process.ListenTLS
		into *net.Listener
	}{
		{"listen", cfg.Listen, cfg.TLS, &l.mcp},
		{"admin_listen", cfg.AdminListen, cfg.TLS, &l.admin},
		{"ops_listen", cfg.OpsListen, process.ListenTLS{}, &l.ops},
	} {
		ln, err := process.ListenReporting(one.addr, one.tls, process.ReloadLogger(s.log, one.name))
		if err != nil {
			for _, opened := range []net.Listener{l.mcp, l.admin, l.ops} {
				if opened != nil {
					_ = opened.Close() // nothing was accepted yet
				}
			}
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		*one.into = ln
	}
	return &l, nil
}

// sayReady writes the ready line.
func (s *Server) sayReady(ctx context.Context, l *listeners) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.ready:
	}
	s.log.Info("ready", zap.Stringer("listen", l.mcp.Addr()), zap.Stringer("admin", l.admin.Addr()), zap.Stringer("ops", l.ops.Addr()))
	if s.o.Stderr != nil {
		if _, err := fmt.Fprintf(s.o.Stderr, "ready listen=%s admin=%s ops=%s\n", l.mcp.Addr(), l.admin.Addr(), l.ops.Addr()); err != nil {
			s.log.Warn("ready line not written", zap.Error(err))
		}
	}
	return nil
}

// reloadOnHangup reads the config file again on SIGHUP.
func (s *Server) reloadOnHangup(ctx context.Context) error {
	if s.o.ConfigPath == "" {
		return nil
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
			s.reloadFile(ctx)
		}
	}
}

func randomSuffix() string {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
