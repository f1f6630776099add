// Package config is the control plane's config file.
package config

import (
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/redisstore"
)

// Config is the file of CONTRACT "Control plane config", decoded, defaults filled in, secrets of the plane itself expanded.
type Config struct {
	Redis                          redisstore.Config
	Listen, AdminListen, OpsListen string
	TLS                            ListenTLS
	Admin, Internal                Token
	PublicURL                      string
	AllowedOrigins, AllowedHosts   []string
	Auth                           access.Config
	ConfigVersion                  int64
	Discovery                      Discovery
	Backends                       []Backend     // in the order of the file
	VirtualHosts                   []VirtualHost // in the order of the file
	Plugins                        []routes.PluginRef
	// NoAuth is never set by a file: standalone's --no-auth.
	NoAuth bool
}

type ListenTLS struct{ CertFile, KeyFile, ClientCAFile string }
type Token struct{ Value string }
type Discovery struct {
	Interval, Timeout time.Duration
	Parallel          int
}

// Backend is one entry of backends: as routes needs it.
type Backend struct {
	ID routes.BackendID
	// Route holds URL, headers (references unexpanded), timeouts and TLS; Protocol, Handshake and Capabilities are discovery's.
	Route routes.Backend
	Stdio *Stdio // nil for HTTP
	Pin   string // off, warn, block
}

type Stdio struct {
	Command string
	Args    []string
	Env     map[string]string
}

// VirtualHost is one entry of virtual_hosts.
type VirtualHost struct {
	ID       routes.HostID
	Backends []HostBackend
	Tasks    routes.TaskPolicy
}

// HostBackend is one backend of a host.
type HostBackend struct {
	Name           routes.BackendID
	Prefix         string
	Tools, Prompts Filter
	Resources      ResourceFilter
}

// Filter is allow and deny globs on upstream names, and aliases upstream → downstream.
type Filter struct {
	Allow, Deny []routes.Glob
	Alias       map[string]string
}

type ResourceFilter struct {
	Allow, Deny []routes.Glob
	Prefixes    []string
}

// Warning is what `config check` prints and the plane survives.
type Warning struct{ Path, Text string }

// Load reads, decodes strictly, expands and validates; every problem at once, with line or path.
func Load(path string) (*Config, []Warning, error) { panic("stub") }

// Parse is Load on bytes.
func Parse(doc []byte) (*Config, []Warning, error) { panic("stub") }
