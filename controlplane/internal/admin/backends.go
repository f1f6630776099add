package admin

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
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
		v := backendView{Name: b.ID, URL: b.Route.URL, Source: b.Route.Source, Health: "unknown"}
		if h, ok := healths[b.ID]; ok && !h.Checked.IsZero() {
			v.Health = "down"
			if h.Up {
				v.Health = "up"
			}
			v.LastError, v.Checked = h.LastError, timeOf(h.Checked)
			v.DurationMs = float64(h.Duration) / float64(time.Millisecond)
		}
		if cat := catalogs[b.ID]; cat != nil {
			v.Protocol, v.Era, v.Handshake, v.Taken = cat.Protocol, "legacy", cat.Handshake, timeOf(cat.Taken)
			if wire.EraOf(cat.Protocol) == wire.Modern {
				v.Era = "modern"
			}
			v.Lists = map[string]listView{
				"tools": viewOf(&cat.Tools), "prompts": viewOf(&cat.Prompts),
				"resources": viewOf(&cat.Resources), "resourceTemplates": viewOf(&cat.ResourceTemplates),
			}
		}
		views = append(views, v)
	}
	answer(w, http.StatusOK, map[string]any{"backends": views})
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
