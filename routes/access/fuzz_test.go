package access

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weir-mcp/weir/routes"
)

// FuzzVerify: whatever a stranger sends is refused, or is the one good token.
func FuzzVerify(f *testing.F) {
	v := newVerifier(f, Options{Config: Config{Issuers: []Issuer{es256Issuer(f)}}})
	good := goodToken(f, func(o *MintOptions) { o.TTL = 24 * time.Hour })
	parts := strings.Split(good, ".")
	for _, s := range []string{
		good, "", "..", "a.b.c", parts[0] + ".." + parts[2], "eyJhbGciOiJub25lIn0." + parts[1] + ".", good + ".", "\n" + good,
		sign(f, `{"alg":"ES256","crit":[]}`, payload(f, nil)), goodToken(f, func(o *MintOptions) { o.TTL = -time.Hour }),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := v.Verify(t.Context(), s, testEndpoint)
		switch {
		case err == nil && s != good: // the seeds are signed with our key, so only the good one may pass
			t.Errorf("accepted %q as %+v", s, id)
		case err != nil && (!errors.Is(err, ErrUnauthorized) || id != nil || len(err.Error()) > 700):
			t.Errorf("Verify = %+v, %v", id, err)
		}
	})
}

// FuzzSignedToken: what we accept of an issuer that signs anything, a second implementation accepts too, and the identity is
// well-formed. (It accepts more: duplicate members, other types, line breaks.)
func FuzzSignedToken(f *testing.F) {
	v := newVerifier(f, Options{Config: Config{TenantClaim: "org", Issuers: []Issuer{es256Issuer(f)}}})
	for _, seed := range []struct{ header, payload string }{
		{es256Header, payload(f, nil)},
		{`{"alg":"ES256","typ":"at+jwt","kid":"a"}`, payload(f, map[string]any{"scope": "mcp:tools:a*", "jti": "j", "org": "o"})},
		{`{"alg":"none","alg":"ES256"}`, payload(f, map[string]any{"virtual_host": []string{"a", "B"}, "nbf": 1, "iat": 1.5})},
		{"\n" + es256Header, payload(f, map[string]any{"aud": []string{"weir", "x"}, "exp": 253402300799})},
		{es256Header, `{"iss":"https://idp.example","aud":"weir","sub":"a","exp":1e11,"virtual_host":"\u0061"}`},
	} {
		f.Add(seed.header, seed.payload)
	}
	key := keyPair(f, "ES256").Private
	public, err := jwt.ParseECPublicKeyFromPEM(publicPEM(f, keyPair(f, "ES256")))
	if err != nil {
		f.Fatal(err)
	}
	oracle := jwt.NewParser(jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer(testIssuer), jwt.WithAudience(testAudience),
		jwt.WithExpirationRequired(), jwt.WithLeeway(DefaultLeeway+time.Second), jwt.WithIssuedAt())
	f.Fuzz(func(t *testing.T, header, claims string) {
		if len(header)+len(claims) > 10_000 {
			t.Skip("over the length that is looked at: that bound is tested apart")
		}
		token := signWith(t, "ES256", key, header, claims)
		id, err := v.Verify(t.Context(), token, testEndpoint)
		if err != nil {
			if !errors.Is(err, ErrUnauthorized) || id != nil {
				t.Errorf("Verify = %+v, %v", id, err)
			}
			return
		}
		parsed, err := oracle.Parse(token, func(*jwt.Token) (any, error) { return public, nil })
		if err != nil {
			t.Fatalf("accepted %s %s; the other implementation: %v", header, claims, err)
		}
		if sub, err := parsed.Claims.GetSubject(); err != nil || sub != id.Subject || sub == "" {
			t.Errorf("subject %q; the other implementation: %q, %v", id.Subject, sub, err)
		}
		if exp, err := parsed.Claims.GetExpirationTime(); err != nil || exp.Sub(id.Expires).Abs() > time.Second {
			t.Errorf("expires %v; the other implementation: %v, %v", id.Expires, exp, err)
		}
		if len(id.Hosts) > MaxHosts || id.Issuer != testIssuer || id.Principal != PrincipalOf(testIssuer, id.Subject, id.Tenant) {
			t.Errorf("identity %+v", id)
		}
		for _, h := range id.Hosts {
			if !routes.ValidID(string(h)) {
				t.Errorf("host %q", h)
			}
		}
	})
}

// FuzzKeys: no key document brings the process down, and what is taken is a key that some algorithm can use.
func FuzzKeys(f *testing.F) {
	for _, algorithm := range []string{"ES256", "RS256", "EdDSA"} {
		f.Add(publicPEM(f, keyPair(f, algorithm)))
		f.Add(jwks(f, map[string]KeyPair{"a": keyPair(f, algorithm)}))
		doc, err := keyPair(f, algorithm).JWK("a")
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(doc))
	}
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"},{"kty":"RSA","n":"AQ","e":""}]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		for _, parse := range []func([]byte, []string) (*keySet, error){parsePublicKey, parseKeySet} {
			set, err := parse(doc, Algorithms())
			if (err == nil) != (set != nil) {
				t.Fatalf("%v, %v", set, err)
			}
			if set == nil {
				continue
			}
			for _, k := range set.keys {
				if _, secret := k.key.([]byte); secret || !usable(k, Algorithms()) {
					t.Errorf("key %T is of no use", k.key)
				}
			}
		}
	})
}
