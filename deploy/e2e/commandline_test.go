package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// command runs a binary that ends by itself.
func command(t *testing.T, name string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Env = append(os.Environ(), "WEIR_ADMIN_TOKEN="+adminToken)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Run(); e != nil {
		exit, ok := errors.AsType[*exec.ExitError](e)
		if !ok {
			t.Fatal(e)
		}
		status = exit.ExitCode()
	}
	return status, out.String(), err.String()
}

// Whatever is wrong with a file, each line that a program prints of it names the file and, but for what is missing, the line.
func TestEveryProblemOfAFileSaysWhereItIs(t *testing.T) {
	t.Parallel()
	const auth = "auth: {issuers: [{issuer: i, audiences: [a], algorithms: [HS256], hmac_secret: \"0123456789012345678901234567890123456789\"}]}\n"
	for name, doc := range map[string]string{
		"a torn string on the first line": "\"a",
		"a tab on the first line":         "\tredis: x\n",
		"a torn list":                     "redis: x\nlisten: [\n",
		"an unknown anchor":               "redis: redis://x\nlisten: *addr\n",
		"a list":                          "- redis\n- listen\n",
		"a word":                          "hello\n",
		"several mistakes":                auth + "redis: redis://127.0.0.1:1\nlisen: x\nallowed_origins: [\"*\"]\nlog_level: loud\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, "weir.yaml", doc)
			for program, args := range map[string][]string{
				"weir-controlplane": {"config", "check", "--config", path}, "weir-dataplane": {"--config", path},
				"weir-standalone": {"--listen", "127.0.0.1:0", "--config", path},
			} {
				status, out, said := command(t, program, args...)
				if status != 2 || out != "" && program != "weir-controlplane" {
					t.Errorf("%s: status %d, printed %q; want 2 and nothing", program, status, out)
				}
				lines := strings.Split(strings.TrimSuffix(said, "\n"), "\n")
				where := regexp.MustCompile("^" + program + ": " + regexp.QuoteMeta(path) + `: (dataplane: )?line \d+: `)
				for _, line := range lines {
					if !where.MatchString(line) {
						t.Errorf("%s does not say where: %s", program, line)
					}
				}
				if want := map[bool]int{true: 2, false: 1}[name == "several mistakes"]; len(lines) < want {
					t.Errorf("%s: %d problems, want %d: %s", program, len(lines), want, said)
				}
			}
		})
	}
}

// A config file may be a pipe. While nobody writes to it, a program can be asked to end.
func TestAPipeThatNobodyWritesTo(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "weir.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("no pipes here: %v", err)
	}
	for program, args := range map[string][]string{
		"weir-controlplane": nil, "weir-dataplane": nil, "weir-standalone": {"--listen", "127.0.0.1:0"},
	} {
		p := launch(t, program, append(args, "--config", pipe)...)
		// It waits as soon as the pipe can be opened for writing; and what is opened is not written to.
		var w *os.File
		eventually(t, program+" reads", func() (err error) {
			w, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			return err
		})
		if status := p.terminate(t); status != 0 {
			t.Errorf("%s ended with %d, want 0:\n%s", program, status, p.log())
		}
		w.Close()
	}
}

func TestExitStatuses(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	admin := "http://" + p.control.ready["admin"]
	mint := func(more ...string) []string {
		return append([]string{"token", "mint", "--key-file", p.keyFile, "--alg", "ES256", "--issuer", "i", "--audience", "a", "--subject", "s",
			"--virtual-host", "acme"}, more...)
	}
	for name, tt := range map[string]struct {
		program string
		args    []string
		status  int
		out     string // on stdout or stderr
	}{
		"a port that is none":          {"weir-standalone", []string{"--listen", "127.0.0.1:99999"}, 2, "--listen"},
		"a port by name":               {"weir-standalone", []string{"--listen", "127.0.0.1:http"}, 2, "--listen"},
		"another one":                  {"weir-standalone", []string{"--ops-listen", "127.0.0.1:-1"}, 2, "--ops-listen"},
		"an address that is none":      {"weir-standalone", []string{"--listen", "here"}, 2, "--listen"},
		"a port that is taken":         {"weir-standalone", []string{"--listen", p.control.ready["listen"]}, 1, "--listen"},
		"no virtual host":              {"weir-standalone", []string{"--listen", "127.0.0.1:0", "--config", file(t, "empty.yaml", "")}, 2, "virtual_hosts"},
		"help of a dataplane":          {"weir-dataplane", []string{"--help"}, 0, "docs/config.md"},
		"help of a control plane":      {"weir-controlplane", []string{"--help"}, 0, "docs/config.md"},
		"help of standalone":           {"weir-standalone", []string{"--help"}, 0, "-backend"},
		"a flag that is none":          {"weir-dataplane", []string{"--confg", "x"}, 2, "--help"},
		"no flag":                      {"weir-dataplane", nil, 2, "--config"},
		"explain finds it":             {"weir-controlplane", []string{"explain", "--admin", admin, "--host", "acme", "--tool", "a__whoami"}, 0, "goes to backend alpha"},
		"explain does not":             {"weir-controlplane", []string{"explain", "--admin", admin, "--host", "acme", "--tool", "nope"}, 1, "goes nowhere"},
		"explain does not, as JSON":    {"weir-controlplane", []string{"explain", "--admin", admin, "--host", "acme", "--tool", "nope", "--json"}, 1, `"found": false`},
		"explain of no such host":      {"weir-controlplane", []string{"explain", "--admin", admin, "--host", "nobody", "--tool", "x"}, 1, "404"},
		"a scope that grants nothing":  {"weir-controlplane", mint("--scope", "mcp:toolz"), 2, "grants nothing"},
		"a scope of somebody else":     {"weir-controlplane", mint("--scope", "openid"), 0, "warning"},
		"a token that lasts for years": {"weir-controlplane", mint("--ttl", "87600h"), 0, "warning"},
		"a token without a word":       {"weir-controlplane", mint("--scope", "mcp:tools:a__*", "--ttl", "1h"), 0, "eyJ"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, said := command(t, tt.program, tt.args...)
			if status != tt.status || !strings.Contains(out+said, tt.out) {
				t.Errorf("status %d, want %d and %q\n%s%s", status, tt.status, tt.out, out, said)
			}
			if tt.out == "eyJ" && said != "" || tt.out == "warning" && strings.Contains(out, "warning") {
				t.Errorf("a warning: stdout %q, stderr %q", out, said)
			}
		})
	}
}
