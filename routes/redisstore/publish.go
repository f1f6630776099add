package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-mcp/weir/routes"
)

const (
	// One call of the script writes at most so much, so that it never holds up Redis for long.
	maxChanges = 64
	maxBytes   = 1 << 20
	// streamLength is how many changes the stream keeps, about. A follower that missed more re-reads.
	streamLength = 10_000
)

// Publish writes a batch: catalogs first, then hosts, each change whole, in calls of bounded size. Where it fails in the midst,
// a prefix of the batch stands, and publishing the batch again completes it: what already stands (same epoch, revision and
// digest) is not written twice. It fails with routes.ErrStale, writing nothing of that call, where a host stands at a higher
// revision, or at the same one with another digest.
func (w *Writer) Publish(ctx context.Context, l routes.Lease, b routes.Batch) error {
	if err := checkBatch(b); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	for _, call := range split(b) {
		if err := w.publish(ctx, l, call); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) publish(ctx context.Context, l routes.Lease, b routes.Batch) error {
	keys := append(w.guardKeys(), w.keys.index(), w.keys.catalogs(), w.keys.changes())
	args := append(w.guardArgs(l), streamLength, len(b.Catalogs), len(b.Hosts), routes.HistoryLength)
	size := 0
	for _, c := range b.Catalogs {
		keys = append(keys, w.keys.catalog(c.Backend))
		args = append(args, string(c.Backend), c.Digest, flag(c.Document != nil), c.Document)
		size += len(c.Document)
	}
	for _, h := range b.Hosts {
		keys = append(keys, w.keys.host(h.ID), w.keys.list(h.ID), w.keys.history(h.ID))
		args = append(args, string(h.ID), h.Revision, h.Digest, flag(h.Document == nil), h.Document, h.List, h.Archive)
		size += len(h.Document) + len(h.List) + len(h.Archive)
	}
	// A single document may be larger than a call should be; then it gets more time in proportion.
	timeout := w.gate.timeout * time.Duration(1+size/(2*maxBytes))
	reply, err := w.runFor(ctx, timeout, "publish", publishScript, keys, args...)
	if err == nil && reply[0] == replyStale && len(reply) == 4 {
		return staleError(b.Hosts, reply)
	}
	return w.written("publish", l, reply, err)
}

func staleError(hosts []routes.HostChange, reply []string) error {
	var position int
	if _, err := fmt.Sscan(reply[1], &position); err != nil || position < 1 || position > len(hosts) {
		return fmt.Errorf("publish: unexpected reply %q", reply)
	}
	h := hosts[position-1]
	return fmt.Errorf("publish: host %q at revision %d: %w: (%s, %s)", h.ID, h.Revision, routes.ErrStale, reply[2], reply[3])
}

// split cuts a batch into calls: catalogs before hosts, each call within its bounds unless a single change is over them.
func split(b routes.Batch) []routes.Batch {
	var calls []routes.Batch
	n, size := 0, 0
	next := func(bytes int) *routes.Batch {
		if len(calls) == 0 || n == maxChanges || size+bytes > maxBytes {
			calls = append(calls, routes.Batch{})
			n, size = 0, 0
		}
		n, size = n+1, size+bytes
		return &calls[len(calls)-1]
	}
	for _, c := range b.Catalogs {
		call := next(len(c.Document))
		call.Catalogs = append(call.Catalogs, c)
	}
	for _, h := range b.Hosts {
		call := next(len(h.Document) + len(h.List) + len(h.Archive))
		call.Hosts = append(call.Hosts, h)
	}
	return calls
}

// checkBatch refuses what can't be meant.
func checkBatch(b routes.Batch) error {
	var errs []error
	backends := make(map[routes.BackendID]bool, len(b.Catalogs))
	for i, c := range b.Catalogs {
		switch {
		case c.Backend == "":
			errs = append(errs, fmt.Errorf("catalogs[%d]: no backend", i))
		case backends[c.Backend]:
			errs = append(errs, fmt.Errorf("catalogs[%d]: backend %q twice", i, c.Backend))
		}
		backends[c.Backend] = true
	}
	hosts := make(map[routes.HostID]bool, len(b.Hosts))
	for i, h := range b.Hosts {
		switch {
		case h.ID == "":
			errs = append(errs, fmt.Errorf("hosts[%d]: no id", i))
		case hosts[h.ID]:
			errs = append(errs, fmt.Errorf("hosts[%d]: host %q twice", i, h.ID))
		}
		hosts[h.ID] = true
	}
	return errors.Join(errs...)
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
