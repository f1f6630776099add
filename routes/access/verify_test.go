package access

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

func TestVerifyEachAlgorithm(t *testing.T) {
	for _, algorithm := range Algorithms() {
		t.Run(algorithm, func(t *testing.T) {
			k := keyPair(t, algorithm)
			is := Issuer{Issuer: testIssuer, Audiences: []string{testAudience}, Algorithms: []string{algorithm}}
			if secret, ok := k.Private.([]byte); ok {
				is.HMACSecret = string(secret)
			} else {
				is.PublicKeyFile = writeFile(t, "key.pem", publicPEM(t, k))
			}
			v := newVerifier(t, Options{Config: Config{Issuers: []Issuer{is}}})
			good := goodToken(t, func(o *MintOptions) { o.Algorithm = algorithm })
			if _, err := v.Verify(t.Context(), good, testEndpoint); err != nil {
				t.Errorf("good token: %v", err)
			}
			forged := goodToken(t, func(o *MintOptions) { o.Algorithm, o.Key = algorithm, other(t, algorithm).Private })
			if _, err := v.Verify(t.Context(), forged, testEndpoint); !errors.Is(err, ErrUnauthorized) {
				t.Errorf("signed with another key: %v, want ErrUnauthorized", err)
			}
			if _, err := v.Verify(t.Context(), good[:len(good)-8]+"AAAAAAAA", testEndpoint); !errors.Is(err, ErrUnauthorized) {
				t.Errorf("changed signature: %v, want ErrUnauthorized", err)
			}
		})
	}
}

func TestVerifyRefuses(t *testing.T) {
	secret := string(keyPair(t, "HS256").Private.([]byte))
	rsaPEM := publicPEM(t, keyPair(t, "RS256"))
	v := newVerifier(t, Options{Config: Config{TenantClaim: "tenant", Issuers: []Issuer{
		es256Issuer(t),
		{Issuer: "https://hs.example", Audiences: []string{testAudience}, Algorithms: []string{"HS256"}, HMACSecret: secret},
		{Issuer: "https://rs.example", Audiences: []string{testAudience}, Algorithms: []string{"RS256"}, PublicKeyFile: writeFile(t, "rs.pem", rsaPEM)},
		{Issuer: "https://here.example", Audiences: []string{AudienceResource}, Algorithms: []string{"ES256"},
			PublicKeyFile: writeFile(t, "es.pem", publicPEM(t, keyPair(t, "ES256")))},
	}}})

	b64 := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	claim := func(name string, value any) string {
		return sign(t, es256Header, payload(t, map[string]any{name: value}))
	}
	header := func(h string) string { return sign(t, h, payload(t, nil)) }
	good := goodToken(t, nil)
	parts := strings.Split(good, ".")
	now := time.Now().Unix()

	tests := map[string]struct{ token, reason string }{
		"no token":                      {"", "no token"},
		"garbage":                       {"garbage", "not three parts"},
		"dots only":                     {"..", "header: not a JSON object"},
		"two parts":                     {parts[0] + "." + parts[1], "not three parts"},
		"four parts":                    {good + ".e30", "not three parts"},
		"an encrypted token":            {good + ".e30.e30", "not three parts"},
		"the word Bearer":               {"Bearer " + good, "header: not base64url"},
		"a line break inside":           {good[:5] + "\n" + good[5:], "line break"},
		"padding":                       {good + "=", "signature: not base64url"},
		"oversize":                      {good + strings.Repeat("A", MaxToken), "token is over"},
		"signature empty":               {parts[0] + "." + parts[1] + ".", "signature does not match"},
		"signature of another token":    {parts[0] + "." + b64(payload(t, map[string]any{"sub": "eve"})) + "." + parts[2], "signature does not match"},
		"header is a list":              {b64(`["ES256"]`) + "." + parts[1] + "." + parts[2], "header: not a JSON object"},
		"header is torn":                {b64(`{"alg":`) + "." + parts[1] + "." + parts[2], "header: not valid JSON"},
		"header with more behind":       {b64(`{"alg":"ES256"}{}`) + "." + parts[1] + "." + parts[2], "header: not valid JSON"},
		"claims are a string":           {sign(t, es256Header, `"claims"`), "claims: not a JSON object"},
		"claims are not UTF-8":          {sign(t, es256Header, "{\"iss\":\"\xff\"}"), "claims: not valid JSON"},
		"duplicate claims":              {sign(t, es256Header, `{"sub":"eve",`+payload(t, nil)[1:]), "claims: duplicate member"},
		"duplicate claims deep inside":  {claim("x", json.RawMessage(`{"a":[{"b":1,"b":2}]}`)), "claims: duplicate member"},
		"duplicate header members":      {header(`{"alg":"none","alg":"ES256"}`), "header: duplicate member"},
		"escaped duplicate":             {header(`{"\u0061lg":"none","alg":"ES256"}`), "header: duplicate member"},
		"alg none, unsigned":            {b64(`{"alg":"none"}`) + "." + b64(payload(t, nil)) + ".", "algorithm is not allowed"},
		"alg None, signed":              {header(`{"alg":"None"}`), "algorithm is not allowed"},
		"alg absent":                    {header(`{"typ":"JWT"}`), "header: no alg"},
		"alg in other case of name":     {header(`{"ALG":"ES256"}`), "header: no alg"},
		"alg not a string":              {header(`{"alg":256}`), "header: alg is not a string"},
		"alg in lower case":             {header(`{"alg":"es256"}`), "algorithm is not allowed"},
		"alg of the key but not listed": {signWith(t, "RS384", keyPair(t, "RS256").Private, `{"alg":"RS384"}`, payload(t, map[string]any{"iss": "https://rs.example"})), "algorithm is not allowed"},
		"HS with the public key's PEM": {signWith(t, "HS256", rsaPEM, `{"alg":"HS256"}`, payload(t, map[string]any{"iss": "https://rs.example"})),
			"algorithm is not allowed"},
		"a key of its own in the header":    {signWith(t, "ES256", other(t, "ES256").Private, fmt.Sprintf(`{"alg":"ES256","jwk":%s}`, mustJWK(t, other(t, "ES256"))), payload(t, nil)), "signature does not match"},
		"another issuer's good key":         {signWith(t, "HS256", []byte(secret), `{"alg":"HS256"}`, payload(t, nil)), "algorithm is not allowed"},
		"wrong key":                         {signWith(t, "ES256", other(t, "ES256").Private, es256Header, payload(t, nil)), "signature does not match"},
		"crit":                              {header(`{"alg":"ES256","crit":["exp"]}`), "header: crit is not supported"},
		"crit empty":                        {header(`{"alg":"ES256","crit":[]}`), "header: crit is not supported"},
		"b64":                               {header(`{"alg":"ES256","b64":false}`), "header: b64 is not supported"},
		"typ of another kind of token":      {header(`{"alg":"ES256","typ":"logout+jwt"}`), "header: typ is neither"},
		"typ not a string":                  {header(`{"alg":"ES256","typ":["JWT"]}`), "header: typ is not a string"},
		"kid not a string":                  {header(`{"alg":"ES256","kid":7}`), "header: kid is not a string"},
		"no iss":                            {claim("iss", nil), "no iss"},
		"iss unknown":                       {claim("iss", "https://evil.example"), `unknown issuer "https://evil.example"`},
		"iss with a slash more":             {claim("iss", testIssuer+"/"), "unknown issuer"},
		"iss a list":                        {claim("iss", []string{testIssuer}), "iss is not a string"},
		"iss endless":                       {claim("iss", strings.Repeat("x", 5000)), "unknown issuer"},
		"no aud":                            {claim("aud", nil), "no aud"},
		"aud for somebody else":             {claim("aud", "other"), "aud is not for us"},
		"aud empty":                         {claim("aud", []string{}), "aud is not for us"},
		"aud with a number":                 {claim("aud", []any{testAudience, 7}), "aud entry is not a string"},
		"aud the word resource":             {sign(t, es256Header, payload(t, map[string]any{"iss": "https://here.example", "aud": AudienceResource})), "aud is not for us"},
		"aud another endpoint":              {sign(t, es256Header, payload(t, map[string]any{"iss": "https://here.example", "aud": testEndpoint + "/x"})), "aud is not for us"},
		"aud the endpoint, not accepted":    {claim("aud", testEndpoint), "aud is not for us"},
		"no exp":                            {claim("exp", nil), "no exp"},
		"exp null":                          {sign(t, es256Header, strings.Replace(payload(t, map[string]any{"exp": 0}), `"exp":0`, `"exp":null`, 1)), "exp is not a number"},
		"exp a string":                      {claim("exp", "9999999999"), "exp is not a number"},
		"exp endless":                       {claim("exp", json.RawMessage("1e300")), "exp is out of range"},
		"exp over any float":                {claim("exp", json.RawMessage("1e999")), "exp is out of range"},
		"exp negative":                      {claim("exp", -1), "exp is out of range"},
		"expired":                           {claim("exp", now-31), "expired"},
		"nbf in the future":                 {claim("nbf", now+60), "not valid yet"},
		"nbf a string":                      {claim("nbf", "0"), "nbf is not a number"},
		"iat in the future":                 {claim("iat", now+60), "issued in the future"},
		"iat a bool":                        {claim("iat", true), "iat is not a number"},
		"no sub":                            {claim("sub", nil), "no sub"},
		"sub empty":                         {claim("sub", ""), "no sub"},
		"sub a number":                      {claim("sub", 7), "sub is not a string"},
		"jti a number":                      {claim("jti", 7), "jti is not a string"},
		"tenant a number":                   {claim("tenant", 7), "tenant is not a string"},
		"host claim a number":               {claim("virtual_host", 7), "virtual_host is not a string"},
		"host claim an object":              {claim("virtual_host", map[string]any{"acme": true}), "virtual_host is not a string"},
		"host claim with a number in it":    {claim("virtual_host", []any{"acme", 7}), "virtual_host entry is not a string"},
		"host claim with 65 hosts":          {claim("virtual_host", make([]string, 65)), "virtual_host has more than 64"},
		"scope a list":                      {claim("scope", []string{"mcp:tools"}), "scope is not a string"},
		"65 scopes":                         {claim("scope", strings.Repeat("a ", 65)), "more than 64 scopes"},
		"ES512's curve under ES256's name":  {header2(t, "ES512"), "signature does not match"},
		"another key type under that name":  {signWith(t, "EdDSA", keyPair(t, "EdDSA").Private, es256Header, payload(t, nil)), "signature does not match"},
		"signature with bits behind it set": {good[:len(good)-1] + "_", "signature"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			id, err := v.Verify(t.Context(), tt.token, testEndpoint)
			if !errors.Is(err, ErrUnauthorized) || id != nil {
				t.Fatalf("Verify = %v, %v; want ErrUnauthorized", id, err)
			}
			if !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("reason %q lacks %q", err, tt.reason)
			}
			if len(err.Error()) > 300 || len(tt.token) > 40 && strings.Contains(err.Error(), tt.token) {
				t.Errorf("reason shows the token, or too much: %q", err)
			}
			// A second time: nothing was remembered.
			if _, err := v.Verify(t.Context(), tt.token, testEndpoint); !errors.Is(err, ErrUnauthorized) {
				t.Errorf("second time: %v, want ErrUnauthorized", err)
			}
		})
	}
	if _, err := v.Verify(t.Context(), good, testEndpoint); err != nil {
		t.Errorf("the good token: %v", err)
	}
}

func header2(t *testing.T, algorithm string) string {
	t.Helper()
	return signWith(t, algorithm, keyPair(t, algorithm).Private, es256Header, payload(t, nil))
}

func mustJWK(t *testing.T, k KeyPair) json.RawMessage {
	t.Helper()
	doc, err := k.JWK("")
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestVerifyAccepts(t *testing.T) {
	now := time.Now().Unix()
	exp := time.Unix(now+600, 0)
	base := func(change func(*Identity)) *Identity {
		id := &Identity{
			Principal: PrincipalOf(testIssuer, "ann", ""), Issuer: testIssuer, Subject: "ann", Hosts: []routes.HostID{"acme"},
			HostClaim: true, Scopes: AllScopes(), Expires: exp,
		}
		if change != nil {
			change(id)
		}
		return id
	}
	tests := map[string]struct {
		config func(*Config)
		header string
		claims map[string]any
		want   *Identity
	}{
		"the plain case": {want: base(nil)},
		"typ at+jwt": {
			header: `{"alg":"ES256","typ":"application/at+JWT"}`, want: base(nil),
		},
		"no typ, unknown members, a kid that a single key file ignores": {
			header: `{"alg":"ES256","kid":"k","x5t":"abc","jku":"https://evil.example"}`, want: base(nil),
		},
		"jti and iat": {
			claims: map[string]any{"jti": "t1", "iat": now - 5},
			want:   base(func(id *Identity) { id.TokenID, id.IssuedAt = "t1", time.Unix(now-5, 0) }),
		},
		"exp and nbf within the leeway": {
			claims: map[string]any{"exp": now - 20, "nbf": now + 20, "iat": now + 20},
			want:   base(func(id *Identity) { id.Expires, id.IssuedAt = time.Unix(now-20, 0), time.Unix(now+20, 0) }),
		},
		"a leeway of its own": {
			config: func(c *Config) { c.Issuers[0].Leeway = 2 * time.Minute },
			claims: map[string]any{"exp": now - 100},
			want:   base(func(id *Identity) { id.Expires = time.Unix(now-100, 0) }),
		},
		"exp with a fraction": {
			claims: map[string]any{"exp": json.RawMessage(fmt.Sprintf("%d.5", now+600))},
			want:   base(func(id *Identity) { id.Expires = exp.Add(time.Second / 2) }),
		},
		"one of several audiences": {
			claims: map[string]any{"aud": []string{"a", testAudience}}, want: base(nil),
		},
		"the endpoint as audience": {
			config: func(c *Config) { c.Issuers[0].Audiences = []string{AudienceResource} },
			claims: map[string]any{"aud": testEndpoint}, want: base(nil),
		},
		"the endpoint's host in upper case": {
			config: func(c *Config) { c.Issuers[0].Audiences = []string{AudienceResource} },
			claims: map[string]any{"aud": "HTTPS://MCP.example.com/mcp"}, want: base(nil),
		},
		"no host claim": {
			claims: map[string]any{"virtual_host": nil},
			want:   base(func(id *Identity) { id.Hosts, id.HostClaim = []routes.HostID{}, false }),
		},
		"several hosts, of which malformed and repeated ones are dropped": {
			claims: map[string]any{"virtual_host": []string{"acme", "Globex", "../x", "", "-a", strings.Repeat("a", 64), "acme", "initech"}},
			want:   base(func(id *Identity) { id.Hosts = []routes.HostID{"acme", "initech"} }),
		},
		"only malformed hosts": {
			claims: map[string]any{"virtual_host": "acme/../initech"},
			want:   base(func(id *Identity) { id.Hosts = []routes.HostID{} }),
		},
		"hosts that the issuer may not name are dropped": {
			config: func(c *Config) { c.Issuers[0].VirtualHosts = []string{"dev-*", "acme"} },
			claims: map[string]any{"virtual_host": []string{"initech", "acme", "dev-1", "x-dev-1"}},
			want:   base(func(id *Identity) { id.Hosts = []routes.HostID{"acme", "dev-1"} }),
		},
		"a claim with a name of its own": {
			config: func(c *Config) { c.VirtualHostClaim = "https://weir.example/host" },
			claims: map[string]any{"virtual_host": 7, "https://weir.example/host": "initech"},
			want:   base(func(id *Identity) { id.Hosts = []routes.HostID{"initech"} }),
		},
		"a tenant": {
			config: func(c *Config) { c.TenantClaim = "org" },
			claims: map[string]any{"org": "o1"},
			want:   base(func(id *Identity) { id.Tenant, id.Principal = "o1", PrincipalOf(testIssuer, "ann", "o1") }),
		},
		"a tenant claim that the token lacks": {
			config: func(c *Config) { c.TenantClaim = "org" }, want: base(nil),
		},
		"scopes": {
			claims: map[string]any{"scope": "openid mcp:prompts mcp:tools:gh__*"},
			want:   base(func(id *Identity) { id.Scopes = mustScopes(t, "mcp:prompts mcp:tools:gh__*") }),
		},
		"required scopes that are missing": {
			config: func(c *Config) { c.Issuers[0].RequireScopes = true },
			claims: map[string]any{"scope": "openid"},
			want:   base(func(id *Identity) { id.Scopes = Scopes{} }),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := Config{Issuers: []Issuer{es256Issuer(t)}}
			if tt.config != nil {
				tt.config(&c)
			}
			v := newVerifier(t, Options{Config: c})
			claims := map[string]any{"exp": now + 600}
			for k, val := range tt.claims {
				claims[k] = val
			}
			h := tt.header
			if h == "" {
				h = es256Header
			}
			token := sign(t, h, payload(t, claims))
			for _, round := range []string{"new", "remembered"} {
				got, err := v.Verify(t.Context(), token, testEndpoint)
				if err != nil {
					t.Fatalf("%s: %v", round, err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s identity (-want +got):\n%s", round, diff)
				}
			}
		})
	}
}

func mustScopes(t *testing.T, claim string) Scopes {
	t.Helper()
	s, err := ParseScopes(claim, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestIdentityMayUse(t *testing.T) {
	id := &Identity{Hosts: []routes.HostID{"acme", "initech"}}
	for host, want := range map[routes.HostID]bool{"acme": true, "initech": true, "globex": false, "": false, "Acme": false} {
		if got := id.MayUse(host); got != want {
			t.Errorf("MayUse(%q) = %v, want %v", host, got, want)
		}
	}
	anonymous := Anonymous("default")
	if !anonymous.MayUse("default") || anonymous.MayUse("acme") || !anonymous.Scopes.AllowsTasks() || !anonymous.HostClaim {
		t.Errorf("Anonymous = %+v", anonymous)
	}
}

func TestPrincipalKeepsItsParts(t *testing.T) {
	seen := map[Principal][3]string{}
	for _, parts := range [][3]string{
		{"iss", "sub", ""}, {"iss", "su", "b"}, {"iss", "", "sub"}, {"isss", "ub", ""}, {"", "isssub", ""}, {"iss", "sub", "\x00"},
	} {
		p := PrincipalOf(parts[0], parts[1], parts[2])
		if len(p) != 64 {
			t.Errorf("PrincipalOf(%q) = %q, want 64 hex digits", parts, p)
		}
		if was, dup := seen[p]; dup {
			t.Errorf("%q and %q are the same principal", was, parts)
		}
		seen[p] = parts
	}
	// It is stored in Redis by one version and read by the next.
	const golden = "5de21c3f9c56e2b7e052ad7b65fad93c8f2c6f04bce2c8db8b0328e47fff7611"
	if got := PrincipalOf("https://idp.example", "ann", "o1"); got != golden {
		t.Errorf("PrincipalOf = %q, want %q", got, golden)
	}
}
