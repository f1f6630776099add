package standalone

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-mcp/weir/routes"
)

// Options is what the command line says.
type Options struct {
	// Listen is the one address that everything is served on; port 0 takes a free one.
	Listen string
	// OpsListen is the address of /healthz, /readyz and /metrics; empty: they are not served.
	OpsListen string
	// Config is the path of a control plane's config file with an optional dataplane block; empty: none.
	Config string
	// Backends are put before the host "default". Without any, and without Config, the demo backends are.
	Backends []Backend
	// Redis is the URL of a Redis to use; empty: one that is embedded in the process and gone with it.
	Redis string
	// NoAuth serves everybody without a token; loopback only.
	NoAuth bool
	// LogLevel is debug, info, warn or error.
	LogLevel string
}

// Backend is one --backend flag.
type Backend struct {
	Name   string // its names get the prefix Name__; empty: they stay as they are
	Target string // the URL of an MCP endpoint
}

// errHelp: usage was asked for and printed.
var errHelp = errors.New("help")

// errVersion: the version was asked for.
var errVersion = errors.New("version")

// ParseOptions reads the command line. Mistakes are errors that name the flag; usage goes to w.
func ParseOptions(args []string, w io.Writer) (*Options, error) {
	o := &Options{}
	fs := flag.NewFlagSet("weir-standalone", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.Listen, "listen", "127.0.0.1:8080", "`ADDR`ESS to serve MCP on; port 0 takes a free one")
	fs.StringVar(&o.OpsListen, "ops-listen", "", "`ADDR`ESS of /healthz, /readyz and /metrics; none by default")
	fs.StringVar(&o.Config, "config", "", "control plane config `FILE`, with an optional dataplane: block")
	fs.StringVar(&o.Redis, "redis", "", "`URL` of a Redis; by default one is embedded")
	fs.BoolVar(&o.NoAuth, "no-auth", false, "serve everybody without a token (loopback only)")
	fs.StringVar(&o.LogLevel, "log-level", "warn", "`LEVEL`: debug, info, warn or error")
	version := fs.Bool("version", false, "print the version and exit")
	var targets []string // looked at later: the flag package's own errors repeat the value, and a URL may hold a password
	fs.Func("backend", "put `NAME=URL` (or URL) behind the gateway; NAME__ is put before its names; repeatable", func(v string) error {
		targets = append(targets, v)
		return nil
	})
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(w, "weir-standalone runs Weir's two planes and a Redis in one process, on one port.")
		fs.SetOutput(w)
		fs.PrintDefaults()
		return nil, errHelp
	case err != nil:
		return nil, err
	case *version:
		return nil, errVersion
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q (backends are given as --backend NAME=URL)", fs.Arg(0))
	}
	var errs []error
	for i, v := range targets {
		b, err := parseBackend(v)
		if err != nil {
			errs = append(errs, fmt.Errorf("--backend %s: %w", cmp.Or(b.Name, "number "+strconv.Itoa(i+1)), err))
		}
		o.Backends = append(o.Backends, b)
	}
	return o, errors.Join(append(errs, o.check())...)
}

// parseBackend reads NAME=TARGET or TARGET. A URL may contain "=" itself, so a NAME is only what stands before a "=" and
// could name a backend.
func parseBackend(v string) (Backend, error) {
	b := Backend{Target: v}
	if name, target, ok := strings.Cut(v, "="); ok && routes.ValidID(name) {
		b = Backend{Name: name, Target: target}
	}
	if strings.HasPrefix(b.Target, "stdio:") {
		return b, errors.New("stdio servers can't be run yet: give the URL of a streamable HTTP endpoint")
	}
	u, err := url.Parse(b.Target)
	switch {
	case err == nil && u.User != nil:
		return b, errors.New("a backend's URL must not contain a user or password")
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return b, errors.New("give NAME=URL or URL, http or https, with a host")
	}
	return b, nil
}

func (o *Options) check() error {
	var errs []error
	host, err := hostOf(o.Listen)
	if err != nil {
		errs = append(errs, fmt.Errorf("--listen: %w", err))
	} else if o.NoAuth && !isLoopbackHost(host) {
		errs = append(errs, fmt.Errorf("--no-auth: %q is not a loopback address", o.Listen))
	}
	if o.OpsListen != "" {
		if _, err := hostOf(o.OpsListen); err != nil {
			errs = append(errs, fmt.Errorf("--ops-listen: %w", err))
		}
	}
	named := map[string]bool{}
	for _, b := range o.Backends {
		if named[b.Name] && b.Name != "" {
			errs = append(errs, fmt.Errorf("--backend: the name %q is given twice", b.Name))
		}
		named[b.Name] = true
	}
	return errors.Join(errs...)
}

// hostOf is the host of HOST:PORT.
func hostOf(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("%q is not HOST:PORT", addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q is not a port; want 0 to 65535, where 0 takes a free one", port)
	}
	return host, nil
}

func isLoopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
