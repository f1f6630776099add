package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/weir-mcp/weir/dataplane"
	"github.com/weir-mcp/weir/deploy/process"
)

// checkConfig prints every problem and warning of a config file, as `weir-controlplane config check` does. It starts nothing.
func checkConfig(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("config check", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	path := flags.String("config", "", "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, err := io.WriteString(stdout, usage)
		return err
	case err != nil:
		return &process.ConfigError{Err: fmt.Errorf("%w; see weir-dataplane --help", err)}
	case *path == "" || flags.NArg() > 0:
		return &process.ConfigError{Err: errors.New("config check takes --config FILE and nothing else; see weir-dataplane --help")}
	}
	cfg, err := dataplane.LoadConfig(ctx, *path)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return &process.ConfigError{Err: err}
	}
	// The plane reads key files and certificates when it is built.
	if _, err := dataplane.New(cfg, dataplane.Options{}); err != nil {
		return &process.ConfigError{Err: process.InFile(*path, err)}
	}
	warnings := cfg.Warnings()
	for _, w := range warnings {
		if _, err := fmt.Fprintf(stdout, "%s: warning: %s\n", *path, w); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(stdout, "%s: ok, warnings: %d\n", *path, len(warnings))
	return err
}
