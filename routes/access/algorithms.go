package access

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"

	"github.com/golang-jwt/jwt/v5"
)

// family is the kind of key that an algorithm takes.
type family uint8

const (
	familyRSA family = iota + 1
	familyECDSA
	familyEd25519
	familyHMAC
)

// algorithm is one signature algorithm that Weir accepts; "none" is not among them.
type algorithm struct {
	method jwt.SigningMethod
	family family
	bits   int // ECDSA: of the curve
}

// Algorithms lists the names that an Issuer may allow and Mint can sign with. Source: RFC 7518 § 3.1, RFC 8037 § 3.1.
func Algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512"}
}

// algorithmOf is exact: "rs256" and "none" are unknown.
func algorithmOf(name string) (algorithm, bool) {
	switch name {
	case "RS256":
		return algorithm{method: jwt.SigningMethodRS256, family: familyRSA}, true
	case "RS384":
		return algorithm{method: jwt.SigningMethodRS384, family: familyRSA}, true
	case "RS512":
		return algorithm{method: jwt.SigningMethodRS512, family: familyRSA}, true
	case "PS256":
		return algorithm{method: jwt.SigningMethodPS256, family: familyRSA}, true
	case "PS384":
		return algorithm{method: jwt.SigningMethodPS384, family: familyRSA}, true
	case "PS512":
		return algorithm{method: jwt.SigningMethodPS512, family: familyRSA}, true
	case "ES256":
		return algorithm{method: jwt.SigningMethodES256, family: familyECDSA, bits: 256}, true
	case "ES384":
		return algorithm{method: jwt.SigningMethodES384, family: familyECDSA, bits: 384}, true
	case "ES512":
		return algorithm{method: jwt.SigningMethodES512, family: familyECDSA, bits: 521}, true
	case "EdDSA":
		return algorithm{method: jwt.SigningMethodEdDSA, family: familyEd25519}, true
	case "HS256":
		return algorithm{method: jwt.SigningMethodHS256, family: familyHMAC}, true
	case "HS384":
		return algorithm{method: jwt.SigningMethodHS384, family: familyHMAC}, true
	case "HS512":
		return algorithm{method: jwt.SigningMethodHS512, family: familyHMAC}, true
	}
	return algorithm{}, false
}

// fits reports whether key, a public key or an HMAC secret, is of the type that the algorithm takes. It is what keeps a public
// key from being used as an HMAC secret, and a P-256 key from ES512.
func (a algorithm) fits(key any) bool {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return a.family == familyRSA
	case *ecdsa.PublicKey:
		return a.family == familyECDSA && k.Curve.Params().BitSize == a.bits
	case ed25519.PublicKey:
		return a.family == familyEd25519
	case []byte:
		return a.family == familyHMAC
	}
	return false
}
