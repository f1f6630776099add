package admin

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"

	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/routes"
)

// hostView is one published host in brief.
type hostView struct {
	ID                routes.HostID      `json:"id"`
	Version           routes.Version     `json:"version"`
	Backends          []routes.BackendID `json:"backends"` // in the order of the config
	Missing           []routes.BackendID `json:"missing,omitempty"`
	Tools             int                `json:"tools"`
	Prompts           int                `json:"prompts"`
	Resources         int                `json:"resources"`
	ResourceTemplates int                `json:"resourceTemplates"`
	ResourcePrefixes  int                `json:"resourcePrefixes,omitempty"`
}

func (a *API) hosts(w http.ResponseWriter, _ *http.Request) {
	views := []hostView{}
	for _, id := range slices.Sorted(maps.Keys(a.o.Published.Documents())) {
		doc, list, ok := a.o.Published.Host(id)
		if !ok {
			continue // removed meanwhile
		}
		views = append(views, hostView{
			ID: id, Version: doc.Version(), Backends: append([]routes.BackendID{}, doc.Order...), Missing: list.Missing,
			Tools: len(doc.Tools), Prompts: len(doc.Prompts), Resources: len(doc.Resources),
			ResourceTemplates: len(doc.ResourceTemplates), ResourcePrefixes: len(doc.ResourcePrefixes),
		})
	}
	answer(w, http.StatusOK, map[string]any{"virtualHosts": views})
}

func (a *API) host(w http.ResponseWriter, r *http.Request) {
	doc, _, ok := a.o.Published.Host(routes.HostID(chi.URLParam(r, "host")))
	if !ok {
		fail(w, http.StatusNotFound, "unknown_host", "no virtual host of this name is published")
		return
	}
	raw, err := routes.EncodeHost(doc)
	if err != nil {
		fail(w, http.StatusInternalServerError, "internal", "the document can't be encoded")
		return
	}
	answer(w, http.StatusOK, json.RawMessage(raw))
}

func (a *API) problems(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"problems": append([]compile.Problem{}, a.o.Problems()...)})
}
