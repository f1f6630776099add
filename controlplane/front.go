package controlplane

import (
	"context"
	"fmt"
	"net"
	"slices"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

// front is what a client's request passes before the lists: built from one config, replaced as a whole by the next one.
type front struct {
	endpoint *wire.Endpoint
	verifier *access.Verifier // nil: there is no auth
	// anonymous is everybody, where there is no auth.
	anonymous *access.Identity
}

// newFront checks what only using it can tell (key files, say). An auth block that did not change keeps its verifier, with the
// keys that it has: an identity provider that is away just now would otherwise lock everybody out at a reload.
func (s *Server) newFront(cfg *Config) (*front, error) {
	f := &front{}
	if old := s.front.Load(); old != nil && cfg.SameAuth(s.config.Load()) {
		f.verifier = old.verifier
	}
	o := wire.Options{
		Resolve:   s.lists.Resolve,
		Dispatch:  s.lists.Dispatch,
		PublicURL: cfg.PublicURL, AllowedOrigins: cfg.AllowedOrigins, AllowedHosts: cfg.AllowedHosts,
		Loopback: loopback(cfg.Listen),
		Scopes:   []string{"mcp:tools", "mcp:resources", "mcp:prompts", "mcp:tasks"},
		Draining: s.draining.Load,
		OnDone:   s.onDone,
		OnPanic: func(v any, stack []byte) {
			s.log.Error("request panicked", zap.Any("panic", v), zap.ByteString("stack", stack))
		},
	}
	if cfg.NoAuth {
		f.anonymous = access.Anonymous(AnonymousHost(cfg))
		o.Anonymous = f.anonymous
	} else {
		if f.verifier == nil {
			var err error
			if f.verifier, err = s.newVerifier(cfg); err != nil {
				return nil, err
			}
		}
		o.Auth = f.verifier
		for _, is := range cfg.Auth.Issuers {
			o.AuthServers = append(o.AuthServers, is.Issuer)
		}
	}
	var err error
	if f.endpoint, err = wire.NewEndpoint(o); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return f, nil
}

func (s *Server) newVerifier(cfg *Config) (*access.Verifier, error) {
	return access.New(access.Options{
		Config: cfg.Auth, Secret: cfg.HMACSecret, Revoked: s.revocations.Revoked, Confirm: s.revocations.Confirm,
		OnError: func(issuer string, err error) {
			s.log.Warn("keys not refreshed, the last good ones stay", zap.String("issuer", issuer), zap.Error(err))
		},
	})
}

// runAuth keeps the keys of the verifier in force fresh, until ctx ends.
func (s *Server) runAuth(ctx context.Context) error {
	if s.config.Load().NoAuth {
		return nil // no reload changes that
	}
	for ctx.Err() == nil {
		if err := s.runVerifier(ctx, s.front.Load().verifier); err != nil {
			return err
		}
	}
	return nil
}

// runVerifier runs one verifier until another one is in force, or ctx ends.
func (s *Server) runVerifier(ctx context.Context, v *access.Verifier) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- v.Run(ctx) }()
	for {
		select {
		case <-s.changed:
			if s.front.Load().verifier != v {
				cancel()
				<-done
				return nil
			}
		case err := <-done:
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// onDone writes one line a request, at debug, and counts it.
func (s *Server) onDone(sum wire.Summary) {
	s.requests.Observe(sum)
	if ce := s.log.Check(zap.DebugLevel, "request"); ce != nil {
		ce.Write(zap.String("host", string(sum.Host)), zap.String("method", sum.Method), zap.Int("status", sum.Status),
			zap.Int("code", sum.Code), zap.String("reason", sum.Reason), zap.Duration("took", sum.Duration), zap.Error(sum.Err))
	}
}

// loopback reports whether a listen address is bound to loopback only.
func loopback(listen string) bool {
	addr, err := net.ResolveTCPAddr("tcp", listen)
	return err == nil && process.IsLoopback(addr)
}

// AnonymousHost is the virtual host that everybody may use where there is no auth: "default", or else the first one.
func AnonymousHost(cfg *Config) routes.HostID {
	const name = "default"
	hosts := cfg.VirtualHosts
	if len(hosts) == 0 || slices.ContainsFunc(hosts, func(h config.VirtualHost) bool { return h.ID == name }) {
		return name
	}
	return hosts[0].ID
}
