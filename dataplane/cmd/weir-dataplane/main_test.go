package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/deploy/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Whatever is wrong with flags or file is a *process.ConfigError, so that the process ends with status 2.
func TestBadFlagsAndFiles(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("lisen: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"no file":           nil,
		"an unknown flag":   {"--confg", bad},
		"an argument":       {"--config", bad, "more"},
		"a missing file":    {"--config", bad + ".not"},
		"a file with fault": {"--config", bad},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), args, io.Discard)
			if _, ok := errors.AsType[*process.ConfigError](err); !ok {
				t.Errorf("error %v, want a *process.ConfigError", err)
			}
		})
	}
	for _, arg := range []string{"--help", "-h", "help"} {
		var out strings.Builder
		if err := run(t.Context(), []string{arg}, &out); err != nil || !strings.Contains(out.String(), "Usage:") {
			t.Errorf("%s: %v, %q", arg, err, out.String())
		}
	}
}
