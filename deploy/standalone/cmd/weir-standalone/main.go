// Weir-standalone runs both planes and a Redis in one process; see package standalone and README.md.
package main

import (
	"context"
	"os"

	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/deploy/standalone"
)

func main() {
	os.Exit(process.Main("weir-standalone", func(ctx context.Context) error {
		return standalone.Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}))
}
