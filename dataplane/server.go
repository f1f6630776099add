package dataplane

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/dataplane/internal/call"
	"github.com/weir-mcp/weir/dataplane/internal/config"
	"github.com/weir-mcp/weir/dataplane/internal/snapshot"
	"github.com/weir-mcp/weir/dataplane/internal/tasks"
	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/secret"
	"github.com/weir-mcp/weir/routes/wire"
)

// Options of a Server. The zero value is usable.
type Options struct {
	Log      *zap.Logger          // nil: nothing is logged
	Registry *prometheus.Registry // nil: one of its own
	// Stderr takes the ready line; nil: nobody is told.
	Stderr io.Writer
	// NoListeners leaves serving to the caller, through Handler (standalone).
	NoListeners bool
	// Delegate answers delegated methods instead of control_plane.url (standalone); nil: as configured.
	Delegate http.Handler
	// Internal answers the control plane's internal API in the place of control_plane.admin_url (standalone); control_plane.token is
	// sent to it all the same. Nil: as configured.
	Internal http.Handler
}

// Server is one dataplane. Run it once.
type Server struct {
	cfg     config.Config
	o       Options
	log     *zap.Logger
	name    string // in the status that it reports
	started time.Time

	redis     redis.UniversalClient
	reader    *redisstore.Reader
	snapshots *snapshot.Store
	verifier  *access.Verifier // nil: no auth, as is the next
	backends  *egress.Client
	tasks     *tasks.Book
	endpoint  *wire.Endpoint
	metrics   *metrics

	revocations *access.Revocations

	ready      chan struct{}
	draining   atomic.Bool
	drainBegan atomic.Pointer[time.Time] // set before draining
}

// New wires a dataplane, from the store to the endpoint; it starts nothing and connects nowhere. Its errors are mistakes in cfg,
// which is not used afterwards.
func New(cfg *Config, o Options) (*Server, error) {
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	return newServer(cfg, o, o.Registry)
}

func newServer(cfg *Config, o Options, reg prometheus.Registerer) (*Server, error) {
	s := &Server{cfg: *cfg, o: o, log: o.Log, started: time.Now(), ready: make(chan struct{})}
	if s.log == nil {
		s.log = zap.NewNop()
	}
	if err := s.cfg.Check(); err != nil {
		return nil, err
	}
	m, err := newMetrics(reg, !o.NoListeners)
	if err != nil {
		return nil, err
	}
	s.metrics = m
	if s.name, err = uniqueName(); err != nil {
		return nil, err
	}
	if s.redis, err = redisstore.Open(s.cfg.Redis); err != nil {
		return nil, err
	}
	store := redisstore.Options{Client: s.redis, Prefix: s.cfg.Redis.KeyPrefix, Observe: m.observeRedis, Outages: new(redisstore.Outages)}
	if s.reader, err = redisstore.NewReader(store); err != nil {
		return nil, err
	}
	if s.snapshots, err = snapshot.New(snapshot.Options{
		Reader: s.reader, Log: s.log.Named("snapshot"), Registerer: reg,
	}); err != nil {
		return nil, err
	}
	secrets, err := secret.NewResolver(s.cfg.Secrets)
	if err != nil {
		return nil, fmt.Errorf("secrets: %w", err)
	}
	if s.backends, err = egress.New(egress.Options{
		ResponseLimit: int64(s.cfg.Limits.Response), Expand: secrets.Expand, Name: "weir", Version: process.BuildVersion(),
		Breaker: &egress.BreakerOptions{OnChange: m.onCircuit(s.log.Named("circuit"))},
	}); err != nil {
		return nil, err
	}
	delegate, err := s.delegate()
	if err != nil {
		return nil, err
	}
	locator, err := s.newTasks(store, reg)
	if err != nil {
		return nil, err
	}
	handler, err := call.New(call.Options{
		Backends: s.backends, Log: s.log.Named("call"), Registerer: reg,
		Expand: secrets.Expand, HasReference: secret.HasReference, Delegate: delegate,
		Tasks: s.tasks, Locator: locator, Audit: s.log.Named("audit"),
		CallsPerPrincipal: s.cfg.Limits.CallsPerPrincipal, CallsPerBackend: s.cfg.Limits.CallsPerBackend,
		Public: s.cfg.NoAuth, Name: "weir", Version: process.BuildVersion(),
	})
	if err != nil {
		return nil, err
	}
	if !s.cfg.NoAuth {
		if s.revocations, err = s.newRevocations(reg); err != nil {
			return nil, err
		}
		if s.verifier, err = access.New(access.Options{
			Config: s.cfg.Auth, Client: egress.HTTPClient(egress.ClientOptions{}), Secret: s.cfg.HMACSecret,
			Revoked: s.revocations.Revoked, Confirm: s.revocations.Confirm,
			OnError: func(issuer string, err error) {
				s.log.Warn("keys not refreshed", zap.String("issuer", issuer), zap.Error(err))
			},
		}); err != nil {
			return nil, err
		}
	}
	s.endpoint, err = wire.NewEndpoint(s.endpointOptions(handler))
	return s, err
}

func (s *Server) endpointOptions(handler *call.Handler) wire.Options {
	o := wire.Options{
		Resolve:  s.snapshots.Get,
		Dispatch: handler.Dispatch,
		Limits: wire.Limits{
			Body: int64(s.cfg.Limits.Body), MCPHeaders: s.cfg.Limits.MCPHeaders,
			MCPHeaderValue: s.cfg.Limits.MCPHeaderValue, MCPHeadersTotal: s.cfg.Limits.MCPHeadersTotal,
		},
		PublicURL:      s.cfg.PublicURL,
		AllowedOrigins: s.cfg.AllowedOrigins,
		AllowedHosts:   s.cfg.AllowedHosts,
		Loopback:       loopback(s.cfg.Listen),
		Scopes:         []string{"mcp:tools", "mcp:resources", "mcp:prompts", "mcp:tasks"}, // as the control plane: one resource
		ClientInfo:     wire.Object{{Name: "name", Value: wire.Quote("weir")}, {Name: "version", Value: wire.Quote(process.BuildVersion())}}.Append(nil),
		Draining:       s.draining.Load,
		OnDone:         s.metrics.onDone(s.log.Named("http")),
		OnPanic: func(v any, stack []byte) {
			s.log.Error("panic while answering", zap.Any("panic", v), zap.ByteString("stack", stack))
		},
	}
	if s.cfg.NoAuth {
		o.Anonymous = access.Anonymous(s.cfg.NoAuthHost)
		return o
	}
	o.Auth, o.Recheck = s.verifier, s.recheck
	for _, i := range s.cfg.Auth.Issuers {
		o.AuthServers = append(o.AuthServers, i.Issuer)
	}
	return o
}

// delegate is the way to the control plane; nil where delegated methods are refused.
func (s *Server) delegate() (*call.Delegate, error) {
	limit := int64(s.cfg.Limits.Response)
	switch {
	case s.o.Delegate != nil:
		return &call.Delegate{
			Transport: handlerTransport{s.o.Delegate}, Base: &url.URL{Scheme: "http", Host: "control-plane"},
			KeepHost: true, ResponseLimit: limit,
		}, nil
	case s.cfg.DelegatedMethods != config.Forward:
		return nil, nil
	}
	base, err := url.Parse(s.cfg.ControlPlane.URL)
	if err != nil {
		return nil, fmt.Errorf("control_plane.url: %w", err)
	}
	client := egress.HTTPClient(egress.ClientOptions{TLS: s.cfg.ControlPlane.TLS}) // its time-out is the client's own, not the transport's
	return &call.Delegate{Transport: client.Transport, Base: base, ResponseLimit: limit}, nil
}

// Handler answers MCP. It works while Run runs.
func (s *Server) Handler() http.Handler { return s.endpoint }

// Ready is closed once Redis was reached and revocations are known: from then on known hosts are served, whatever becomes of
// Redis.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// loopback reports whether a listen address takes connections from this machine only.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// uniqueName tells this process from others on the same host, and from itself before a restart.
func uniqueName() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("host name: %w", err)
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return cmp.Or(host, "dataplane") + "-" + hex.EncodeToString(b[:]), nil
}
