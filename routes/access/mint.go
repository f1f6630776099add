package access

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
)

// MintOptions says what a development token contains.
type MintOptions struct {
	// Algorithm is one of Algorithms; required.
	Algorithm string
	// KeyFile holds a private key: PEM (PKCS #8, PKCS #1, SEC 1) or a JWK; for HS the raw secret, of which one trailing newline is cut.
	KeyFile string
	// Key is used instead of KeyFile: a crypto.Signer of the standard library, or []byte for HS.
	Key any
	// KeyID is the header's kid. Empty: the JWK's own, or none.
	KeyID string
	// Issuer, Subject and Audience are required.
	Issuer, Subject string
	Audience        []string
	// HostClaim is the claim that Hosts go into; empty means virtual_host. Without Hosts the token has no such claim.
	HostClaim string
	Hosts     []string
	// Scope is the scope claim; empty: none.
	Scope string
	// TTL is exp minus now. Zero means 1h; a negative one makes an expired token.
	TTL time.Duration
	// Extra claims replace those made here; a nil value removes the claim.
	Extra map[string]any
}

// Mint makes a development token, with a random jti. It is no identity provider: it knows nothing of who asks.
func Mint(o MintOptions) (string, error) {
	alg, ok := algorithmOf(o.Algorithm)
	switch {
	case !ok:
		return "", fmt.Errorf("algorithm %q is not one of %s", o.Algorithm, strings.Join(Algorithms(), ", "))
	case o.Issuer == "":
		return "", errors.New("issuer is required")
	case o.Subject == "":
		return "", errors.New("subject is required")
	case len(o.Audience) == 0:
		return "", errors.New("audience is required")
	case (o.Key == nil) == (o.KeyFile == ""):
		return "", errors.New("either a key or a key file is required")
	}
	key, kid := o.Key, o.KeyID
	if key == nil {
		var err error
		if key, kid, err = signingKey(o.KeyFile, alg, kid); err != nil {
			return "", fmt.Errorf("key file %s: %w", o.KeyFile, err)
		}
	}
	if err := checkSigning(alg, o.Algorithm, key); err != nil {
		return "", err
	}
	t := jwt.NewWithClaims(alg.method, mintClaims(o, time.Now()))
	if kid != "" {
		t.Header["kid"] = kid
	}
	return t.SignedString(key)
}

func mintClaims(o MintOptions, now time.Time) jwt.MapClaims {
	ttl := o.TTL
	if ttl == 0 {
		ttl = time.Hour
	}
	c := jwt.MapClaims{
		"iss": o.Issuer, "sub": o.Subject, "aud": oneOrMany(o.Audience), "jti": rand.Text(),
		"iat": now.Unix(), "exp": now.Add(ttl).Unix(),
	}
	if len(o.Hosts) > 0 {
		name := o.HostClaim
		if name == "" {
			name = DefaultVirtualHostClaim
		}
		c[name] = oneOrMany(o.Hosts)
	}
	if o.Scope != "" {
		c["scope"] = o.Scope
	}
	maps.Copy(c, o.Extra)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

func oneOrMany(list []string) any {
	if len(list) == 1 {
		return list[0]
	}
	return list
}

// signingKey reads a key file, and the kid of a JWK where none was asked for.
func signingKey(path string, alg algorithm, kid string) (any, string, error) {
	doc, err := readFile(path)
	if err != nil {
		return nil, "", err
	}
	switch {
	case alg.family == familyHMAC && bytes.HasPrefix(doc, []byte("-----BEGIN")):
		return nil, "", errors.New("holds a PEM key, which is no secret for an HS algorithm")
	case alg.family == familyHMAC:
		secret := bytes.TrimSuffix(doc, []byte("\n"))
		return bytes.TrimSuffix(secret, []byte("\r")), kid, nil
	case isJSON(doc):
		var m jwkset.JWKMarshal
		if err := json.Unmarshal(doc, &m); err != nil {
			return nil, "", errors.New("not a valid JWK")
		}
		jwk, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{Private: true}, jwkset.JWKValidateOptions{})
		if err != nil {
			return nil, "", fmt.Errorf("JWK: %w", err)
		}
		if kid == "" {
			kid = m.KID
		}
		return jwk.Key(), kid, nil
	}
	key, err := parsePrivatePEM(doc)
	return key, kid, err
}

func parsePrivatePEM(doc []byte) (any, error) {
	for {
		block, rest := pem.Decode(doc)
		if block == nil {
			return nil, errors.New("no private key in it: PEM (PKCS #8, PKCS #1, SEC 1) or a JWK is expected")
		}
		switch block.Type {
		case "PRIVATE KEY":
			return x509.ParsePKCS8PrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			return x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			return x509.ParseECPrivateKey(block.Bytes)
		case "EC PARAMETERS": // openssl ecparam writes it before the key
			doc = rest
		case "ENCRYPTED PRIVATE KEY":
			return nil, errors.New("the private key is encrypted")
		default:
			return nil, fmt.Errorf("holds a PEM block %q, not a private key", block.Type)
		}
	}
}

func checkSigning(alg algorithm, name string, key any) error {
	if secret, ok := key.([]byte); ok {
		if alg.family != familyHMAC {
			return fmt.Errorf("%s needs a private key, not a secret", name)
		}
		if len(secret) < MinHMACSecret {
			return fmt.Errorf("the secret has %d bytes; at least %d are required", len(secret), MinHMACSecret)
		}
		return nil
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return fmt.Errorf("a %T signs no tokens", key)
	}
	public := signer.Public()
	if err := checkPublic(public); err != nil {
		return fmt.Errorf("the key %w", err)
	}
	if !alg.fits(public) {
		return fmt.Errorf("the key %s, which %s can't use", describe(verifyKey{key: public}), name)
	}
	// The JWT library signs with the standard library's own keys only, Ed25519 apart.
	switch key.(type) {
	case *rsa.PrivateKey, *ecdsa.PrivateKey:
		return nil
	}
	if alg.family != familyEd25519 {
		return fmt.Errorf("a %T can't sign with %s", key, name)
	}
	return nil
}
