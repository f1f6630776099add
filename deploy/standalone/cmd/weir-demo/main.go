// Weir-demo serves the demo backends alone, for a Weir whose processes come and go; see README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/deploy/standalone/demo"
)

func main() {
	os.Exit(process.Main("weir-demo", func(ctx context.Context) error { return run(ctx, os.Args[1:]) }))
}

func run(ctx context.Context, args []string) (err error) {
	fs := flag.NewFlagSet("weir-demo", flag.ContinueOnError)
	listen := fs.String("listen", "127.0.0.1:7000", "`ADDR`ESS to serve the demo backends on; port 0 takes a free one")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return &process.ConfigError{Err: err}
	}
	servers, err := demo.Start(*listen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	fmt.Fprint(os.Stderr, "ready")
	for _, b := range servers.Backends {
		fmt.Fprintf(os.Stderr, " %s=%s", b.Name, b.URL)
	}
	fmt.Fprintln(os.Stderr)
	return servers.Wait(ctx)
}
