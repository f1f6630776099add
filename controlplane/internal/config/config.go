// Package config is the control plane's config file: strict, checked whole before any of it is used, and read again as a
// whole on SIGHUP.
//
// Decoding, expanding and checking report every problem of a file at once, each with its line and path. What the plane
// survives is a Warning. The plane's own secrets are expanded here and stay in this process; what a backend needs stays a
// reference, because it is published: its value is looked up only to see that it is there.
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

// Config is the file of CONTRACT "Control plane config", decoded, defaults filled in, secrets of the plane itself expanded. It is
// read-only once returned. docs/config.md says what each field means.
type Config struct {
	Redis                          redisstore.Config
	Listen, AdminListen, OpsListen string
	TLS                            ListenTLS
	// Admin and Internal hold at least 32 bytes, or nothing: then the API of that name refuses every request.
	Admin, Internal Token
	// PublicURL is empty, or an absolute URL without a slash at its end.
	PublicURL                    string
	AllowedOrigins, AllowedHosts []string
	Auth                         access.Config
	ConfigVersion                int64
	Discovery                    Discovery
	Listing                      Listing
	Sources                      []Source      // in the order of the file
	Backends                     []Backend     // in the order of the file; then what sources named, by id
	VirtualHosts                 []VirtualHost // in the order of the file
	Plugins                      []routes.PluginRef
	// LogLevel is debug, info, warn or error. A reload does not change it.
	LogLevel string
	// HMACReferences are the hmac_secrets as the file has them, by issuer: what HMACSecret resolves anew.
	HMACReferences map[string]string
	// NoAuth is never set by a file: standalone's --no-auth.
	NoAuth bool
	// Awaiting is never set by a file: some source has not had its chance to say what it has, so that what stands published and
	// is not in Backends may still be wanted.
	Awaiting bool
}

// ListenTLS is the tls block, of Listen and AdminListen.
type ListenTLS = process.ListenTLS

// Token is a bearer token, never a reference. It does not print itself.
type Token struct{ Value string }

// String hides the value.
func (t Token) String() string {
	if t.Value == "" {
		return "(none)"
	}
	return "(hidden)"
}

// GoString hides the value.
func (t Token) GoString() string { return t.String() }

// Discovery says how often backends are asked. All are positive.
type Discovery struct {
	Interval time.Duration // between two rounds of one backend
	Timeout  time.Duration // of one round of one backend
	Parallel int           // backends asked at once
}

// Listing is how lists are served.
type Listing struct {
	PageSize int // items on a page at most; positive
}

// Backend is one entry of backends: as routes needs it.
type Backend struct {
	ID routes.BackendID
	// Route holds URL, headers (references unexpanded), timeouts and TLS; Protocol, Handshake and Capabilities are discovery's.
	Route routes.Backend
	Stdio *Stdio // nil for HTTP
	Pin   string // off, warn, block
}

// Stdio is a program that speaks MCP over its standard input and output.
type Stdio struct {
	Command string
	Args    []string
	Env     map[string]string // values may hold references
}

// VirtualHost is one entry of virtual_hosts.
type VirtualHost struct {
	ID       routes.HostID
	Backends []HostBackend // each backend at most once, in the order of the file
	Tasks    routes.TaskPolicy
	// Awaits is never set by a file: a source that may deliver backends of this host is one that Config.Awaiting is about.
	Awaits bool
}

// HostBackend is one backend of a host, or, as the file has it, all of a source's that match.
type HostBackend struct {
	Name   routes.BackendID // empty: see Source
	Source string           // stands for its backends, in the order of their ids; empty in what is compiled
	Match  routes.Glob      // of Source: on the ids of backends
	// Prefix of an entry with Source may hold PrefixName and PrefixSuggested.
	Prefix         string
	Tools, Prompts Filter
	Resources      ResourceFilter
}

// Filter is allow and deny globs on upstream names, and aliases upstream → downstream. No Allow allows all; deny wins.
type Filter struct {
	Allow, Deny []routes.Glob
	Alias       map[string]string
}

// ResourceFilter is allow and deny globs on URIs, and the prefixes of URIs that nobody lists.
type ResourceFilter struct {
	Allow, Deny []routes.Glob
	Prefixes    []string
}

// Warning is what `config check` prints and the plane survives.
type Warning struct {
	Path, Text string
	Line       int    // of the file; 0: unknown
	Code       string // stable, for the problem that the admin API shows
}

// The codes of warnings.
const (
	CodeProtectedHeader  = "protected_header"  // a header that is never sent as the file asks
	CodeStdioUnsupported = "stdio_unsupported" // as compile's problem
	CodePlainCredential  = "plain_credential"  // a credential goes over the network in the clear
	CodeLiteralSecret    = "literal_secret"    // a secret stands in the file itself
	CodeUnused           = "unused"            // configured, and without effect
	CodeAuth             = "auth"
)

// Load reads, decodes strictly, expands and validates; every problem at once, with line or path. It returns ctx's bare error when
// that ends while the file is read, which may be a pipe.
func Load(ctx context.Context, path string) (*Config, []Warning, error) {
	doc, err := process.ReadFile(ctx, path, process.MaxConfig)
	switch {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case err != nil:
		return nil, nil, fmt.Errorf("read config: %w", err)
	}
	return Parse(doc)
}

// Parse is Load on bytes. The warnings are meaningful beside an error too.
func Parse(doc []byte) (*Config, []Warning, error) {
	resolver, err := secret.NewResolver(secret.Policy{All: true})
	if err != nil {
		return nil, nil, err
	}
	f := defaults()
	decodeErr := process.DecodeYAML(doc, &f)
	if _, ok := errors.AsType[*process.SyntaxError](decodeErr); ok {
		return nil, nil, decodeErr
	}
	c := checker{expand: resolver.Expand, lineAt: process.Lines(doc)}
	cfg := c.config(&f)
	if err := process.Locate(doc, errors.Join(decodeErr, errors.Join(c.errs...))); err != nil {
		return nil, c.warnings, err
	}
	return cfg, c.warnings, nil
}
