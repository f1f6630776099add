package access

import (
	"context"
	"net/http"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// Config is the auth block of both planes' config files.
type Config struct {
	VirtualHostClaim string   `yaml:"virtual_host_claim"` // default virtual_host
	TenantClaim      string   `yaml:"tenant_claim"`
	Issuers          []Issuer `yaml:"issuers"`
}

// Issuer is who may sign tokens, and how.
type Issuer struct {
	Issuer        string        `yaml:"issuer"`
	Audiences     []string      `yaml:"audiences"`
	Algorithms    []string      `yaml:"algorithms"`
	PublicKeyFile string        `yaml:"public_key_file"`
	JWKSURL       string        `yaml:"jwks_url"`
	JWKSFile      string        `yaml:"jwks_file"`
	HMACSecret    string        `yaml:"hmac_secret"` // a reference, expanded by the config loader
	Leeway        time.Duration `yaml:"leeway"`
	RequireScopes bool          `yaml:"require_scopes"`
	VirtualHosts  []string      `yaml:"virtual_hosts"`
}

// Validate reports every fault, joined, each starting with the field's path below prefix ("auth").
func (c *Config) Validate(prefix string) error { panic("stub") }

// Principal is who calls: hex SHA-256 over the length-prefixed issuer, subject and tenant.
type Principal string

// Identity is the verified result of one token; immutable.
type Identity struct {
	Principal Principal
	Issuer    string
	Subject   string
	Tenant    string
	TokenID   string          // jti, may be empty
	Hosts     []routes.HostID // those that the token names AND its issuer may name AND are well-formed
	HostClaim bool            // the token had the claim at all
	Scopes    Scopes
	IssuedAt  time.Time
	Expires   time.Time
}

// MayUse reports whether the identity is scoped to host.
func (id *Identity) MayUse(host routes.HostID) bool { panic("stub") }

// Scopes is what a token may do within its hosts. See CONTRACT "Tokens".
type Scopes struct{}

// AllowsKind reports whether a kind's list may be asked for at all (any of its names).
func (s Scopes) AllowsKind(k routes.Kind) bool { panic("stub") }

// Allows reports whether this downstream name may be called, or shown in a list.
func (s Scopes) Allows(k routes.Kind, name string) bool { panic("stub") }

// AllowsTasks reports whether task methods may be called.
func (s Scopes) AllowsTasks() bool { panic("stub") }

// Options of a Verifier. Client fetches JWKS; nil means http.DefaultTransport's dialer with no proxy.
type Options struct {
	Config  Config
	Client  *http.Client
	Now     func() time.Time               // nil: time.Now
	Revoked func(*Identity) bool           // nil: nothing is; asked on every Verify, cached tokens too
	OnError func(issuer string, err error) // background JWKS refresh failed; nil: dropped
}

// Errors of Verify.
var (
	ErrUnauthorized error // 401: wrapped with the reason (for the log, never the token)
	ErrNoKeys       error // 503: no keys known yet for this issuer
)

// Verifier checks tokens. Safe for concurrent use.
type Verifier struct{}

// New checks the config and loads key files; it starts nothing. HTTP key sets are loaded by Run, or on first need.
func New(o Options) (*Verifier, error) { panic("stub") }

// Run refreshes key sets until ctx ends.
func (v *Verifier) Run(ctx context.Context) error { panic("stub") }

// Verify checks one bearer token. resource is the canonical URI of the endpoint called, for audiences "resource".
func (v *Verifier) Verify(ctx context.Context, token, resource string) (*Identity, error) {
	panic("stub")
}

// Anonymous is the identity of every caller where there is no auth (standalone --no-auth): may use host, all scopes.
func Anonymous(host routes.HostID) *Identity { panic("stub") }

// Mint options and Mint make a development token.
type MintOptions struct {
	Algorithm, KeyFile string // PEM private key, JWK, or for HS the raw secret file
	Key                any    // instead of KeyFile: crypto.Signer or []byte
	KeyID              string
	Issuer, Subject    string
	Audience           []string
	HostClaim          string // default virtual_host
	Hosts              []string
	Scope              string
	TTL                time.Duration
	Extra              map[string]any
}

func Mint(o MintOptions) (string, error) { panic("stub") }
