// Package redisstore keeps published documents in Redis.
package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/weir-mcp/weir/routes"
)

// Config is the redis block of both planes' config files, or a bare string: the URL.
type Config struct {
	URL        string     `yaml:"url"`
	Addrs      []string   `yaml:"addrs"`
	MasterName string     `yaml:"master_name"`
	Cluster    bool       `yaml:"cluster"`
	Username   string     `yaml:"username"`
	Password   string     `yaml:"password"` // expanded by the config loader
	TLS        routes.TLS `yaml:"tls"`
	KeyPrefix  string     `yaml:"key_prefix"` // default "weir:"
}

// Validate reports every fault, each starting with prefix ("redis").
func (c *Config) Validate(prefix string) error { panic("stub") }

// Open makes a client with the bounds of DESIGN § 5 (200 ms an operation, one retry); it does not connect.
func Open(c Config) (redis.UniversalClient, error) { panic("stub") }

// Options of Reader, Writer and Follower.
type Options struct {
	Client  redis.UniversalClient
	Prefix  string        // key prefix; empty: "weir:"
	Timeout time.Duration // of one operation; zero: 200ms
}

// Writer is the leader's side. Every method but Acquire takes the lease and fails with routes.ErrFenced when it was lost.
type Writer struct{}

func NewWriter(o Options) (*Writer, error) { panic("stub") }
func (w *Writer) Acquire(ctx context.Context, owner string, ttl time.Duration, configVersion int64) (routes.Lease, error) {
	panic("stub")
}
func (w *Writer) Renew(ctx context.Context, l routes.Lease, ttl time.Duration) error { panic("stub") }
func (w *Writer) Release(ctx context.Context, l routes.Lease) error                  { panic("stub") }
func (w *Writer) Publish(ctx context.Context, l routes.Lease, b routes.Batch) error  { panic("stub") }
func (w *Writer) MarkComplete(ctx context.Context, l routes.Lease) error             { panic("stub") }

// Reader reads what stands in Redis. Errors wrap routes.ErrUnavailable when Redis could not be reached.
type Reader struct{}

func NewReader(o Options) (*Reader, error)                      { panic("stub") }
func (r *Reader) Meta(ctx context.Context) (routes.Meta, error) { panic("stub") }

// Host returns the record, ErrUnknownHost (absent or tombstone while complete) or ErrNotPublished.
func (r *Reader) Host(ctx context.Context, id routes.HostID) (routes.HostRecord, error) {
	panic("stub")
}

// Hosts reads several at once, tombstones included; absent ones are left out.
func (r *Reader) Hosts(ctx context.Context, ids []routes.HostID) (map[routes.HostID]routes.HostRecord, error) {
	panic("stub")
}
func (r *Reader) List(ctx context.Context, id routes.HostID) ([]byte, error) { panic("stub") }
func (r *Reader) Index(ctx context.Context) (map[routes.HostID]routes.HostEntry, routes.Meta, error) {
	panic("stub")
}

// Catalogs returns the digest of every stored catalog; Catalog one document.
func (r *Reader) Catalogs(ctx context.Context) (map[routes.BackendID]string, error) { panic("stub") }
func (r *Reader) Catalog(ctx context.Context, id routes.BackendID) (doc []byte, digest string, err error) {
	panic("stub")
}
func (r *Reader) Leader(ctx context.Context) (owner string, epoch uint64, err error) { panic("stub") }

// Follow calls apply with batches of events, in order, from the change stream until ctx ends; reconnects with backoff; a Reset event comes
// first and whenever something may have been missed. state is told true/false when the store is reachable or not (may be nil).
func (r *Reader) Follow(ctx context.Context, apply func([]routes.Event), state func(reachable bool, err error)) error {
	panic("stub")
}

// PutStatus stores a dataplane's own status with a TTL; Statuses reads all.
func (r *Reader) PutStatus(ctx context.Context, dataplane string, doc []byte, ttl time.Duration) error {
	panic("stub")
}
func (r *Reader) Statuses(ctx context.Context) (map[string][]byte, error) { panic("stub") }
