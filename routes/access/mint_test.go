package access

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

func TestMintFromKeyFiles(t *testing.T) {
	rs, es, hs := keyPair(t, "RS256"), keyPair(t, "ES256"), keyPair(t, "HS512")
	sec1, err := x509.MarshalECPrivateKey(es.Private.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	pkcs8 := func(k KeyPair) []byte {
		doc, err := k.PrivatePEM()
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	tests := map[string]struct {
		algorithm string
		key       KeyPair
		doc       []byte
	}{
		"PKCS #8, RSA":           {"RS512", rs, pkcs8(rs)},
		"PKCS #8, PSS":           {"PS384", rs, pkcs8(rs)},
		"PKCS #8, Ed25519":       {"EdDSA", keyPair(t, "EdDSA"), pkcs8(keyPair(t, "EdDSA"))},
		"PKCS #1":                {"RS256", rs, pemBlock("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rs.Private.(*rsa.PrivateKey)))},
		"SEC 1":                  {"ES256", es, pemBlock("EC PRIVATE KEY", sec1)},
		"SEC 1 after parameters": {"ES256", es, append(pemBlock("EC PARAMETERS", []byte{6, 0}), pemBlock("EC PRIVATE KEY", sec1)...)},
		"a JWK":                  {"ES256", es, privateJWK(t, es, "from-the-jwk")},
		"a raw secret":           {"HS512", hs, hs.Private.([]byte)},
		"a secret and a newline": {"HS512", hs, append(slices.Clone(hs.Private.([]byte)), "\r\n"...)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			token := goodToken(t, func(o *MintOptions) { o.Algorithm, o.KeyFile = tt.algorithm, writeFile(t, "key", tt.doc) })
			is := Issuer{Issuer: testIssuer, Audiences: []string{testAudience}, Algorithms: []string{tt.algorithm}}
			if secret, ok := tt.key.Private.([]byte); ok {
				is.HMACSecret = string(secret)
			} else {
				is.PublicKeyFile = writeFile(t, "pub", publicPEM(t, tt.key))
			}
			v := newVerifier(t, Options{Config: Config{Issuers: []Issuer{is}}})
			if _, err := v.Verify(t.Context(), token, ""); err != nil {
				t.Error(err)
			}
			parsed, err := parseToken(token)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]string{true: "from-the-jwk"}[name == "a JWK"]; parsed.kid != want {
				t.Errorf("kid %q, want %q", parsed.kid, want)
			}
		})
	}
}

func TestMintSetsClaims(t *testing.T) {
	v := newVerifier(t, Options{Config: Config{VirtualHostClaim: "vh", Issuers: []Issuer{es256Issuer(t)}}})
	before := time.Now().Truncate(time.Second)
	token := goodToken(t, func(o *MintOptions) {
		o.KeyID, o.HostClaim, o.Hosts, o.Scope, o.TTL = "k1", "vh", []string{"a", "b"}, "mcp:prompts", time.Minute
		o.Audience = []string{"x", testAudience}
		o.Extra = map[string]any{"iss": testIssuer, "iat": nil, "n": 7}
	})
	got, err := v.Verify(t.Context(), token, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.TokenID) < 20 {
		t.Errorf("jti %q", got.TokenID)
	}
	if d := got.Expires.Sub(before); d < time.Minute || d > time.Minute+10*time.Second {
		t.Errorf("exp is %v from now, want 1m", d)
	}
	want := &Identity{
		Principal: PrincipalOf(testIssuer, "ann", ""), Issuer: testIssuer, Subject: "ann", TokenID: got.TokenID,
		Hosts: []routes.HostID{"a", "b"}, HostClaim: true, Scopes: mustScopes(t, "mcp:prompts"), Expires: got.Expires,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
	expired := goodToken(t, func(o *MintOptions) { o.TTL = -time.Hour })
	if _, err := v.Verify(t.Context(), expired, ""); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("negative TTL: %v", err)
	}
}

func TestMintRefuses(t *testing.T) {
	es := keyPair(t, "ES256")
	encrypted := writeFile(t, "enc", pemBlock("ENCRYPTED PRIVATE KEY", []byte("x")))
	public := writeFile(t, "pub", publicPEM(t, es))
	short := writeFile(t, "short", []byte("short\n"))
	tests := map[string]struct {
		change func(*MintOptions)
		want   string
	}{
		"no algorithm":             {func(o *MintOptions) { o.Algorithm = "" }, `algorithm "" is not one of`},
		"none":                     {func(o *MintOptions) { o.Algorithm = "none" }, `algorithm "none" is not one of`},
		"no issuer":                {func(o *MintOptions) { o.Issuer = "" }, "issuer is required"},
		"no subject":               {func(o *MintOptions) { o.Subject = "" }, "subject is required"},
		"no audience":              {func(o *MintOptions) { o.Audience = nil }, "audience is required"},
		"no key":                   {func(o *MintOptions) { o.Key = nil }, "either a key or a key file is required"},
		"two keys":                 {func(o *MintOptions) { o.KeyFile = public }, "either a key or a key file is required"},
		"no file":                  {func(o *MintOptions) { o.Key, o.KeyFile = nil, "/nowhere" }, "no such file"},
		"a public key":             {func(o *MintOptions) { o.Key, o.KeyFile = nil, public }, `holds a PEM block "PUBLIC KEY", not a private key`},
		"an encrypted key":         {func(o *MintOptions) { o.Key, o.KeyFile = nil, encrypted }, "the private key is encrypted"},
		"garbage":                  {func(o *MintOptions) { o.Key, o.KeyFile = nil, short }, "no private key in it"},
		"a key of another type":    {func(o *MintOptions) { o.Algorithm = "RS256" }, "the key is an ECDSA key on P-256, which RS256 can't use"},
		"a key on another curve":   {func(o *MintOptions) { o.Algorithm = "ES384" }, "the key is an ECDSA key on P-256, which ES384 can't use"},
		"a private key for HS":     {func(o *MintOptions) { o.Algorithm = "HS256" }, "which HS256 can't use"},
		"a secret for ES":          {func(o *MintOptions) { o.Key = make([]byte, 64) }, "ES256 needs a private key, not a secret"},
		"a short secret":           {func(o *MintOptions) { o.Algorithm, o.Key = "HS256", make([]byte, 31) }, "the secret has 31 bytes"},
		"a short secret in a file": {func(o *MintOptions) { o.Algorithm, o.Key, o.KeyFile = "HS256", nil, short }, "the secret has 5 bytes"},
		"no key at all":            {func(o *MintOptions) { o.Key = "key" }, "a string signs no tokens"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := MintOptions{Algorithm: "ES256", Key: es.Private, Issuer: testIssuer, Subject: "ann", Audience: []string{"a"}}
			tt.change(&o)
			token, err := Mint(o)
			if err == nil || token != "" || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Mint = %q, %v; want %s", token, err, tt.want)
			}
		})
	}
}

func TestKeyPairOfASecretHasNoPublicKey(t *testing.T) {
	k := keyPair(t, "HS256")
	if _, err := k.PublicPEM(); err == nil {
		t.Error("PublicPEM showed something")
	}
	if _, err := k.JWK("a"); err == nil {
		t.Error("JWK showed something")
	}
	if doc, err := k.PrivatePEM(); err != nil || string(doc) != string(k.Private.([]byte)) || len(doc) < MinHMACSecret {
		t.Errorf("PrivatePEM = %q, %v", doc, err)
	}
	if _, err := GenerateKeyPair("none"); err == nil {
		t.Error("a key for none")
	}
}
