package routestest

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// Meta is redisstore.Reader's, as are all that follow.
func (m *Memory) Meta(ctx context.Context) (routes.Meta, error) {
	if err := m.enter(ctx, "meta"); err != nil {
		return routes.Meta{}, err
	}
	defer m.mu.Unlock()
	return m.data.meta(), nil
}

func (d *memoryData) meta() routes.Meta {
	return routes.Meta{Incarnation: d.incarnation, Sequence: d.sequence, Complete: d.complete}
}

// Host returns a record, routes.ErrUnknownHost or routes.ErrNotPublished.
func (m *Memory) Host(ctx context.Context, id routes.HostID) (routes.HostRecord, error) {
	if err := m.enter(ctx, "host"); err != nil {
		return routes.HostRecord{}, err
	}
	defer m.mu.Unlock()
	h, err := m.data.host(id)
	if err != nil {
		return routes.HostRecord{}, err
	}
	h.Document = bytes.Clone(h.Document)
	return h, nil
}

func (d *memoryData) host(id routes.HostID) (routes.HostRecord, error) {
	h, ok := d.hosts[id]
	switch {
	case h.Removed, !ok && d.complete:
		return h, fmt.Errorf("host %q: %w", id, routes.ErrUnknownHost)
	case !ok:
		return h, fmt.Errorf("host %q: %w", id, routes.ErrNotPublished)
	}
	return h, nil
}

// Hosts returns several records, tombstones included.
func (m *Memory) Hosts(ctx context.Context, ids []routes.HostID) (map[routes.HostID]routes.HostRecord, error) {
	if err := m.enter(ctx, "hosts"); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	hosts := make(map[routes.HostID]routes.HostRecord, len(ids))
	for _, id := range ids {
		if h, ok := m.data.hosts[id]; ok {
			h.Document = bytes.Clone(h.Document)
			hosts[id] = h
		}
	}
	return hosts, nil
}

// List returns a host's encoded list.
func (m *Memory) List(ctx context.Context, id routes.HostID) ([]byte, error) {
	if err := m.enter(ctx, "list"); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	if _, err := m.data.host(id); err != nil {
		return nil, err
	}
	return bytes.Clone(m.data.lists[id]), nil
}

// Index returns a line for every host that was ever published.
func (m *Memory) Index(ctx context.Context) (map[routes.HostID]routes.HostEntry, routes.Meta, error) {
	if err := m.enter(ctx, "index"); err != nil {
		return nil, routes.Meta{}, err
	}
	defer m.mu.Unlock()
	index := make(map[routes.HostID]routes.HostEntry, len(m.data.hosts))
	for id, h := range m.data.hosts {
		index[id] = routes.HostEntry{Version: h.Version, Sequence: h.Sequence, Digest: h.Digest, Removed: h.Removed}
	}
	return index, m.data.meta(), nil
}

// Catalogs returns the digest of every catalog.
func (m *Memory) Catalogs(ctx context.Context) (map[routes.BackendID]string, error) {
	if err := m.enter(ctx, "catalogs"); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	digests := make(map[routes.BackendID]string, len(m.data.catalogs))
	for id, c := range m.data.catalogs {
		digests[id] = c.Digest
	}
	return digests, nil
}

// Catalog returns one catalog, or routes.ErrNotPublished.
func (m *Memory) Catalog(ctx context.Context, id routes.BackendID) (doc []byte, digest string, err error) {
	if err := m.enter(ctx, "catalog"); err != nil {
		return nil, "", err
	}
	defer m.mu.Unlock()
	c, ok := m.data.catalogs[id]
	if !ok {
		return nil, "", fmt.Errorf("catalog of backend %q: %w", id, routes.ErrNotPublished)
	}
	return bytes.Clone(c.Document), c.Digest, nil
}

// Leader returns who leads; "" and 0 while nobody does.
func (m *Memory) Leader(ctx context.Context) (owner string, epoch uint64, err error) {
	if err := m.enter(ctx, "leader"); err != nil {
		return "", 0, err
	}
	defer m.mu.Unlock()
	if !time.Now().Before(m.data.until) {
		return "", 0, nil
	}
	return m.data.lease.Owner, m.data.lease.Epoch, nil
}

// PutStatus stores a dataplane's status.
func (m *Memory) PutStatus(ctx context.Context, dataplane string, doc []byte, ttl time.Duration) error {
	switch {
	case ttl < time.Millisecond:
		return fmt.Errorf("put status: TTL %v is under 1ms", ttl)
	case dataplane == "":
		return fmt.Errorf("put status: dataplane is empty")
	}
	if err := m.enter(ctx, "put status"); err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.data.statuses[dataplane] = memoryStatus{bytes.Clone(doc), time.Now().Add(ttl)}
	return nil
}

// Statuses returns every status that has not expired.
func (m *Memory) Statuses(ctx context.Context) (map[string][]byte, error) {
	if err := m.enter(ctx, "statuses"); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	statuses := map[string][]byte{}
	for name, s := range m.data.statuses {
		if time.Now().Before(s.until) {
			statuses[name] = bytes.Clone(s.document)
		}
	}
	return statuses, nil
}

// Follow tells changes until ctx ends.
func (m *Memory) Follow(ctx context.Context, apply func([]routes.Event), state func(reachable bool, err error)) error {
	if state == nil {
		state = func(bool, error) {}
	}
	f := memoryFollower{broken: -1}
	for ctx.Err() == nil {
		m.mu.Lock()
		events, told := f.take(m)
		wait := m.changed
		m.mu.Unlock()
		if told {
			if f.down {
				state(false, fmt.Errorf("follow: %w", routes.ErrUnavailable))
			} else {
				state(true, nil)
			}
		}
		if len(events) > 0 {
			apply(events)
			continue
		}
		select {
		case <-ctx.Done():
		case <-wait:
		}
	}
	return nil
}

// memoryFollower is how far a follower is.
type memoryFollower struct {
	broken      int // the connection it has, as Memory counts them; -1: none yet
	down        bool
	incarnation string
	sequence    uint64
}

// take returns what is new, and whether reachability changed. m.mu is held.
func (f *memoryFollower) take(m *Memory) (events []routes.Event, told bool) {
	d := m.data
	if m.down {
		told = !f.down
		f.down, f.broken = true, -1
		return nil, told
	}
	if f.broken != m.broken {
		f.broken, f.down = m.broken, false
		f.incarnation, f.sequence = d.incarnation, d.sequence
		return []routes.Event{{Reset: true}}, true
	}
	for _, c := range d.stream {
		if d.incarnation == f.incarnation && c.sequence <= f.sequence {
			continue
		}
		if d.incarnation != f.incarnation || c.sequence != f.sequence+1 {
			events = append(events, routes.Event{Reset: true})
		}
		f.incarnation, f.sequence = d.incarnation, c.sequence
		events = append(events, c.event)
	}
	return events, false
}
