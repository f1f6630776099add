package tasks

import (
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

const (
	// missLife is how long it is remembered that nobody knew a task.
	missLife = 10 * time.Second
	// maxMisses bounds what is remembered; the budget of a principal makes at most 20 of them.
	maxMisses = 65_536
)

// missKey is one principal's unknown id, as a digest.
type missKey struct {
	host      routes.HostID
	principal access.Principal
	task      string
	era       wire.Era // the other era's backends were not asked
}

// misses remembers ids that nobody knew, for a while, and that nobody may have: both kinds alike.
type misses struct {
	mu    sync.Mutex // guards what follows
	until map[missKey]time.Time
	queue []missKey // those of until, what ends first at the front: all live equally long
}

func newMisses() *misses { return &misses{until: make(map[missKey]time.Time)} }

func (m *misses) has(key missKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	until, ok := m.until[key]
	return ok && time.Now().Before(until)
}

// add remembers a key. One that is remembered already keeps its time.
func (m *misses) add(key missKey) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now)
	if _, known := m.until[key]; known {
		return
	}
	if len(m.queue) >= maxMisses {
		m.drop()
	}
	m.until[key] = now.Add(missLife)
	m.queue = append(m.queue, key)
}

// forget drops what has ended; m.mu is held.
func (m *misses) forget(now time.Time) {
	for len(m.queue) > 0 && !now.Before(m.until[m.queue[0]]) {
		m.drop()
	}
}

func (m *misses) drop() {
	delete(m.until, m.queue[0])
	m.queue[0] = missKey{}
	m.queue = m.queue[1:]
}

func (m *misses) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(time.Now())
	return len(m.until)
}
