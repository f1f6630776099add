package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The README's story of a job that outlives its gateway, pasted as it stands. Only its ports are others, and the binaries are those of
// this run.
func TestTheStoryOfTheReadme(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "curl", "redis-server"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s on this machine: the story can't be pasted", program)
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, story, _ := strings.Cut(string(readme), "## A job that outlives its gateway")
	_, story, _ = strings.Cut(story, "```sh\n")
	story, _, found := strings.Cut(story, "```")
	if !found {
		t.Fatal("the README has no such story")
	}
	story = strings.NewReplacer("make build && ", "", "bin/", bin+string(filepath.Separator)).Replace(story)
	for _, port := range []string{"6399", "7000", "8080", "8090"} {
		story = regexp.MustCompile(`\b`+port+`\b`).ReplaceAllString(story, freePort(t))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", story)
	shell.Dir = t.TempDir() // Redis writes where it stands
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	shell.Stdout, shell.Stderr = &out, &out
	shell.WaitDelay = 5 * time.Second
	runErr := shell.Run()
	_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) // whatever is left; mostly nothing is
	var answers []string
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "{") {
			answers = append(answers, line)
		}
	}
	if len(answers) < 3 {
		t.Fatalf("the story ended with %v and said:\n%s", runErr, out.String())
	}
	for i, want := range []string{`"status":"working"`, `"result":{"resultType":"complete"}`, `"status":"cancelled"`} {
		if got := answers[len(answers)-3+i]; !strings.Contains(got, want) {
			t.Errorf("answer %d is %s, want %s", i+1, got, want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// freePort is one that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return fmt.Sprint(ln.Addr().(*net.TCPAddr).Port)
}
