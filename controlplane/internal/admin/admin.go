package admin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// Source is what is known of backends; *discovery.Discoverer has it.
type Source interface {
	Snapshot() (map[routes.BackendID]*catalog.Catalog, map[routes.BackendID]catalog.Health)
	Refresh(id routes.BackendID) bool
}

// Published is what stands published, as this replica last read it; *listing.Store has it.
type Published interface {
	Documents() map[routes.HostID]*routes.VirtualHost
	Host(id routes.HostID) (*routes.VirtualHost, *routes.HostList, bool)
	Index(id routes.HostID) *routes.Index
}

// Board is what other processes say of themselves; *redisstore.Reader has it.
type Board interface {
	Statuses(ctx context.Context) (map[string][]byte, error)
	Leader(ctx context.Context) (owner string, epoch uint64, err error)
}

// Options of an API.
type Options struct {
	// Config returns the config in force. Its tokens are asked for on every request; an empty one refuses everything.
	Config    func() *config.Config
	Source    Source
	Published Published
	Board     Board
	Record    Record
	Decider   Decider
	Revoker   Revoker
	Revoked   Revoked
	Tasks     Tasks
	Locator   Locator
	Callers   Callers
	Problems  func() []compile.Problem
	Owner     string // of this replica's lease
	// NotLeading returns why this replica does not hold the lease; nil: nothing is said of it.
	NotLeading func() error
	Log        *zap.Logger
}

// API is the http.Handler of admin_listen. Safe for concurrent use.
type API struct {
	o       Options
	log     *zap.Logger
	handler http.Handler
	table   chi.Routes // of handler
}

// New checks the options; it starts nothing.
func New(o Options) (*API, error) {
	if o.Config == nil || o.Source == nil || o.Published == nil || o.Board == nil || o.Revoker == nil || o.Revoked == nil || o.Problems == nil {
		return nil, errors.New("admin: Config, Source, Published, Board, Revoker, Revoked and Problems are required")
	}
	if o.Record == nil || o.Decider == nil {
		return nil, errors.New("admin: Record and Decider are required")
	}
	if o.Tasks == nil || o.Locator == nil || o.Callers == nil {
		return nil, errors.New("admin: Tasks, Locator and Callers are required")
	}
	a := &API{o: o, log: cmp.Or(o.Log, zap.NewNop())}
	a.table = a.routes()
	a.handler = a.table.(http.Handler)
	return a, nil
}

// ServeHTTP serves the API.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// routes is the whole API, readable in one place.
func (a *API) routes() chi.Routes {
	root := chi.NewRouter()
	root.NotFound(notFound)
	root.MethodNotAllowed(notAllowed)
	root.Mount("/api/v1", a.guarded("admin.token", func() config.Token { return a.o.Config().Admin }, func(r chi.Router) {
		r.Get("/backends", a.backends)
		r.Get("/backends/{name}", a.backendDetail)
		r.Post("/backends/{name}/refresh", a.refresh)
		r.Get("/backends/{name}/changes", a.changes)
		r.Post("/backends/{name}/approve", a.approve)
		r.Get("/virtual-hosts", a.hosts)
		r.Get("/virtual-hosts/{host}", a.host)
		r.Get("/virtual-hosts/{host}/revisions", a.revisions)
		r.Get("/virtual-hosts/{host}/revisions/{revision}", a.revision)
		r.Get("/virtual-hosts/{host}/revisions/{revision}/diff", a.difference)
		r.Post("/virtual-hosts/{host}/rollback", a.rollback)
		r.Get("/openapi.json", a.openAPI)
		r.Get("/problems", a.problems)
		r.Get("/dataplanes", a.dataplanes)
		r.Get("/leases", a.leases)
		r.Get("/explain", a.explain)
		r.Get("/tasks", a.tasks)
		r.Get("/revocations", a.revocations)
		r.Post("/revocations", a.revoke)
	}))
	root.Mount("/internal/v1", a.guarded("internal.token", func() config.Token { return a.o.Config().Internal }, func(r chi.Router) {
		r.Post("/tasks/locate", a.locate)
	}))
	return root
}

// guarded checks the bearer token before anything else. field is where the token stands in the config.
func (a *API) guarded(field string, token func() config.Token, routes func(chi.Router)) http.Handler {
	r := chi.NewRouter()
	r.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			want := token().Value
			if want == "" {
				fail(w, http.StatusForbidden, "no_token_configured", "this API is closed: "+field+" is not set in the control plane's config")
				return
			}
			if !bearer(r, want) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="weir admin"`)
				fail(w, http.StatusUnauthorized, "unauthorized", "the bearer token of "+field+" is required")
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	r.NotFound(notFound)
	r.MethodNotAllowed(notAllowed)
	routes(r)
	return r
}

// bearer compares in constant time, digests rather than texts, so that the length doesn't show either.
func bearer(r *http.Request, want string) bool {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return false
	}
	scheme, got, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	a, b := sha256.Sum256([]byte(strings.TrimLeft(got, " "))), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	fail(w, http.StatusNotFound, "not_found", "no such endpoint; docs/admin-api.md lists them")
}

func notAllowed(w http.ResponseWriter, _ *http.Request) {
	fail(w, http.StatusMethodNotAllowed, "method_not_allowed", "this endpoint does not take this method")
}

// failure is the body of every error.
type failure struct {
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func fail(w http.ResponseWriter, status int, code, message string) {
	var f failure
	f.Error.Code, f.Error.Message = code, message
	answer(w, status, f)
}

func answer(w http.ResponseWriter, status int, body any) {
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false) // people read it
	enc.SetIndent("", "  ")
	if err := enc.Encode(body); err != nil {
		status = http.StatusInternalServerError
		doc.Reset()
		doc.WriteString(`{"error":{"code":"internal","message":"the answer can't be encoded"}}` + "\n")
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(doc.Bytes()) // the client left: nobody to tell
}
