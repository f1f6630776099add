package cli

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/deploy/process"
)

// run runs a command line and returns what it printed.
func run(t *testing.T, env map[string]string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := Run(t.Context(), args, Env{Stdout: &out, Stderr: &out, Getenv: func(name string) string { return env[name] }})
	return out.String(), err
}

func TestUsageErrors(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"nothing":                   {nil, "missing: --config"},
		"no such flag":              {[]string{"--confg", "x"}, "flag provided but not defined: -confg; see weir-controlplane --help"},
		"no such command":           {[]string{"frobnicate", "it"}, `unknown command "frobnicate it"`},
		"half a command":            {[]string{"config"}, `unknown command "config"`},
		"a word too many":           {[]string{"--config", "x", "y"}, `unexpected argument "y"`},
		"check without a file":      {[]string{"config", "check"}, "missing: --config"},
		"check of no file":          {[]string{"config", "check", "--config", "/nowhere/weir.yaml"}, "no such file"},
		"mint says all that misses": {[]string{"token", "mint"}, "missing: --key-file, --issuer, --audience, --subject"},
		"mint with a bad ttl":       {[]string{"token", "mint", "--ttl", "soon"}, "invalid value"},
		"mint with a scope that is none": {[]string{"token", "mint", "--key-file", "x", "--issuer", "i", "--audience", "a", "--subject", "s",
			"--scope", "mcp:tools mcp:toolz"}, `"mcp:toolz" grants nothing`},
		"mint with a glob for prompts": {[]string{"token", "mint", "--key-file", "x", "--issuer", "i", "--audience", "a", "--subject", "s",
			"--scope", "mcp:prompts:x*"}, `"mcp:prompts:x*" grants nothing`},
		"mint with an empty glob": {[]string{"token", "mint", "--key-file", "x", "--issuer", "i", "--audience", "a", "--subject", "s",
			"--scope", "mcp:tools:"}, `"mcp:tools:" grants nothing`},
		"mint with too many scopes": {[]string{"token", "mint", "--key-file", "x", "--issuer", "i", "--audience", "a", "--subject", "s",
			"--scope", strings.Repeat("x ", 65)}, "more than 64 scopes"},
		"mint with a claim and no =": {[]string{"token", "mint", "--claim", "x"}, "want NAME=VALUE"},
		"mint with no such key": {[]string{"token", "mint", "--key-file", "/nowhere/key", "--issuer", "i", "--audience", "a", "--subject", "s"},
			"no such file"},
		"mint with no such algorithm": {[]string{"token", "mint", "--key-file", "x", "--alg", "none", "--issuer", "i", "--audience", "a", "--subject", "s"},
			"algorithm"},
		"explain without anything": {[]string{"explain"}, "missing: --admin, --host"},
		"explain nothing":          {[]string{"explain", "--admin", "http://x", "--host", "h"}, "exactly one of"},
		"explain two things":       {[]string{"explain", "--admin", "http://x", "--host", "h", "--tool", "t", "--prompt", "p"}, "exactly one of"},
		"explain without a token":  {[]string{"explain", "--admin", "http://x", "--host", "h", "--tool", "t"}, "WEIR_ADMIN_TOKEN"},
		"explain where there is no URL": {[]string{"explain", "--admin", "x:1", "--host", "h", "--tool", "t", "--admin-token", "x"},
			"want the http or https URL"},
		"explain with no such CA": {[]string{"explain", "--admin", "https://x", "--ca-file", "/nowhere", "--host", "h", "--tool", "t", "--admin-token", "x"},
			"--ca-file: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, nil, tt.args...)
			if _, ok := errors.AsType[*process.ConfigError](err); !ok || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want a ConfigError with %q", err, tt.want)
			}
			if out != "" {
				t.Errorf("printed %q", out)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	out, err := run(t, nil, "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands() {
		if !strings.Contains(out, c.line()) || !strings.Contains(out, c.summary) {
			t.Errorf("help does not tell of %q", c.line())
		}
		own, err := run(t, nil, append(strings.Fields(c.words), "-h")...)
		if c.words != "" && (err != nil || !strings.Contains(own, c.summary) || !strings.Contains(own, "Usage: "+c.line())) {
			t.Errorf("%s -h: %v\n%s", c.words, err, own)
		}
	}
}

// adminAPI answers explain with a status and a body, and checks what it was asked.
func adminAPI(t *testing.T, status int, body string) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer s3cret" {
			t.Errorf("Authorization %q", got)
		}
		if r.URL.Path != "/base/api/v1/explain" || r.URL.Query().Get("host") != "acme" || r.URL.Query().Get("tool") != "gh__open pr" {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestExplain(t *testing.T) {
	const found = `{"host":"acme","version":{"incarnation":"x","epoch":2,"revision":7},"kind":"tool","name":"gh__open pr","found":true,"backend":"github",
		"upstream":"open pr","url":"http://127.0.0.1:7001/mcp","protocol":"2026-07-28","step":"exact"}`
	tests := map[string]struct {
		status int
		body   string
		args   []string
		want   string
		err    string
	}{
		"a route": {status: 200, body: found, want: `tool "gh__open pr" of virtual host acme (epoch 2, revision 7)
  goes to backend github as "open pr"
  at http://127.0.0.1:7001/mcp, protocol 2026-07-28
  found by exact match
`},
		"no route": {status: 200,
			body: `{"host":"acme","kind":"tool","name":"x","found":false,"reason":"nobody offers it","tried":[{"rule":"x*","backend":"b","outcome":"denied"}],
				"held":{"version":{"revision":3}},"steps":[{"step":"filter","backend":"b","upstream":"up","outcome":"stops","text":"deny: it is"},
				{"step":"backend","outcome":"notes","text":"so it is"}],
				"problems":[{"code":"name_taken","backend":"b","text":"a holds it"}]}`,
			want: `tool "x" of virtual host acme (epoch 0, revision 0)
  goes nowhere: nobody offers it
  tried "x*" of b: denied
  the host is held at revision 3; without that, the steps below would decide
  filter stops (backend b, "up"): deny: it is
  backend notes: so it is
  problem name_taken (backend b): a holds it
`, err: `tool "x" goes nowhere`},
		"no route, as it came": {status: 200, body: `{"kind":"tool","name":"x","found":false}`, args: []string{"--json"},
			want: `{"kind":"tool","name":"x","found":false}`, err: `tool "x" goes nowhere`},
		"as it came":       {status: 200, body: found, args: []string{"--json"}, want: found},
		"refused":          {status: 401, body: `{"error":{"code":"unauthorized","message":"the bearer token is required"}}`, err: "401 Unauthorized: the bearer token is required"},
		"another listener": {status: 404, body: "404 page not found", err: "is this admin_listen?"},
		"no JSON":          {status: 200, body: "hello", err: "not what this version of Weir expects"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := adminAPI(t, tt.status, tt.body)
			ca := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
			args := append([]string{"explain", "--admin", s.URL + "/base", "--ca-file", ca, "--host", "acme", "--tool", "gh__open pr"}, tt.args...)
			out, err := run(t, map[string]string{"WEIR_ADMIN_TOKEN": "s3cret"}, args...)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if _, config := errors.AsType[*process.ConfigError](err); config {
				t.Error("a failure at run time counts as one of the flags")
			}
			if diff := cmp.Diff(tt.want, out); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestExplainStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }))
	defer s.Close()
	err := Run(ctx, []string{"explain", "--admin", s.URL, "--admin-token", "x", "--host", "h", "--tool", "t"},
		Env{Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}, Getenv: func(string) string { return "" }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
