package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Exit statuses of every binary.
const (
	ExitOK     = 0
	ExitFailed = 1 // something went wrong while running
	ExitUsage  = 2 // a bad flag or config file
)

// ConfigError marks a bad flag or config file: exit status 2.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// Main runs f with a context that ends at SIGTERM or SIGINT (a second one exits at once, with status 1), prints an error to stderr
// and returns the exit status: 0, 1 (run time) or 2 (*ConfigError).
func Main(name string, f func(ctx context.Context) error) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-signals:
				if ctx.Err() != nil {
					os.Exit(ExitFailed)
				}
				cancel()
			case <-done:
				return
			}
		}
	}()
	err := f(ctx)
	signal.Stop(signals)
	close(done)
	<-stopped
	return report(os.Stderr, name, err)
}

// report prints err, one problem a line, and returns the exit status for it.
func report(w io.Writer, name string, err error) int {
	if err == nil || err == context.Canceled { // the latter bare: a plane that only says that it was asked to stop
		return ExitOK
	}
	status := ExitFailed
	if _, ok := errors.AsType[*ConfigError](err); ok {
		status = ExitUsage
	}
	// The status says it all when stderr is closed.
	for line := range strings.Lines(strings.TrimRight(err.Error(), "\n") + "\n") {
		_, _ = fmt.Fprintf(w, "%s: %s", name, line)
	}
	return status
}
