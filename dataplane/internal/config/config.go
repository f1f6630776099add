// Package config is the dataplane's config file: its fields, their defaults and what is wrong with a given one.
package config

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/secret"
)

// Config is one config file. Its zero value serves nobody: at least redis and auth must be set.
type Config struct {
	// Redis is where the control plane publishes, and where this dataplane reports its status.
	Redis redisstore.Config `yaml:"redis"`
	// Listen is the address that MCP is served on; empty means 127.0.0.1:8080. Port 0 takes a free one.
	Listen string `yaml:"listen"`
	// OpsListen is the address of /healthz, /readyz and /metrics; empty means 127.0.0.1:9080.
	OpsListen string            `yaml:"ops_listen"`
	TLS       process.ListenTLS `yaml:"tls"` // of Listen
	// Auth says whose tokens are taken.
	Auth access.Config `yaml:"auth"`
	// AllowedOrigins are exact serialized origins. Empty refuses every request with an Origin, except that a loopback listener
	// takes loopback origins.
	AllowedOrigins []string `yaml:"allowed_origins"`
	// AllowedHosts are the names that a Host header may carry. Empty means unchecked, except that a loopback listener takes
	// loopback names only.
	AllowedHosts []string `yaml:"allowed_hosts"`
	// PublicURL is what clients call this dataplane; it may have a path. Its host and origin are always allowed.
	PublicURL string `yaml:"public_url"`
	// ControlPlane is where delegated methods go.
	ControlPlane ControlPlane `yaml:"control_plane"`
	// DelegatedMethods is reject (the default) or forward.
	DelegatedMethods Delegation `yaml:"delegated_methods"`
	// Secrets is what references in published documents may read. Empty: nothing.
	Secrets secret.Policy `yaml:"secrets"`
	Drain   Drain         `yaml:"drain"`
	// FailClosedAfter is how old the revocations may get before every token is refused. Zero means no bound.
	FailClosedAfter time.Duration `yaml:"fail_closed_after"`
	Limits          Limits        `yaml:"limits"`
	// LogLevel is debug, info, warn or error; empty means info. At info every call writes one line.
	LogLevel string `yaml:"log_level"`

	// NoAuth serves every caller without a token. No file can set it: it is standalone's --no-auth.
	NoAuth bool `yaml:"-"`
	// NoAuthHost is the virtual host that callers without a token get. Empty means "default".
	NoAuthHost routes.HostID `yaml:"-"`

	hmac map[string]string // by issuer, the secrets as the file has them
}

// HMACSecret returns an issuer's secret as it is now, so that a rotated one needs no restart.
func (c *Config) HMACSecret(issuer string) (string, error) {
	written, ok := c.hmac[issuer]
	if !ok { // not from a file
		for i := range c.Auth.Issuers {
			if c.Auth.Issuers[i].Issuer == issuer {
				return c.Auth.Issuers[i].HMACSecret, nil
			}
		}
		return "", fmt.Errorf("issuer %q: not configured", issuer)
	}
	r, err := secret.NewResolver(secret.Policy{All: true})
	if err != nil {
		return "", err
	}
	return r.Expand(written)
}

// ControlPlane is how to reach the control plane.
type ControlPlane struct {
	URL      string     `yaml:"url"`       // its MCP endpoint's origin; needed by delegated_methods: forward
	AdminURL string     `yaml:"admin_url"` // its internal APIs
	Token    string     `yaml:"token"`     // of the internal APIs; a reference, expanded
	TLS      routes.TLS `yaml:"tls"`
}

// Delegation is what happens to a method that the control plane answers.
type Delegation string

// The values of Delegation.
const (
	Reject  Delegation = "reject"
	Forward Delegation = "forward"
)

// Drain is how the process stops after SIGTERM.
type Drain struct {
	// Delay is how long connections are still accepted, so that load balancers see /readyz first. Zero means not at all; a
	// file that is silent means 5s.
	Delay time.Duration `yaml:"delay"`
	// Deadline is how long running calls may then take before they are cut. Zero means 30s.
	Deadline time.Duration `yaml:"deadline"`
}

// Limits bounds one request and its answer. Zero fields mean the defaults that Default shows.
type Limits struct {
	Body            process.Size `yaml:"body"`
	MCPHeaders      int          `yaml:"mcp_headers"`       // how many Mcp-* headers, repeats counted
	MCPHeaderValue  int          `yaml:"mcp_header_value"`  // bytes of one
	MCPHeadersTotal int          `yaml:"mcp_headers_total"` // bytes of all, names and values
	Response        process.Size `yaml:"response"`          // one JSON answer, or one event
	// CallsPerPrincipal and CallsPerBackend bound how many calls run at once. Negative means no bound.
	CallsPerPrincipal int `yaml:"calls_per_principal"`
	CallsPerBackend   int `yaml:"calls_per_backend"`
}

// Default is the config that a file overrides.
func Default() *Config {
	c := &Config{Drain: Drain{Delay: 5 * time.Second}}
	c.fill()
	return c
}

// Load reads, decodes and checks the file at path, whose name stands before each problem. It returns ctx's bare error when that ends
// while the file is read, which may be a pipe.
func Load(ctx context.Context, path string) (*Config, error) {
	doc, err := process.ReadFile(ctx, path, process.MaxConfig)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("read config: %w", err)
	}
	c, err := Parse(doc)
	if err != nil {
		return nil, process.InFile(path, err)
	}
	return c, nil
}

// Parse decodes doc over the defaults, expands the plane's own secrets and checks the result.
func Parse(doc []byte) (*Config, error) {
	c := Default()
	err := process.DecodeYAML(doc, c)
	if _, ok := errors.AsType[*process.SyntaxError](err); ok {
		return nil, err // nothing was decoded: there are no fields to check
	}
	if err := process.Locate(doc, errors.Join(err, c.expand(), c.Check())); err != nil {
		return nil, err
	}
	return c, nil
}
