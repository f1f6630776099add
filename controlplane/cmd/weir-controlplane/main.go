// Command weir-controlplane runs the control plane, and has a few tools around it: see weir-controlplane --help.
package main

import (
	"context"
	"os"

	"github.com/weir-mcp/weir/controlplane/internal/cli"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/controlplane/internal/source"
	"github.com/weir-mcp/weir/controlplane/internal/source/kubernetes"
	"github.com/weir-mcp/weir/deploy/process"
)

func main() { os.Exit(run()) }

func run() int {
	return process.Main("weir-controlplane", func(ctx context.Context) error {
		return cli.Run(ctx, os.Args[1:], cli.Env{
			Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
			Sources: map[string]source.Opener{config.KindKubernetes: kubernetes.Open},
		})
	})
}
