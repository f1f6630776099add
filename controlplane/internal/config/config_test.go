package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/redisstore"
)

// base is the least that a file needs; tests append to it.
const base = `redis: redis://127.0.0.1:6379/0
auth: {issuers: [{issuer: https://idp.example, audiences: [weir], algorithms: [RS256], public_key_file: idp.pub}]}
`

var globs = cmp.Comparer(func(a, b routes.Glob) bool { return a.String() == b.String() })

func mustGlobs(t *testing.T, in ...string) []routes.Glob {
	t.Helper()
	var out []routes.Glob
	for _, s := range in {
		g, err := routes.ParseGlob(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, g)
	}
	return out
}

// setSecrets gives the tests' references their values.
func setSecrets(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{
		"WEIR_T_ADMIN": strings.Repeat("a", 32), "WEIR_T_SHORT": "short", "WEIR_T_GITHUB": "gh-secret",
		"WEIR_T_REDIS": "redis-secret", "WEIR_T_EMPTY": "", "WEIR_T_LINES": "two\nlines",
	} {
		t.Setenv(name, value)
	}
}

func TestParseWhole(t *testing.T) {
	setSecrets(t)
	cfg, warnings, err := Parse([]byte(`
redis:
  addrs: [127.0.0.1:7000, 127.0.0.1:7001]
  cluster: true
  password: "${env:WEIR_T_REDIS}"
listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
ops_listen: ":9999"
admin: {token: "${env:WEIR_T_ADMIN}"}
internal: {token: "${env:WEIR_T_ADMIN}"}
public_url: https://mcp.example.com/base/
allowed_origins: ["https://app.example", "http://localhost:3000", "https://[::1]:8443"]
allowed_hosts: [mcp.example.com, "mcp.example.com:8443", "[::1]", "10.0.0.1:80"]
auth:
  tenant_claim: tid
  issuers:
    - {issuer: https://idp.example, audiences: [weir], algorithms: [RS256], jwks_url: https://idp.example/jwks, virtual_hosts: ["a*"]}
    - {issuer: dev, audiences: [resource], algorithms: [HS256], hmac_secret: "${env:WEIR_T_ADMIN}"}
config_version: 7
discovery: {interval: 30s, parallel: 4}
backends:
  zeta:
    url: http://127.0.0.1:7001/mcp
    headers:
      passthrough: [X-Request-Id, x-request-id]
      add: {x-team: platform}
      remove: [X-Internal]
      credentials: {Authorization: "Bearer ${env:WEIR_T_GITHUB}"}
      forward_caller: {X-Key: X-GitHub-Token}
    timeouts: {connect: 5s, total: 1h}
    tls: {server_name: example}
  alpha:
    stdio: {command: npx, args: ["-y", "server"], env: {LOG: info}}
  mid.dle: {url: "https://example.com/mcp?x=1"}
virtual_hosts:
  zz:
    backends:
      - name: zeta
        prefix: "gh__"
        tools: {allow: ["*"], deny: ["delete_*"], alias: {create_pr: open_pr}}
        prompts: {allow: ["p*"]}
        resources: {deny: ["secret://*"], prefixes: ["file:///data/"]}
      - {name: mid.dle}
    tasks: {unrecorded: deny, not_found: -32002}
  aa: {backends: [{name: alpha}]}
plugins:
  - {name: off, kind: secrets, hooks: [tool_post], mode: disabled, priority: 10, timeout: 50ms, when: {hosts: [zz]},
     settings: {action: redact, n: 0x10, when: 2020-01-01, deep: [{x: null, y: 1.5, z: true}]}}
log_level: warn
listing: {page_size: 50}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Redis:  redisstore.Config{Addrs: []string{"127.0.0.1:7000", "127.0.0.1:7001"}, Cluster: true, Password: "redis-secret", KeyPrefix: "weir:"},
		Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", OpsListen: ":9999",
		Admin: Token{strings.Repeat("a", 32)}, Internal: Token{strings.Repeat("a", 32)},
		PublicURL:      "https://mcp.example.com/base",
		AllowedOrigins: []string{"https://app.example", "http://localhost:3000", "https://[::1]:8443"},
		AllowedHosts:   []string{"mcp.example.com", "mcp.example.com:8443", "[::1]", "10.0.0.1:80"},
		Auth: access.Config{TenantClaim: "tid", Issuers: []access.Issuer{
			{Issuer: "https://idp.example", Audiences: []string{"weir"}, Algorithms: []string{"RS256"}, JWKSURL: "https://idp.example/jwks", VirtualHosts: []string{"a*"}},
			{Issuer: "dev", Audiences: []string{"resource"}, Algorithms: []string{"HS256"}, HMACSecret: strings.Repeat("a", 32)},
		}},
		ConfigVersion: 7,
		Discovery:     Discovery{Interval: 30 * time.Second, Timeout: 10 * time.Second, Parallel: 4},
		Listing:       Listing{PageSize: 50},
		Backends: []Backend{
			{ID: "zeta", Pin: "off", Route: routes.Backend{
				URL: "http://127.0.0.1:7001/mcp", PassthroughHeaders: []string{"X-Request-Id"},
				AddHeaders:    map[string]routes.SecretRef{"X-Team": "platform", "Authorization": "Bearer ${env:WEIR_T_GITHUB}"},
				RemoveHeaders: []string{"X-Internal"}, ForwardCaller: map[string]string{"X-Key": "X-Github-Token"},
				Timeouts: routes.Timeouts{Connect: 5 * time.Second, Total: time.Hour}, TLS: routes.TLS{ServerName: "example"},
			}},
			{ID: "alpha", Pin: "off", Stdio: &Stdio{Command: "npx", Args: []string{"-y", "server"}, Env: map[string]string{"LOG": "info"}}},
			{ID: "mid.dle", Pin: "off", Route: routes.Backend{URL: "https://example.com/mcp?x=1"}},
		},
		VirtualHosts: []VirtualHost{
			{ID: "zz", Tasks: routes.TaskPolicy{Unrecorded: "deny", NotFound: -32002}, Backends: []HostBackend{
				{Name: "zeta", Prefix: "gh__",
					Tools:     Filter{Allow: mustGlobs(t, "*"), Deny: mustGlobs(t, "delete_*"), Alias: map[string]string{"create_pr": "open_pr"}},
					Prompts:   Filter{Allow: mustGlobs(t, "p*")},
					Resources: ResourceFilter{Deny: mustGlobs(t, "secret://*"), Prefixes: []string{"file:///data/"}}},
				{Name: "mid.dle"},
			}},
			{ID: "aa", Tasks: routes.TaskPolicy{Unrecorded: "claim", NotFound: -32602}, Backends: []HostBackend{{Name: "alpha"}}},
		},
		Plugins: []routes.PluginRef{{Name: "off", Kind: "secrets", Hooks: []string{"tool_post"}, Mode: "disabled", Priority: 10,
			Timeout: 50 * time.Millisecond, OnError: "deny", When: routes.PluginCondition{Hosts: []string{"zz"}},
			Settings: json.RawMessage(`{"action":"redact","deep":[{"x":null,"y":1.5,"z":true}],"n":16,"when":"2020-01-01"}`)}},
		LogLevel: "warn", HMACReferences: map[string]string{"dev": "${env:WEIR_T_ADMIN}"},
	}
	if diff := cmp.Diff(want, cfg, globs); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	wantWarnings := []Warning{
		{Path: "backends.zeta.tls", Text: "has no effect: the url is http", Line: 31, Code: CodeUnused},
		{Path: "backends.alpha.stdio", Text: "this build runs no stdio backends; nothing of it is published", Line: 33, Code: CodeStdioUnsupported},
	}
	if diff := cmp.Diff(wantWarnings, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	for _, verb := range []string{"%v", "%+v", "%#v"} {
		if s := fmt.Sprintf(verb, cfg.Admin); strings.Contains(s, "aaa") {
			t.Errorf("%s of a token shows it: %s", verb, s)
		}
	}
}

func TestParseDefaults(t *testing.T) {
	cfg, warnings, err := Parse([]byte(base))
	if err != nil || warnings != nil {
		t.Fatal(err, warnings)
	}
	want := &Config{
		Redis:  redisstore.Config{URL: "redis://127.0.0.1:6379/0", KeyPrefix: "weir:"},
		Listen: "127.0.0.1:8081", AdminListen: "127.0.0.1:8082", OpsListen: "127.0.0.1:9081",
		Discovery: Discovery{Interval: time.Minute, Timeout: 10 * time.Second, Parallel: 16}, Listing: Listing{PageSize: 1000}, LogLevel: "info",
	}
	if diff := cmp.Diff(want, cfg, cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Auth" }, cmp.Ignore())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseFaults(t *testing.T) {
	setSecrets(t)
	tests := map[string]struct {
		doc  string // after base
		want []string
	}{
		"every kind of problem at once, in the order of the lines": {
			doc: "lisen: x\nlisten: nowhere\ndiscovery: {interval: soon, parallel: 0}\nbackends:\n  A: {url: 'ftp://x', tiemouts: {}}\nlisting: {page_size: 0}\n",
			want: []string{
				"line 3: field lisen not found",
				`line 4: listen: "nowhere" is not HOST:PORT`,
				"line 5: want a duration such as 30s, found a string",
				"line 5: discovery.parallel: 0 is not between 1 and 1024",
				"line 7: field tiemouts not found in A",
				`line 7: backends.A: "A" can't name a backend: want 1 to 63 of a-z, 0-9, '.', '_' and '-', a letter or digit first and last`,
				"line 7: backends.A.url: is not an http or https URL",
				"line 8: listing.page_size: 0 is not between 1 and 10000",
			}},
		"listeners": {
			doc: "listen: 127.0.0.1:99999\nadmin_listen: 127.0.0.1:1\nops_listen: 127.0.0.1:1\n",
			want: []string{
				`line 3: listen: "99999" is not a port; want 0 to 65535, where 0 takes a free one`,
				"line 5: ops_listen: 127.0.0.1:1 is the address of admin_listen already",
			}},
		"tokens": {
			doc: "admin: {token: '${env:WEIR_T_SHORT}'}\ninternal: {token: '${env:WEIR_T_NOT_SET}'}\n",
			want: []string{
				"line 3: admin.token: has 5 bytes; at least 32 are required",
				"line 4: internal.token: ${env:WEIR_T_NOT_SET}: environment variable is not set",
			}},
		"an empty secret is not a secret": {
			doc:  "admin: {token: '${env:WEIR_T_EMPTY}'}\n",
			want: []string{"line 3: admin.token: the reference leads to an empty value"}},
		"origins and hosts": {
			doc: "public_url: mcp.example.com\nallowed_origins: ['*', 'null', 'https://a.example/', 'a.example', 'https://a.example:0']\n" +
				"allowed_hosts: ['https://a.example', '*.example', '', 'a b', 'a:port', 'a/b']\n",
			want: []string{
				"line 3: public_url: is not an http or https URL",
				"line 4: allowed_origins[0]: origins are exact; there are no wildcards",
				"line 4: allowed_origins[1]: null is the origin of anybody's sandboxed frame; it can't be allowed",
				`line 4: allowed_origins[2]: "https://a.example/" is not an origin such as https://app.example or http://localhost:3000`,
				`line 4: allowed_origins[3]: "a.example" is not an origin such as https://app.example or http://localhost:3000`,
				`line 4: allowed_origins[4]: "https://a.example:0" is not an origin such as https://app.example or http://localhost:3000`,
				`line 5: allowed_hosts[0]: "https://a.example" is not a host such as mcp.example.com, or one with a port; there are no wildcards`,
				`line 5: allowed_hosts[1]: "*.example" is not a host such as mcp.example.com, or one with a port; there are no wildcards`,
				`line 5: allowed_hosts[2]: "" is not a host such as mcp.example.com, or one with a port; there are no wildcards`,
				`line 5: allowed_hosts[3]: "a b" is not a host such as mcp.example.com, or one with a port; there are no wildcards`,
				`line 5: allowed_hosts[4]: "a:port" is not a host such as mcp.example.com, or one with a port; there are no wildcards`,
				`line 5: allowed_hosts[5]: "a/b" is not a host such as mcp.example.com, or one with a port; there are no wildcards`,
			}},
		"a public url with more than it may have": {
			doc:  "public_url: https://x.example/a?b=c\n",
			want: []string{"line 3: public_url: must not contain a query"}},
		"numbers": {
			doc: "config_version: -1\ndiscovery: {interval: 1ms, timeout: 0s}\nlog_level: loud\n",
			want: []string{
				"line 3: config_version: -1 is negative",
				"line 4: discovery.interval: 1ms is under 100ms",
				"line 4: discovery.timeout: 0s is not above 0 and up to 10m0s",
				`line 5: log_level: "loud" is none of debug, info, warn, error`,
			}},
		"urls of backends never show their password": {
			doc: "backends:\n  a: {url: 'http://user:hunter2@x/mcp'}\n  b: {url: 'http://x/#f'}\n  c: {url: 'http://'}\n  d: {url: 'http://hunter2 x'}\n" +
				"  e: {}\n  f: {url: 'http://x', stdio: {command: x}}\n  g: {url: 'http://x/${env:WEIR_T_GITHUB}'}\n  h: {url: 'http://x:'}\n" +
				"virtual_hosts: {v: {backends: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}, {name: g}, {name: h}]}}\n",
			want: []string{
				"line 4: backends.a.url: must not contain a user name or password",
				"line 5: backends.b.url: must not contain a fragment",
				"line 6: backends.c.url: has no host",
				"line 7: backends.d.url: is not a URL",
				"line 8: backends.e: url or stdio is required",
				"line 9: backends.f: url and stdio exclude each other",
				"line 10: backends.g.url: references are not expanded in URLs, which are published; use headers.credentials",
				"line 11: backends.h.url: has a port that is none",
			}},
		"backends": {
			doc: "backends:\n  a: {url: 'http://x', pin: maybe, timeouts: {idle: -1s}, tls: {cert_file: x}}\n" +
				"  b:\n    stdio: {command: '', env: {'A-B': x, C: '${env:WEIR_T_NOT_SET}'}}\n    headers: {remove: [x]}\n    timeouts: {idle: 1s}\n    tls: {ca_file: x}\n",
			want: []string{
				`line 4: backends.a.pin: "maybe" is none of off, warn, block`,
				"line 4: backends.a.timeouts.idle: -1s is negative; leave it out for the default",
				"line 4: backends.a.tls: cert_file and key_file go together",
				"line 6: backends.b.stdio.command: is required",
				`line 6: backends.b.stdio.env.A-B: "A-B" can't name an environment variable`,
				"line 6: backends.b.stdio.env.C: ${env:WEIR_T_NOT_SET}: environment variable is not set",
				"line 7: backends.b.headers: is not for a stdio backend",
				"line 8: backends.b.timeouts: is not for a stdio backend",
				"line 9: backends.b.tls: is not for a stdio backend",
			}},
		"headers": {
			doc: "backends:\n  a:\n    url: http://127.0.0.1/\n    headers:\n" +
				"      passthrough: ['x y', '']\n" +
				"      add: {X-One: \"a\\nb\", Authorization: Bearer hunter2, X_Two: '${env:WEIR_T_LINES}'}\n" +
				"      credentials: {x-one: '${env:WEIR_T_GITHUB}', X-Key: hunter2, X-Gone: '${env:WEIR_T_NOT_SET}', X-File: '${file:/nowhere/at/all}', X-Bad: '${env:WEIR_T_GITHUB'}\n" +
				"      forward_caller: {X-Two: X-Other, X-Three: ''}\n" +
				"virtual_hosts: {v: {backends: [{name: a}]}}\n",
			want: []string{
				`line 7: backends.a.headers.passthrough[0]: "x y" is not a header name`,
				"line 7: backends.a.headers.passthrough[1]: is not a header name: it is empty",
				"line 8: backends.a.headers.add.Authorization: a credential goes to headers.credentials, as a reference: what stands here is published, and Redis holds no credential",
				"line 8: backends.a.headers.add.X-One: the value has a character that no header may carry",
				"line 8: backends.a.headers.add.X_Two: ${env:WEIR_T_LINES}: value has a line break or NUL",
				`line 9: backends.a.headers.credentials.X-Bad: malformed reference: a "${" without "}"`,
				"line 9: backends.a.headers.credentials.X-File: ${file:/nowhere/at/all}: no such file or directory",
				"line 9: backends.a.headers.credentials.X-Gone: ${env:WEIR_T_NOT_SET}: environment variable is not set",
				"line 9: backends.a.headers.credentials.X-Key: must be a reference such as ${env:NAME} or ${file:/path}: what stands here is published, and Redis holds no credential",
				"line 9: backends.a.headers.credentials.x-one: backends.a.headers.add.X-One sets this header already",
				"line 10: backends.a.headers.forward_caller.X-Three: is not a header name: it is empty",
			}},
		"virtual hosts": {
			doc: "backends: {a: {url: 'http://127.0.0.1/'}, b: {url: 'http://127.0.0.1/'}}\nvirtual_hosts:\n  V: {}\n  v:\n    backends:\n" +
				"      - {name: nobody, prefix: 'a b'}\n" +
				"      - {name: a, prefix: aaaaaaaaaabbbbbbbbbbccccccccccdddddddddde, tools: {allow: [], deny: [''], alias: {x: '', y: 'a b', z: same}}}\n" +
				"      - {name: a, tools: {alias: {w: same}}, prompts: {alias: {w: same}}}\n" +
				"      - {prefix: b}\n" +
				"      - {name: b, resources: {allow: [], prefixes: [data/, 'file:///a', 'file:///a', 'x y:z']}}\n" +
				"    tasks: {unrecorded: maybe, not_found: -1}\n",
			want: []string{
				`line 5: virtual_hosts.V: "V" can't name a virtual host: want 1 to 63 of a-z, 0-9, '.', '_' and '-', a letter or digit first and last`,
				`line 8: virtual_hosts.v.backends[0].name: no backend "nobody" is defined`,
				`line 8: virtual_hosts.v.backends[0].prefix: "a b" has a character other than letters, digits and _ - . /`,
				"line 9: virtual_hosts.v.backends[1].prefix: has 41 bytes; at most 40 are allowed",
				`line 9: virtual_hosts.v.backends[1].tools.allow: is empty; leave it out to allow all, or deny ["*"] to allow none`,
				"line 9: virtual_hosts.v.backends[1].tools.deny[0]: empty glob",
				`line 9: virtual_hosts.v.backends[1].tools.alias.x: "" can't be a name: want 1 to 64 characters, none of them a space or a control character`,
				`line 9: virtual_hosts.v.backends[1].tools.alias.y: "a b" can't be a name: want 1 to 64 characters, none of them a space or a control character`,
				`line 10: virtual_hosts.v.backends[2].name: "a" stands in this host already`,
				`line 10: virtual_hosts.v.backends[2].tools.alias.w: virtual_hosts.v.backends[1].tools.alias.z gives the name "same" already`,
				"line 11: virtual_hosts.v.backends[3].name: is required",
				`line 12: virtual_hosts.v.backends[4].resources.allow: is empty; leave it out to allow all, or deny ["*"] to allow none`,
				`line 12: virtual_hosts.v.backends[4].resources.prefixes[0]: "data/" is not the beginning of an absolute URI, such as file:///data/`,
				`line 12: virtual_hosts.v.backends[4].resources.prefixes[2]: "file:///a" stands here twice`,
				`line 12: virtual_hosts.v.backends[4].resources.prefixes[3]: "x y:z" is not the beginning of an absolute URI, such as file:///data/`,
				`line 13: virtual_hosts.v.tasks.unrecorded: "maybe" is none of claim, probe, deny`,
				"line 13: virtual_hosts.v.tasks.not_found: -1 is neither -32602 nor -32002",
			}},
		"plugins": {
			doc: "plugins:\n  - {name: a, kind: secrets}\n  - {name: a, kind: x, mode: disabled, hooks: [never], timeout: 1h, on_error: panic, when: {tools: ['']}}\n" +
				"  - {mode: disabled, settings: &s {a: .nan}}\n  - {name: d, kind: x, mode: disabled, settings: &t {a: *t}}\n",
			want: []string{
				`line 4: plugins[0]: plugins are not supported yet, so nothing would run "secrets"; take it out or set mode: disabled`,
				`line 5: plugins[1].name: "a" is the name of another plugin already`,
				`line 5: plugins[1].on_error: "panic" is none of [deny ignore]`,
				`line 5: plugins[1].hooks[0]: "never" is none of [tool_pre tool_post prompt_pre prompt_post resource_pre resource_post]`,
				"line 5: plugins[1].timeout: 1h0m0s is not between 0 and 1m0s",
				"line 5: plugins[1].when.tools[0]: empty glob",
				"line 6: plugins[2].name: is required",
				"line 6: plugins[2].kind: is required",
				"line 6: plugins[2].settings: json: unsupported value: NaN",
				"line 7: plugins[3].settings: nested over 64 levels",
			}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, _, err := Parse([]byte(base + tt.doc))
			if err == nil || cfg != nil {
				t.Fatalf("Parse = %v, %v; want an error and no config", cfg, err)
			}
			if diff := cmp.Diff(strings.Join(tt.want, "\n"), err.Error()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			for _, hidden := range []string{"hunter2", "gh-secret", "redis-secret"} {
				if strings.Contains(err.Error(), hidden) {
					t.Errorf("the secret %q is shown", hidden)
				}
			}
		})
	}
}

func TestParseNeedsRedisAndAuth(t *testing.T) {
	_, _, err := Parse([]byte("{}\n"))
	if err == nil || !strings.Contains(err.Error(), "redis.url: ") || !strings.Contains(err.Error(), "auth.issuers: ") {
		t.Errorf("an empty file: %v", err)
	}
	if _, _, err := Parse([]byte("a: [\n")); err == nil || strings.Contains(err.Error(), "redis") {
		t.Errorf("no YAML: %v; want its own fault alone", err)
	}
	if _, _, err := Parse([]byte(strings.Replace(base, "public_key_file: idp.pub", "hmac_secret: '${env:WEIR_T_NOT_SET}'", 1))); err == nil ||
		!strings.Contains(err.Error(), "auth.issuers[0].hmac_secret: ${env:WEIR_T_NOT_SET}: environment variable is not set") {
		t.Errorf("an issuer without its secret: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	setSecrets(t)
	doc := base + `admin: {token: ` + strings.Repeat("x", 40) + `}
backends:
  a:
    url: http://backend.example/mcp
    pin: block
    headers:
      passthrough: [Authorization, cookie, X-Ok, X-Forwarded-For, mcp_name, MCP-Param-x]
      add: {Host: x, Content_Type: text/plain, X-Fine: y, Traceparent: z}
      remove: [Accept, X-Other, Transfer-Encoding]
      credentials: {Authorization: "${env:WEIR_T_GITHUB}"}
      forward_caller: {X-A: Authorization, X-B: Cookie, Origin: X-C, X-D: Mcp-Session-Id, X-E: X-F}
    tls: {ca_file: /nowhere/ca.pem}
virtual_hosts: {empty: {}}
`
	cfg, warnings, err := Parse([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range warnings {
		got = append(got, fmt.Sprintf("%d %s %s", w.Line, w.Code, w.Path))
		if w.Text == "" {
			t.Errorf("%s: no text", w.Path)
		}
	}
	want := []string{
		"3 literal_secret admin.token",
		"10 protected_header backends.a.headers.add.Content_Type",
		"10 protected_header backends.a.headers.add.Host",
		"10 protected_header backends.a.headers.add.Traceparent",
		"13 protected_header backends.a.headers.forward_caller.Origin",
		"13 protected_header backends.a.headers.forward_caller.X-A",
		"13 protected_header backends.a.headers.forward_caller.X-B",
		"13 protected_header backends.a.headers.forward_caller.X-D",
		"9 protected_header backends.a.headers.passthrough[0]",
		"9 protected_header backends.a.headers.passthrough[1]",
		"9 protected_header backends.a.headers.passthrough[3]",
		"9 protected_header backends.a.headers.passthrough[4]",
		"9 protected_header backends.a.headers.passthrough[5]",
		"11 protected_header backends.a.headers.remove[0]",
		"11 protected_header backends.a.headers.remove[2]",
		"14 unused backends.a.tls",
		"14 unused backends.a.tls.ca_file",
		"6 plain_credential backends.a.url",
		"15 unused virtual_hosts.empty",
		"5 unused backends.a",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	route := routes.Backend{
		URL: "http://backend.example/mcp", PassthroughHeaders: []string{"X-Ok"}, RemoveHeaders: []string{"X-Other"},
		AddHeaders:    map[string]routes.SecretRef{"X-Fine": "y", "Authorization": "${env:WEIR_T_GITHUB}"},
		ForwardCaller: map[string]string{"X-E": "X-F"}, TLS: routes.TLS{CAFile: "/nowhere/ca.pem"},
	}
	if diff := cmp.Diff(route, cfg.Backends[0].Route); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if _, _, err := Load(t.Context(), path); !os.IsNotExist(unwrapAll(err)) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte(base), 0o600); err != nil {
		t.Fatal(err)
	}
	if cfg, _, err := Load(t.Context(), path); err != nil || cfg.Redis.URL == "" {
		t.Errorf("Load = %+v, %v", cfg, err)
	}
	if err := os.Truncate(path, process.MaxConfig+1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(t.Context(), path); err == nil || !strings.Contains(err.Error(), "over 16MiB") {
		t.Errorf("a huge file: %v", err)
	}
}

func unwrapAll(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok || os.IsNotExist(err) {
			return err
		}
		err = u.Unwrap()
	}
}

func FuzzParse(f *testing.F) {
	f.Add(base)
	f.Add(base + "backends: {a: {url: 'http://x', headers: {add: {X: y}}}}\nvirtual_hosts: {v: {backends: [{name: a}]}}\n")
	f.Add(base + "plugins: [{name: a, kind: b, mode: disabled, settings: &a [*a]}]")
	f.Fuzz(func(t *testing.T, doc string) {
		cfg, _, err := Parse([]byte(doc))
		if (cfg == nil) == (err == nil) {
			t.Errorf("Parse = %v, %v", cfg, err)
		}
	})
}
