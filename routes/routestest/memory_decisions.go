package routestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// remember keeps a revision in its host's history.
func (d *memoryData) remember(v routes.Version, h routes.HostChange) {
	switch {
	case h.Document == nil:
		delete(d.history, h.ID)
	case h.Archive != nil:
		now := time.UnixMilli(time.Now().UnixMilli()).UTC()
		all := append([]routes.Revision{{Version: v, Time: now, Digest: h.Digest, Archive: bytes.Clone(h.Archive)}}, d.history[h.ID]...)
		d.history[h.ID] = all[:min(len(all), routes.HistoryLength)]
	}
}

// History is redisstore.Reader's.
func (m *Memory) History(ctx context.Context, id routes.HostID) ([]routes.Revision, error) {
	if err := m.enter(ctx, "history"); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	return slices.Clone(m.data.history[id]), nil
}

// Decide is redisstore.Writer's.
func (m *Memory) Decide(ctx context.Context, subject, expected string, doc []byte) error {
	if subject == "" {
		return errors.New("decide: subject is empty")
	}
	if err := m.enter(ctx, "decide"); err != nil {
		return err
	}
	defer m.mu.Unlock()
	d := m.data
	digest := ""
	if doc != nil {
		digest = routes.Digest(doc)
	}
	switch d.decided(subject) {
	case digest:
		return nil
	case expected:
	default:
		return fmt.Errorf("decide %q: %w", subject, routes.ErrConflict)
	}
	if doc == nil {
		delete(d.decisions, subject)
	} else {
		d.decisions[subject] = bytes.Clone(doc)
	}
	if d.incarnation != "" {
		d.sequence++
		d.stream = append(d.stream, memoryChange{d.sequence, routes.Event{Decision: true}})
		m.wake()
	}
	return nil
}

// decided is the digest of what was decided of a subject; empty: nothing.
func (d *memoryData) decided(subject string) string {
	if doc, ok := d.decisions[subject]; ok {
		return routes.Digest(doc)
	}
	return ""
}

// Decisions is redisstore.Reader's.
func (m *Memory) Decisions(ctx context.Context) (map[string]string, routes.Meta, error) {
	if err := m.enter(ctx, "decisions"); err != nil {
		return nil, routes.Meta{}, err
	}
	defer m.mu.Unlock()
	digests := make(map[string]string, len(m.data.decisions))
	for subject := range m.data.decisions {
		digests[subject] = m.data.decided(subject)
	}
	return digests, m.data.meta(), nil
}

// Decision is redisstore.Reader's.
func (m *Memory) Decision(ctx context.Context, subject string) (doc []byte, digest string, err error) {
	if err := m.enter(ctx, "decision"); err != nil {
		return nil, "", err
	}
	defer m.mu.Unlock()
	doc, ok := m.data.decisions[subject]
	if !ok {
		return nil, "", fmt.Errorf("decision on %q: %w", subject, routes.ErrNotPublished)
	}
	return bytes.Clone(doc), m.data.decided(subject), nil
}
