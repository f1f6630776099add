package access

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/MicahParks/jwkset"
)

// KeyPair is a key for development and tests. For HS there is only Private, the secret.
type KeyPair struct {
	Algorithm string
	Private   any // for MintOptions.Key: *rsa.PrivateKey, *ecdsa.PrivateKey, ed25519.PrivateKey, or []byte for HS
}

// GenerateKeyPair makes a key for one of Algorithms: RSA of 2048 bits, the algorithm's own curve, Ed25519, or 64 random
// letters and digits for HS.
func GenerateKeyPair(algorithm string) (KeyPair, error) {
	alg, ok := algorithmOf(algorithm)
	if !ok {
		return KeyPair{}, fmt.Errorf("algorithm %q is unknown", algorithm)
	}
	k := KeyPair{Algorithm: algorithm}
	var err error
	switch alg.family {
	case familyRSA:
		k.Private, err = rsa.GenerateKey(rand.Reader, minRSABits)
	case familyECDSA:
		curve := elliptic.P256()
		switch alg.bits {
		case 384:
			curve = elliptic.P384()
		case 521:
			curve = elliptic.P521()
		}
		k.Private, err = ecdsa.GenerateKey(curve, rand.Reader)
	case familyEd25519:
		_, k.Private, err = ed25519.GenerateKey(rand.Reader)
	case familyHMAC:
		// Text, since config and environment carry text; 64 characters hold over 256 bits.
		k.Private = []byte((rand.Text() + rand.Text() + rand.Text())[:64])
	}
	return k, err
}

// PrivatePEM is the private key as PKCS #8; an HMAC secret is returned as it is.
func (k KeyPair) PrivatePEM() ([]byte, error) {
	if secret, ok := k.Private.([]byte); ok {
		return secret, nil
	}
	der, err := x509.MarshalPKCS8PrivateKey(k.Private)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// PublicPEM is the public key as PKIX, for public_key_file. An HMAC secret has none.
func (k KeyPair) PublicPEM() ([]byte, error) {
	public, err := k.public()
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// JWK is the public key as a JWK with this kid (empty: without), for a JWK set. An HMAC secret has none.
func (k KeyPair) JWK(kid string) (json.RawMessage, error) {
	public, err := k.public()
	if err != nil {
		return nil, err
	}
	jwk, err := jwkset.NewJWKFromKey(public, jwkset.JWKOptions{
		Metadata: jwkset.JWKMetadataOptions{ALG: jwkset.ALG(k.Algorithm), KID: kid, USE: jwkset.UseSig},
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(jwk.Marshal())
}

func (k KeyPair) public() (crypto.PublicKey, error) {
	signer, ok := k.Private.(crypto.Signer)
	if !ok {
		return nil, errors.New("a secret has no public key")
	}
	return signer.Public(), nil
}
