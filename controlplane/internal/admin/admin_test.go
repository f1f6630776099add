package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/controlplane/internal/tasks"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	adminToken    = "admin-token-0123456789-0123456789"
	internalToken = "internal-token-0123456789-0123456"
)

// world is everything that the API looks at.
type world struct {
	catalogs  map[routes.BackendID]*catalog.Catalog
	healths   map[routes.BackendID]catalog.Health
	refreshed []routes.BackendID
	host      *routestest.HostBuilder
	boardErr  error
	store     *routestest.Memory
	revoked   []routes.Revocation
	revokeErr error
	located   []tasks.Query
	found     tasks.Outcome
	callerErr error
	hostErr   error
}

func (w *world) Snapshot() (map[routes.BackendID]*catalog.Catalog, map[routes.BackendID]catalog.Health) {
	return w.catalogs, w.healths
}

func (w *world) Refresh(id routes.BackendID) bool {
	w.refreshed = append(w.refreshed, id)
	return id == "up"
}

func (w *world) Documents() map[routes.HostID]*routes.VirtualHost {
	return map[routes.HostID]*routes.VirtualHost{"acme": w.host.Document()}
}

func (w *world) Host(id routes.HostID) (*routes.VirtualHost, *routes.HostList, bool) {
	if id != "acme" {
		return nil, nil, false
	}
	list := w.host.List()
	list.Missing = []routes.BackendID{"never"}
	return w.host.Document(), list, true
}

func (w *world) Index(id routes.HostID) *routes.Index {
	if id != "acme" {
		return nil
	}
	ix, err := routes.NewIndex(w.host.Document())
	if err != nil {
		panic(err)
	}
	return ix
}

func (w *world) Statuses(context.Context) (map[string][]byte, error) {
	return map[string][]byte{"d2": []byte(`{"id":"d2"}`), "d1": []byte(`{"id":"d1","hosts":{}}`), "torn": []byte(`{`)}, w.boardErr
}

func (w *world) Leader(context.Context) (string, uint64, error) { return "me", 7, w.boardErr }

var checked = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func newWorld() *world {
	return &world{
		store: routestest.NewMemory(),
		catalogs: map[routes.BackendID]*catalog.Catalog{"up": {
			Backend: "up", Protocol: "2025-11-25", Handshake: routes.HandshakeRequired, Taken: checked,
			Tools:   catalog.List{Items: []catalog.Item{{Name: "x"}, {Name: "bad", Reject: "no"}}},
			Prompts: catalog.List{Stale: true, Since: checked, Reason: "timeout"},
		}},
		healths: map[routes.BackendID]catalog.Health{
			"up":   {Up: true, Checked: checked, Duration: 1500 * time.Microsecond},
			"down": {Checked: checked, LastError: "connection refused"},
		},
		host: routestest.Host("acme").Tool("gh__x", "up", "x").Resource("doc:///1", "up").Template("doc:///{id}", "up").
			Edit(func(vh *routes.VirtualHost) { vh.Incarnation, vh.Epoch, vh.Revision = "i", 3, 9 }),
	}
}

func newAPI(t *testing.T, w *world, cfg *config.Config) *API {
	t.Helper()
	a, err := New(Options{
		Config: func() *config.Config { return cfg }, Source: w, Published: w, Board: w, Record: w.store, Decider: w.store, Revoker: w, Revoked: w, Tasks: w.store, Locator: w, Callers: w, Owner: "me",
		Problems: func() []compile.Problem {
			return []compile.Problem{
				{Code: "name_taken", Host: "acme", Backend: "b", Subject: "gh__y", Text: "taken"},
				{Code: "backend_down", Backend: "down", Text: "connection refused"},
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func configured() *config.Config {
	return &config.Config{
		Admin: config.Token{Value: adminToken}, Internal: config.Token{Value: internalToken},
		Backends: []config.Backend{
			{ID: "up", Route: routes.Backend{URL: "http://up.example/mcp?a=1&b=2"}}, {ID: "down", Route: routes.Backend{URL: "http://down.example/mcp"}},
			{ID: "new", Route: routes.Backend{URL: "http://new.example/mcp"}},
		},
	}
}

// ask sends "METHOD PATH" with an Authorization header, "" for none.
func ask(a http.Handler, request, auth string) *httptest.ResponseRecorder {
	method, path, _ := strings.Cut(request, " ")
	r := httptest.NewRequest(method, path, nil)
	if auth != "" {
		r.Header.Set("Authorization", auth)
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

func errorCode(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var f failure
	if err := json.Unmarshal(w.Body.Bytes(), &f); err != nil || f.Error.Message == "" {
		t.Errorf("body is no error with a message: %v: %s", err, w.Body)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
	return f.Error.Code
}

func TestClosedByDefault(t *testing.T) {
	open, closed := newAPI(t, newWorld(), configured()), newAPI(t, newWorld(), &config.Config{})
	for name, tt := range map[string]struct {
		api           *API
		request, auth string
		status        int
		code          string
	}{
		"no token sent":                {open, "GET /api/v1/backends", "", 401, "unauthorized"},
		"a wrong one":                  {open, "GET /api/v1/backends", "Bearer wrong", 401, "unauthorized"},
		"a prefix of it":               {open, "GET /api/v1/backends", "Bearer " + adminToken[:31], 401, "unauthorized"},
		"another scheme":               {open, "GET /api/v1/backends", "Basic " + adminToken, 401, "unauthorized"},
		"the internal one":             {open, "GET /api/v1/backends", "Bearer " + internalToken, 401, "unauthorized"},
		"the admin one, internal API":  {open, "POST /internal/v1/tasks/locate", "Bearer " + adminToken, 401, "unauthorized"},
		"unknown path, no token":       {open, "GET /api/v1/nothing", "", 401, "unauthorized"},
		"unknown path":                 {open, "GET /api/v1/nothing", "Bearer " + adminToken, 404, "not_found"},
		"outside":                      {open, "GET /", "Bearer " + adminToken, 404, "not_found"},
		"wrong method":                 {open, "DELETE /api/v1/backends", "Bearer " + adminToken, 405, "method_not_allowed"},
		"none configured":              {closed, "GET /api/v1/backends", "Bearer " + adminToken, 403, "no_token_configured"},
		"none configured, empty token": {closed, "GET /api/v1/backends", "Bearer ", 403, "no_token_configured"},
		"none configured, none sent":   {closed, "GET /api/v1/problems", "", 403, "no_token_configured"},
		"none configured, internal":    {closed, "POST /internal/v1/tasks/locate", "Bearer ", 403, "no_token_configured"},
	} {
		w := ask(tt.api, tt.request, tt.auth)
		if got := errorCode(t, w); w.Code != tt.status || got != tt.code {
			t.Errorf("%s: %d %s, want %d %s", name, w.Code, got, tt.status, tt.code)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/api/v1/backends", nil)
	r.Header = http.Header{"Authorization": {"Bearer " + adminToken, "Bearer x"}}
	w := httptest.NewRecorder()
	open.ServeHTTP(w, r)
	if w.Code != 401 {
		t.Errorf("two Authorization headers: %d, want 401", w.Code)
	}
}

func TestAnswers(t *testing.T) {
	w := newWorld()
	cfg := configured()
	for _, id := range []routes.HostID{"initech", "globex"} {
		cfg.VirtualHosts = append(cfg.VirtualHosts, config.VirtualHost{ID: id, Backends: []config.HostBackend{{Name: "up"}}})
	}
	w.catalogs["up"].ServerInfo, w.catalogs["up"].Capabilities = json.RawMessage(`{"name":"s"}`), json.RawMessage(`{"tools":{}}`)
	api := newAPI(t, w, cfg)
	for request, want := range map[string]string{
		"GET /api/v1/backends": `{"backends":[
			{"name":"up","url":"http://up.example/mcp?a=1&b=2","health":"up","checked":"2026-11-30T12:00:00Z","durationMs":1.5,
			 "protocol":"2025-11-25","era":"legacy","handshake":"required","taken":"2026-11-30T12:00:00Z","lists":{
				"tools":{"items":2,"rejected":1},"prompts":{"items":0,"stale":true,"since":"2026-11-30T12:00:00Z","reason":"timeout"},
				"resources":{"items":0},"resourceTemplates":{"items":0}}},
			{"name":"down","url":"http://down.example/mcp","health":"down","lastError":"connection refused","checked":"2026-11-30T12:00:00Z"},
			{"name":"new","url":"http://new.example/mcp","health":"unknown"}]}`,
		"GET /api/v1/backends/up": `{"name":"up","url":"http://up.example/mcp?a=1&b=2","health":"up","checked":"2026-11-30T12:00:00Z","durationMs":1.5,
			 "protocol":"2025-11-25","era":"legacy","handshake":"required","taken":"2026-11-30T12:00:00Z","lists":{
				"tools":{"items":2,"rejected":1},"prompts":{"items":0,"stale":true,"since":"2026-11-30T12:00:00Z","reason":"timeout"},
				"resources":{"items":0},"resourceTemplates":{"items":0}},
			 "pin":"off","serverInfo":{"name":"s"},"capabilities":{"tools":{}},"virtualHosts":["globex","initech"],"problems":[]}`,
		"GET /api/v1/backends/down": `{"name":"down","url":"http://down.example/mcp","health":"down","lastError":"connection refused",
			"checked":"2026-11-30T12:00:00Z","pin":"off","virtualHosts":[],
			"problems":[{"code":"backend_down","backend":"down","text":"connection refused"}]}`,
		"GET /api/v1/virtual-hosts": `{"virtualHosts":[{"id":"acme","version":{"incarnation":"i","epoch":3,"revision":9},
			"backends":["up"],"missing":["never"],"tools":1,"prompts":0,"resources":1,"resourceTemplates":1}]}`,
		"GET /api/v1/problems": `{"problems":[{"code":"name_taken","host":"acme","backend":"b","subject":"gh__y","text":"taken"},
			{"code":"backend_down","backend":"down","text":"connection refused"}]}`,
		"GET /api/v1/dataplanes": `{"dataplanes":[{"id":"d1","hosts":{}},{"id":"d2"}]}`,
		"GET /api/v1/leases":     `{"leases":[{"name":"leader","owner":"me","epoch":7,"self":true}]}`,
		"GET /api/v1/explain?host=acme&tool=gh__x": `{"host":"acme","version":{"incarnation":"i","epoch":3,"revision":9},"kind":"tool","name":"gh__x",
			"found":true,"backend":"up","upstream":"x","url":"http://up.invalid/mcp","protocol":"2026-07-28","step":"exact","rule":"gh__x"}`,
		"GET /api/v1/explain?host=acme&tool=gh__y": `{"host":"acme","version":{"incarnation":"i","epoch":3,"revision":9},"kind":"tool","name":"gh__y",
			"found":false,"reason":"no such tool","problems":[{"code":"name_taken","host":"acme","backend":"b","subject":"gh__y","text":"taken"}]}`,
		"GET /api/v1/explain?host=acme&resource=doc:///7": `{"host":"acme","version":{"incarnation":"i","epoch":3,"revision":9},"kind":"resource",
			"name":"doc:///7","found":true,"backend":"up","upstream":"doc:///7","url":"http://up.invalid/mcp","protocol":"2026-07-28",
			"step":"template","rule":"doc:///{id}","tried":[{"rule":"doc:///{id}","backend":"up","outcome":"matches"}]}`,
	} {
		got := ask(api, request, "Bearer "+adminToken)
		if got.Code != 200 {
			t.Errorf("%s: %d %s", request, got.Code, got.Body)
			continue
		}
		if diff := cmp.Diff(value(t, []byte(want)), value(t, got.Body.Bytes())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", request, diff)
		}
	}
	doc := ask(api, "GET /api/v1/virtual-hosts/acme", "bearer "+adminToken)
	if got, err := routes.DecodeHost(doc.Body.Bytes()); err != nil || got.Tools["gh__x"].Upstream != "x" {
		t.Errorf("document: %v, %s", err, doc.Body)
	}
}

func value(t *testing.T, doc []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(doc, &v); err != nil {
		t.Fatalf("%v in %s", err, doc)
	}
	return v
}

func TestRefusals(t *testing.T) {
	w := newWorld()
	w.boardErr = fmt.Errorf("statuses: %w", routes.ErrUnavailable)
	api := newAPI(t, w, configured())
	for request, want := range map[string]struct {
		status int
		code   string
	}{
		"GET /api/v1/virtual-hosts/nobody":              {404, "unknown_host"},
		"POST /api/v1/backends/nobody/refresh":          {404, "unknown_backend"},
		"GET /api/v1/backends/nobody":                   {404, "unknown_backend"},
		"GET /api/v1/explain?host=nobody&tool=x":        {404, "unknown_host"},
		"GET /api/v1/explain?host=acme":                 {400, "bad_request"},
		"GET /api/v1/explain?tool=x":                    {400, "bad_request"},
		"GET /api/v1/explain?host=acme&tool=x&prompt=y": {400, "bad_request"},
		"GET /api/v1/explain?host=acme&tool=x&tool=y":   {400, "bad_request"},
		"GET /api/v1/dataplanes":                        {503, "store_unavailable"},
		"GET /api/v1/leases":                            {503, "store_unavailable"},
		"GET /api/v1/virtual-hosts/nobody/revisions":    {404, "unknown_host"},
		"GET /api/v1/virtual-hosts/nobody/revisions/1":  {404, "unknown_host"},
		"POST /api/v1/virtual-hosts/acme/rollback":      {400, "bad_request"},
		"POST /api/v1/backends/up/approve":              {409, "not_pinned"},
		"GET /api/v1/backends/nobody/changes":           {404, "unknown_backend"},
		"GET /api/v1/backends/down/changes":             {409, "backend_unheard"},
		"GET /api/v1/tasks":                             {400, "bad_request"},
		"GET /api/v1/tasks?host=A":                      {400, "bad_request"},
		"GET /api/v1/tasks?host=acme&host=b":            {400, "bad_request"},
		"GET /api/v1/tasks?host=acme&limit=0":           {400, "bad_request"},
		"GET /api/v1/tasks?host=acme&limit=10001":       {400, "bad_request"},
		"GET /api/v1/tasks?host=nobody":                 {404, "unknown_host"},
	} {
		got := ask(api, request, "Bearer "+adminToken)
		if code := errorCode(t, got); got.Code != want.status || code != want.code {
			t.Errorf("%s: %d %s, want %d %s", request, got.Code, code, want.status, want.code)
		}
	}
	w.boardErr = errors.New("redis said something with a password in it")
	if got := ask(api, "GET /api/v1/leases", "Bearer "+adminToken); got.Code != 500 || strings.Contains(got.Body.String(), "password") {
		t.Errorf("unknown error: %d %s, want 500 that tells nothing", got.Code, got.Body)
	}
}

func TestRefresh(t *testing.T) {
	w := newWorld()
	got := ask(newAPI(t, w, configured()), "POST /api/v1/backends/up/refresh", "Bearer "+adminToken)
	if got.Code != http.StatusAccepted || !slices.Equal(w.refreshed, []routes.BackendID{"up"}) {
		t.Errorf("%d, refreshed %v", got.Code, w.refreshed)
	}
}

// A new token is in force with the config that brings it.
func TestTokensAreThoseOfTheConfigInForce(t *testing.T) {
	cfg := configured()
	api := newAPI(t, newWorld(), cfg)
	cfg.Admin.Value = strings.Repeat("n", 32)
	if got := ask(api, "GET /api/v1/problems", "Bearer "+adminToken); got.Code != 401 {
		t.Errorf("the old token: %d, want 401", got.Code)
	}
	if got := ask(api, "GET /api/v1/problems", "Bearer "+cfg.Admin.Value); got.Code != 200 {
		t.Errorf("the new token: %d, want 200", got.Code)
	}
}

// Every endpoint that docs/admin-api.md names exists, and is closed.
func TestEveryDocumentedEndpointExists(t *testing.T) {
	f, err := os.Open("../../../docs/admin-api.md")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	doc, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	api := newAPI(t, newWorld(), configured())
	found := regexp.MustCompile("`((?:GET|POST) /[^`?]+)").FindAllSubmatch(doc, -1)
	if len(found) < 14 {
		t.Fatalf("%d endpoints documented", len(found))
	}
	for _, m := range found {
		request := strings.NewReplacer("{name}", "up", "{host}", "acme").Replace(string(m[1]))
		token := adminToken
		if strings.Contains(request, "/internal/") {
			token = internalToken
		}
		if got := ask(api, request, "Bearer "+token); got.Code == 405 || got.Code == 404 && errorCode(t, got) == "not_found" {
			t.Errorf("%s: %d %s", request, got.Code, got.Body)
		}
		if got := ask(api, request, ""); got.Code != 401 {
			t.Errorf("%s without a token: %d", request, got.Code)
		}
	}
}
