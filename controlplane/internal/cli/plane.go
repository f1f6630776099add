package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes/redisstore"
)

// load reads a config file; a fault is a *process.ConfigError, each problem with the file's name. When ctx ends first the error is its
// own.
func load(ctx context.Context, path string) (*controlplane.Config, []config.Warning, error) {
	if path == "" {
		return nil, nil, needed(nil, "config")
	}
	cfg, warnings, err := controlplane.LoadConfig(ctx, path)
	switch {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case err != nil:
		return nil, warnings, &process.ConfigError{Err: process.InFile(path, err)}
	}
	return cfg, warnings, nil
}

func runPlane(ctx context.Context, env Env, c command, args []string) error {
	flags := flag.NewFlagSet(program, flag.ContinueOnError)
	path := flags.String("config", "", "config `FILE`; docs/config.md describes it")
	if err := c.parse(flags, args, env); err != nil {
		return helped(err)
	}
	cfg, warnings, err := load(ctx, *path)
	if err != nil {
		return err
	}
	log, err := process.NewLogger(cfg.LogLevel)
	if err != nil {
		return &process.ConfigError{Err: err}
	}
	defer func() { _ = log.Sync() }() // stderr can't always be synced; there is nothing left to tell
	for _, w := range warnings {
		log.Warn("config", zap.Int("line", w.Line), zap.String("path", w.Path), zap.String("code", w.Code), zap.String("warning", w.Text))
	}
	redisstore.SilenceClients() // what matters of it comes back as errors
	s, err := controlplane.New(cfg, controlplane.Options{Log: log, ConfigPath: *path, Warnings: warnings, Sources: env.Sources, Stderr: env.Stderr})
	if err != nil {
		return &process.ConfigError{Err: process.InFile(*path, err)}
	}
	return s.Run(ctx)
}

func checkConfig(ctx context.Context, env Env, c command, args []string) error {
	flags := flag.NewFlagSet("config check", flag.ContinueOnError)
	path := flags.String("config", "", "config `FILE` to check")
	if err := c.parse(flags, args, env); err != nil {
		return helped(err)
	}
	cfg, warnings, err := load(ctx, *path)
	for _, w := range warnings {
		line := ""
		if w.Line > 0 {
			line = fmt.Sprintf("line %d: ", w.Line)
		}
		if _, err := fmt.Fprintf(env.Stdout, "%s: %swarning: %s: %s\n", *path, line, w.Path, w.Text); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	// The plane reads key files and certificates when it is built; nothing of it is started.
	if _, err := controlplane.New(cfg, controlplane.Options{}); err != nil {
		return &process.ConfigError{Err: process.InFile(*path, err)}
	}
	_, err = fmt.Fprintf(env.Stdout, "%s: ok: %s, %s, %s\n", *path, count(len(cfg.Backends), "backend"), count(len(cfg.VirtualHosts), "virtual host"),
		count(len(warnings), "warning"))
	return err
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// helped turns a printed help into success.
func helped(err error) error {
	if errors.Is(err, errHelp) {
		return nil
	}
	return err
}
