package process

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("WEIR_TEST_MAIN") != "" {
		os.Exit(Main("weir-test", childMain))
	}
	goleak.VerifyTestMain(m)
}

// childMain is what TestMain runs in the child process that TestSignals starts.
func childMain(ctx context.Context) error {
	_, _ = os.Stdout.WriteString("up\n")
	<-ctx.Done()
	switch os.Getenv("WEIR_TEST_MAIN") {
	case "stubborn":
		_, _ = os.Stdout.WriteString("stopping\n")
		select {}
	case "fails":
		return errors.New("could not flush")
	}
	return nil
}

func TestReport(t *testing.T) {
	tests := map[string]struct {
		err    error
		status int
		out    string
	}{
		"no error":                             {nil, 0, ""},
		"asked to stop":                        {context.Canceled, 0, ""},
		"run time":                             {errors.New("boom"), 1, "weir: boom\n"},
		"config, wrapped":                      {errors.Join(&ConfigError{errors.New("bad")}), 2, "weir: bad\n"},
		"every problem on its own line":        {&ConfigError{errors.Join(errors.New("a"), errors.New("b"))}, 2, "weir: a\nweir: b\n"},
		"a real error beside the cancellation": {errors.Join(context.Canceled, errors.New("boom")), 1, "weir: context canceled\nweir: boom\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if got := report(&out, "weir", tt.err); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
			if out.String() != tt.out {
				t.Errorf("printed %q, want %q", out.String(), tt.out)
			}
		})
	}
}

func TestSignals(t *testing.T) {
	tests := map[string]struct {
		mode   string
		sigs   []os.Signal
		status int
		stderr string
	}{
		"SIGTERM ends the context":     {"obeys", []os.Signal{syscall.SIGTERM}, 0, ""},
		"SIGINT too":                   {"obeys", []os.Signal{syscall.SIGINT}, 0, ""},
		"an error on the way out is 1": {"fails", []os.Signal{syscall.SIGTERM}, 1, "weir-test: could not flush\n"},
		"a second signal exits at once": {"stubborn",
			[]os.Signal{syscall.SIGTERM, syscall.SIGTERM}, 1, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "WEIR_TEST_MAIN="+tt.mode)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 64)
			for _, sig := range tt.sigs { // the child says a line whenever it is ready for the next one
				if _, err := stdout.Read(buf); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
			}
			_ = cmd.Wait() // its status is looked at below
			if got := cmd.ProcessState.ExitCode(); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
			if got := strings.TrimPrefix(stderr.String(), "\n"); got != tt.stderr {
				t.Errorf("stderr %q, want %q", got, tt.stderr)
			}
		})
	}
}
