// Bench measures the dataplane against a bare httputil.ReverseProxy before the same echo backend, in one run and alternating, so
// that the noise of the machine hits both. What it prints are ratios; absolute numbers are those of the machine. See
// `make bench` and docs/performance.md.
//
// It is four processes: the load (this one), the backend, the proxy, and a built weir-dataplane. CPU is what each process's own
// accounting says. The routing table is published to an embedded Redis by the code that the control plane uses.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := mainErr(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// plan is what one run measures.
type plan struct {
	dataplane string // path of the binary
	conns     []int
	sizes     []int // bytes of the echoed message
	rounds    int
	round     time.Duration
	legacy    bool
	stream    bool // backends answer with event streams
	lookups   bool
}

func mainErr(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) > 0 {
		switch args[0] { // the children of a run
		case "modern-backend":
			return serveBackend(ctx, modernBackend(len(args) > 1))
		case "legacy-backend":
			return serveBackend(ctx, legacyBackend(len(args) > 1))
		case "proxy":
			return serveProxy(ctx, args[1:])
		}
	}
	p := plan{}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&p.dataplane, "dataplane", "bin/weir-dataplane", "the weir-dataplane `BINARY`")
	conns := fs.String("conns", "1,8,64,256", "connections, comma separated")
	sizes := fs.String("sizes", "64,4096,1048576", "message sizes in bytes, comma separated")
	fs.IntVar(&p.rounds, "rounds", 3, "how often each way is measured, alternating")
	fs.DurationVar(&p.round, "round", time.Second, "how long one round lasts")
	fs.BoolVar(&p.legacy, "legacy", true, "measure a legacy backend too")
	fs.BoolVar(&p.stream, "stream", false, "have the backends answer with event streams instead of JSON")
	fs.BoolVar(&p.lookups, "lookups", true, "measure look-ups at 1 to 10^6 routes")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var err error
	if p.conns, err = numbers(*conns); err != nil {
		return fmt.Errorf("-conns: %w", err)
	}
	if p.sizes, err = numbers(*sizes); err != nil {
		return fmt.Errorf("-sizes: %w", err)
	}
	if p.rounds < 1 || p.round <= 0 {
		return errors.New("-rounds and -round must be positive")
	}
	return measure(ctx, p, out, progress)
}

func numbers(list string) ([]int, error) {
	var out []int
	for _, s := range strings.Split(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a positive number", s)
		}
		out = append(out, n)
	}
	return out, nil
}

// measure starts everything, runs the plan and writes the report as Markdown.
func measure(ctx context.Context, p plan, out, progress io.Writer) (err error) {
	if p.lookups {
		fmt.Fprintln(progress, "look-ups …")
		if err := reportLookups(out); err != nil {
			return err
		}
	}
	eras := []string{"modern"}
	if p.legacy {
		eras = append(eras, "legacy")
	}
	for _, era := range eras {
		if err := measureEra(ctx, p, era, out, progress); err != nil {
			return fmt.Errorf("%s: %w", era, err)
		}
	}
	return nil
}

func measureEra(ctx context.Context, p plan, era string, out, progress io.Writer) (err error) {
	rig, err := newRig(ctx, p, era)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	how := ""
	if p.stream {
		how = ", event streams"
	}
	fmt.Fprintf(out, "\n### tools/call, %s backend%s\n\n", era, how)
	fmt.Fprintln(out, "| message | connections | CPU/call proxy | CPU/call Weir | **ratio** | calls/s proxy | calls/s Weir | p50 proxy | p50 Weir | p99 proxy | p99 Weir | allocs/call |")
	fmt.Fprintln(out, "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, size := range p.sizes {
		for _, conns := range p.conns {
			fmt.Fprintf(progress, "%s backend, %d bytes, %d connections …\n", era, size, conns)
			row, err := rig.compare(ctx, p, size, conns)
			if err != nil {
				return err
			}
			fmt.Fprintln(out, row)
		}
	}
	return nil
}
