package access

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testIssuer   = "https://idp.example"
	testAudience = "weir"
	testEndpoint = "https://mcp.example.com/mcp"
)

// testKeys makes each key once: RSA keys are slow to make under the race detector.
var testKeys = func() func(t testing.TB, name string) KeyPair {
	var mu sync.Mutex
	made := map[string]KeyPair{}
	return func(t testing.TB, name string) KeyPair {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		k, ok := made[name]
		if !ok {
			algorithm, _, _ := strings.Cut(name, "/")
			var err error
			if k, err = GenerateKeyPair(algorithm); err != nil {
				t.Fatal(err)
			}
			made[name] = k
		}
		return k
	}
}()

// keyPair returns the key of an algorithm; other is a second one of the same kind.
func keyPair(t testing.TB, algorithm string) KeyPair { t.Helper(); return testKeys(t, algorithm) }
func other(t testing.TB, algorithm string) KeyPair {
	t.Helper()
	return testKeys(t, algorithm+"/other")
}

func publicPEM(t testing.TB, k KeyPair) []byte {
	t.Helper()
	doc, err := k.PublicPEM()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// jwks encodes a set of public keys by kid.
func jwks(t testing.TB, keys map[string]KeyPair) []byte {
	t.Helper()
	set := struct {
		Keys []json.RawMessage `json:"keys"`
	}{Keys: []json.RawMessage{}}
	for kid, k := range keys {
		doc, err := k.JWK(kid)
		if err != nil {
			t.Fatal(err)
		}
		set.Keys = append(set.Keys, doc)
	}
	doc, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func writeFile(t testing.TB, name string, doc []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// es256Issuer is an issuer with one ES256 key in a file: the cheapest real one.
func es256Issuer(t testing.TB) Issuer {
	t.Helper()
	return Issuer{
		Issuer: testIssuer, Audiences: []string{testAudience}, Algorithms: []string{"ES256"},
		PublicKeyFile: writeFile(t, "es256.pem", publicPEM(t, keyPair(t, "ES256"))),
	}
}

func newVerifier(t testing.TB, o Options) *Verifier {
	t.Helper()
	v, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// goodToken is what an ES256 issuer would mint; change edits it first.
func goodToken(t testing.TB, change func(*MintOptions)) string {
	t.Helper()
	o := MintOptions{
		Algorithm: "ES256", Issuer: testIssuer, Subject: "ann", Audience: []string{testAudience}, Hosts: []string{"acme"},
	}
	if change != nil {
		change(&o)
	}
	if o.Key == nil && o.KeyFile == "" {
		o.Key = keyPair(t, o.Algorithm).Private
	}
	s, err := Mint(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sign makes a token out of raw header and payload text, however odd, with a good ES256 signature.
func sign(t testing.TB, header, payload string) string {
	t.Helper()
	return signWith(t, "ES256", keyPair(t, "ES256").Private, header, payload)
}

func signWith(t testing.TB, algorithm string, key any, header, payload string) string {
	t.Helper()
	alg, ok := algorithmOf(algorithm)
	if !ok {
		t.Fatalf("algorithm %q", algorithm)
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
	sig, err := alg.method.Sign(text, key)
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

const es256Header = `{"alg":"ES256","typ":"JWT"}`

// payload is a good set of claims as JSON, with edits; nil removes a claim.
func payload(t testing.TB, edits map[string]any) string {
	t.Helper()
	c := map[string]any{
		"iss": testIssuer, "aud": testAudience, "sub": "ann", "exp": time.Now().Add(time.Hour).Unix(), "virtual_host": "acme",
	}
	maps.Copy(c, edits)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	doc, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}
