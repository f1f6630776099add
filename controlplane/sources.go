package controlplane

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/controlplane/internal/publish"
	"github.com/weir-mcp/weir/controlplane/internal/source"
	"github.com/weir-mcp/weir/controlplane/internal/source/httpdoc"
	"github.com/weir-mcp/weir/routes"
)

// merged is what the config file and its sources make together: what is discovered, compiled and published.
type merged struct {
	config   *Config
	problems []compile.Problem
}

func (s *Server) newSources(expand func(string) (string, error)) (*source.Watcher, error) {
	open := map[string]source.Opener{
		config.KindHTTP: func(conf *config.Source) (source.Source, error) {
			return httpdoc.New(httpdoc.Options{Config: conf.HTTP, Expand: expand})
		},
	}
	maps.Copy(open, s.o.Sources)
	return source.New(source.Options{Open: open, Log: s.log.Named("source"), Registry: s.o.Registry, Changed: func() {
		select {
		case s.delivered <- struct{}{}:
		default: // a merge is due anyway
		}
	}})
}

// merge puts in force what the config and the sources make together now.
func (s *Server) merge() {
	s.applying.Lock()
	defer s.applying.Unlock()
	cfg, problems := source.Merge(s.config.Load(), s.sources.Sets())
	s.merged.Store(&merged{cfg, problems})
	s.discovery.Configure(cfg.Discovery, cfg.Backends)
	s.publisher.Configure(cfg)
}

// followSources merges anew whenever a source changed. A source that is not answering has the backends that stand published: as
// they were read when the plane began, and while another replica leads, whose source may answer, as that one publishes them.
func (s *Server) followSources(ctx context.Context) error {
	const every = time.Second
	look := time.NewTicker(every)
	defer look.Stop()
	seeded := false
	for {
		switch {
		case len(s.config.Load().Sources) == 0:
		case !seeded:
			seeded = s.seedSources(ctx)
		case s.sources.Failing() && !s.publisher.State().Leading && s.published.Complete():
			s.sources.Seed(source.Standing(s.published.Documents()))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.delivered:
			s.seedCatalogs(ctx)
			s.merge()
		case <-look.C:
		}
	}
}

// seedSources reads what stands published; false: it could not be read.
func (s *Server) seedSources(ctx context.Context) bool {
	index, _, err := s.reader.Index(ctx)
	if err != nil {
		return false // the publisher says so
	}
	records, err := s.reader.Hosts(ctx, slices.Sorted(maps.Keys(index)))
	if err != nil {
		return false
	}
	docs := make(map[routes.HostID]*routes.VirtualHost, len(records))
	for id, record := range records {
		if record.Removed {
			continue
		}
		doc, err := routes.DecodeHost(record.Document)
		if err != nil {
			s.log.Warn("published document not readable, backends of sources may be missing", zap.String("host", string(id)), zap.Error(err))
			continue
		}
		docs[id] = doc
	}
	s.sources.Seed(source.Standing(docs))
	return true
}

// seedCatalogs reads the stored catalogs of backends that a source delivered just now, so that one that is down keeps its lists.
func (s *Server) seedCatalogs(ctx context.Context) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	have, _ := s.discovery.Snapshot()
	var missing []routes.BackendID
	for _, set := range s.sources.Sets() {
		for i := range set.Backends {
			if id := set.Backends[i].ID; have[id] == nil {
				missing = append(missing, id)
			}
		}
	}
	cats, err := publish.ReadCatalogs(ctx, s.reader, missing, s.log)
	if err != nil {
		s.log.Warn("stored catalogs not read, discovery begins without", zap.Error(err))
		return
	}
	s.discovery.Seed(cats)
}
