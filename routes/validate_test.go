package routes_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

// host returns a valid document with backends a and b.
func host() *routes.VirtualHost {
	return &routes.VirtualHost{
		Schema: routes.SchemaVersion, ID: "acme", Order: []routes.BackendID{"a", "b"},
		Backends: map[routes.BackendID]routes.Backend{
			"a": {URL: "http://a.example/mcp", Protocol: "2026-07-28"},
			"b": {URL: "https://b.example:8443/mcp", Protocol: "2025-11-25"},
		},
		Tools: map[string]routes.ServiceRoute{"ping": {Backend: "a", Upstream: "ping"}},
	}
}

// backendA changes backend a of a document.
func backendA(change func(*routes.Backend)) func(*routes.VirtualHost) {
	return func(vh *routes.VirtualHost) {
		b := vh.Backends["a"]
		change(&b)
		vh.Backends["a"] = b
	}
}

func urlOfA(s string) func(*routes.VirtualHost) {
	return backendA(func(b *routes.Backend) { b.URL = s })
}

func TestValidate(t *testing.T) {
	to := func(b routes.BackendID, upstream string) routes.ServiceRoute {
		return routes.ServiceRoute{Backend: b, Upstream: upstream}
	}
	for name, tt := range map[string]struct {
		change func(*routes.VirtualHost)
		want   []string
	}{
		"a valid document": {func(*routes.VirtualHost) {}, nil},
		"the zero document": {func(vh *routes.VirtualHost) { *vh = routes.VirtualHost{} }, []string{
			`schema: 0 is not 1`, `id: "" is not a valid id`,
		}},
		"an order that names strangers and one twice": {
			func(vh *routes.VirtualHost) { vh.Order = []routes.BackendID{"a", "x", "a"} },
			[]string{`order[1]: no backend "x"`, `order[2]: "a" stands twice`},
		},
		"an order that leaves backends out is fine": {func(vh *routes.VirtualHost) { vh.Order = nil }, nil},
		"routes that lead nowhere, in the order of their names": {
			func(vh *routes.VirtualHost) {
				vh.Tools = map[string]routes.ServiceRoute{"z": to("x", "z"), `a"`: to("", ""), "ok": to("a", "ok"), "": to("a", "e")}
				vh.Prompts = map[string]routes.ServiceRoute{"p": to("x", "p")}
				vh.Resources = map[string]routes.ServiceRoute{"x://r": to("x", "x://r")}
			},
			[]string{
				`tools[""]: empty name`,
				`tools["a\""].backend: no backend ""`, `tools["a\""].upstream: empty`,
				`tools["z"].backend: no backend "x"`,
				`prompts["p"].backend: no backend "x"`,
				`resources["x://r"].backend: no backend "x"`,
			},
		},
		"a URI that is rewritten": {
			func(vh *routes.VirtualHost) {
				vh.Resources = map[string]routes.ServiceRoute{"x://r": to("a", "x://s")}
				vh.ResourcePrefixes = map[string]routes.ServiceRoute{"x://r/": to("a", "x://s/"), "/etc/": to("a", "/etc/")}
			},
			[]string{
				`resources["x://r"].upstream: "x://s" differs: URIs are never rewritten`,
				`resourcePrefixes["/etc/"]: does not begin with a literal scheme`,
				`resourcePrefixes["x://r/"].upstream: "x://s/" differs: URIs are never rewritten`,
			},
		},
		"templates without a scheme or with too many variables": {
			func(vh *routes.VirtualHost) {
				vh.ResourceTemplates = map[string]routes.ServiceRoute{
					"{a}":                     to("a", "{a}"),
					"x://{a,b,c,d,e,f,g,h,i}": to("a", "x://{a,b,c,d,e,f,g,h,i}"),
					"x://{a":                  to("a", "x://{a"),
				}
			},
			[]string{
				`resourceTemplates["x://{a"]: not a URI template (RFC 6570): incomplete expression: x://{a_`,
				`resourceTemplates["x://{a,b,c,d,e,f,g,h,i}"]: 9 variables are over 8`,
				`resourceTemplates["{a}"]: does not begin with a literal scheme`,
			},
		},
		"more templates than a host may have": {
			func(vh *routes.VirtualHost) {
				vh.ResourceTemplates = map[string]routes.ServiceRoute{}
				for i := range routes.MaxTemplates + 1 {
					s := fmt.Sprintf("x://%d/{a}", i)
					vh.ResourceTemplates[s] = to("a", s)
				}
			},
			[]string{`resourceTemplates: 1001 templates are over 1000`},
		},
		"a backend's id": {
			func(vh *routes.VirtualHost) { vh.Backends["A b"] = vh.Backends["a"] }, []string{`backends["A b"]: not a valid id`},
		},
		"a URL of another scheme":         {urlOfA("ftp://a.example/"), []string{`backends["a"].url: scheme "ftp" is neither http nor https`}},
		"a URL without a host":            {urlOfA("http:///mcp"), []string{`backends["a"].url: no host`}},
		"no URL":                          {urlOfA(""), []string{`backends["a"].url: scheme "" is neither http nor https`}},
		"userinfo, which is not shown":    {urlOfA("http://u:hunter2@a.example/"), []string{`backends["a"].url: has userinfo; credentials go into headers, as references`}},
		"a broken URL, which is no shown": {urlOfA("http://u:hunter2@a.example:port/"), []string{`backends["a"].url: not a URL`}},
		"a fragment":                      {urlOfA("http://a.example/#x"), []string{`backends["a"].url: has a fragment`}},
		"a stdio backend needs no URL": {
			backendA(func(b *routes.Backend) { b.URL, b.StdioLease = "", "a" }), nil,
		},
		"versions and handshakes that nobody knows": {
			backendA(func(b *routes.Backend) { b.Protocol, b.Handshake = "modern", "maybe" }),
			[]string{
				`backends["a"].protocol: "modern" is not a protocol version (a date)`,
				`backends["a"].handshake: "maybe" is neither "required" nor "none"`,
			},
		},
		"a version yet to come is fine": {backendA(func(b *routes.Backend) { b.Protocol = "2031-02-28" }), nil},
		"negative timeouts": {
			backendA(func(b *routes.Backend) {
				b.Timeouts = routes.Timeouts{Connect: -1, Response: -time.Second, Idle: -time.Minute, Total: -time.Hour}
			}),
			[]string{
				`backends["a"].timeouts.connect: -1ns is negative`, `backends["a"].timeouts.response: -1s is negative`,
				`backends["a"].timeouts.idle: -1m0s is negative`, `backends["a"].timeouts.total: -1h0m0s is negative`,
			},
		},
		"headers that can't be sent": {
			backendA(func(b *routes.Backend) {
				b.PassthroughHeaders = []string{"X-Ok", "X Y"}
				b.RemoveHeaders = []string{""}
				b.AddHeaders = map[string]routes.SecretRef{"X\x10": "v", "X-Key": "hunter2\r\nX-Admin: 1"}
				b.ForwardCaller = map[string]string{"Authorization": "X:Y"}
			}),
			[]string{
				`backends["a"].passthroughHeaders[1]: "X Y" is not a header name`,
				`backends["a"].removeHeaders[0]: "" is not a header name`,
				`backends["a"].addHeaders["X\x10"]: "X\x10" is not a header name`,
				`backends["a"].addHeaders["X-Key"]: a value has no line break or NUL`,
				`backends["a"].forwardCaller["Authorization"]: "X:Y" is not a header name`,
			},
		},
		"globs that don't compile": {
			backendA(func(b *routes.Backend) {
				b.ResourceAllow, b.ResourceDeny = []string{"*", ""}, []string{strings.Repeat("a", 300)}
			}),
			[]string{`backends["a"].resourceAllow[1]: empty glob`, `backends["a"].resourceDeny[0]: glob of 300 bytes is over 256`},
		},
		"half a client certificate": {
			backendA(func(b *routes.Backend) { b.TLS.CertFile = "/etc/c.pem" }), []string{`backends["a"].tls: certFile and keyFile go together`},
		},
		"raw members that are no objects": {
			func(vh *routes.VirtualHost) {
				vh.Capabilities, vh.ServerInfo = json.RawMessage(`[]`), json.RawMessage(`{"a":`)
				backendA(func(b *routes.Backend) {
					b.ToolSchemas = map[string]json.RawMessage{"x": json.RawMessage(`true`), "y": nil, "z": json.RawMessage(` {}`)}
				})(vh)
			},
			[]string{
				`backends["a"].toolSchemas["x"]: not a JSON object`, `backends["a"].toolSchemas["y"]: empty`,
				`capabilities: not a JSON object`, `serverInfo: not a JSON object`,
			},
		},
		"a task policy that nobody knows": {
			func(vh *routes.VirtualHost) { vh.Tasks = routes.TaskPolicy{Unrecorded: "guess", NotFound: -1} },
			[]string{`tasks.unrecorded: "guess" is none of claim, probe and deny`, `tasks.notFound: -1 is neither -32602 nor -32002`},
		},
		"plugins without a name, and two of one name": {
			func(vh *routes.VirtualHost) {
				vh.Plugins = []routes.PluginRef{
					{Kind: "audit"}, {Name: "p"}, {Name: "p", Kind: "k", Timeout: -1, When: routes.PluginCondition{Hosts: []string{""}, Tools: []string{""}}},
				}
			},
			[]string{
				`plugins[0].name: empty`, `plugins[1].kind: empty`, `plugins[2].name: "p" stands twice`,
				`plugins[2].timeout: -1ns is negative`, `plugins[2].when.hosts[0]: empty glob`, `plugins[2].when.tools[0]: empty glob`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			vh := host()
			tt.change(vh)
			err := vh.Validate()
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
				if strings.Contains(err.Error(), "hunter2") {
					t.Errorf("shows a secret: %v", err)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			if ix, ixErr := routes.NewIndex(vh); (ixErr != nil) != (err != nil) || (ix != nil) != (err == nil) {
				t.Errorf("NewIndex: %v, %v; Validate: %v", ix, ixErr, err)
			}
		})
	}
}

func TestValidateBoundsItsReport(t *testing.T) {
	vh := host()
	for i := range 10_000 {
		vh.Tools[fmt.Sprintf("t%05d", i)] = routes.ServiceRoute{Backend: "gone", Upstream: "x"}
	}
	lines := strings.Split(vh.Validate().Error(), "\n")
	if len(lines) != 51 || lines[0] != `tools["t00000"].backend: no backend "gone"` || lines[50] != `tools: 9950 more entries have faults` {
		t.Errorf("%d lines, from %q to %q", len(lines), lines[0], lines[len(lines)-1])
	}
}
