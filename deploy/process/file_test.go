package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if doc, err := ReadFile(t.Context(), path, 5); err != nil || string(doc) != "12345" {
		t.Errorf("%q, %v", doc, err)
	}
	if _, err := ReadFile(t.Context(), path, 4); err == nil || !strings.Contains(err.Error(), "is over 4") {
		t.Errorf("a file that is too large: %v", err)
	}
	if _, err := ReadFile(t.Context(), path+"-", 4); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// A pipe that nobody writes to does not keep a process from ending.
func TestReadFileEndsWithItsContext(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("no pipes here: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ReadFile(ctx, pipe, 5); err != context.Canceled {
		t.Errorf("error %v, want the context's own", err)
	}
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // lets the reader go
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
}
