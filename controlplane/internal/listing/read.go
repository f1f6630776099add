package listing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
)

// Pauses after a read that failed.
const (
	minRetry = 100 * time.Millisecond
	maxRetry = 2 * time.Second
)

// hasty is how often the index is read until everything is published: no event tells of that.
const hasty = 100 * time.Millisecond

// poll is how long to wait for an event before looking all the same.
func (s *Store) poll() time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.complete || !s.reachable {
		return s.o.Poll
	}
	return min(hasty, s.o.Poll)
}

const (
	batch    = 64 // hosts held in memory, encoded, at once
	parallel = 8  // hosts of a batch whose lists are read and decoded at once
)

// read reads what changed until ctx ends, and what failed again until it succeeds.
func (s *Store) read(ctx context.Context) {
	poll := time.NewTimer(s.poll())
	defer poll.Stop()
	retry := time.NewTimer(maxRetry)
	retry.Stop()
	pause := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-poll.C:
		case <-retry.C:
		}
		err := s.refresh(ctx)
		poll.Reset(s.poll())
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			pause = 0
			retry.Stop()
		default:
			pause = min(max(minRetry, 2*pause), maxRetry)
			retry.Reset(pause)
			if s.Reachable() {
				s.log.Warn("published state not read, will be repeated", zap.Duration("pause", pause), zap.Error(err))
			}
		}
	}
}

// refresh reads what is dirty. What could not be read stays dirty.
func (s *Store) refresh(ctx context.Context) error {
	if err := s.readIndex(ctx); err != nil {
		return err
	}
	s.mu.RLock()
	dirty := maps.Clone(s.dirty)
	s.mu.RUnlock()
	for part := range slices.Chunk(slices.Sorted(maps.Keys(dirty)), batch) {
		if err := s.readHosts(ctx, part, dirty); err != nil {
			return err
		}
	}
	changed, err := s.readCatalogs(ctx)
	s.rebuild(changed)
	return err
}

// readIndex finds what changed where events can't tell: after a reset, and until everything is published.
func (s *Store) readIndex(ctx context.Context) error {
	s.mu.Lock()
	needed, reset := s.reset || !s.complete, s.reset
	s.reset = false // a reset that arrives from now on counts again
	s.mu.Unlock()
	if !needed {
		return nil
	}
	index, meta, err := s.o.Changes.Index(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.reset = s.reset || reset
		return fmt.Errorf("read index: %w", err)
	}
	s.synced, s.complete = true, meta.Complete
	for id, e := range index {
		v := s.views[id]
		if v == nil && !e.Removed || v != nil && e.Version.Supersedes(v.version) {
			s.touch(id)
		}
	}
	return nil
}

// found is what was read of one host.
type found struct {
	doc  *routes.VirtualHost // nil: removed, absent or not usable; then list is nil too
	list *routes.HostList
}

// readHosts reads documents and lists of dirty hosts and swaps their views. dirty is as it was before anything was read.
func (s *Store) readHosts(ctx context.Context, ids []routes.HostID, dirty map[routes.HostID]uint64) error {
	records, err := s.o.Hosts.Hosts(ctx, ids)
	if err != nil {
		return fmt.Errorf("read hosts: %w", err)
	}
	read := make([]found, len(ids))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, id := range ids {
		if rec := records[id]; rec.Document != nil {
			g.Go(func() (err error) {
				read[i], err = s.readHost(gctx, rec)
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// The catalogs after the lists: they are written before them, so that what a list refers to is there.
	changed, err := s.readCatalogs(ctx)
	if err != nil {
		return err
	}
	for i, id := range ids {
		s.put(records[id], id, dirty[id], read[i])
	}
	s.rebuild(changed)
	return nil
}

// readHost reads the list that goes with a document and decodes both. What is not usable is reported, and is no error.
func (s *Store) readHost(ctx context.Context, rec routes.HostRecord) (found, error) {
	raw, err := s.o.Hosts.List(ctx, rec.ID)
	if errors.Is(err, routes.ErrUnknownHost) || errors.Is(err, routes.ErrNotPublished) {
		return found{}, nil // removed in between: an event says so
	}
	if err != nil {
		return found{}, fmt.Errorf("read list of host %q: %w", rec.ID, err)
	}
	list, err := routes.DecodeList(raw)
	if err == nil {
		var doc *routes.VirtualHost
		if doc, err = routes.DecodeHost(rec.Document); err == nil {
			if err = doc.Validate(); err == nil {
				return found{doc, list}, nil
			}
		}
	}
	s.log.Error("what is published of a host is not usable, the last good one stays", zap.String("host", string(rec.ID)), zap.Error(err))
	return found{}, nil
}

// put takes what was read of a host. What can't be used leaves the last good view; an absent host removes nothing.
func (s *Store) put(rec routes.HostRecord, id routes.HostID, change uint64, read found) {
	var next *view
	if read.doc != nil {
		next = newView(rec.Version, read.doc, read.list, s.cats, s.current(id), time.Now())
	}
	s.mu.Lock()
	if s.dirty[id] == change {
		delete(s.dirty, id)
	}
	before := s.views[id]
	switch {
	case rec.Removed:
		delete(s.views, id)
	case next != nil && (before == nil || rec.Version.Supersedes(before.version)):
		s.views[id] = next
	}
	after := s.views[id]
	s.mu.Unlock()
	if after != before {
		s.swapped(id, before, after)
	}
}

func (s *Store) current(id routes.HostID) *view {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.views[id]
}

// readCatalogs reads the catalogs whose digest changed and returns their backends.
func (s *Store) readCatalogs(ctx context.Context) ([]routes.BackendID, error) {
	digests, err := s.o.Catalogs.Catalogs(ctx)
	if err != nil {
		return nil, fmt.Errorf("read catalogs: %w", err)
	}
	var changed []routes.BackendID
	for id, digest := range digests {
		if have := s.cats[id]; have != nil && have.digest == digest {
			continue
		}
		raw, digest, err := s.o.Catalogs.Catalog(ctx, id)
		if errors.Is(err, routes.ErrNotPublished) {
			continue // removed in between
		}
		if err != nil {
			return changed, fmt.Errorf("read catalog of backend %q: %w", id, err)
		}
		cat, err := catalog.Decode(raw)
		if err != nil {
			s.log.Error("published catalog not readable, the last good one stays", zap.String("backend", string(id)), zap.Error(err))
			continue
		}
		s.cats[id] = newBackendItems(digest, cat)
		changed = append(changed, id)
	}
	for id := range s.cats {
		if _, stands := digests[id]; !stands && len(digests) > 0 { // none at all: the store lost its data
			delete(s.cats, id)
		}
	}
	return changed, nil
}

// rebuild builds the views anew that show items of the changed backends, and forgets superseded views whose time is over.
func (s *Store) rebuild(changed []routes.BackendID) {
	now := time.Now()
	s.mu.RLock()
	var stale []*view
	for _, v := range s.views {
		if slices.ContainsFunc(changed, v.uses) || v.older != nil && v.older.prune(now, depth) != v.older {
			stale = append(stale, v)
		}
	}
	s.mu.RUnlock()
	for _, v := range stale {
		next := newView(v.version, v.doc, v.list, s.cats, v, now)
		next.older = v.older.prune(now, depth)
		next.index = v.index
		s.mu.Lock()
		taken := s.views[v.doc.ID] == v
		if taken {
			s.views[v.doc.ID] = next
		}
		s.mu.Unlock()
		if taken {
			s.swapped(v.doc.ID, v, next)
		}
	}
}
