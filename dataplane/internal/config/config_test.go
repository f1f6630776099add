package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// smallest is the least that a file must say.
const smallest = `
redis: redis://127.0.0.1:6379/0
auth:
  issuers:
    - {issuer: https://idp.example, audiences: [weir], algorithms: [HS256], hmac_secret: "${env:WEIR_TEST_HMAC}"}
`

const hmac = "0123456789abcdef0123456789abcdef"

func TestTheSmallestFileGetsDefaults(t *testing.T) {
	t.Setenv("WEIR_TEST_HMAC", hmac)
	c, err := Parse([]byte(smallest))
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:8080" || c.OpsListen != "127.0.0.1:9080" || c.DelegatedMethods != Reject || c.Redis.URL != "redis://127.0.0.1:6379/0" ||
		c.Drain != (Drain{5 * time.Second, 30 * time.Second}) || c.FailClosedAfter != 0 || c.LogLevel != "info" {
		t.Errorf("defaults: %+v", c)
	}
	want := Limits{Body: 4 << 20, MCPHeaders: 32, MCPHeaderValue: 8192, MCPHeadersTotal: 65536, Response: 16 << 20, CallsPerPrincipal: 256, CallsPerBackend: 1024}
	if c.Limits != want {
		t.Errorf("limits %+v, want %+v", c.Limits, want)
	}
	if got := c.Auth.Issuers[0].HMACSecret; got != hmac {
		t.Errorf("the reference was not expanded: %q", got)
	}
	if err := c.Check(); err != nil {
		t.Errorf("checked again: %v", err)
	}
}

func TestEverythingCanBeSaid(t *testing.T) {
	t.Setenv("WEIR_TEST_HMAC", hmac)
	t.Setenv("WEIR_TEST_TOKEN", strings.Repeat("t", 32))
	c, err := Parse([]byte(`
redis: {url: "redis://127.0.0.1:6379/0", key_prefix: "w:"}
listen: 0.0.0.0:80
ops_listen: 127.0.0.1:81
auth:
  virtual_host_claim: vh
  issuers: [{issuer: https://idp.example, audiences: [resource], algorithms: [HS256], hmac_secret: "${env:WEIR_TEST_HMAC}", leeway: 5s}]
allowed_origins: ["https://app.example"]
allowed_hosts: [mcp.example.com]
public_url: https://mcp.example.com/base
control_plane: {url: "http://127.0.0.1:8081", admin_url: "http://127.0.0.1:8082", token: "${env:WEIR_TEST_TOKEN}"}
delegated_methods: forward
secrets: {env: ["WEIR_BACKEND_*"], dirs: [/run/secrets/weir]}
drain: {delay: 0s, deadline: 1m}
fail_closed_after: 10m
limits: {body: 1MiB, mcp_headers: 8, mcp_header_value: 100, mcp_headers_total: 1000, response: 64KiB, calls_per_principal: -1, calls_per_backend: 7}
log_level: debug
`))
	if err != nil {
		t.Fatal(err)
	}
	if c.Drain != (Drain{0, time.Minute}) || c.Limits.Body != 1<<20 || c.Limits.Response != 64<<10 || c.Limits.CallsPerPrincipal != -1 ||
		c.ControlPlane.Token != strings.Repeat("t", 32) || c.DelegatedMethods != Forward || c.Redis.KeyPrefix != "w:" || c.FailClosedAfter != 10*time.Minute {
		t.Errorf("decoded %+v", c)
	}
}

// One run shows everything that is wrong, each with its line.
func TestAllProblemsAtOnce(t *testing.T) {
	_, err := Parse([]byte(`listen: nowhere
ops_lisen: 127.0.0.1:1
redis: {url: "http://nope"}
auth:
  issuers:
    - {issuer: https://idp.example, audiences: [weir], algorithms: [none]}
public_url: https://user:secret@mcp.example.com
delegated_methods: forward
control_plane: {token: short}
secrets: {dirs: [relative]}
drain: {delay: soon}
limits: {body: 4 parsecs, response: -1}
log_level: loud
no_auth: true
`))
	if err == nil {
		t.Fatal("no error")
	}
	text := err.Error()
	for _, want := range []string{
		"line 1: listen", "line 2: ", "ops_lisen", "line 3: redis", "line 6: auth.issuers[0]", "line 7: public_url", "line 8: delegated_methods",
		"line 9: control_plane.token", "line 10: secrets", "line 11: ", "line 12: ", "line 13: log_level", "line 14: ", "no_auth",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing says %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "secret@") || strings.Contains(text, "short") {
		t.Errorf("a secret is shown:\n%s", text)
	}
}

func TestOneMistakeIsOneProblem(t *testing.T) {
	t.Setenv("WEIR_TEST_HMAC", hmac)
	for name, tt := range map[string]struct{ add, want string }{
		"no YAML":                    {"a: [", "line "},
		"an unset secret":            {"control_plane: {token: \"${env:WEIR_TEST_UNSET}\"}", "control_plane.token: ${env:WEIR_TEST_UNSET}"},
		"forward without a target":   {"delegated_methods: forward", "control_plane.url"},
		"a word for a number":        {"limits: {mcp_headers: many}", "line "},
		"a negative duration":        {"fail_closed_after: -1s", "fail_closed_after"},
		"no host and port":           {"listen: \":\"", "listen"},
		"an unknown mode":            {"delegated_methods: perhaps", "delegated_methods"},
		"a URL with a password":      {"control_plane: {url: \"http://a:b@127.0.0.1\"}", "control_plane.url"},
		"a URL with a query":         {"public_url: \"https://a.example/?x=1\"", "public_url"},
		"a relative URL":             {"public_url: mcp.example.com", "public_url"},
		"a glob that is too long":    {"secrets: {env: [\"" + strings.Repeat("a", 300) + "\"]}", "secrets"},
		"a certificate without key":  {"tls: {cert_file: /nowhere/cert.pem}", "tls"},
		"a field of a deeper struct": {"drain: {dealy: 1s}", "dealy"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(smallest + tt.add + "\n"))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			if n := len(process.Problems(err)); n != 1 {
				t.Errorf("%d problems, want 1:\n%v", n, err)
			}
		})
	}
}

func TestWithoutAuthNoIssuerIsNeeded(t *testing.T) {
	c := Default()
	c.Redis.URL = "redis://127.0.0.1:6379/0"
	if err := c.Check(); err == nil {
		t.Error("a config without issuers must be refused")
	}
	c.NoAuth = true
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	if c.NoAuthHost != "default" {
		t.Errorf("host %q", c.NoAuthHost)
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dp.yaml")
	if _, err := Load(t.Context(), path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want not-exist", err)
	}
	if err := os.WriteFile(path, []byte("lisen: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("error %v, want the path and the line", err)
	}
}

// A rotated secret needs no restart.
func TestHMACSecretIsReadAnew(t *testing.T) {
	t.Setenv("WEIR_TEST_HMAC", hmac)
	c, err := Parse([]byte(smallest))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("WEIR_TEST_HMAC", strings.Repeat("n", 32))
	if got, err := c.HMACSecret("https://idp.example"); err != nil || got != strings.Repeat("n", 32) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := c.HMACSecret("https://other.example"); err == nil {
		t.Error("an unknown issuer has no secret")
	}
}

func TestWarnings(t *testing.T) {
	const url, admin = "http://127.0.0.1:8081", "http://127.0.0.1:8082"
	for name, tt := range map[string]struct {
		plane ControlPlane
		want  string // in the warning; empty: there is none
	}{
		"all that tasks need":          {ControlPlane{URL: url, AdminURL: admin, Token: "t"}, ""},
		"no admin_url":                 {ControlPlane{URL: url}, "control_plane.admin_url is not set"},
		"no token":                     {ControlPlane{URL: url, AdminURL: admin}, "control_plane.token is not set"},
		"the MCP listener's address":   {ControlPlane{URL: url, AdminURL: url, Token: "t"}, "is control_plane.url"},
		"plain HTTP over a network":    {ControlPlane{URL: url, AdminURL: "http://cp.internal:8082", Token: "t"}, "unencrypted"},
		"TLS over a network":           {ControlPlane{URL: url, AdminURL: "https://cp.internal:8082", Token: "t"}, ""},
		"plain HTTP on this machine":   {ControlPlane{URL: url, AdminURL: "http://localhost:8082", Token: "t"}, ""},
		"plain HTTP on this machine 6": {ControlPlane{URL: url, AdminURL: "http://[::1]:8082", Token: "t"}, ""},
		"a file that is not there": {ControlPlane{URL: url, AdminURL: admin, Token: "t", TLS: routes.TLS{CAFile: filepath.Join(t.TempDir(), "ca.pem")}},
			"control_plane.tls.ca_file: "},
	} {
		t.Run(name, func(t *testing.T) {
			got := (&Config{ControlPlane: tt.plane}).Warnings()
			if tt.want == "" && len(got) == 0 {
				return
			}
			if len(got) != 1 || !strings.Contains(got[0], tt.want) || tt.want == "" {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
