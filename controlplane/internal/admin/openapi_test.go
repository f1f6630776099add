package admin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/weir-mcp/weir/docs/openapi"
)

// description is the part of the OpenAPI document that tests look at.
type description struct {
	OpenAPI string
	Paths   map[string]map[string]struct {
		OperationID string
		Responses   map[string]struct {
			Content map[string]struct{ Schema json.RawMessage }
		}
	}
	Components struct{ Schemas map[string]json.RawMessage }
}

func described(t *testing.T) *description {
	t.Helper()
	d := new(description)
	if err := json.Unmarshal(openapi.Admin, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// What is served is what is described, both ways.
func TestTheDescriptionHasEveryRouteAndNoOther(t *testing.T) {
	d := described(t)
	if d.OpenAPI != "3.1.0" {
		t.Errorf("openapi %q, want 3.1.0", d.OpenAPI)
	}
	var want, ids []string
	for path, methods := range d.Paths {
		for method, op := range methods {
			want = append(want, strings.ToUpper(method)+" "+path)
			ids = append(ids, op.OperationID)
		}
	}
	var got []string
	err := chi.Walk(newAPI(t, newWorld(), configured()).table, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		got = append(got, method+" "+strings.ReplaceAll(route, "/*", ""))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-described +served):\n%s", diff)
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != len(want) {
		t.Errorf("operationIds %v are not unique", ids)
	}
}

// schema resolves what an operation answers with a status.
func (d *description) schema(t *testing.T, method, path, status string) *jsonschema.Resolved {
	t.Helper()
	raw := d.Paths[path][strings.ToLower(method)].Responses[status].Content["application/json"].Schema
	if raw == nil {
		t.Fatalf("%s %s: status %s is not described", method, path, status)
	}
	var s jsonschema.Schema
	unmarshal := func(raw json.RawMessage, into *jsonschema.Schema) {
		if err := json.Unmarshal(bytes.ReplaceAll(raw, []byte("#/components/schemas/"), []byte("#/$defs/")), into); err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
	}
	unmarshal(raw, &s)
	root := &jsonschema.Schema{Defs: map[string]*jsonschema.Schema{}, AllOf: []*jsonschema.Schema{&s}}
	for name, raw := range d.Components.Schemas {
		def := new(jsonschema.Schema)
		unmarshal(raw, def)
		closed(def)
		root.Defs[name] = def
	}
	closed(&s)
	resolved, err := root.Resolve(nil)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resolved
}

// closed refuses members that are not described, of every object whose members are.
func closed(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Properties) > 0 && len(s.Required) < len(s.Properties)+1 && s.Description != documentDescription {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	for _, p := range s.Properties {
		closed(p)
	}
	closed(s.Items)
	for _, a := range s.AnyOf {
		closed(a)
	}
}

const documentDescription = "the published document, routes.VirtualHost; members may be added"

// wantDescribed checks an answer against the description.
func (d *description) wantDescribed(t *testing.T, request, template string, body []byte, status string) {
	t.Helper()
	method, _, _ := strings.Cut(request, " ")
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%s: %v in %s", request, err, body)
	}
	if err := d.schema(t, method, template, status).Validate(v); err != nil {
		t.Errorf("%s: the answer is not as described: %v\n%s", request, err, body)
	}
}

func TestAnswersAreAsDescribed(t *testing.T) {
	d, api := described(t), newAPI(t, pinnedWorld(t), pinnedConfig())
	for request, template := range map[string]string{
		"GET /api/v1/openapi.json":                           "/api/v1/openapi.json",
		"GET /api/v1/backends":                               "/api/v1/backends",
		"GET /api/v1/backends/up":                            "/api/v1/backends/{name}",
		"GET /api/v1/backends/down":                          "/api/v1/backends/{name}",
		"POST /api/v1/backends/up/refresh":                   "/api/v1/backends/{name}/refresh",
		"GET /api/v1/backends/up/changes":                    "/api/v1/backends/{name}/changes",
		"GET /api/v1/virtual-hosts":                          "/api/v1/virtual-hosts",
		"GET /api/v1/virtual-hosts/acme":                     "/api/v1/virtual-hosts/{host}",
		"GET /api/v1/virtual-hosts/acme/revisions":           "/api/v1/virtual-hosts/{host}/revisions",
		"GET /api/v1/virtual-hosts/acme/revisions/1":         "/api/v1/virtual-hosts/{host}/revisions/{revision}",
		"GET /api/v1/virtual-hosts/acme/revisions/1/diff":    "/api/v1/virtual-hosts/{host}/revisions/{revision}/diff",
		"GET /api/v1/problems":                               "/api/v1/problems",
		"GET /api/v1/explain?host=acme&tool=x":               "/api/v1/explain",
		"GET /api/v1/explain?host=acme&resource=doc:///7":    "/api/v1/explain",
		"GET /api/v1/explain?host=acme&template=doc:///{id}": "/api/v1/explain",
		"GET /api/v1/dataplanes":                             "/api/v1/dataplanes",
		"GET /api/v1/tasks?host=acme":                        "/api/v1/tasks",
		"GET /api/v1/leases":                                 "/api/v1/leases",
	} {
		got := ask(api, request, "Bearer "+adminToken)
		status := "200"
		if strings.HasSuffix(request, "/refresh") {
			status = "202"
		}
		if got.Code != 200 && got.Code != 202 {
			t.Errorf("%s: %d %s", request, got.Code, got.Body)
			continue
		}
		d.wantDescribed(t, request, template, got.Body.Bytes(), status)
	}
	refused := ask(api, "GET /api/v1/virtual-hosts/nobody", "Bearer "+adminToken)
	d.wantDescribed(t, "GET refused", "/api/v1/virtual-hosts/{host}", refused.Body.Bytes(), "404")
}
