// Package controlplane is Weir's control plane as a library: it discovers backends, compiles what each tenant may see, publishes
// it to Redis, and serves the lists.
package controlplane

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Options of a Server.
type Options struct {
	Log      *zap.Logger          // nil: nothing is logged
	Registry *prometheus.Registry // nil: a registry of the server's own
	// ConfigPath is read again on SIGHUP; empty: SIGHUP is not handled.
	ConfigPath string
	// Stderr gets the ready line; nil: it is not written.
	Stderr io.Writer
	// NoListeners: the server opens no listener of its own; Handler and AdminHandler are served by somebody else.
	NoListeners bool
}

// Server is one control plane. Safe for concurrent use.
type Server struct{}

// New checks cfg and builds the server; it starts nothing.
func New(cfg *Config, o Options) (*Server, error) {
	return nil, errors.New("controlplane: not built yet")
}

// Run blocks until ctx ends or a part fails; everything that it started has ended when it returns.
func (s *Server) Run(ctx context.Context) error { return errors.New("controlplane: not built yet") }

// Handler is the MCP endpoint.
func (s *Server) Handler() http.Handler { return http.NotFoundHandler() }

// AdminHandler is the admin and internal API.
func (s *Server) AdminHandler() http.Handler { return http.NotFoundHandler() }

// Reload takes a new config, as SIGHUP does after reading the file.
func (s *Server) Reload(cfg *Config) {}

// Ready is closed after the first discovery round (or 15 s) once everything was published.
func (s *Server) Ready() <-chan struct{} { return nil }
