package controlplane

import (
	"context"

	"github.com/weir-mcp/weir/controlplane/internal/config"
)

// Config is the control plane's config file, decoded and checked.
type Config = config.Config

// LoadConfig reads the file at path: strictly, every problem at once, each with its line or path. Warnings are what the plane
// survives. An error is a fault of the file: exit status 2; but when ctx ends first, it is ctx's own.
func LoadConfig(ctx context.Context, path string) (*Config, []config.Warning, error) {
	return config.Load(ctx, path)
}

// ParseConfig is LoadConfig on the file's bytes.
func ParseConfig(doc []byte) (*Config, []config.Warning, error) { return config.Parse(doc) }
