package admin

import (
	"encoding/json"
	"errors"
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

// explanation says where a call would go, or why not.
type explanation struct {
	Host     routes.HostID     `json:"host"`
	Version  routes.Version    `json:"version"`
	Kind     string            `json:"kind"`
	Name     string            `json:"name"`
	Found    bool              `json:"found"`
	Backend  routes.BackendID  `json:"backend,omitempty"`
	Upstream string            `json:"upstream,omitempty"`
	URL      string            `json:"url,omitempty"`
	Protocol string            `json:"protocol,omitempty"`
	Step     string            `json:"step,omitempty"` // exact, template, prefix
	Rule     string            `json:"rule,omitempty"`
	Reason   string            `json:"reason,omitempty"` // why nothing was found
	Tried    []attempt         `json:"tried,omitempty"`
	Problems []compile.Problem `json:"problems,omitempty"` // that name this host and this name
}

type attempt struct {
	Rule    string           `json:"rule"`
	Backend routes.BackendID `json:"backend"`
	Outcome string           `json:"outcome"`
}

func (a *API) explain(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	kind, name, err := subject(query)
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	host := routes.HostID(query.Get("host"))
	ix := a.o.Published.Index(host)
	if ix == nil {
		fail(w, http.StatusNotFound, "unknown_host", "no virtual host of this name is published")
		return
	}
	e := ix.Explain(kind, name)
	out := explanation{
		Host: host, Version: ix.Host().Version(), Kind: kind.String(), Name: name, Found: e.Target.Backend != nil,
		Backend: e.Target.ID, Upstream: e.Target.Upstream, Step: e.Step, Rule: e.Rule, Reason: e.Reason,
	}
	if b := e.Target.Backend; b != nil {
		out.URL, out.Protocol = b.URL, b.Protocol
	}
	for _, t := range e.Tried {
		out.Tried = append(out.Tried, attempt(t))
	}
	for _, p := range a.o.Problems() {
		if p.Subject == name && (p.Host == "" || p.Host == host) {
			out.Problems = append(out.Problems, p)
		}
	}
	answer(w, http.StatusOK, out)
}

// subject is what to explain: exactly one of tool, prompt and resource, and a host.
func subject(query map[string][]string) (kind routes.Kind, name string, err error) {
	found := 0
	for param, k := range map[string]routes.Kind{"tool": routes.KindTool, "prompt": routes.KindPrompt, "resource": routes.KindResource} {
		for _, v := range query[param] {
			kind, name = k, v
			found++
		}
	}
	if found != 1 || name == "" || len(query["host"]) != 1 {
		return 0, "", errors.New("give host=… and exactly one of tool=…, prompt=… and resource=…")
	}
	return kind, name, nil
}
