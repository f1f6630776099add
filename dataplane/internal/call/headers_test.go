package call

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

const annotated = `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},` +
	`"opts":{"type":"object","properties":{"level":{"type":"integer","x-mcp-header":"Level"}}}}}`

// headerHost has all that a config can say about headers on one backend.
func headerHost(b *backend, version string, edit func(*routes.Backend)) *routestest.HostBuilder {
	route := b.route(version)
	route.ToolSchemas = map[string]json.RawMessage{"echo": json.RawMessage(annotated)}
	if edit != nil {
		edit(&route)
	}
	return routestest.Host("acme").Backend("b", route).Tool("b__echo", "b", "echo").Resource("file:///a", "b")
}

func TestHeadersOfACall(t *testing.T) {
	t.Setenv("WEIR_BACKEND_KEY", "s3cr3t")
	b := result(t, `{"resultType":"complete","content":[]}`)
	g := newGateway(t, headerHost(b, modern, func(r *routes.Backend) {
		r.PassthroughHeaders = []string{"X-Request-Id", "X-Team"}
		r.AddHeaders = map[string]routes.SecretRef{"X-Team": "platform", "Authorization": "Bearer ${env:WEIR_BACKEND_KEY}"}
		r.ForwardCaller = map[string]string{"X-User-Key": "X-My-Key"}
		r.RemoveHeaders = []string{"X-Internal"}
	}), nil)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	g.must(t, request{method: "tools/call", params: `{"name":"b__echo","arguments":{"region":"eu","opts":{"level":42}}}`, header: http.Header{
		"Mcp-Param-Region": {"eu"}, "Mcp-Param-Level": {" 42.0 "}, "Mcp-Param-Unknown": {"x"}, "X-Request-Id": {"r-1", "r-2"}, "X-Team": {"evil"},
		"X-My-Key": {"mine"}, "X-Internal": {"1"}, "X-Forwarded-For": {"6.6.6.6"}, "Traceparent": {parent}, "Tracestate": {"a=1"},
	}})
	got := b.last(t, "tools/call").header
	for name, want := range map[string]string{
		"X-Request-Id": "r-1,r-2", "X-Team": "platform", "Authorization": "Bearer s3cr3t", "X-User-Key": "mine",
		"Mcp-Param-Region": "eu", "Mcp-Param-Level": "42", "Mcp-Param-Unknown": "x", "Mcp-Name": "echo", "Mcp-Method": "tools/call",
		"Mcp-Protocol-Version": modern, "Tracestate": "a=1", "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Cookie": "", "X-Internal": "", "X-Forwarded-For": "", "X-My-Key": "", "Mcp-Session-Id": "",
	} {
		if v := strings.Join(got[name], ","); v != want {
			t.Errorf("%s: %q, want %q", name, v, want)
		}
	}
	span := got.Get("Traceparent")
	if len(span) != len(parent) || span == parent || span[:36] != parent[:36] || span[52:] != parent[52:] {
		t.Errorf("traceparent %q does not continue %q", span, parent)
	}
}

func TestTheVerifiedTokenNeverTravels(t *testing.T) {
	b := result(t, `{"resultType":"complete","content":[]}`)
	bothBackends(t, func(t *testing.T, version string) {
		g := newGateway(t, headerHost(b, version, func(r *routes.Backend) {
			r.PassthroughHeaders = []string{"Authorization", "Cookie", "X-Copy"}
			r.ForwardCaller = map[string]string{"X-Auth": "Authorization", "X-Cookies": "Cookie"}
		}), nil)
		const token = "alice-with-a-very-long-token"
		g.must(t, request{token: token, version: legacy, method: "tools/call", params: `{"name":"b__echo"}`, header: http.Header{"X-Copy": {"Bearer " + token}}})
		for _, s := range b.seen {
			for name, values := range s.header {
				if joined := strings.Join(values, ","); strings.Contains(joined, token) || strings.Contains(joined, "session=1") {
					t.Errorf("%s got %s: %s", s.method, name, joined)
				}
			}
		}
		if n := g.log.FilterMessage("published header is not sent as configured").Len(); n != 4 {
			t.Errorf("%d warnings, want 4", n)
		}
	})
}

func TestParamsAreCheckedBeforeAnyContact(t *testing.T) {
	b := result(t, `{"resultType":"complete","content":[]}`)
	g := newGateway(t, headerHost(b, modern, nil), nil)
	for name, tt := range map[string]struct {
		arguments string
		header    http.Header
		ok        bool
	}{
		"equal":               {`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"eu"}}, true},
		"in Base64":           {`{"region":"eü"}`, http.Header{"Mcp-Param-Region": {"=?base64?ZcO8?="}}, true},
		"null and absent":     {`{"region":null}`, nil, true},
		"missing":             {`{"region":"eu"}`, nil, false},
		"different":           {`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"us"}}, false},
		"without an argument": {`{}`, http.Header{"Mcp-Param-Region": {"us"}}, false},
		"nested, missing":     {`{"opts":{"level":1}}`, nil, false},
		"repeated, different": {`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"eu", "us"}}, false},
		"bad Base64":          {`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"=?base64?ZQ?="}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(b.calls("tools/call"))
			a := g.ask(t, request{id: `"p"`, method: "tools/call", params: `{"name":"b__echo","arguments":` + tt.arguments + `}`, header: tt.header})
			if tt.ok != (a.status == 200) || !tt.ok && (a.status != 400 || a.code() != -32020 || string(a.rpc.ID) != `"p"`) {
				t.Errorf("status %d: %s", a.status, a.body)
			}
			if calls := len(b.calls("tools/call")) - before; tt.ok != (calls == 1) {
				t.Errorf("%d calls upstream", calls)
			}
		})
	}
}

// A legacy client knows no Mcp-Param-*: the gateway computes them for a modern backend, or says why it can't.
func TestParamsAreComputedForALegacyClient(t *testing.T) {
	b := result(t, `{"resultType":"complete","content":[]}`)
	g := newGateway(t, headerHost(b, modern, nil), nil)
	g.must(t, request{version: legacy, method: "tools/call", params: `{"name":"b__echo","arguments":{"region":"eü","opts":{"level":7}}}`,
		header: http.Header{"Mcp-Param-Region": {"forged"}, "Mcp-Param-Other": {"forged"}}})
	got := b.last(t, "tools/call").header
	if got.Get("Mcp-Param-Region") != "=?base64?ZcO8?=" || got.Get("Mcp-Param-Level") != "7" || got.Get("Mcp-Param-Other") != "" {
		t.Errorf("headers %v", got)
	}
	a := g.ask(t, request{version: legacy, method: "tools/call", params: `{"name":"b__echo","arguments":{"opts":{"level":9007199254740993}}}`})
	if a.code() != -32602 {
		t.Errorf("%s", a.body)
	}
}

func TestWithoutItsCredentialABackendIsNotCalled(t *testing.T) {
	b := result(t, `{"resultType":"complete","content":[]}`)
	for name, value := range map[string]routes.SecretRef{
		"unset": "${env:WEIR_BACKEND_UNSET_IN_TESTS}", "not allowed": "${env:HOME}", "a file outside": "${file:/etc/passwd}",
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, headerHost(b, modern, func(r *routes.Backend) {
				r.AddHeaders = map[string]routes.SecretRef{"Authorization": value}
			}), nil)
			a := g.ask(t, request{method: "tools/call", params: `{"name":"b__echo"}`})
			if a.code() != -32603 || a.reason() != "auth_failed" || strings.Contains(a.body, "env") {
				t.Errorf("%s", a.body)
			}
		})
	}
	if len(b.seen) != 0 {
		t.Errorf("the backend saw %d requests", len(b.seen))
	}
}

// A new snapshot brings new headers; a request on the old one keeps the old ones.
func TestTablesFollowTheSnapshot(t *testing.T) {
	b := result(t, `{"resultType":"complete","content":[]}`)
	with := func(team string) *routestest.HostBuilder {
		return headerHost(b, modern, func(r *routes.Backend) { r.AddHeaders = map[string]routes.SecretRef{"X-Team": routes.SecretRef(team)} })
	}
	g := newGateway(t, with("one"), nil)
	for _, team := range []string{"one", "two", "three"} {
		g.publish(t, with(team))
		g.must(t, request{method: "tools/call", params: `{"name":"b__echo"}`})
		if got := b.last(t, "tools/call").header.Get("X-Team"); got != team {
			t.Errorf("X-Team %q, want %q", got, team)
		}
	}
	old := with("old").Index(t)
	if a, b := g.handler.tables.of(old), g.handler.tables.of(old); a != b {
		t.Error("one index was compiled twice")
	}
}
