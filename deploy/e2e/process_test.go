package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for something that should happen soon; it is long because two noisy cores run everything.
const patience = 60 * time.Second

// process is one running binary.
type process struct {
	name  string
	cmd   *exec.Cmd
	ready map[string]string // of the ready line: listen, admin, ops
	ended chan struct{}
	err   error // of Wait, once ended is closed

	mu     sync.Mutex // guards stderr, stdout
	stderr strings.Builder
	stdout strings.Builder
}

// start runs a binary and waits for its ready line. The test fails if it does not come, or if the race detector or a panic
// spoke; the process is killed at the test's end at the latest.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := launch(t, name, args...)
	select {
	case <-p.readyLine(t):
	case <-p.ended:
		t.Fatalf("%s ended before it was ready: %v\n%s", name, p.err, p.log())
	case <-time.After(patience):
		t.Fatalf("%s was not ready in %v\n%s", name, patience, p.log())
	}
	return p
}

// launch runs a binary and does not wait.
func launch(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(filepath.Join(bin, name), args...), ended: make(chan struct{})}
	// A killed process leaves its temporary files: they go with the test.
	p.cmd.Env = append(os.Environ(), "WEIR_ADMIN_TOKEN="+adminToken, "WEIR_INTERNAL_TOKEN="+internalToken, "TMPDIR="+t.TempDir())
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for _, in := range []struct {
		from *bufio.Scanner
		to   *strings.Builder
	}{{bufio.NewScanner(stderr), &p.stderr}, {bufio.NewScanner(stdout), &p.stdout}} {
		in.from.Buffer(nil, 1<<20)
		readers.Go(func() {
			for in.from.Scan() {
				p.mu.Lock()
				fmt.Fprintln(in.to, in.from.Text())
				p.mu.Unlock()
			}
		})
	}
	go func() {
		readers.Wait()
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		log := p.log()
		for _, bad := range []string{"WARNING: DATA RACE", "panic:", "fatal error:"} {
			if strings.Contains(log, bad) {
				t.Errorf("%s wrote %q:\n%s", name, bad, log)
			}
		}
		if t.Failed() {
			t.Logf("log of %s %v:\n%s", name, args, tail(log, 80))
		}
	})
	return p
}

// readyLine is closed once the ready line was read.
func (p *process) readyLine(t *testing.T) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			for line := range strings.Lines(p.log()) {
				if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "ready "); ok {
					p.ready = map[string]string{}
					for _, kv := range strings.Fields(rest) {
						k, v, _ := strings.Cut(kv, "=")
						p.ready[k] = v
					}
					return
				}
			}
			select {
			case <-p.ended:
				return
			case <-t.Context().Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return done
}

// url is the MCP endpoint of the process.
func (p *process) url() string { return "http://" + p.ready["listen"] + "/mcp" }

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

func (p *process) out() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stdout.String()
}

// kill is kill -9; it waits until the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may have ended already
	<-p.ended
}

// terminate asks for an orderly end and returns the exit status.
func (p *process) terminate(t *testing.T) int {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	return p.wait(t)
}

func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("%s did not end in %v\n%s", p.name, patience, tail(p.log(), 80))
	}
	return p.cmd.ProcessState.ExitCode()
}

func tail(s string, n int) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// eventually waits until check returns nil; the test fails with its last error.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("%s: not within %v: %v", what, patience, err)
}

// file writes a config file and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// errNotYet is what a check returns while there is nothing to say yet.
var errNotYet = errors.New("not yet")
