// Package cli is the command line of weir-controlplane.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/weir-mcp/weir/controlplane/internal/source"
	"github.com/weir-mcp/weir/deploy/process"
)

// Env is what a command sees of the process.
type Env struct {
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	// Sources are kinds of discovery sources beside those that are always there; see controlplane.Options.
	Sources map[string]source.Opener
}

// command is one of the program's commands.
type command struct {
	words   string // as typed after the program's name; empty: the plane itself
	args    string
	summary string
	run     func(ctx context.Context, env Env, c command, args []string) error
}

// commands are all of them, in the order of the help.
func commands() []command {
	return []command{
		{"", "--config FILE", "run the control plane; SIGTERM drains, SIGHUP reads FILE again", runPlane},
		{"config check", "--config FILE", "validate a config file; print every problem and warning", checkConfig},
		{"token mint", "--key-file FILE --alg RS256 --issuer I --audience A --subject S --virtual-host H", "print a development token", mintToken},
		{"explain", "--admin URL --host H --tool NAME", "say where a call would go, or why not; exit status 1 if it goes nowhere", explain},
	}
}

const program = "weir-controlplane"

// Run runs the command that args, without the program's name, ask for. A bad flag or file is a *process.ConfigError.
func Run(ctx context.Context, args []string, env Env) error {
	if len(args) > 0 && (args[0] == "help" || args[0] == "-h" || args[0] == "--help" || args[0] == "-help") {
		return usage(env.Stdout)
	}
	if len(args) > 0 && (args[0] == "--version" || args[0] == "-version" || args[0] == "version") {
		_, err := fmt.Fprintln(env.Stdout, process.VersionLine(program))
		return err
	}
	for _, c := range commands() {
		words := strings.Fields(c.words)
		if len(words) > 0 && len(args) >= len(words) && strings.Join(args[:len(words)], " ") == c.words {
			return c.run(ctx, env, c, args[len(words):])
		}
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return badUsage("unknown command %q; %s --help lists them", strings.Join(args[:min(len(args), 2)], " "), program)
	}
	plane := commands()[0]
	return plane.run(ctx, env, plane, args)
}

// usage prints the help.
func usage(w io.Writer) error {
	var b strings.Builder
	b.WriteString("weir-controlplane discovers MCP backends, compiles what each virtual host may see, and publishes it.\n\nUsage:\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %s\n      %s\n", c.line(), c.summary)
	}
	b.WriteString("  weir-controlplane --version\n\nEach command has a --help of its own. The config file is described in docs/config.md.\n" +
		"Exit status: 0 fine, 1 a failure while running, 2 a bad flag or config file.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// line is how the command is typed.
func (c command) line() string {
	return strings.Join(strings.Fields(program+" "+c.words+" "+c.args), " ")
}

// errHelp: the help was printed, and nothing else is to be done.
var errHelp = errors.New("help")

// parse reads a command's flags. Help goes to stdout; a mistake is a *process.ConfigError.
func (c command) parse(flags *flag.FlagSet, args []string, env Env) error {
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		if _, err := fmt.Fprintf(env.Stdout, "%s\n\nUsage: %s\n\n", c.summary, c.line()); err != nil {
			return err
		}
		flags.SetOutput(env.Stdout)
		flags.PrintDefaults()
		return errHelp
	case err != nil:
		return &process.ConfigError{Err: fmt.Errorf("%w; see %s --help", err, strings.TrimSpace(program+" "+c.words))}
	case flags.NArg() > 0:
		return badUsage("unexpected argument %q; see %s --help", flags.Arg(0), strings.TrimSpace(program+" "+c.words))
	}
	return nil
}

func badUsage(format string, args ...any) error {
	return &process.ConfigError{Err: fmt.Errorf(format, args...)}
}

// needed reports all required flags that are missing, at once.
func needed(flags map[string]bool, order ...string) error {
	var missing []string
	for _, name := range order {
		if !flags[name] {
			missing = append(missing, "--"+name)
		}
	}
	if missing != nil {
		return badUsage("missing: %s; --help says more", strings.Join(missing, ", "))
	}
	return nil
}
