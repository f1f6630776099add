package publish

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
)

// verify looks whether the store still holds what this term knows to stand, without reading a document: single keys vanish, by a
// hand or by eviction, while the fence says nothing. What is gone is written again by the next round. It reports whether any is.
func (c *Controller) verify(ctx context.Context) (bool, error) {
	if t := c.term.Load(); t == nil || c.standing == nil || c.standing.lease != t.lease {
		return false, nil // the next round reads everything
	}
	index, _, err := c.o.Hosts.Index(ctx)
	if err != nil {
		return false, fmt.Errorf("read index: %w", err)
	}
	gone := 0
	var live []routes.HostID
	for id, h := range c.standing.hosts {
		if !h.here {
			continue
		}
		if e, found := index[id]; !found || e.Version.Incarnation != c.standing.lease.Incarnation || e.Removed != h.removed || e.Version.Revision != h.revision {
			h.here, h.revision = false, max(h.revision, e.Version.Revision)
			gone++
		} else if !h.removed {
			live = append(live, id)
		}
	}
	var backends []routes.BackendID
	for id := range c.standing.catalogs {
		backends = append(backends, id)
	}
	hosts, catalogs, err := c.o.Hosts.Lost(ctx, live, backends)
	if err != nil {
		return gone > 0, fmt.Errorf("look for what was lost: %w", err)
	}
	for _, id := range hosts {
		c.standing.hosts[id].here = false
	}
	for _, id := range catalogs {
		delete(c.standing.catalogs, id)
	}
	if gone += len(hosts) + len(catalogs); gone > 0 {
		c.log.Warn("keys vanished from the store, writing them again", zap.Int("keys", gone))
	}
	return gone > 0, nil
}
