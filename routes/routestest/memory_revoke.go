package routestest

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/weir-mcp/weir/routes"
)

// Revoke is redisstore.Writer's.
func (m *Memory) Revoke(ctx context.Context, revocations []routes.Revocation) error {
	for i := range revocations {
		if err := revocations[i].Validate(); err != nil {
			return fmt.Errorf("revoke: %w", err)
		}
	}
	if err := m.enter(ctx, "revoke"); err != nil {
		return err
	}
	defer m.mu.Unlock()
	d := m.data
	var news []routes.Revocation
	added := 0
	for _, r := range revocations {
		old, stands := d.revocations[r.Key()]
		if !stands {
			added++
		}
		if !stands || old.Until.Before(r.Until) {
			news = append(news, r)
		}
	}
	switch {
	case len(news) == 0:
		return nil
	case added > 0 && len(d.revocations)+added > routes.MaxRevocations:
		return fmt.Errorf("revoke: %w", routes.ErrTooManyRevocations)
	}
	for _, r := range news {
		d.revocations[r.Key()] = r
	}
	if d.incarnation == "" {
		d.incarnation = fmt.Sprint("memory", m.flushes)
	}
	d.sequence++
	d.stream = append(d.stream, memoryChange{d.sequence, routes.Event{Revocations: news}})
	m.wake()
	return nil
}

// DropRevocations is redisstore.Writer's, without its grace.
func (m *Memory) DropRevocations(ctx context.Context, ended []string) error {
	if err := m.enter(ctx, "drop revocations"); err != nil {
		return err
	}
	defer m.mu.Unlock()
	for _, key := range ended {
		delete(m.data.revocations, key)
	}
	return nil
}

// Revocations is redisstore.Reader's.
func (m *Memory) Revocations(ctx context.Context) (all []routes.Revocation, unreadable []string, err error) {
	if err := m.enter(ctx, "revocations"); err != nil {
		return nil, nil, err
	}
	defer m.mu.Unlock()
	for _, r := range m.data.revocations {
		all = append(all, r)
	}
	return all, nil, nil
}

// Lose makes a host's table vanish on its own, the index kept, as a hand or an eviction would.
func (m *Memory) Lose(id routes.HostID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.data.hosts[id]
	h.Document = nil
	m.data.hosts[id] = h
}

// Scribble changes what stands of a host, or of a backend's catalog, on its own, as a hand would. Nil functions change nothing.
func (m *Memory) Scribble(host routes.HostID, table, list func([]byte) []byte, backend routes.BackendID, catalog func([]byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.data.hosts[host]; table != nil {
		h.Document = table(bytes.Clone(h.Document))
		m.data.hosts[host] = h
	}
	if list != nil {
		m.data.lists[host] = list(bytes.Clone(m.data.lists[host]))
	}
	if c := m.data.catalogs[backend]; catalog != nil {
		c.Document = catalog(bytes.Clone(c.Document))
		m.data.catalogs[backend] = c
	}
}

// Lost is redisstore.Reader's.
func (m *Memory) Lost(ctx context.Context, hosts []routes.HostID, backends []routes.BackendID) (
	lostHosts []routes.HostID, lostCatalogs []routes.BackendID, err error,
) {
	if err := m.enter(ctx, "lost"); err != nil {
		return nil, nil, err
	}
	defer m.mu.Unlock()
	d := m.data
	lostHosts = slices.DeleteFunc(slices.Clone(hosts), func(id routes.HostID) bool { return d.hosts[id].Document != nil && d.lists[id] != nil })
	lostCatalogs = slices.DeleteFunc(slices.Clone(backends), func(id routes.BackendID) bool { _, ok := d.catalogs[id]; return ok })
	return lostHosts, lostCatalogs, nil
}
