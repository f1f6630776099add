package access

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"github.com/MicahParks/jwkset"
)

// Bounds on keys.
const (
	maxKeyDocument = 1 << 20 // bytes of a key file or JWK set
	maxKeys        = 100     // keys in a set
	maxTries       = 16      // keys tried for one token: bounds what a token without kid costs

	minRSABits = 2048 // RFC 7518 § 3.3
	maxRSABits = 8192 // the cost of a verification grows with its square
)

// verifyKey is one key that may prove tokens: *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey, or the []byte of an HMAC
// secret.
type verifyKey struct {
	id        string // kid, may be empty
	algorithm string // the JWK's own alg; empty: any that fits
	key       any
}

// keySet is what an issuer's tokens are checked with; immutable, never empty.
type keySet struct {
	keys []verifyKey
	// anyID: a token's kid says nothing here, since the operator named this one key.
	anyID  bool
	digest [sha256.Size]byte // of the document it was read from
}

// candidates appends to dst the keys that may have signed a token with this alg and kid, at most maxTries. A kid that the set
// does not know leads to those keys that have none; known tells the difference.
func (s *keySet) candidates(dst []any, name string, alg algorithm, kid string) (keys []any, known bool) {
	if kid != "" && !s.anyID {
		known = slices.ContainsFunc(s.keys, func(k verifyKey) bool { return k.id == kid })
	}
	for i := range s.keys {
		k := &s.keys[i]
		switch {
		case !alg.fits(k.key), k.algorithm != "" && k.algorithm != name:
			continue
		case s.anyID, kid == "":
		case known && k.id != kid, !known && k.id != "":
			continue
		}
		if dst = append(dst, k.key); len(dst) == maxTries {
			break
		}
	}
	return dst, known || s.anyID
}

// usable reports whether at least one of the issuer's algorithms can take the key.
func usable(k verifyKey, algorithms []string) bool {
	return slices.ContainsFunc(algorithms, func(name string) bool {
		alg, ok := algorithmOf(name)
		return ok && alg.fits(k.key) && (k.algorithm == "" || k.algorithm == name)
	})
}

// parseSecret makes the set of an HMAC issuer.
func parseSecret(secret []byte, _ []string) (*keySet, error) {
	if len(secret) < MinHMACSecret {
		return nil, fmt.Errorf("the secret has %d bytes; at least %d are required", len(secret), MinHMACSecret)
	}
	return &keySet{keys: []verifyKey{{key: secret}}, anyID: true}, nil
}

// parsePublicKey reads a public_key_file: one PEM block or one JWK.
func parsePublicKey(doc []byte, algorithms []string) (*keySet, error) {
	var k verifyKey
	var err error
	if isJSON(doc) {
		var jwk jwkset.JWKMarshal
		if err := json.Unmarshal(doc, &jwk); err != nil {
			return nil, fmt.Errorf("JWK: %w", err)
		}
		k, err = fromJWK(jwk)
	} else {
		k.key, err = fromPEM(doc)
	}
	if err != nil {
		return nil, err
	}
	if !usable(k, algorithms) {
		return nil, fmt.Errorf("%s, which no algorithm of %v can use", describe(k), algorithms)
	}
	return &keySet{keys: []verifyKey{k}, anyID: true}, nil
}

// parseKeySet reads a JWK set. Keys that are for something else, or broken, are passed over: identity providers publish all
// kinds. A set without any key for these algorithms is an error.
func parseKeySet(doc []byte, algorithms []string) (*keySet, error) {
	var jwks struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(doc, &jwks); err != nil {
		return nil, fmt.Errorf("JWK set: %w", err)
	}
	switch {
	case jwks.Keys == nil:
		return nil, errors.New(`JWK set: no "keys" member`)
	case len(jwks.Keys) == 0:
		return nil, errors.New("JWK set: is empty")
	case len(jwks.Keys) > maxKeys:
		return nil, fmt.Errorf("JWK set: %d keys; at most %d are accepted", len(jwks.Keys), maxKeys)
	}
	set := &keySet{}
	var faults []error
	for i, raw := range jwks.Keys {
		var jwk jwkset.JWKMarshal
		err := json.Unmarshal(raw, &jwk)
		var k verifyKey
		if err == nil {
			k, err = fromJWK(jwk)
		}
		if err == nil && !usable(k, algorithms) {
			err = fmt.Errorf("%s, which no algorithm of %v can use", describe(k), algorithms)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("keys[%d]: %w", i, err))
			continue
		}
		set.keys = append(set.keys, k)
	}
	if len(set.keys) == 0 {
		return nil, fmt.Errorf("JWK set: no usable key: %w", errors.Join(faults[:min(len(faults), 5)]...))
	}
	return set, nil
}

func fromJWK(m jwkset.JWKMarshal) (verifyKey, error) {
	switch {
	case m.D != "":
		return verifyKey{}, errors.New("is a private key; whoever read it can sign, so it proves nothing")
	case m.KTY == jwkset.KtyOct:
		return verifyKey{}, errors.New("is a symmetric key; those come from hmac_secret only")
	case m.USE != "" && m.USE != jwkset.UseSig:
		return verifyKey{}, fmt.Errorf("is for use %q, not sig", m.USE)
	case len(m.KEYOPS) > 0 && !slices.Contains(m.KEYOPS, jwkset.KeyOpsVerify):
		return verifyKey{}, fmt.Errorf("is for key_ops %q, not verify", m.KEYOPS)
	}
	m.X5U = "" // nothing is fetched for a key
	jwk, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return verifyKey{}, err
	}
	k := verifyKey{id: m.KID, algorithm: string(m.ALG), key: jwk.Key()}
	if k.algorithm == "Ed25519" {
		k.algorithm = "EdDSA" // RFC 9864 § 2.2 names the one curve that we take EdDSA for
	}
	return k, checkPublic(k.key)
}

func fromPEM(doc []byte) (any, error) {
	block, rest := pem.Decode(doc)
	if block == nil {
		return nil, errors.New("is neither PEM nor a JWK")
	}
	if next, _ := pem.Decode(rest); next != nil {
		return nil, errors.New("holds more than one PEM block; to trust several keys write a JWK set and use jwks_file")
	}
	var key any
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var cert *x509.Certificate
		if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = cert.PublicKey
		}
	case "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY":
		return nil, errors.New("holds a private key; give Weir the public one only")
	default:
		return nil, fmt.Errorf("holds a PEM block %q; PUBLIC KEY, RSA PUBLIC KEY or CERTIFICATE is expected", block.Type)
	}
	if err != nil {
		return nil, err
	}
	return key, checkPublic(key)
}

func checkPublic(key any) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < minRSABits || n > maxRSABits {
			return fmt.Errorf("is an RSA key of %d bits; %d to %d are accepted", n, minRSABits, maxRSABits)
		}
		return nil
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return nil
	}
	return fmt.Errorf("is a key of a kind that signs no tokens (%T)", key)
}

func describe(k verifyKey) string {
	text := "is an Ed25519 key"
	switch key := k.key.(type) {
	case *rsa.PublicKey:
		text = "is an RSA key"
	case *ecdsa.PublicKey:
		text = "is an ECDSA key on " + key.Curve.Params().Name
	}
	if k.algorithm != "" {
		text += fmt.Sprintf(" for alg %q", k.algorithm)
	}
	return text
}

func isJSON(doc []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(doc), []byte("{")) }
