// Package controlplane is Weir's control plane as a library: it discovers backends, compiles what each tenant may see, publishes
// it to Redis, and serves the lists.
package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/admin"
	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/controlplane/internal/discovery"
	"github.com/weir-mcp/weir/controlplane/internal/listing"
	"github.com/weir-mcp/weir/controlplane/internal/publish"
	"github.com/weir-mcp/weir/controlplane/internal/source"
	"github.com/weir-mcp/weir/controlplane/internal/tasks"
	"github.com/weir-mcp/weir/controlplane/internal/watch"
	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/secret"
)

// Options of a Server. The zero value is usable.
type Options struct {
	Log      *zap.Logger          // nil: nothing is logged
	Registry *prometheus.Registry // nil: a registry of the server's own
	// ConfigPath is read again on SIGHUP; empty: SIGHUP is not handled.
	ConfigPath string
	// Warnings are those of the config that New takes; they are shown as problems.
	Warnings []config.Warning
	// Stderr gets the ready line; nil: it is not written.
	Stderr io.Writer
	// Sources are kinds of discovery sources beside those that are always there (http), by the name that the config gives them.
	Sources map[string]source.Opener
	// NoListeners: the server opens no listener of its own; Handler and AdminHandler are served by somebody else.
	NoListeners bool
}

// Server is one control plane. Safe for concurrent use.
type Server struct {
	o   Options
	log *zap.Logger

	redis     redis.UniversalClient
	reader    *redisstore.Reader
	owners    *redisstore.Owners
	egress    *egress.Client
	sources   *source.Watcher
	discovery *discovery.Discoverer
	published *listing.Store
	publisher *publish.Controller
	lists     *listing.Server
	watch     *watch.Hub
	eviction  *eviction
	requests  *listing.Requests
	locator   *tasks.Locator
	admin     *admin.API

	revocations *access.Revocations

	reloading sync.Mutex // held while a config takes the place of another
	config    atomic.Pointer[Config]
	front     atomic.Pointer[front] // what depends on the config between a client and the lists
	changed   chan struct{}         // capacity 1: another front is in force

	applying  sync.Mutex             // held while config and sources are merged anew
	merged    atomic.Pointer[merged] // what they make together
	delivered chan struct{}          // capacity 1: a source has other backends
	problems  atomic.Pointer[[]compile.Problem]

	draining atomic.Bool
	ready    chan struct{}
}

// New checks cfg and builds the server; it starts nothing and connects to nothing. The parts are built in the order in which
// they depend on each other.
func New(cfg *Config, o Options) (_ *Server, err error) {
	s := &Server{o: o, log: cmp.Or(o.Log, zap.NewNop()), changed: make(chan struct{}, 1), delivered: make(chan struct{}, 1), ready: make(chan struct{})}
	if s.o.Registry == nil {
		s.o.Registry = prometheus.NewRegistry()
		s.o.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	s.config.Store(cfg)
	s.setProblems(o.Warnings)
	owner := ownerName()
	defer func() {
		if err != nil && s.redis != nil {
			err = errors.Join(err, s.redis.Close())
		}
	}()

	secrets, err := secret.NewResolver(secret.Policy{All: true}) // the operator's own file may refer to anything
	if err != nil {
		return nil, err
	}
	if s.egress, err = egress.New(egress.Options{Expand: secrets.Expand, Name: "weir", Version: process.BuildVersion()}); err != nil {
		return nil, err
	}
	if s.sources, err = s.newSources(secrets.Expand); err != nil {
		return nil, err
	}
	s.discovery, err = discovery.New(discovery.Options{
		Client: s.egress, Log: s.log.Named("discovery"), Registry: s.o.Registry,
		Changed: func(routes.BackendID) { s.publisher.Notify() },
	})
	if err != nil {
		return nil, err
	}

	if s.redis, err = redisstore.Open(cfg.Redis); err != nil {
		return nil, err
	}
	observe, err := storeMetrics(s.o.Registry)
	if err != nil {
		return nil, err
	}
	store := redisstore.Options{Client: s.redis, Prefix: cfg.Redis.KeyPrefix, Observe: observe, Outages: new(redisstore.Outages)}
	if s.reader, err = redisstore.NewReader(store); err != nil {
		return nil, err
	}
	s.eviction = &eviction{ask: s.reader.EvictionPolicy, log: s.log}
	writer, err := redisstore.NewWriter(store)
	if err != nil {
		return nil, err
	}

	if err := s.makeLocator(store); err != nil {
		return nil, err
	}
	if s.revocations, err = s.newRevocations(writer); err != nil {
		return nil, err
	}
	s.published, err = listing.NewStore(listing.StoreOptions{
		Changes: decisionFollower{s.reader, func() { s.publisher.Decided() }}, Hosts: s.reader, Catalogs: s.reader,
		Log: s.log.Named("listing"), Registry: s.o.Registry,
	})
	if err != nil {
		return nil, err
	}
	s.publisher, err = publish.New(publish.Options{
		Leases: writer, Documents: writer, Hosts: s.reader, Keys: s.reader, Catalogs: s.reader, Decisions: s.reader, Decider: writer,
		Source: s.discovery, Warm: s.published.Documents,
		Owner: owner, ServerVersion: process.BuildVersion(), Log: s.log.Named("publish"), Registry: s.o.Registry, Settle: settle,
	})
	if err != nil {
		return nil, err
	}
	listen, err := s.listenOptions()
	if err != nil {
		return nil, err
	}
	s.lists, err = listing.NewServer(listing.ServerOptions{
		Store: s.published, Backends: s.egress, Listen: listen, Public: cfg.NoAuth, Log: s.log.Named("listing"), Registry: s.o.Registry,
		PageSize: func() int { return s.config.Load().Listing.PageSize }, Tasks: s.taskOptions(),
	})
	if err != nil {
		return nil, err
	}
	if s.requests, err = listing.NewRequests(s.o.Registry); err != nil {
		return nil, err
	}
	s.admin, err = admin.New(admin.Options{
		Config: func() *Config { return s.merged.Load().config }, Source: s.discovery, Published: s.published, Board: s.reader, Problems: s.allProblems,
		Record: s.reader, Decider: writer,
		Revoker: writer, Revoked: s.revocations,
		Tasks: s.owners, Locator: s.locator, Callers: callers{s},
		Owner: owner, NotLeading: s.publisher.NotLeading, Log: s.log.Named("admin"),
	})
	if err != nil {
		return nil, err
	}
	f, err := s.newFront(cfg)
	if err != nil {
		return nil, err
	}
	s.use(cfg, f)
	if err := s.o.Registry.Register(newBackendMetrics(s.discovery.Snapshot, s.allProblems)); err != nil {
		return nil, err
	}
	return s, nil
}

// settle is how long discovery may take before the plane calls itself ready all the same.
const settle = 15 * time.Second

// Handler is the MCP endpoint. It answers 503 until something was read from Redis.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.front.Load().endpoint.ServeHTTP(w, r) })
}

// AdminHandler is the admin and internal API.
func (s *Server) AdminHandler() http.Handler { return s.admin }

// Ready is closed after the first discovery round (or 15 s) once everything was published and can be listed, and revocations are
// known.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// waitReady closes ready. A replica that does not lead is ready once it lists what the leader published; it waits longer, since
// it may be about to lead: the lease of a leader that died runs out first.
func (s *Server) waitReady(ctx context.Context) error {
	follower := time.NewTimer(settle)
	defer follower.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-s.publisher.Complete():
	case <-follower.C:
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !s.published.Complete() {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case <-s.revocations.Loaded():
	}
	close(s.ready)
	return nil
}

// readiness is what /readyz shows.
func (s *Server) readiness() (map[string]any, error) {
	state := s.publisher.State()
	detail := map[string]any{"leading": state.Leading, "redis": s.published.Reachable(), "problems": len(s.allProblems()),
		"revocations": s.revocations.Len()}
	if s.draining.Load() {
		return detail, errors.New("shutting down")
	}
	select {
	case <-s.ready:
		return detail, nil
	default:
		return detail, errors.New("the first round of discovery is not published yet")
	}
}

// allProblems are those of the config, of its sources, then those of compiling and publishing.
func (s *Server) allProblems() []compile.Problem {
	return slices.Concat(*s.problems.Load(), s.eviction.problems(), s.sources.Problems(), s.merged.Load().problems, s.publisher.State().Problems)
}

// ownerName tells processes apart in the lease, also those that restart under one name.
func ownerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), randomSuffix())
}
