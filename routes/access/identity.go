package access

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// Principal is who calls: hex SHA-256 over the length-prefixed issuer, subject and tenant. See PrincipalOf.
type Principal string

// PrincipalOf hashes each part after its length (8 bytes, big endian), so that no two triples collide by moving a border. The
// result is the same on every plane and in every version: owner records of tasks are kept under it.
func PrincipalOf(issuer, subject, tenant string) Principal {
	h := sha256.New()
	var length [8]byte
	for _, part := range [...]string{issuer, subject, tenant} {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return Principal(hex.EncodeToString(h.Sum(nil)))
}

// Identity is the verified result of one token. It is shared by all calls with that token: read-only.
type Identity struct {
	Principal Principal
	Issuer    string
	Subject   string
	Tenant    string          // empty without a configured tenant claim, or where the token has none
	TokenID   string          // jti, may be empty
	Hosts     []routes.HostID // those that the token names AND its issuer may name AND are well-formed; in the token's order
	HostClaim bool            // the token had the claim at all
	Scopes    Scopes
	IssuedAt  time.Time // zero when the token has no iat
	Expires   time.Time // exp without leeway; zero for Anonymous, which never expires
}

// MayUse reports whether the identity is scoped to host. It does not allocate.
func (id *Identity) MayUse(host routes.HostID) bool { return slices.Contains(id.Hosts, host) }

// Anonymous is the identity of every caller where there is no auth (standalone --no-auth): may use host, all scopes.
func Anonymous(host routes.HostID) *Identity {
	return &Identity{
		Principal: PrincipalOf("", "anonymous", ""), // no verified token has an empty issuer
		Subject:   "anonymous",
		Hosts:     []routes.HostID{host},
		HostClaim: true,
		Scopes:    AllScopes(),
	}
}
