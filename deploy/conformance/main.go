package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// run is one way of running the suite.
type run struct {
	requirements string
	stateless    bool
}

func (r run) String() string {
	mode := "stateful"
	if r.stateless {
		mode = "stateless"
	}
	return r.requirements + ", fixture " + mode
}

// runs are those that docs/conformance.md reports: the modern revision needs no session, the legacy one is run both ways.
var runs = []run{{"2026-07-28", true}, {"2025-11-25", false}, {"2025-11-25", true}}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := mainErr(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func mainErr(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("conformance", flag.ContinueOnError)
	weir := fs.String("weir", "bin/weir-standalone", "the weir-standalone `BINARY`")
	known := fs.String("known", "deploy/conformance/known.txt", "`FILE` of scenarios that are known to fail through Weir, each with its reason")
	verbose := fs.Bool("v", false, "print the checks that failed")
	if err := fs.Parse(args); err != nil {
		return err
	}
	reasons, err := readKnown(*known)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "installing the suite and the fixture …")
	tools, err := install(ctx)
	if err != nil {
		return err
	}
	var bad []string
	for _, r := range runs {
		worse, err := compare(ctx, out, tools, *weir, r, reasons, *verbose)
		if err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
		bad = append(bad, worse...)
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d scenarios pass directly and not through Weir, and are not in %s: %s", len(bad), *known, strings.Join(bad, ", "))
	}
	return nil
}

// compare runs the suite both ways and prints the difference. It returns the scenarios that got worse without a known reason.
func compare(ctx context.Context, out io.Writer, tools *toolset, weir string, r run, reasons map[string]string, verbose bool) (worse []string, err error) {
	fixture, err := tools.startFixture(ctx, r.stateless)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fixture.stop()) }()
	gateway, err := startWeir(ctx, weir, fixture.url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, gateway.stop()) }()

	direct, err := tools.suite(ctx, fixture.url, r.requirements)
	if err != nil {
		return nil, fmt.Errorf("direct: %w", err)
	}
	through, err := tools.suite(ctx, gateway.url, r.requirements)
	if err != nil {
		return nil, fmt.Errorf("through Weir: %w", err)
	}
	fmt.Fprintf(out, "\n%s\n  direct        %s\n  through Weir  %s\n", r, direct.score(), through.score())
	for _, name := range direct.names {
		d, w := direct.scenarios[name], through.scenarios[name]
		if !d.passed || w.passed {
			continue
		}
		reason, isKnown := reasons[r.requirements+" "+name]
		switch {
		case isKnown:
		case !d.scored:
			reason = "(not scored for this revision)"
		default:
			reason = "(unexpected)"
			worse = append(worse, r.requirements+" "+name)
		}
		fmt.Fprintf(out, "    passes directly only: %-45s %s\n", name, reason)
		if verbose {
			fmt.Fprint(out, indent(through.failures[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		if scenario, ok := strings.CutPrefix(name, r.requirements+" "); ok && through.scenarios[scenario].passed && r == firstRunOf(r.requirements) {
			fmt.Fprintf(out, "    known to fail, but passes: %s; remove it from the file\n", scenario)
		}
	}
	return worse, nil
}

func firstRunOf(requirements string) run {
	return runs[slices.IndexFunc(runs, func(r run) bool { return r.requirements == requirements })]
}

func indent(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "        %s\n", l)
	}
	return b.String()
}

// readKnown reads "REVISION SCENARIO  reason" lines; # begins a comment.
func readKnown(path string) (map[string]string, error) {
	doc, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	known := map[string]string{}
	for n, line := range strings.Split(string(doc), "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case len(fields) < 3:
			return nil, fmt.Errorf("%s:%d: want REVISION SCENARIO REASON", path, n+1)
		default:
			known[fields[0]+" "+fields[1]] = strings.Join(fields[2:], " ")
		}
	}
	return known, nil
}
