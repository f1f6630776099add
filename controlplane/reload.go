package controlplane

import (
	"context"
	"fmt"
	"reflect"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
)

// Reload takes a new config, as SIGHUP does after reading the file: all of it or, with an error, nothing. New backends are
// discovered at once. What belongs to open listeners and the Redis client (redis, listen, admin_listen, ops_listen, tls) needs
// a restart: it stays as it was, and a problem says so.
func (s *Server) Reload(cfg *Config) error { return s.reload(cfg, nil) }

func (s *Server) reload(cfg *Config, warnings []config.Warning) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	old := s.config.Load()
	next := *cfg
	next.NoAuth = old.NoAuth
	ignored := keepFixed(&next, old)
	f, err := s.newFront(&next)
	if err != nil {
		return err
	}
	s.setProblems(warnings, ignored...)
	s.use(&next, f)
	select {
	case s.changed <- struct{}{}:
	default: // runAuth has not yet seen the one before
	}
	return nil
}

// use puts a checked config in force, everywhere.
func (s *Server) use(cfg *Config, f *front) {
	s.config.Store(cfg)
	s.front.Store(f)
	s.sources.Configure(cfg.Sources)
	s.merge()
}

// keepFixed puts back what can't change while the plane runs.
func keepFixed(next, old *Config) []compile.Problem {
	var ignored []compile.Problem
	keep := func(field string, n, o any) {
		nv, ov := reflect.ValueOf(n).Elem(), reflect.ValueOf(o).Elem()
		if !reflect.DeepEqual(nv.Interface(), ov.Interface()) {
			nv.Set(ov)
			ignored = append(ignored, compile.Problem{Code: compile.CodeRestartNeeded, Subject: field,
				Text: "the file has another value than the one in force; it takes a restart"})
		}
	}
	keep("redis", &next.Redis, &old.Redis)
	keep("listen", &next.Listen, &old.Listen)
	keep("admin_listen", &next.AdminListen, &old.AdminListen)
	keep("ops_listen", &next.OpsListen, &old.OpsListen)
	keep("tls", &next.TLS, &old.TLS)
	keep("log_level", &next.LogLevel, &old.LogLevel)
	return ignored
}

// reloadFile reads the config file again. A bad file changes nothing and is reported, in the log and as a problem.
func (s *Server) reloadFile(ctx context.Context) {
	cfg, warnings, err := config.Load(ctx, s.o.ConfigPath)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		err = s.reload(cfg, warnings)
	}
	if err != nil {
		s.log.Error("config not reloaded, the one in force stays", zap.String("file", s.o.ConfigPath), zap.Error(err))
		s.addProblem(compile.Problem{Code: compile.CodeConfigNotReloaded, Subject: s.o.ConfigPath, Text: err.Error()})
		return
	}
	s.log.Info("config reloaded", zap.String("file", s.o.ConfigPath), zap.Int("warnings", len(warnings)))
}

// setProblems replaces the problems of the config.
func (s *Server) setProblems(warnings []config.Warning, more ...compile.Problem) {
	list := []compile.Problem{}
	for _, w := range warnings {
		text := w.Text
		if w.Line > 0 {
			text = fmt.Sprintf("line %d: %s", w.Line, text)
		}
		list = append(list, compile.Problem{Code: w.Code, Subject: w.Path, Text: text})
	}
	list = append(list, more...)
	s.problems.Store(&list)
}

// addProblem reports a failed reload beside the problems of the config in force; only the latest one counts.
func (s *Server) addProblem(p compile.Problem) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	list := []compile.Problem{p}
	for _, old := range *s.problems.Load() {
		if old.Code != p.Code {
			list = append(list, old)
		}
	}
	s.problems.Store(&list)
}
