package admin

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

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
	Held     *holdView         `json:"held,omitempty"`     // the host is held: Steps tell what config and backends say, which is not published
	Steps    []compile.Step    `json:"steps,omitempty"`    // what the rules make of the name now
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
	if err := a.explainSteps(r.Context(), &out, kind); err != nil {
		a.storeFailed(w, err)
		return
	}
	for _, p := range a.o.Problems() {
		if p.Subject == name && (p.Host == "" || p.Host == host) {
			out.Problems = append(out.Problems, p)
		}
	}
	answer(w, http.StatusOK, out)
}

// explainSteps tells what decided, one after the other, by the compiler's own rules on what is known now.
func (a *API) explainSteps(ctx context.Context, out *explanation, kind routes.Kind) error {
	cfg := a.o.Config()
	i := slices.IndexFunc(cfg.VirtualHosts, func(vh config.VirtualHost) bool { return vh.ID == out.Host })
	if i < 0 {
		return nil // it stands published, and is no more in this replica's config
	}
	host := &cfg.VirtualHosts[i]
	hold, _, err := a.holdOf(ctx, out.Host)
	if err != nil {
		return err
	}
	if hold != nil {
		out.Held = &holdView{hold.Version, hold.Since}
	}
	catalogs, _ := a.o.Source.Snapshot()
	in := compile.Input{Config: cfg, Catalogs: catalogs, Previous: a.o.Published.Documents(), Pins: map[routes.BackendID]*catalog.Pins{}}
	for _, b := range cfg.Backends {
		used := slices.ContainsFunc(host.Backends, func(u config.HostBackend) bool { return u.Name == b.ID })
		if !used || b.Pin == config.PinOff || b.Pin == "" {
			continue
		}
		if in.Pins[b.ID], _, err = a.pins(ctx, b.ID); err != nil {
			return err
		}
	}
	out.Steps = compile.For(in).Explain(host, kind, out.Name)
	return nil
}

// subject is what to explain: exactly one of tool, prompt, resource and template, and a host.
func subject(query map[string][]string) (kind routes.Kind, name string, err error) {
	found := 0
	for param, k := range map[string]routes.Kind{"tool": routes.KindTool, "prompt": routes.KindPrompt, "resource": routes.KindResource,
		"template": routes.KindResourceTemplate} {
		for _, v := range query[param] {
			kind, name = k, v
			found++
		}
	}
	if found != 1 || name == "" || len(query["host"]) != 1 {
		return 0, "", errors.New("give host=… and exactly one of tool=…, prompt=…, resource=… and template=…")
	}
	return kind, name, nil
}
