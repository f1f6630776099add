// Command weir-dataplane runs one dataplane.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/weir-mcp/weir/dataplane"
	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes/redisstore"
)

func main() {
	signal.Ignore(syscall.SIGHUP) // meant for the control plane: files are re-read when they change, and calls must not be cut
	os.Exit(process.Main("weir-dataplane", func(ctx context.Context) error { return run(ctx, os.Args[1:]) }))
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("weir-dataplane", flag.ContinueOnError)
	path := flags.String("config", "", "path of the config `file`")
	version := flags.Bool("version", false, "print the version and exit")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return &process.ConfigError{Err: err}
	case *version:
		_, err := fmt.Println(process.VersionLine("weir-dataplane"))
		return err
	case *path == "" || flags.NArg() > 0:
		return &process.ConfigError{Err: errors.New("usage: weir-dataplane --config FILE")}
	}
	cfg, err := dataplane.LoadConfig(*path)
	if err != nil {
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
		return &process.ConfigError{Err: err}
	}
	return s.Run(ctx)
}
