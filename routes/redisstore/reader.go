package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
)

// hostsPerRead is how many hosts one round trip reads at most.
const hostsPerRead = 32

// Reader reads what stands in Redis. Errors wrap routes.ErrUnavailable when Redis could not be used in time. Safe for concurrent
// use.
type Reader struct {
	store
	follow followTimes
}

// NewReader checks the options; it does not connect.
func NewReader(o Options) (*Reader, error) {
	s, err := newStore(o)
	if err != nil {
		return nil, err
	}
	return &Reader{store: s, follow: defaultFollowTimes()}, nil
}

// Meta returns the state of the store as a whole. It is zero for a store that nobody ever led.
func (r *Reader) Meta(ctx context.Context) (routes.Meta, error) {
	var cmd *redis.SliceCmd
	err := r.gate.do(ctx, "meta", func(ctx context.Context) error {
		cmd = r.queueMeta(ctx, r.client)
		return cmd.Err()
	})
	if err != nil {
		return routes.Meta{}, err
	}
	return metaOf(cmd)
}

// Host returns the record of a published host. A host that is absent or removed is routes.ErrUnknownHost once everything was
// published, and routes.ErrNotPublished before; a tombstone is routes.ErrUnknownHost always.
func (r *Reader) Host(ctx context.Context, id routes.HostID) (routes.HostRecord, error) {
	hosts, meta, err := r.read(ctx, "host", []routes.HostID{id})
	if err != nil {
		return routes.HostRecord{}, err
	}
	h, indexed := hosts[id]
	if err := absent(id, indexed, h.Removed, h.Document != nil, meta); err != nil {
		return routes.HostRecord{}, err
	}
	return h, nil
}

// Hosts reads several at once, tombstones included; absent ones are left out. It takes one round trip for every 32 hosts.
func (r *Reader) Hosts(ctx context.Context, ids []routes.HostID) (map[routes.HostID]routes.HostRecord, error) {
	all := make(map[routes.HostID]routes.HostRecord, len(ids))
	for len(ids) > 0 {
		n := min(len(ids), hostsPerRead)
		some, _, err := r.read(ctx, "hosts", ids[:n])
		if err != nil {
			return nil, err
		}
		for id, h := range some {
			if h.Removed || h.Document != nil {
				all[id] = h
			}
		}
		ids = ids[n:]
	}
	return all, nil
}

// read takes index lines, documents and meta of one moment. A record without a document is a tombstone, or lost.
func (r *Reader) read(ctx context.Context, op string, ids []routes.HostID) (map[routes.HostID]routes.HostRecord, routes.Meta, error) {
	fields, keys := make([]string, len(ids)), make([]string, len(ids))
	for i, id := range ids {
		fields[i], keys[i] = string(id), r.keys.host(id)
	}
	var meta, lines, documents *redis.SliceCmd
	err := r.tx(ctx, op, func(ctx context.Context, p redis.Pipeliner) {
		meta = r.queueMeta(ctx, p)
		lines = p.HMGet(ctx, r.keys.index(), fields...)
		documents = p.MGet(ctx, keys...)
	})
	if err != nil {
		return nil, routes.Meta{}, err
	}
	m, err := metaOf(meta)
	if err != nil {
		return nil, routes.Meta{}, err
	}
	hosts := make(map[routes.HostID]routes.HostRecord, len(ids))
	for i, id := range ids {
		line, ok := lines.Val()[i].(string)
		if !ok {
			continue
		}
		e, ok := parseEntry(line)
		if !ok {
			hosts[id] = routes.HostRecord{ID: id} // as good as lost
			continue
		}
		h := routes.HostRecord{ID: id, Version: e.Version, Sequence: e.Sequence, Digest: e.Digest, Removed: e.Removed}
		if document, ok := documents.Val()[i].(string); ok && !e.Removed {
			h.Document = []byte(document)
		}
		hosts[id] = h
	}
	return hosts, m, nil
}

// List returns what the host's lists contain, as encoded by routes.EncodeList. Absent hosts are treated as Host does.
func (r *Reader) List(ctx context.Context, id routes.HostID) ([]byte, error) {
	var meta *redis.SliceCmd
	var line, list *redis.StringCmd
	err := r.tx(ctx, "list", func(ctx context.Context, p redis.Pipeliner) {
		meta = r.queueMeta(ctx, p)
		line = p.HGet(ctx, r.keys.index(), string(id))
		list = p.Get(ctx, r.keys.list(id))
	})
	if err != nil {
		return nil, err
	}
	m, err := metaOf(meta)
	if err != nil {
		return nil, err
	}
	e, ok := parseEntry(line.Val())
	if err := absent(id, line.Err() == nil, e.Removed, ok && list.Err() == nil, m); err != nil {
		return nil, err
	}
	return []byte(list.Val()), nil
}

// absent says why there is nothing to return, if so. What is in the index and yet has no document was lost on its own, by
// eviction say: that is no removal.
func absent(id routes.HostID, indexed, removed, there bool, m routes.Meta) error {
	switch {
	case removed, !indexed && m.Complete:
		return fmt.Errorf("host %q: %w", id, routes.ErrUnknownHost)
	case !there:
		return fmt.Errorf("host %q: %w", id, routes.ErrNotPublished)
	}
	return nil
}

// Index returns an entry for every host that was ever published, tombstones included, and the state of the store at that
// moment. An entry that can't be read is zero: whatever a leader publishes supersedes it.
func (r *Reader) Index(ctx context.Context) (map[routes.HostID]routes.HostEntry, routes.Meta, error) {
	var meta *redis.SliceCmd
	var lines *redis.MapStringStringCmd
	err := r.tx(ctx, "index", func(ctx context.Context, p redis.Pipeliner) {
		meta = r.queueMeta(ctx, p)
		lines = p.HGetAll(ctx, r.keys.index())
	})
	if err != nil {
		return nil, routes.Meta{}, err
	}
	m, err := metaOf(meta)
	if err != nil {
		return nil, routes.Meta{}, err
	}
	index := make(map[routes.HostID]routes.HostEntry, len(lines.Val()))
	for id, line := range lines.Val() {
		index[routes.HostID(id)], _ = parseEntry(line)
	}
	return index, m, nil
}

// Catalogs returns the digest of every stored catalog.
func (r *Reader) Catalogs(ctx context.Context) (map[routes.BackendID]string, error) {
	var cmd *redis.MapStringStringCmd
	err := r.gate.do(ctx, "catalogs", func(ctx context.Context) error {
		cmd = r.client.HGetAll(ctx, r.keys.catalogs())
		return cmd.Err()
	})
	if err != nil {
		return nil, err
	}
	digests := make(map[routes.BackendID]string, len(cmd.Val()))
	for id, digest := range cmd.Val() {
		digests[routes.BackendID(id)] = digest
	}
	return digests, nil
}

// Catalog returns the catalog of one backend as it was published, and its digest; routes.ErrNotPublished where there is none.
func (r *Reader) Catalog(ctx context.Context, id routes.BackendID) (doc []byte, digest string, err error) {
	var d, document *redis.StringCmd
	err = r.tx(ctx, "catalog", func(ctx context.Context, p redis.Pipeliner) {
		d = p.HGet(ctx, r.keys.catalogs(), string(id))
		document = p.Get(ctx, r.keys.catalog(id))
	})
	if err != nil {
		return nil, "", err
	}
	if d.Err() != nil || document.Err() != nil {
		return nil, "", fmt.Errorf("catalog of backend %q: %w", id, routes.ErrNotPublished)
	}
	return []byte(document.Val()), d.Val(), nil
}

// Leader returns who leads and since which epoch; "" and 0 while nobody does.
func (r *Reader) Leader(ctx context.Context) (owner string, epoch uint64, err error) {
	var cmd *redis.SliceCmd
	err = r.gate.do(ctx, "leader", func(ctx context.Context) error {
		cmd = r.client.HMGet(ctx, r.keys.lease(), "owner", "epoch")
		return cmd.Err()
	})
	if err != nil {
		return "", 0, err
	}
	owner, ok := cmd.Val()[0].(string)
	if !ok {
		return "", 0, nil
	}
	if epoch, err = number(cmd.Val()[1]); err != nil {
		return "", 0, fmt.Errorf("lease: epoch: %w", err)
	}
	return owner, epoch, nil
}

// tx runs what queue queues in one transaction: everything is of one moment. Values that are absent are no error.
func (s *store) tx(ctx context.Context, op string, queue func(context.Context, redis.Pipeliner)) error {
	return s.gate.do(ctx, op, func(ctx context.Context) error {
		cmds, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			queue(ctx, p)
			return nil
		})
		if !errors.Is(err, redis.Nil) {
			return err
		}
		for _, cmd := range cmds { // the first error may hide a worse one
			if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
		}
		return nil
	})
}

// probe asks for the smallest thing on the node that holds the routes.
func (s *store) probe(ctx context.Context) error {
	return s.client.HExists(ctx, s.keys.fence(), "incarnation").Err()
}

func (s *store) queueMeta(ctx context.Context, c redis.Cmdable) *redis.SliceCmd {
	return c.HMGet(ctx, s.keys.fence(), "incarnation", "sequence", "complete")
}

func metaOf(cmd *redis.SliceCmd) (routes.Meta, error) {
	var m routes.Meta
	values := cmd.Val()
	if len(values) != 3 {
		return m, fmt.Errorf("fence: unexpected reply %v", values)
	}
	m.Incarnation, _ = values[0].(string)
	if m.Incarnation == "" {
		return m, nil
	}
	var err error
	if m.Sequence, err = number(values[1]); err != nil {
		return m, fmt.Errorf("fence: sequence: %w", err)
	}
	m.Complete = values[2] != nil
	return m, nil
}

// parseEntry is the inverse of what publishScript writes; the entry is zero if it can't be read.
func parseEntry(line string) (routes.HostEntry, bool) {
	f := strings.SplitN(line, " ", 6)
	if len(f) != 6 || f[0] == "" || f[4] != "0" && f[4] != "1" {
		return routes.HostEntry{}, false
	}
	epoch, err1 := number(f[1])
	revision, err2 := number(f[2])
	sequence, err3 := number(f[3])
	if errors.Join(err1, err2, err3) != nil {
		return routes.HostEntry{}, false
	}
	return routes.HostEntry{
		Version:  routes.Version{Incarnation: f[0], Epoch: epoch, Revision: revision},
		Sequence: sequence, Digest: f[5], Removed: f[4] == "1",
	}, true
}

// number reads an unsigned number from a reply.
func number(v any) (uint64, error) {
	s, ok := v.(string)
	if !ok {
		return 0, fmt.Errorf("unexpected value %v", v)
	}
	return strconv.ParseUint(s, 10, 64)
}
