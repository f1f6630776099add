package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
)

// verify looks whether the store still holds what this term knows to stand: single keys vanish or change, by a hand or by
// eviction, while the fence says nothing. What is gone or is not what was written is written again by the next round. It reports
// whether there is any.
func (c *Controller) verify(ctx context.Context) (bool, error) {
	if t := c.term.Load(); t == nil || c.standing == nil || c.standing.lease != t.lease {
		return false, nil // the next round reads everything
	}
	index, _, err := c.o.Hosts.Index(ctx)
	if err != nil {
		return false, fmt.Errorf("read index: %w", err)
	}
	digests, err := c.o.Catalogs.Catalogs(ctx)
	if err != nil {
		return false, fmt.Errorf("read catalogs: %w", err)
	}
	bad := 0
	for id, h := range c.standing.hosts {
		if !h.here {
			continue
		}
		e, found := index[id]
		if !found || e.Version.Incarnation != c.standing.lease.Incarnation || e.Removed != h.removed || e.Version.Revision != h.revision ||
			!h.removed && e.Digest != h.digest {
			h.here, h.revision = false, max(h.revision, e.Version.Revision)
			bad++
		}
	}
	for id, digest := range c.standing.catalogs {
		if digests[id] != digest {
			delete(c.standing.catalogs, id)
			bad++
		}
	}
	hosts, catalogs, err := c.o.Keys.Lost(ctx, c.standing.live(), slices.Sorted(maps.Keys(c.standing.catalogs)))
	if err == nil {
		c.standing.disown(hosts, catalogs)
		bad += len(hosts) + len(catalogs)
		hosts, catalogs, err = c.audit(ctx)
		c.standing.disown(hosts, catalogs)
		bad += len(hosts) + len(catalogs)
	}
	if bad > 0 {
		c.log.Warn("keys vanished from the store or were changed in it, writing them again", zap.Int("keys", bad))
	}
	if err != nil {
		return bad > 0, fmt.Errorf("look for what was lost: %w", err)
	}
	return bad > 0, nil
}

// live are the hosts that stand, sorted.
func (st *standing) live() []routes.HostID {
	return slices.Sorted(func(yield func(routes.HostID) bool) {
		for id, h := range st.hosts {
			if h.here && !h.removed && !yield(id) {
				return
			}
		}
	})
}

// disown makes the next round write these again.
func (st *standing) disown(hosts []routes.HostID, catalogs []routes.BackendID) {
	for _, id := range hosts {
		st.hosts[id].here = false
	}
	for _, id := range catalogs {
		delete(st.catalogs, id)
	}
}

// One verify compares the content of that many at most, each time the ones after those of the time before: all of a small
// installation, and a large one in turns.
const (
	auditHosts    = 64
	auditCatalogs = 16
)

// audit is how far the comparison of contents came.
type audit struct {
	host    routes.HostID
	backend routes.BackendID
}

// audit returns the hosts and backends, of those whose turn it is, of which something else stands than was written.
func (c *Controller) audit(ctx context.Context) (hosts []routes.HostID, catalogs []routes.BackendID, err error) {
	some := turn(c.standing.live(), &c.audited.host, auditHosts)
	records, err := c.o.Hosts.Hosts(ctx, some)
	if err != nil {
		return nil, nil, fmt.Errorf("read hosts: %w", err)
	}
	for _, id := range some {
		list, err := c.o.Keys.List(ctx, id)
		if err != nil && !errors.Is(err, routes.ErrNotPublished) && !errors.Is(err, routes.ErrUnknownHost) {
			return hosts, nil, fmt.Errorf("read list of host %q: %w", id, err)
		}
		if err != nil || !written(records[id], list, c.standing.hosts[id].digest) {
			hosts = append(hosts, id)
		}
	}
	for _, id := range turn(slices.Sorted(maps.Keys(c.standing.catalogs)), &c.audited.backend, auditCatalogs) {
		doc, _, err := c.o.Catalogs.Catalog(ctx, id)
		if err != nil && !errors.Is(err, routes.ErrNotPublished) {
			return hosts, catalogs, fmt.Errorf("read catalog of backend %q: %w", id, err)
		}
		if err == nil {
			if cat, err := decodeCatalog(doc); err == nil && cat.Digest() == c.standing.catalogs[id] {
				continue
			}
		}
		catalogs = append(catalogs, id)
	}
	return hosts, catalogs, nil
}

// turn picks the next n of what is sorted, from behind last on and round the end, and moves last.
func turn[T ~string](sorted []T, last *T, n int) []T {
	i, found := slices.BinarySearch(sorted, *last)
	if found {
		i++
	}
	sorted = slices.Concat(sorted[i:], sorted[:i])
	sorted = sorted[:min(n, len(sorted))]
	if len(sorted) > 0 {
		*last = sorted[len(sorted)-1]
	}
	return sorted
}

// written reports whether what stands of a host is, byte for byte, what has this digest.
func written(record routes.HostRecord, list []byte, digest string) bool {
	doc, err := routes.DecodeHost(record.Document)
	if err != nil || doc.Version() != record.Version {
		return false
	}
	plain := *doc
	plain.Incarnation, plain.Epoch, plain.Revision = "", 0, 0
	table, err := versioned(record.Document, doc, &plain)
	return err == nil && routes.Digest(table, list) == digest
}
