package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Arguments that a tool's schema mirrors into headers: checked against the client's before any contact, computed for the backend.
func TestMirroredArgumentsInEachCell(t *testing.T) {
	t.Parallel()
	type want struct {
		status, code int         // code 0: a result
		upstream     http.Header // of a modern backend
	}
	both := http.Header{"Mcp-Param-Region": {"eu"}, "Mcp-Param-Count": {"7"}}
	encoded := http.Header{"Mcp-Param-Region": {"=?base64?w7w=?="}, "Mcp-Param-Count": {"7"}}
	const plain, umlaut = `{"region":"eu","deep":{"count":7}}`, `{"region":"ü","deep":{"count":7}}`
	ok, mismatch := func(h http.Header) want { return want{status: 200, upstream: h} }, want{status: 400, code: -32020}
	inEachCell(t, func(w http.ResponseWriter, _ *http.Request, m message) { writeResult(w, m, done("ok")) },
		func(t *testing.T, c client, b *scripted) {
			for name, tt := range map[string]struct {
				arguments string
				headers   map[string]string
				modern    want // to a legacy client, who sends no such headers, all of these are fine
				computed  http.Header
			}{
				"as they should be":      {plain, map[string]string{"Mcp-Param-Region": "eu", "Mcp-Param-Count": "7"}, ok(both), both},
				"in another form":        {plain, map[string]string{"mcp-param-region": " eu ", "MCP-PARAM-COUNT": "7.0"}, ok(both), both},
				"in Base64":              {umlaut, map[string]string{"Mcp-Param-Region": "=?base64?w7w=?=", "Mcp-Param-Count": "7"}, ok(encoded), encoded},
				"one missing":            {plain, map[string]string{"Mcp-Param-Region": "eu"}, mismatch, both},
				"one wrong":              {plain, map[string]string{"Mcp-Param-Region": "us", "Mcp-Param-Count": "7"}, mismatch, both},
				"in the wrong case":      {plain, map[string]string{"Mcp-Param-Region": "EU", "Mcp-Param-Count": "7"}, mismatch, both},
				"in broken Base64":       {umlaut, map[string]string{"Mcp-Param-Region": "=?base64?w7w?=", "Mcp-Param-Count": "7"}, mismatch, encoded},
				"an absent argument":     {`{"region":"eu"}`, map[string]string{"Mcp-Param-Region": "eu"}, ok(http.Header{"Mcp-Param-Region": {"eu"}}), http.Header{"Mcp-Param-Region": {"eu"}}},
				"an argument of null":    {`{"region":null}`, nil, ok(http.Header{}), http.Header{}},
				"a header without it":    {`{}`, map[string]string{"Mcp-Param-Region": "eu"}, mismatch, http.Header{}},
				"one that nobody knows":  {`{}`, map[string]string{"Mcp-Param-Other": "x"}, ok(http.Header{"Mcp-Param-Other": {"x"}}), http.Header{}},
				"one with an underscore": {plain, map[string]string{"Mcp-Param-Region": "eu", "Mcp-Param-Count": "7", "Mcp_param_region": "evil"}, ok(both), both},
			} {
				params := `{"name":"b__mirror","arguments":` + tt.arguments + `}`
				expected := tt.modern
				h := c.headers("tools/call", params)
				if c.modern() {
					for k, v := range tt.headers {
						h[k] = []string{v}
					}
				} else {
					expected = ok(tt.computed)
				}
				before := len(b.ofMethod("tools/call"))
				a, err := c.post(c.body(`"mine"`, "tools/call", params), h)
				if err != nil {
					t.Fatal(err)
				}
				code := 0
				if a.rpc.Error != nil {
					code = a.rpc.Error.Code
				}
				calls := b.ofMethod("tools/call")[before:]
				if a.status != expected.status || code != expected.code || string(a.rpc.ID) != `"mine"` || len(calls) != 1-min(1, -expected.code) {
					t.Errorf("%s: status %d, %d calls: %s", name, a.status, len(calls), a.body)
					continue
				}
				if len(calls) == 0 {
					continue
				}
				if b.version == legacyVersion {
					expected.upstream = http.Header{}
				}
				got := http.Header{}
				for k, v := range calls[0].header {
					if strings.HasPrefix(strings.ReplaceAll(strings.ToLower(k), "_", "-"), "mcp-param-") {
						got[k] = v
					}
				}
				if diff := cmp.Diff(expected.upstream, got); diff != "" {
					t.Errorf("%s: headers upstream (-want +got):\n%s", name, diff)
				}
			}
		})
}
