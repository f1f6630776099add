package dataplane

import (
	"context"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
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
}

// Server is one dataplane.
type Server struct{}

// New wires a dataplane; it starts nothing.
func New(cfg *Config, o Options) (*Server, error) { panic("stub") }

// Run serves until ctx ends, then drains. It returns nil on an orderly end.
func (s *Server) Run(ctx context.Context) error { panic("stub") }

// Handler answers MCP. It works while Run runs.
func (s *Server) Handler() http.Handler { panic("stub") }

// Ready is closed once the dataplane serves.
func (s *Server) Ready() <-chan struct{} { panic("stub") }
