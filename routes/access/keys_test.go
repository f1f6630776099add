package access

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/google/go-cmp/cmp"
)

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func certificate(t *testing.T, k KeyPair) []byte {
	t.Helper()
	signer := k.Private.(crypto.Signer)
	old := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC) // long over: the dates of a pinned key say nothing
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: old, NotAfter: old.AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return pemBlock("CERTIFICATE", der)
}

// edited is the public JWK of a key with members replaced.
func edited(t *testing.T, k KeyPair, edits map[string]any) []byte {
	t.Helper()
	members := map[string]any{}
	if err := json.Unmarshal(mustJWK(t, k), &members); err != nil {
		t.Fatal(err)
	}
	for name, v := range edits {
		if members[name] = v; v == nil {
			delete(members, name)
		}
	}
	doc, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func privateJWK(t *testing.T, k KeyPair, kid string) []byte {
	t.Helper()
	jwk, err := jwkset.NewJWKFromKey(k.Private, jwkset.JWKOptions{
		Marshal: jwkset.JWKMarshalOptions{Private: true}, Metadata: jwkset.JWKMetadataOptions{KID: kid},
	})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := json.Marshal(jwk.Marshal())
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestPublicKeyFile(t *testing.T) {
	rs, es, ed := keyPair(t, "RS256"), keyPair(t, "ES256"), keyPair(t, "EdDSA")
	rsaPublic := &rs.Private.(*rsa.PrivateKey).PublicKey
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	x25519, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pkix := func(key any) []byte {
		der, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return pemBlock("PUBLIC KEY", der)
	}
	private, err := rs.PrivatePEM()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		doc       []byte
		algorithm string
		fault     string // empty: good
	}{
		"PKIX, RSA":                       {publicPEM(t, rs), "RS256", ""},
		"PKIX, ECDSA":                     {publicPEM(t, es), "ES256", ""},
		"PKIX, Ed25519":                   {publicPEM(t, ed), "EdDSA", ""},
		"PKCS #1":                         {pemBlock("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(rsaPublic)), "PS512", ""},
		"a certificate":                   {certificate(t, rs), "RS256", ""},
		"text before the PEM":             {append([]byte("the key of our IdP\n"), publicPEM(t, es)...), "ES256", ""},
		"a JWK":                           {mustJWK(t, es), "ES256", ""},
		"a JWK with spaces before":        {append([]byte(" \n"), mustJWK(t, rs)...), "RS256", ""},
		"a JWK with its algorithm's name": {edited(t, ed, map[string]any{"alg": "Ed25519"}), "EdDSA", ""},

		"nothing":                          {nil, "RS256", "is neither PEM nor a JWK"},
		"garbage":                          {[]byte("ssh-rsa AAAA"), "RS256", "is neither PEM nor a JWK"},
		"a private key":                    {private, "RS256", "holds a private key"},
		"a private JWK":                    {privateJWK(t, es, ""), "ES256", "is a private key"},
		"a secret as JWK":                  {[]byte(`{"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"}`), "RS256", "is a symmetric key"},
		"a chain of certificates":          {append(certificate(t, rs), certificate(t, other(t, "RS256"))...), "RS256", "more than one PEM block"},
		"a request for a certificate":      {pemBlock("CERTIFICATE REQUEST", []byte("x")), "RS256", `a PEM block "CERTIFICATE REQUEST"`},
		"torn PEM":                         {pemBlock("PUBLIC KEY", []byte("x")), "RS256", "asn1"},
		"a torn certificate":               {pemBlock("CERTIFICATE", []byte("x")), "RS256", "x509"},
		"a torn JWK":                       {[]byte(`{"kty":`), "RS256", "JWK: unexpected end"},
		"a JWK without parts":              {[]byte(`{"kty":"RSA"}`), "RS256", `requires parameters "n" and "e"`},
		"a JWK off its curve":              {edited(t, es, map[string]any{"x": "AAAA"}), "ES256", "not on the specified curve"},
		"a JWK for encryption":             {edited(t, es, map[string]any{"use": "enc"}), "ES256", `is for use "enc"`},
		"a JWK that only signs":            {edited(t, es, map[string]any{"key_ops": []string{"sign"}}), "ES256", "not verify"},
		"a JWK for another algorithm":      {edited(t, rs, map[string]any{"alg": "PS256"}), "RS256", `is an RSA key for alg "PS256", which no algorithm of [RS256] can use`},
		"a short RSA key":                  {pkix(&small.PublicKey), "RS256", "is an RSA key of 1024 bits; 2048 to 8192 are accepted"},
		"a huge RSA key":                   {edited(t, rs, map[string]any{"n": base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 1025))}), "RS256", "is an RSA key of 8200 bits"},
		"a key that signs nothing":         {pkix(x25519.PublicKey()), "EdDSA", "signs no tokens"},
		"a key of another type":            {publicPEM(t, es), "RS256", "is an ECDSA key on P-256, which no algorithm of [RS256] can use"},
		"a key on another curve":           {publicPEM(t, es), "ES384", "is an ECDSA key on P-256, which no algorithm of [ES384] can use"},
		"a key on a curve of no algorithm": {pkix(&p224.PublicKey), "ES256", "is an ECDSA key on P-224, which"},
		"an Ed25519 key for ES256":         {publicPEM(t, ed), "ES256", "is an Ed25519 key, which"},
		"over 1 MiB":                       {bytes.Repeat([]byte("a"), maxKeyDocument+1), "RS256", "is over 1 MiB"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, "key", tt.doc)
			_, err := New(Options{Config: Config{Issuers: []Issuer{{
				Issuer: testIssuer, Audiences: []string{"a"}, Algorithms: []string{tt.algorithm}, PublicKeyFile: path,
			}}}})
			if tt.fault == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), "auth.issuers[0].public_key_file: ") || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("New: %v; want auth.issuers[0].public_key_file: … %s", err, tt.fault)
			}
		})
	}
}

func TestNewNamesEveryBadKeyFile(t *testing.T) {
	is := es256Issuer(t)
	a, b := is, is
	a.Issuer, a.PublicKeyFile = "a", "/nowhere/a.pem"
	b.Issuer, b.PublicKeyFile, b.JWKSFile = "b", "", "/nowhere/b.json"
	_, err := New(Options{Config: Config{Issuers: []Issuer{a, is, b}}})
	want := "auth.issuers[0].public_key_file: open /nowhere/a.pem: no such file or directory\n" +
		"auth.issuers[2].jwks_file: open /nowhere/b.json: no such file or directory"
	if err == nil || err.Error() != want {
		t.Errorf("New: %v\nwant %v", err, want)
	}
}

func TestParseKeySet(t *testing.T) {
	es, rs := keyPair(t, "ES256"), keyPair(t, "RS256")
	list := func(keys ...[]byte) []byte {
		return fmt.Appendf(nil, `{"keys":[%s]}`, bytes.Join(keys, []byte(",")))
	}
	with := func(k KeyPair, kid string) []byte { return edited(t, k, map[string]any{"kid": kid}) }
	many := make([][]byte, maxKeys+1)
	for i := range many {
		many[i] = with(es, fmt.Sprint(i))
	}
	tests := map[string]struct {
		doc   []byte
		kids  []string
		fault string
	}{
		"one key":   {doc: list(with(es, "a")), kids: []string{"a"}},
		"two types": {doc: list(with(es, "a"), with(rs, "b")), kids: []string{"a", "b"}},
		"keys that are for something else, private, symmetric, broken, or no keys are passed over": {
			doc: list(with(es, "a"), []byte(`{"kty":"oct","kid":"s","k":"MDEyMw"}`), privateJWK(t, es, "p"),
				edited(t, rs, map[string]any{"use": "enc"}), []byte(`{"kty":"new"}`), []byte(`7`), []byte(`null`),
				with(other(t, "EdDSA"), "not-in-the-allowlist"), []byte(`{"kty":"EC","crv":"P-256","x":"!","y":"!"}`)),
			kids: []string{"a"},
		},
		"nothing is fetched for an x5u": {doc: list(edited(t, es, map[string]any{"x5u": "http://127.0.0.1:1/"})), kids: []string{""}},
		"not JSON":                      {doc: []byte("<html>"), fault: "JWK set: invalid character"},
		"a list":                        {doc: []byte("[]"), fault: "JWK set: json: cannot unmarshal array"},
		"no keys member":                {doc: []byte(`{"error":"maintenance"}`), fault: `JWK set: no "keys" member`},
		"empty":                         {doc: []byte(`{"keys":[]}`), fault: "JWK set: is empty"},
		"too many":                      {doc: list(many...), fault: "JWK set: 101 keys; at most 100 are accepted"},
		"nothing usable":                {doc: list(with(keyPair(t, "EdDSA"), "a")), fault: "JWK set: no usable key: keys[0]: is an Ed25519 key"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set, err := parseKeySet(tt.doc, []string{"ES256", "RS256"})
			if tt.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fault) {
					t.Errorf("parseKeySet: %v; want %s", err, tt.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var kids []string
			for _, k := range set.keys {
				kids = append(kids, k.id)
			}
			if diff := cmp.Diff(tt.kids, kids); diff != "" {
				t.Errorf("kids (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCandidates: which keys of a set are tried for a token.
func TestCandidates(t *testing.T) {
	es, es2, rs := keyPair(t, "ES256"), other(t, "ES256"), keyPair(t, "RS256")
	public := func(k KeyPair) any { return k.Private.(crypto.Signer).Public() }
	set := &keySet{keys: []verifyKey{
		{id: "a", key: public(es)}, {id: "b", key: public(es2)}, {id: "r", key: public(rs), algorithm: "RS256"}, {id: "a", key: public(rs)},
		{key: public(es2)},
	}}
	tests := map[string]struct {
		algorithm, kid string
		want           []int
		known          bool
	}{
		"by kid":                                {"ES256", "b", []int{1}, true},
		"a kid of two types goes by the type":   {"RS384", "a", []int{3}, true},
		"no kid: all that fit":                  {"ES256", "", []int{0, 1, 4}, false},
		"no kid: not those for another alg":     {"RS512", "", []int{3}, false},
		"an unknown kid: those without kid":     {"ES256", "z", []int{4}, false},
		"a kid whose key is of another type":    {"ES256", "r", nil, true},
		"a kid whose key is for another alg":    {"PS256", "r", nil, true},
		"HMAC never finds a key that is public": {"HS256", "", nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			alg, _ := algorithmOf(tt.algorithm)
			got, known := set.candidates(nil, tt.algorithm, alg, tt.kid)
			var want []any
			for _, i := range tt.want {
				want = append(want, set.keys[i].key)
			}
			if len(got) != len(want) || known != tt.known {
				t.Fatalf("%d candidates, known %v; want %d, %v", len(got), known, len(want), tt.known)
			}
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("candidate %d is not key %d", i, tt.want[i])
				}
			}
		})
	}
	t.Run("at most 16 are tried", func(t *testing.T) {
		big := &keySet{}
		for range maxKeys {
			big.keys = append(big.keys, verifyKey{key: public(es)})
		}
		alg, _ := algorithmOf("ES256")
		if got, _ := big.candidates(nil, "ES256", alg, ""); len(got) != maxTries {
			t.Errorf("%d candidates, want %d", len(got), maxTries)
		}
	})
}
