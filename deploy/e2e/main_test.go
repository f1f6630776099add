package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	// The binaries are built from these. Importing them makes a change of theirs a change of this test for Go's test cache.
	_ "github.com/weir-mcp/weir/controlplane"
	_ "github.com/weir-mcp/weir/dataplane"
	_ "github.com/weir-mcp/weir/deploy/standalone"
)

// bin is the folder of the binaries that TestMain built, of this very tree.
var bin string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weir-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	args := []string{"build"}
	if raceEnabled {
		args = append(args, "-race")
	}
	args = append(args, "-o", dir+string(filepath.Separator),
		"../../controlplane/cmd/weir-controlplane", "../../dataplane/cmd/weir-dataplane", "../standalone/cmd/weir-standalone", "../standalone/cmd/weir-demo")
	build := exec.Command("go", args...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the binaries:", err)
		return 1
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}
