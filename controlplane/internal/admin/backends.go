package admin

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// backendView is one backend as operators see it.
type backendView struct {
	Name      routes.BackendID `json:"name"`
	URL       string           `json:"url,omitempty"`
	Source    string           `json:"source,omitempty"` // absent: the config file
	Health    string           `json:"health"`           // up, down, unknown
	LastError string           `json:"lastError,omitempty"`
	Checked   *time.Time       `json:"checked,omitempty"` // absent: never
	// DurationMs is how long the latest round took.
	DurationMs float64          `json:"durationMs,omitempty"`
	Protocol   string           `json:"protocol,omitempty"` // as negotiated; absent: it has never answered
	Era        string           `json:"era,omitempty"`      // modern, legacy
	Handshake  routes.Handshake `json:"handshake,omitempty"`
	// Taken is when the last complete round ended.
	Taken *time.Time          `json:"taken,omitempty"`
	Lists map[string]listView `json:"lists,omitempty"` // tools, prompts, resources, resourceTemplates
}

// listView is one list of a backend.
type listView struct {
	Items    int        `json:"items"`
	Rejected int        `json:"rejected,omitempty"` // of items: not published
	Stale    bool       `json:"stale,omitempty"`    // the last walk failed; the items are the last good ones
	Since    *time.Time `json:"since,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}

func (a *API) backends(w http.ResponseWriter, _ *http.Request) {
	catalogs, healths := a.o.Source.Snapshot()
	views := []backendView{}
	for _, b := range a.o.Config().Backends {
		views = append(views, viewBackend(&b, catalogs[b.ID], healths[b.ID]))
	}
	answer(w, http.StatusOK, map[string]any{"backends": views})
}

// viewBackend shows a backend; cat is nil where it has never answered, and h zero where it was never asked.
func viewBackend(b *config.Backend, cat *catalog.Catalog, h catalog.Health) backendView {
	v := backendView{Name: b.ID, URL: b.Route.URL, Source: b.Route.Source, Health: "unknown"}
	if !h.Checked.IsZero() {
		v.Health = "down"
		if h.Up {
			v.Health = "up"
		}
		v.LastError, v.Checked = h.LastError, timeOf(h.Checked)
		v.DurationMs = float64(h.Duration) / float64(time.Millisecond)
	}
	if cat == nil {
		return v
	}
	v.Protocol, v.Era, v.Handshake, v.Taken = cat.Protocol, "legacy", cat.Handshake, timeOf(cat.Taken)
	if wire.EraOf(cat.Protocol) == wire.Modern {
		v.Era = "modern"
	}
	v.Lists = map[string]listView{
		"tools": viewOf(&cat.Tools), "prompts": viewOf(&cat.Prompts),
		"resources": viewOf(&cat.Resources), "resourceTemplates": viewOf(&cat.ResourceTemplates),
	}
	return v
}

// backendDetail shows one backend, with what it says of itself and what is said of it.
func (a *API) backendDetail(w http.ResponseWriter, r *http.Request) {
	cfg := a.o.Config()
	b, ok := configuredBackend(cfg, w, r)
	if !ok {
		return
	}
	catalogs, healths := a.o.Source.Snapshot()
	cat := catalogs[b.ID]
	out := struct {
		backendView
		Pin          string            `json:"pin"`
		ServerInfo   json.RawMessage   `json:"serverInfo,omitempty"`
		Capabilities json.RawMessage   `json:"capabilities,omitempty"`
		VirtualHosts []routes.HostID   `json:"virtualHosts"` // of the config
		Problems     []compile.Problem `json:"problems"`
	}{backendView: viewBackend(b, cat, healths[b.ID]), Pin: cmp.Or(b.Pin, config.PinOff), VirtualHosts: []routes.HostID{}, Problems: []compile.Problem{}}
	if cat != nil {
		out.ServerInfo, out.Capabilities = cat.ServerInfo, cat.Capabilities
	}
	for _, vh := range cfg.VirtualHosts {
		if slices.ContainsFunc(vh.Backends, func(u config.HostBackend) bool { return u.Name == b.ID }) {
			out.VirtualHosts = append(out.VirtualHosts, vh.ID)
		}
	}
	slices.Sort(out.VirtualHosts)
	for _, p := range a.o.Problems() {
		if p.Backend == b.ID {
			out.Problems = append(out.Problems, p)
		}
	}
	answer(w, http.StatusOK, out)
}

// configuredBackend is the backend that a path names; false: there is none, and the refusal was sent.
func configuredBackend(cfg *config.Config, w http.ResponseWriter, r *http.Request) (*config.Backend, bool) {
	name := routes.BackendID(chi.URLParam(r, "name"))
	for i := range cfg.Backends {
		if cfg.Backends[i].ID == name {
			return &cfg.Backends[i], true
		}
	}
	fail(w, http.StatusNotFound, "unknown_backend", "no backend of this name is configured")
	return nil, false
}

func viewOf(l *catalog.List) listView {
	v := listView{Items: len(l.Items), Stale: l.Stale, Since: timeOf(l.Since), Reason: l.Reason}
	for i := range l.Items {
		if l.Items[i].Reject != "" {
			v.Rejected++
		}
	}
	return v
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (a *API) refresh(w http.ResponseWriter, r *http.Request) {
	name := routes.BackendID(chi.URLParam(r, "name"))
	if !a.o.Source.Refresh(name) {
		fail(w, http.StatusNotFound, "unknown_backend", "no backend of this name is configured")
		return
	}
	a.log.Info("refresh asked for", zap.String("backend", string(name)))
	answer(w, http.StatusAccepted, map[string]any{"backend": name, "refresh": "started"})
}
