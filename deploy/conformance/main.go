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
	c := &comparison{out: out, weir: *weir, reasons: reasons, verbose: *verbose}
	for _, r := range runs {
		if err := c.run(ctx, tools, r); err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
	}
	if err := c.runTasks(ctx, tools); err != nil {
		return fmt.Errorf("tasks: %w", err)
	}
	if len(c.worse) > 0 {
		return fmt.Errorf("%d scenarios pass directly and not through Weir, and are not in %s: %s", len(c.worse), *known, strings.Join(c.worse, ", "))
	}
	return nil
}

// comparison runs the suite both ways, again and again, and prints the differences.
type comparison struct {
	out     io.Writer
	weir    string            // the binary
	reasons map[string]string // of "REVISION SCENARIO": why it fails through Weir
	verbose bool
	worse   []string // the scenarios that pass directly only, without a known reason
}

// run compares all that a revision requires, with the SDK's fixture.
func (c *comparison) run(ctx context.Context, tools *toolset, r run) (err error) {
	fixture, err := tools.startFixture(ctx, r.stateless)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fixture.stop()) }()
	through, err := c.both(ctx, r.String(), r.requirements, fixture.url, func(url string) (*report, error) {
		return tools.suite(ctx, url, r.requirements)
	})
	if err != nil || r != firstRunOf(r.requirements) {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.reasons)) {
		if scenario, ok := strings.CutPrefix(name, r.requirements+" "); ok && through.scenarios[scenario].passed {
			fmt.Fprintf(c.out, "    known to fail, but passes: %s; remove it from the file\n", scenario)
		}
	}
	return nil
}

// runTasks compares the scenarios of the tasks extension, with a fixture of our own: the SDK's has no tasks.
func (c *comparison) runTasks(ctx context.Context, tools *toolset) (err error) {
	fixture, err := startTaskFixture()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fixture.stop()) }()
	names, err := tools.taskScenarios(ctx)
	if err != nil {
		return err
	}
	_, err = c.both(ctx, taskRevision+", tasks extension", taskRevision, fixture.url, func(url string) (*report, error) {
		return tools.each(ctx, url, names)
	})
	return err
}

// both runs the suite against a fixture and then through Weir, and prints the difference. It returns what came through Weir.
func (c *comparison) both(ctx context.Context, title, revision, fixture string, suite func(url string) (*report, error)) (_ *report, err error) {
	gateway, err := startWeir(ctx, c.weir, fixture)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, gateway.stop()) }()
	direct, err := suite(fixture)
	if err != nil {
		return nil, fmt.Errorf("direct: %w", err)
	}
	through, err := suite(gateway.url)
	if err != nil {
		return nil, fmt.Errorf("through Weir: %w", err)
	}
	fmt.Fprintf(c.out, "\n%s\n  direct        %s\n  through Weir  %s\n", title, direct.score(), through.score())
	for _, name := range direct.names {
		d, w := direct.scenarios[name], through.scenarios[name]
		if !d.passed || w.passed {
			continue
		}
		reason, isKnown := c.reasons[revision+" "+name]
		switch {
		case isKnown:
		case !d.scored:
			reason = "(not scored for this revision)"
		default:
			reason = "(unexpected)"
			c.worse = append(c.worse, revision+" "+name)
		}
		fmt.Fprintf(c.out, "    passes directly only: %-45s %s\n", name, reason)
		if c.verbose {
			fmt.Fprint(c.out, indent(through.failures[name]))
		}
	}
	return through, nil
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
