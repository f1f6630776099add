package dataplane

import (
	"context"

	"github.com/weir-mcp/weir/dataplane/internal/config"
)

// Config is the dataplane's config file, decoded. See docs/config.md.
type Config = config.Config

// LoadConfig reads, decodes and checks a config file, with defaults filled in and the plane's own secrets expanded. It
// reports every problem at once, each with the file's name and its line or the path of its field. When ctx ends first, the error is
// its own.
func LoadConfig(ctx context.Context, path string) (*Config, error) { return config.Load(ctx, path) }

// ParseConfig is LoadConfig on the file's bytes.
func ParseConfig(doc []byte) (*Config, error) { return config.Parse(doc) }

// DefaultConfig is what a file overrides.
func DefaultConfig() *Config { return config.Default() }
