package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
)

// standing is what the store holds, as far as the present term knows: read when it began, then kept in step with what was
// written. After a write that may or may not have happened it is read anew.
type standing struct {
	lease    routes.Lease
	hosts    map[routes.HostID]*standingHost
	catalogs map[routes.BackendID]string // digests
	complete bool                        // marked in this term
}

// standingHost is one line of the index with its document.
type standingHost struct {
	doc      *routes.VirtualHost // nil: removed, or not readable
	digest   string              // see contentDigest
	revision uint64
	// here: it stands in the lease's incarnation. What stands from another one keeps its names but is written again.
	here    bool
	removed bool
}

// load reads what stands and hands the stored catalogs to discovery, so that a backend that is down keeps its routes.
func (c *Controller) load(ctx context.Context, lease routes.Lease) (*standing, error) {
	index, _, err := c.o.Hosts.Index(ctx)
	if err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	st := &standing{lease: lease, hosts: make(map[routes.HostID]*standingHost, len(index))}
	var live []routes.HostID
	for id, entry := range index {
		st.hosts[id] = &standingHost{
			digest: entry.Digest, revision: entry.Version.Revision, removed: entry.Removed,
			here: entry.Version.Incarnation == lease.Incarnation,
		}
		if !entry.Removed {
			live = append(live, id)
		}
	}
	slices.Sort(live)
	records, err := c.o.Hosts.Hosts(ctx, live)
	if err != nil {
		return nil, fmt.Errorf("read hosts: %w", err)
	}
	for _, id := range live {
		record, found := records[id]
		if !found { // its document was lost on its own: write it again
			st.hosts[id].here = false
			continue
		}
		if st.hosts[id].doc, err = routes.DecodeHost(record.Document); err != nil {
			c.log.Warn("published document not readable, names may move", zap.String("host", string(id)), zap.Error(err))
		}
	}
	for id, doc := range c.o.Warm() {
		if h := st.hosts[id]; h == nil {
			st.hosts[id] = &standingHost{doc: doc, revision: doc.Revision}
		} else if h.doc == nil && !h.removed {
			h.doc = doc
		}
	}
	if err := c.loadCatalogs(ctx, st); err != nil {
		return nil, err
	}
	return st, nil
}

func (c *Controller) loadCatalogs(ctx context.Context, st *standing) error {
	digests, err := c.o.Catalogs.Catalogs(ctx)
	if err != nil {
		return fmt.Errorf("read catalogs: %w", err)
	}
	st.catalogs = digests
	have, _ := c.o.Source.Snapshot()
	var missing []routes.BackendID
	for _, b := range c.config.Load().Backends {
		if _, stands := digests[b.ID]; stands && have[b.ID] == nil {
			missing = append(missing, b.ID)
		}
	}
	seed, err := ReadCatalogs(ctx, c.o.Catalogs, missing, c.log)
	if err != nil {
		return err
	}
	for _, id := range missing {
		if seed[id] == nil { // lost on its own, or not readable: write it again once there is one
			delete(digests, id)
		}
	}
	if len(seed) > 0 {
		c.o.Source.Seed(seed)
	}
	return nil
}

// ReadCatalogs reads stored catalogs, for discovery to begin with: a backend that is down keeps its routes. What is absent or not
// readable is left out.
func ReadCatalogs(ctx context.Context, from StandingCatalogs, ids []routes.BackendID, log *zap.Logger) (map[routes.BackendID]*catalog.Catalog, error) {
	cats := make(map[routes.BackendID]*catalog.Catalog)
	for _, id := range ids {
		doc, _, err := from.Catalog(ctx, id)
		if errors.Is(err, routes.ErrNotPublished) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read catalog of backend %q: %w", id, err)
		}
		cat, err := decodeCatalog(doc)
		if err != nil {
			log.Warn("stored catalog not readable", zap.String("backend", string(id)), zap.Error(err))
			continue
		}
		cats[id] = cat
	}
	return cats, nil
}

// decodeCatalog decodes a stored catalog that nobody else had a hand in.
func decodeCatalog(doc []byte) (*catalog.Catalog, error) {
	cat, err := catalog.Decode(doc)
	if err != nil {
		return nil, err
	}
	return cat, cat.Intact()
}

// previous is the compiler's Previous.
func (st *standing) previous() map[routes.HostID]*routes.VirtualHost {
	docs := make(map[routes.HostID]*routes.VirtualHost, len(st.hosts))
	for id, h := range st.hosts {
		if h.doc != nil {
			docs[id] = h.doc
		}
	}
	return docs
}

// surplus is what stands and is not in the config any more, sorted.
func surplus[K ~string, V any](stands map[K]V, keep map[K]bool) []K {
	return slices.Sorted(func(yield func(K) bool) {
		for k := range maps.Keys(stands) {
			if !keep[k] && !yield(k) {
				return
			}
		}
	})
}
