// Package discovery keeps one catalog per backend fresh.
package discovery

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
)

// Options of a Discoverer.
type Options struct {
	Client *egress.Client
	Log    *zap.Logger
	// Changed is told each time a catalog or a health changed; it must not block.
	Changed func(routes.BackendID)
	Jitter  func(time.Duration) time.Duration // nil: ±10 %
}

// Discoverer walks every backend on an interval. Safe for concurrent use.
type Discoverer struct{}

func New(o Options) (*Discoverer, error) { panic("stub") }

// Seed installs catalogs loaded from Redis, before Run: a backend that is down keeps its routes.
func (d *Discoverer) Seed(map[routes.BackendID]*catalog.Catalog) { panic("stub") }

// Configure replaces the set of backends; new and changed ones are discovered at once. Catalogs of removed ones are dropped.
func (d *Discoverer) Configure(dc config.Discovery, backends []config.Backend) { panic("stub") }

// Run discovers until ctx ends.
func (d *Discoverer) Run(ctx context.Context) error { panic("stub") }

// FirstRound is closed when every backend configured before Run was tried once.
func (d *Discoverer) FirstRound() <-chan struct{} { panic("stub") }

// Refresh discovers one backend now; false: unknown.
func (d *Discoverer) Refresh(id routes.BackendID) bool { panic("stub") }

// Snapshot returns the catalogs (nil entries never) and healths as they stand; the maps are the caller's.
func (d *Discoverer) Snapshot() (map[routes.BackendID]*catalog.Catalog, map[routes.BackendID]catalog.Health) {
	panic("stub")
}
