package routestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// memoryStream is how many changes a Memory keeps for followers.
const memoryStream = 10_000

// Memory is a store in memory, with the methods of redisstore's Writer and Reader and the same behaviour. Several Readers and
// Writers of one test share one Memory. Safe for concurrent use.
type Memory struct {
	mu   sync.Mutex // guards what follows
	data *memoryData
	down bool
	// recovered is when the last outage ended; most bounds owner records.
	recovered time.Time
	most      OwnerLimits
	flushes   int           // how often data was lost; part of the next incarnation's name
	broken    int           // how often followers lost their connection
	changed   chan struct{} // closed and replaced at each change
}

// memoryData is what is lost when data is lost.
type memoryData struct {
	incarnation     string
	epoch, sequence uint64
	config          int64
	complete        bool
	held            bool // by lease, which can write until it is fenced or released
	lease           routes.Lease
	until           time.Time // when the lease runs out; zero: it is free
	hosts           map[routes.HostID]routes.HostRecord
	lists           map[routes.HostID][]byte
	catalogs        map[routes.BackendID]routes.CatalogChange
	statuses        map[string]memoryStatus
	revocations     map[string]routes.Revocation // by key
	history         map[routes.HostID][]routes.Revision
	decisions       map[string][]byte
	tasks           memoryTasks
	stream          []memoryChange
}

type memoryStatus struct {
	document []byte
	until    time.Time
}

type memoryChange struct {
	sequence uint64
	event    routes.Event
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{data: newMemoryData(), changed: make(chan struct{})}
}

func newMemoryData() *memoryData {
	return &memoryData{
		hosts:    map[routes.HostID]routes.HostRecord{},
		lists:    map[routes.HostID][]byte{},
		catalogs: map[routes.BackendID]routes.CatalogChange{},
		history:  map[routes.HostID][]routes.Revision{}, decisions: map[string][]byte{},
		statuses: map[string]memoryStatus{}, revocations: map[string]routes.Revocation{}, tasks: memoryTasks{},
	}
}

// SetDown makes the store unreachable, or reachable again; followers lose their connection.
func (m *Memory) SetDown(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down && !down {
		m.recovered = time.Now()
	}
	m.down = down
	m.broken++
	m.wake()
}

// Disconnect makes followers reconnect.
func (m *Memory) Disconnect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken++
	m.wake()
}

// Flush loses all data. Followers notice at the next change.
func (m *Memory) Flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data = newMemoryData()
	m.flushes++
	m.wake()
}

// Trim forgets every change for followers that have not read it yet.
func (m *Memory) Trim() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data.stream = nil
}

// wake must be called with mu held.
func (m *Memory) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// enter locks, unless the operation can't be done; the caller unlocks.
func (m *Memory) enter(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	m.mu.Lock()
	if m.down {
		m.mu.Unlock()
		return fmt.Errorf("%s: %w", op, routes.ErrUnavailable)
	}
	return nil
}

// Acquire is redisstore.Writer's.
func (m *Memory) Acquire(ctx context.Context, owner string, ttl time.Duration, configVersion int64) (routes.Lease, error) {
	switch {
	case ttl < time.Millisecond:
		return routes.Lease{}, fmt.Errorf("acquire: TTL %v is under 1ms", ttl)
	case owner == "":
		return routes.Lease{}, errors.New("acquire: owner is empty")
	case configVersion < 0:
		return routes.Lease{}, fmt.Errorf("acquire: config version %d is negative", configVersion)
	}
	if err := m.enter(ctx, "acquire"); err != nil {
		return routes.Lease{}, err
	}
	defer m.mu.Unlock()
	d := m.data
	if time.Now().Before(d.until) {
		return routes.Lease{}, fmt.Errorf("acquire: %w: %q holds the lease", routes.ErrNotLeader, d.lease.Owner)
	}
	if configVersion < d.config {
		return routes.Lease{}, fmt.Errorf("acquire: %w: %w: its config_version is %d, ours %d",
			routes.ErrNotLeader, routes.ErrConfigOutdated, d.config, configVersion)
	}
	if d.incarnation == "" {
		d.incarnation = "memory" + strconv.Itoa(m.flushes)
	}
	d.epoch++
	d.config, d.until = configVersion, time.Now().Add(ttl)
	d.lease, d.held = routes.Lease{Owner: owner, Incarnation: d.incarnation, Epoch: d.epoch}, true
	return d.lease, nil
}

// holds must be called with mu held.
func (m *Memory) holds(op string, l routes.Lease) error {
	if d := m.data; !d.held || d.incarnation != l.Incarnation || d.epoch != l.Epoch {
		return fmt.Errorf("%s: %w", op, routes.ErrFenced)
	}
	return nil
}

// Renew is redisstore.Writer's.
func (m *Memory) Renew(ctx context.Context, l routes.Lease, ttl time.Duration) error {
	if ttl < time.Millisecond {
		return fmt.Errorf("renew: TTL %v is under 1ms", ttl)
	}
	if err := m.enter(ctx, "renew"); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if err := m.holds("renew", l); err != nil {
		return err
	}
	m.data.until = time.Now().Add(ttl)
	return nil
}

// Release is redisstore.Writer's.
func (m *Memory) Release(ctx context.Context, l routes.Lease) error {
	if err := m.enter(ctx, "release"); err != nil {
		return err
	}
	defer m.mu.Unlock()
	d := m.data
	if d.incarnation != l.Incarnation || d.epoch != l.Epoch {
		return fmt.Errorf("release: %w", routes.ErrFenced)
	}
	d.held, d.until = false, time.Time{}
	return nil
}

// MarkComplete is redisstore.Writer's.
func (m *Memory) MarkComplete(ctx context.Context, l routes.Lease) error {
	if err := m.enter(ctx, "complete"); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if err := m.holds("complete", l); err != nil {
		return err
	}
	m.data.complete = true
	return nil
}

// Publish is redisstore.Writer's.
func (m *Memory) Publish(ctx context.Context, l routes.Lease, b routes.Batch) error {
	if err := checkBatch(b); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if err := m.enter(ctx, "publish"); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if len(b.Catalogs)+len(b.Hosts) == 0 {
		return nil
	}
	if err := m.holds("publish", l); err != nil {
		return err
	}
	d := m.data
	var news []routes.HostChange
	for _, h := range b.Hosts {
		old, ok := d.hosts[h.ID]
		v := routes.Version{Incarnation: l.Incarnation, Epoch: l.Epoch, Revision: h.Revision}
		switch {
		case ok && v == old.Version && h.Digest == old.Digest && old.Removed == (h.Document == nil):
			continue // repeated
		case ok && !v.Supersedes(old.Version):
			return fmt.Errorf("publish: host %q at revision %d: %w: (%d, %d)", h.ID, h.Revision, routes.ErrStale,
				old.Version.Epoch, old.Version.Revision)
		}
		news = append(news, h)
	}
	for _, c := range b.Catalogs {
		if c.Document == nil {
			delete(d.catalogs, c.Backend)
			continue
		}
		c.Document = bytes.Clone(c.Document)
		d.catalogs[c.Backend] = c
	}
	for _, h := range news {
		d.put(l, h)
	}
	m.wake()
	return nil
}

func (d *memoryData) put(l routes.Lease, h routes.HostChange) {
	d.sequence++
	v := routes.Version{Incarnation: l.Incarnation, Epoch: l.Epoch, Revision: h.Revision}
	d.hosts[h.ID] = routes.HostRecord{ID: h.ID, Version: v, Sequence: d.sequence, Digest: h.Digest,
		Removed: h.Document == nil, Document: bytes.Clone(h.Document)}
	delete(d.lists, h.ID)
	if h.Document != nil {
		d.lists[h.ID] = bytes.Clone(h.List)
	}
	d.remember(v, h)
	d.stream = append(d.stream, memoryChange{d.sequence, routes.Event{Host: h.ID, Version: v, Removed: h.Document == nil}})
	if len(d.stream) > memoryStream {
		d.stream = d.stream[len(d.stream)-memoryStream:]
	}
}

// checkBatch refuses what can't be meant.
func checkBatch(b routes.Batch) error {
	backends := map[routes.BackendID]bool{}
	for _, c := range b.Catalogs {
		if c.Backend == "" || backends[c.Backend] {
			return fmt.Errorf("backend %q is empty or there twice", c.Backend)
		}
		backends[c.Backend] = true
	}
	hosts := map[routes.HostID]bool{}
	for _, h := range b.Hosts {
		if h.ID == "" || hosts[h.ID] {
			return fmt.Errorf("host %q is empty or there twice", h.ID)
		}
		hosts[h.ID] = true
	}
	return nil
}
