package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
)

// replyConflict says that something else was decided since the decision was read.
const replyConflict = "CONFLICT"

// Decide stores what was decided of a subject; nil takes the decision back. expected is the digest of what the decider read of
// it, empty for nothing: where something else stands, Decide fails with routes.ErrConflict and writes nothing. A decision needs
// no lease, since operators decide on any control plane.
func (w *Writer) Decide(ctx context.Context, subject, expected string, doc []byte) error {
	if subject == "" {
		return fmt.Errorf("decide: subject is empty")
	}
	digest := ""
	if doc != nil {
		digest = routes.Digest(doc)
	}
	keys := []string{w.keys.fence(), w.keys.decisions(), w.keys.decision(subject), w.keys.changes()}
	timeout := w.gate.timeout * time.Duration(1+len(doc)/(2*maxBytes))
	reply, err := w.runFor(ctx, timeout, "decide", decideScript, keys, subject, expected, digest, doc, streamLength)
	switch {
	case err != nil:
		return err
	case reply[0] == replyConflict:
		return fmt.Errorf("decide %q: %w", subject, routes.ErrConflict)
	case reply[0] != replyOK:
		return fmt.Errorf("decide: unexpected reply %q", reply)
	}
	return nil
}

// Decisions returns the digest of every decision by its subject, and the state of the store at that moment.
func (r *Reader) Decisions(ctx context.Context) (map[string]string, routes.Meta, error) {
	var meta *redis.SliceCmd
	var digests *redis.MapStringStringCmd
	err := r.tx(ctx, "decisions", func(ctx context.Context, p redis.Pipeliner) {
		meta = r.queueMeta(ctx, p)
		digests = p.HGetAll(ctx, r.keys.decisions())
	})
	if err != nil {
		return nil, routes.Meta{}, err
	}
	m, err := metaOf(meta)
	return digests.Val(), m, err
}

// Decision returns what was decided of a subject, and its digest; routes.ErrNotPublished where nothing was.
func (r *Reader) Decision(ctx context.Context, subject string) (doc []byte, digest string, err error) {
	var d, document *redis.StringCmd
	err = r.tx(ctx, "decision", func(ctx context.Context, p redis.Pipeliner) {
		d = p.HGet(ctx, r.keys.decisions(), subject)
		document = p.Get(ctx, r.keys.decision(subject))
	})
	if err != nil {
		return nil, "", err
	}
	if d.Err() != nil || document.Err() != nil {
		return nil, "", fmt.Errorf("decision on %q: %w", subject, routes.ErrNotPublished)
	}
	return []byte(document.Val()), d.Val(), nil
}

// History returns the latest revisions of a host, newest first; none of a host that was never published, or was removed.
func (r *Reader) History(ctx context.Context, id routes.HostID) ([]routes.Revision, error) {
	var entries *redis.StringSliceCmd
	err := r.gate.do(ctx, "history", func(ctx context.Context) error {
		entries = r.client.LRange(ctx, r.keys.history(id), 0, -1)
		return entries.Err()
	})
	if err != nil {
		return nil, err
	}
	var revisions []routes.Revision
	for i, entry := range entries.Val() {
		rev, err := parseRevision(entry)
		if err != nil {
			return nil, fmt.Errorf("history of host %q: entry %d: %w", id, i, err)
		}
		revisions = append(revisions, rev)
	}
	return revisions, nil
}

// parseRevision is the inverse of what publishScript writes.
func parseRevision(entry string) (routes.Revision, error) {
	head, archive, ok := strings.Cut(entry, "\n")
	f := strings.SplitN(head, " ", 5)
	if !ok || len(f) != 5 {
		return routes.Revision{}, fmt.Errorf("unexpected head %q", head[:min(len(head), 100)])
	}
	epoch, err := number(f[1])
	if err != nil {
		return routes.Revision{}, err
	}
	revision, err := number(f[2])
	if err != nil {
		return routes.Revision{}, err
	}
	ms, err := strconv.ParseInt(f[3], 10, 64)
	if err != nil {
		return routes.Revision{}, err
	}
	return routes.Revision{
		Version: routes.Version{Incarnation: f[0], Epoch: epoch, Revision: revision},
		Time:    time.UnixMilli(ms).UTC(), Digest: f[4], Archive: []byte(archive),
	}, nil
}
