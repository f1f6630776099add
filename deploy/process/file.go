package process

import (
	"context"
	"fmt"
	"io"
	"os"
)

// ReadFile reads a file of at most max bytes. It returns ctx's bare error when ctx ends first: a file may be a pipe that nobody writes
// to, and then what waits for it is left behind until the process ends.
func ReadFile(ctx context.Context, path string, max int64) ([]byte, error) {
	type result struct {
		doc []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		doc, err := readFile(path, max)
		done <- result{doc, err}
	}()
	select {
	case r := <-done:
		return r.doc, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func readFile(path string, max int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	doc, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(doc)) > max {
		return nil, fmt.Errorf("%s is over %s", path, Size(max))
	}
	return doc, nil
}

// MaxConfig bounds a config file, in bytes.
const MaxConfig = 16 << 20
