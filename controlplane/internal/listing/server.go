package listing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

const (
	// defaultTTL is the ttlMs of a list whose backends say nothing: about what a publish takes. Clients that do not listen learn of a
	// change by asking again.
	defaultTTL = time.Second
	// discoverTTL is the ttlMs of server/discover, as the dataplane answers it: capabilities change when a backend joins or leaves.
	discoverTTL = time.Minute
)

// ServerOptions of a Server.
type ServerOptions struct {
	Store *Store
	// Backends makes the calls of completion/complete and of a legacy tasks/list; nil: these methods are not served.
	Backends Backends
	Listen   ListenOptions
	Tasks    TaskOptions
	// PageSize is how many items a page of a list has at most; it is asked for each. Nil, zero and less mean 1000.
	PageSize func() int
	// Public: results are the same for every caller, since there is no auth. False: cacheScope is private.
	Public   bool
	Log      *zap.Logger
	Registry prometheus.Registerer // nil: nothing is counted
}

// Server answers the control plane's methods. Safe for concurrent use.
type Server struct {
	store       *Store
	backends    Backends // nil: there are none
	pageSize    func() int
	slots       *slots
	tasks       TaskOptions
	taskLists   *slots
	completions *prometheus.CounterVec
	listeners   *listeners
	cacheScope  string
	log         *zap.Logger
}

// NewServer checks the options; it starts nothing.
func NewServer(o ServerOptions) (*Server, error) {
	if o.Store == nil {
		return nil, errors.New("listing: Store is required")
	}
	s := &Server{store: o.Store, backends: o.Backends, pageSize: pageSize(o.PageSize), cacheScope: "private", log: o.Log,
		slots: newSlots(completionsPerPrincipal, completionsPerBackend), tasks: o.Tasks, taskLists: newSlots(taskListsPerPrincipal, taskListsInAll)}
	if o.Public {
		s.cacheScope = "public"
	}
	if s.log == nil {
		s.log = zap.NewNop()
	}
	s.listeners = newListeners(o.Listen)
	swapped := s.listeners.swapped
	s.store.observer.Store(&swapped)
	if err := s.register(o.Registry); err != nil {
		return nil, fmt.Errorf("listing: %w", err)
	}
	return s, nil
}

// pageSize gives sizes their default.
func pageSize(of func() int) func() int {
	return func() int {
		if of != nil {
			if n := of(); n > 0 {
				return n
			}
		}
		return defaultPageSize
	}
}

// Resolve finds a host's table: wire.Options.Resolve.
func (s *Server) Resolve(_ context.Context, id routes.HostID) (*routes.Index, error) {
	v, err := s.store.view(id)
	if err != nil {
		return nil, err
	}
	ix, err := v.index()
	if err != nil { // the store takes valid documents only
		s.log.Error("table not built", zap.String("host", string(id)), zap.Error(err))
		return nil, routes.ErrUnavailable
	}
	return ix, nil
}

// Dispatch answers one request or notification: wire.Options.Dispatch.
func (s *Server) Dispatch(w *wire.Response, r *wire.Request) {
	if r.ID == nil {
		w.Accepted()
		return
	}
	if r.Method == "completion/complete" {
		s.complete(w, r)
		return
	}
	if r.Method == "subscriptions/listen" && r.Era == wire.Modern {
		s.listen(w, r)
		return
	}
	result, err := s.answer(r)
	if err != nil {
		w.Fail(err)
		return
	}
	w.Result(result)
}

func (s *Server) answer(r *wire.Request) (json.RawMessage, *wire.Error) {
	v, err := s.store.view(r.Index.Host().ID)
	if err != nil { // removed since Resolve
		return nil, wire.Internal("", "")
	}
	if m, ok := listMethodOf(r.Method); ok {
		return s.list(v, m, r)
	}
	switch r.Method {
	case "server/discover":
		if r.Era == wire.Modern {
			return s.discover(v.doc), nil
		}
	case "initialize":
		if r.Era == wire.Legacy {
			return initialize(v.doc, r.Params)
		}
	case "ping":
		if r.Era == wire.Legacy {
			return empty, nil
		}
	case "logging/setLevel":
		if r.Era == wire.Legacy {
			return setLevel(v.doc, r.Params)
		}
	case "resources/subscribe", "resources/unsubscribe":
		if r.Era == wire.Legacy {
			return subscribe(r)
		}
	case "tasks/list":
		if hasTaskMethod(r) {
			return s.listTasks(v, r)
		}
	case "tasks/get", "tasks/update", "tasks/cancel", "tasks/result":
		if hasTaskMethod(r) {
			return nil, servedByDataplane(r)
		}
	case "tools/call", "prompts/get", "resources/read":
		return nil, servedByDataplane(r)
	}
	return nil, notServed(r)
}

func servedByDataplane(r *wire.Request) *wire.Error {
	return wire.InvalidRequest(r.Method + " is served by the dataplane")
}

// notServed refuses a method.
func notServed(r *wire.Request) *wire.Error {
	e := wire.MethodNotFound()
	if r.Method == "initialize" { // of a modern client: the message may be all that its user sees (2026-07-28, basic/versioning)
		e.Message = "method not found: " + r.Version + " has no handshake; served versions: " + strings.Join(wire.Versions, ", ")
	}
	return e
}
