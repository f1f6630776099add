package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/controlplane/internal/history"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

const (
	before = `{"name":"x","description":"reads","inputSchema":{"type":"object"}}`
	now    = `{"name":"x","description":"sends","inputSchema":{"type":"object","required":["to"]}}`
)

func pinnedConfig() *config.Config {
	cfg := configured()
	cfg.Backends[0].Pin = config.PinBlock
	cfg.VirtualHosts = []config.VirtualHost{{ID: "acme", Backends: []config.HostBackend{{Name: "up"}}}}
	return cfg
}

// pinnedWorld has a backend whose tool x changed since it was approved, and a host with two revisions.
func pinnedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	items := func(raws ...string) (l catalog.List) {
		var in []json.RawMessage
		for _, r := range raws {
			in = append(in, json.RawMessage(r))
		}
		l.Items, l.Since = catalog.Items(catalog.Tools, in, nil), checked
		return l
	}
	w.catalogs["up"].ServerInfo = json.RawMessage(`{"name":"up","version":"2"}`)
	w.catalogs["up"].Tools = items(before)
	doc, err := catalog.EncodePins((*catalog.Pins)(nil).See(w.catalogs["up"]))
	if err != nil {
		t.Fatal(err)
	}
	w.catalogs["up"].Tools = items(now, `{"name":"y","inputSchema":{}}`)
	ctx := t.Context()
	l, err := w.store.Acquire(ctx, "leader", time.Minute, 0)
	if err != nil {
		t.Fatal(err)
	}
	hosts := []*routestest.HostBuilder{
		routestest.Host("acme").Tool("gh__old", "up", "old").Edit(func(vh *routes.VirtualHost) {
			b := vh.Backends["up"]
			b.AddHeaders = map[string]routes.SecretRef{"Authorization": "Bearer ${env:TOKEN}"}
			vh.Backends["up"] = b
		}),
		w.host,
	}
	for i, h := range hosts {
		change := h.Change(t, l, uint64(i+1))
		table, err := routes.EncodeHost(h.Document())
		if err != nil {
			t.Fatal(err)
		}
		if change.Archive, err = history.Pack(h.Document(), table, change.List); err != nil {
			t.Fatal(err)
		}
		if err := w.store.Publish(ctx, l, routes.Batch{Hosts: []routes.HostChange{change}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.store.Decide(ctx, history.PinsSubject("up"), "", doc); err != nil {
		t.Fatal(err)
	}
	return w
}

// send posts a body.
func send(a *API, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+adminToken)
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

func changesOf(t *testing.T, a *API) (v changesView) {
	t.Helper()
	got := ask(a, "GET /api/v1/backends/up/changes", "Bearer "+adminToken)
	if err := json.Unmarshal(got.Body.Bytes(), &v); err != nil || got.Code != 200 {
		t.Fatalf("changes: %d %s", got.Code, got.Body)
	}
	return v
}

func TestChangesAndApprove(t *testing.T) {
	d := described(t)
	w := pinnedWorld(t)
	api := newAPI(t, w, pinnedConfig())
	v := changesOf(t, api)
	if len(v.Tools) != 1 || v.Tools[0].Tool != "x" || v.Identity.Changed || v.Pin != "block" {
		t.Fatalf("changes %+v, want tool x", v)
	}
	var paths []string
	for _, diff := range v.Tools[0].Differences {
		paths = append(paths, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", diff.Path, diff.Approved, diff.Present)), " "))
	}
	if diff := cmp.Diff([]string{`/description "reads" "sends"`, `/inputSchema/required [ "to" ]`}, paths); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	for body, want := range map[string]struct {
		status int
		code   string
	}{
		`{"tools":["nobody"]}`:                {404, "unknown_tool"},
		`{"digest":"of another state"}`:       {409, "changed_meanwhile"},
		`{"tool":["x"]}`:                      {400, "bad_request"},
		`[]`:                                  {400, "bad_request"},
		`{`:                                   {400, "bad_request"},
		`{"tools":["x"],"tools":["nobody"]}`:  {400, "bad_request"},
		`{"tools":["x"]} and something after`: {400, "bad_request"},
	} {
		got := send(api, "/api/v1/backends/up/approve", body)
		if code := errorCode(t, got); got.Code != want.status || code != want.code {
			t.Errorf("%s: %d %s, want %d %s", body, got.Code, code, want.status, want.code)
		}
	}
	if len(changesOf(t, api).Tools) != 1 {
		t.Fatal("a refused request approved something")
	}
	got := send(api, "/api/v1/backends/up/approve", `{"tools":["x"],"digest":"`+v.Digest+`"}`)
	if got.Code != 200 || len(changesOf(t, api).Tools) != 0 {
		t.Errorf("approve: %d %s, then %+v", got.Code, got.Body, changesOf(t, api))
	}
	d.wantDescribed(t, "POST approve", "/api/v1/backends/{name}/approve", got.Body.Bytes(), "200")

	w.catalogs["up"].ServerInfo = json.RawMessage(`{"name":"another"}`)
	if v := changesOf(t, api); !v.Identity.Changed || v.Identity.Present.Name != "another" {
		t.Errorf("identity %+v, want it changed", v.Identity)
	}
	if got := send(api, "/api/v1/backends/up/approve", ""); got.Code != 200 || changesOf(t, api).Identity.Changed {
		t.Errorf("approve all: %d %s", got.Code, got.Body)
	}
	w.store.SetDown(true)
	if got := send(api, "/api/v1/backends/up/approve", ""); got.Code != 503 {
		t.Errorf("without a store: %d, want 503", got.Code)
	}
}

func TestRevisions(t *testing.T) {
	w := pinnedWorld(t)
	api := newAPI(t, w, pinnedConfig())
	got := ask(api, "GET /api/v1/virtual-hosts/acme/revisions/1", "Bearer "+adminToken)
	doc, err := routes.DecodeHost(got.Body.Bytes())
	if err != nil || doc.Revision != 1 || doc.Tools["gh__old"].Upstream != "old" {
		t.Errorf("revision 1: %d %s, %v", got.Code, got.Body, err)
	}
	diff := ask(api, "GET /api/v1/virtual-hosts/acme/revisions/1/diff", "Bearer "+adminToken)
	var d struct{ Difference history.Difference }
	if err := json.Unmarshal(diff.Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	want := history.Difference{
		Tools: history.Names{Added: []string{"gh__x"}, Removed: []string{"gh__old"}}, Resources: history.Names{Added: []string{"doc:///1"}},
		ResourceTemplates: history.Names{Added: []string{"doc:///{id}"}}, Backends: history.Names{Changed: []string{"up"}},
	}
	if diff := cmp.Diff(want, d.Difference); diff != "" {
		t.Errorf("difference (-want +got):\n%s", diff)
	}
	if strings.Contains(diff.Body.String(), "TOKEN") {
		t.Errorf("a difference tells of credentials: %s", diff.Body)
	}
	for path, status := range map[string]int{
		"/revisions/7": 404, "/revisions/x": 400, "/revisions/1/diff?to=7": 404, "/revisions/1/diff?to=2": 200, "/revisions/-1": 400,
	} {
		if got := ask(api, "GET /api/v1/virtual-hosts/acme"+path, "Bearer "+adminToken); got.Code != status {
			t.Errorf("%s: %d, want %d", path, got.Code, status)
		}
	}
}

func TestRollback(t *testing.T) {
	d := described(t)
	w := pinnedWorld(t)
	api := newAPI(t, w, pinnedConfig())
	const path = "/api/v1/virtual-hosts/acme/rollback"
	for body, status := range map[string]int{``: 400, `{}`: 400, `{"revision":-1}`: 400, `{"revision":"1"}`: 400, `{"revision":7}`: 404} {
		if got := send(api, path, body); got.Code != status {
			t.Errorf("%q: %d %s, want %d", body, got.Code, got.Body, status)
		}
	}
	if got := send(api, "/api/v1/virtual-hosts/nobody/rollback", `{"revision":1}`); got.Code != 404 {
		t.Errorf("unknown host: %d, want 404", got.Code)
	}
	got := send(api, path, `{"revision":1}`)
	d.wantDescribed(t, "POST rollback", "/api/v1/virtual-hosts/{host}/rollback", got.Body.Bytes(), "202")
	stored, _, err := w.store.Decision(t.Context(), history.HoldSubject("acme"))
	var hold history.Hold
	if err != nil || json.Unmarshal(stored, &hold) != nil || hold.Version.Revision != 1 {
		t.Fatalf("hold %s, %v; want revision 1", stored, err)
	}
	if doc, _, err := history.Unpack(hold.Archive); err != nil || doc.Tools["gh__old"].Upstream != "old" {
		t.Errorf("held document %+v, %v", doc, err)
	}
	shown := ask(api, "GET /api/v1/virtual-hosts/acme/revisions", "Bearer "+adminToken)
	if !strings.Contains(shown.Body.String(), `"held"`) {
		t.Errorf("revisions do not tell of the hold: %s", shown.Body)
	}
	if explained := ask(api, "GET /api/v1/explain?host=acme&tool=x", "Bearer "+adminToken); !strings.Contains(explained.Body.String(), `"held"`) {
		t.Errorf("explain does not tell of the hold: %s", explained.Body)
	}
	if got := send(api, path, `{"revision":0}`); got.Code != 202 {
		t.Errorf("resume: %d %s", got.Code, got.Body)
	}
	if _, _, err := w.store.Decision(t.Context(), history.HoldSubject("acme")); !errors.Is(err, routes.ErrNotPublished) {
		t.Errorf("the hold after resuming: %v, want none", err)
	}
}

func TestExplainTellsEachStep(t *testing.T) {
	api := newAPI(t, pinnedWorld(t), pinnedConfig())
	got := ask(api, "GET /api/v1/explain?host=acme&tool=x", "Bearer "+adminToken)
	var e explanation
	if err := json.Unmarshal(got.Body.Bytes(), &e); err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, s := range e.Steps {
		steps = append(steps, s.Step+" "+s.Outcome)
	}
	if diff := cmp.Diff([]string{"name passes", "pin stops"}, steps); diff != "" || e.Found {
		t.Errorf("found %v, steps (-want +got):\n%s", e.Found, diff)
	}
}
