// Command weir-dataplane runs one dataplane.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/weir-mcp/weir/dataplane"
	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes/redisstore"
)

func main() {
	signal.Ignore(syscall.SIGHUP) // meant for the control plane: files are re-read when they change, and calls must not be cut
	os.Exit(process.Main("weir-dataplane", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) }))
}

const usage = `weir-dataplane forwards MCP calls, each to one backend, by the tables that a control plane publishes to Redis.

Usage:
  weir-dataplane --config FILE
      run a dataplane; SIGTERM drains
  weir-dataplane config check --config FILE
      validate a config file; print every problem and warning
  weir-dataplane --version

The config file is described in docs/config.md. The process is ready with the line "ready listen=… ops=…" on stderr.
Exit status: 0 fine, 1 a failure while running, 2 a bad flag or config file.
`

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) > 1 && args[0] == "config" && args[1] == "check" {
		return checkConfig(ctx, args[2:], stdout)
	}
	flags := flag.NewFlagSet("weir-dataplane", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	path := flags.String("config", "", "")
	version := flags.Bool("version", false, "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp) || flags.NArg() == 1 && flags.Arg(0) == "help":
		_, err := io.WriteString(stdout, usage)
		return err
	case err != nil:
		return &process.ConfigError{Err: fmt.Errorf("%w; see weir-dataplane --help", err)}
	case *version:
		_, err := fmt.Fprintln(stdout, process.VersionLine("weir-dataplane"))
		return err
	case flags.NArg() > 0:
		return &process.ConfigError{Err: fmt.Errorf("unexpected argument %q; see weir-dataplane --help", flags.Arg(0))}
	case *path == "":
		return &process.ConfigError{Err: errors.New("missing: --config FILE; see weir-dataplane --help")}
	}
	cfg, err := dataplane.LoadConfig(ctx, *path)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return &process.ConfigError{Err: err}
	}
	log, err := process.NewLogger(cfg.LogLevel)
	if err != nil {
		return &process.ConfigError{Err: err}
	}
	defer func() { _ = log.Sync() }() // stderr can't always be synced; there is nothing left to tell
	redisstore.SilenceClients()       // what matters of it comes back as errors
	s, err := dataplane.New(cfg, dataplane.Options{Log: log, Stderr: os.Stderr})
	if err != nil {
		return &process.ConfigError{Err: process.InFile(*path, err)}
	}
	return s.Run(ctx)
}
