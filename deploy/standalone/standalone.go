// Package standalone runs Weir's two planes and a Redis in one process, on one port: for a first look, for development and for
// tests. The planes are the same libraries, and speak to each other through Redis as they do in production.
package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-mcp/weir/controlplane"
	"github.com/weir-mcp/weir/dataplane"
	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/deploy/standalone/demo"
	"github.com/weir-mcp/weir/routes/redisstore"
)

// Main reads the command line and runs until ctx ends. A bad flag or file is a *process.ConfigError.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := ParseOptions(args, stdout)
	switch {
	case errors.Is(err, errVersion):
		_, err := fmt.Fprintln(stdout, process.VersionLine("weir-standalone"))
		return err
	case errors.Is(err, errHelp):
		return nil
	case err != nil:
		return &process.ConfigError{Err: err}
	}
	return Run(ctx, o, stdout, stderr)
}

// Run serves until ctx ends; nothing of it is left when it returns. The URL, a token and a command to try go to stdout once
// a call would succeed.
func Run(ctx context.Context, o *Options, stdout, stderr io.Writer) (err error) {
	log, err := process.NewLogger(o.LogLevel)
	if err != nil {
		return &process.ConfigError{Err: err}
	}
	redisstore.SilenceClients() // what matters of it comes back as errors
	ln, err := process.Listen(o.Listen, process.ListenTLS{})
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer ln.Close() // Serve closes it too; this is for the ways out before it
	dir, err := os.MkdirTemp("", "weir-standalone-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	keys, err := newSigner(filepath.Join(dir, "standalone.pub"))
	if err != nil {
		return err
	}

	s := setting{
		redisURL: o.Redis, listen: ln.Addr().String(), baseURL: "http://" + displayAddr(ln.Addr()),
		keyFile: keys.publicFile, backends: o.Backends, noAuth: o.NoAuth,
	}
	demos := len(o.Backends) == 0 && o.Config == ""
	if demos {
		running, startErr := demo.Start("127.0.0.1:0")
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, running.Close()) }()
		for _, b := range running.Backends {
			s.backends = append(s.backends, Backend{Name: b.Name, Target: b.URL})
		}
	}
	st := newStages(ctx)
	if o.Redis == "" {
		r, err := startRedis()
		if err != nil {
			return err
		}
		s.redisURL = r.url
		st.store(r.run)
	}
	err = serve(st, ln, o, s, keys, log, demos, stdout, stderr)
	return errors.Join(err, st.end(err))
}

// serve starts the planes and the front; what runs belongs to st.
func serve(st *stages, ln net.Listener, o *Options, s setting, keys *signer, log *zap.Logger, demos bool, stdout, stderr io.Writer) error {
	cfg, err := loadConfigs(st.run, o.Config, s, func(w string) { fmt.Fprintln(stderr, "weir-standalone: "+w) })
	switch {
	case st.run.Err() != nil:
		return nil // end tells why
	case err != nil:
		return &process.ConfigError{Err: err}
	}
	reg := prometheus.NewRegistry()
	control, err := controlplane.New(cfg.control, controlplane.Options{Log: log.Named("controlplane"), Registry: reg, NoListeners: true})
	if err != nil {
		return &process.ConfigError{Err: err}
	}
	data, err := dataplane.New(cfg.data, dataplane.Options{
		Log: log.Named("dataplane"), Registry: reg, NoListeners: true, Delegate: control.Handler(), Internal: control.AdminHandler(),
	})
	if err != nil {
		return &process.ConfigError{Err: err}
	}
	context.AfterFunc(st.run, control.Drain) // open streams would keep the front from ending
	st.plane(control.Run)
	st.plane(data.Run)
	st.front(func(ctx context.Context) error {
		return process.Serve(ctx, process.NewServer(front(data.Handler(), control.Handler()), log), ln, after(ctx, grace))
	})
	ops := ""
	if o.OpsListen != "" {
		opsLn, err := process.Listen(o.OpsListen, process.ListenTLS{})
		if err != nil {
			return fmt.Errorf("--ops-listen: %w", err)
		}
		ops = " ops=" + opsLn.Addr().String()
		h := process.OpsHandler(reg, readiness(data.Ready(), control.Ready()))
		st.plane(func(ctx context.Context) error {
			return process.Serve(ctx, process.NewServer(h, log), opsLn, after(ctx, grace))
		})
	}
	for _, ready := range []<-chan struct{}{control.Ready(), data.Ready()} {
		select {
		case <-ready:
		case <-st.done():
			return nil // end tells why
		}
	}
	fmt.Fprintf(stderr, "ready listen=%s%s\n", ln.Addr(), ops)
	if err := printBanner(stdout, banner{url: s.baseURL + "/mcp", cfg: cfg, keys: keys, noAuth: o.NoAuth, demos: demos}); err != nil {
		return err
	}
	<-st.done()
	return nil
}

// stages ends a process from the outside in: the front first, so that no request meets a half-stopped plane; then the
// planes, which release what they hold in Redis; then Redis.
type stages struct {
	run                      context.Context
	stop                     context.CancelCauseFunc
	planeCtx, storeCtx       context.Context
	stopPlanes, stopStore    context.CancelFunc
	fronts, planes, storages errgroup.Group
}

func newStages(ctx context.Context) *stages {
	st := &stages{}
	st.run, st.stop = context.WithCancelCause(ctx)
	st.planeCtx, st.stopPlanes = context.WithCancel(context.WithoutCancel(ctx))
	st.storeCtx, st.stopStore = context.WithCancel(context.WithoutCancel(ctx))
	return st
}

func (st *stages) front(f func(context.Context) error) { st.goIn(&st.fronts, st.run, f) }
func (st *stages) plane(f func(context.Context) error) { st.goIn(&st.planes, st.planeCtx, f) }
func (st *stages) store(f func(context.Context) error) { st.goIn(&st.storages, st.storeCtx, f) }

func (st *stages) goIn(g *errgroup.Group, ctx context.Context, f func(context.Context) error) {
	g.Go(func() error {
		err := f(ctx)
		if err != nil {
			st.stop(err)
		}
		return err
	})
}

func (st *stages) done() <-chan struct{} { return st.run.Done() }

// end stops everything in order and waits. cause ends the process as well when it is not nil.
func (st *stages) end(cause error) error {
	if cause != nil {
		st.stop(cause)
	}
	<-st.run.Done()
	errs := []error{st.fronts.Wait()}
	st.stopPlanes()
	errs = append(errs, st.planes.Wait())
	st.stopStore()
	return errors.Join(append(errs, st.storages.Wait())...)
}

// after returns a context that ends d after ctx does.
func after(ctx context.Context, d time.Duration) context.Context {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return late
}

func readiness(parts ...<-chan struct{}) process.Check {
	return func() (map[string]any, error) {
		for _, ready := range parts {
			select {
			case <-ready:
			default:
				return nil, errors.New("starting")
			}
		}
		return nil, nil
	}
}

// displayAddr is an address that a client on this machine can use.
func displayAddr(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
