package access

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func TestValidate(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	good := func() Config {
		return Config{Issuers: []Issuer{{
			Issuer: testIssuer, Audiences: []string{"weir"}, Algorithms: []string{"RS256"}, PublicKeyFile: "/etc/weir/idp.pub",
		}}}
	}
	tests := map[string]struct {
		change func(*Config)
		want   []string
	}{
		"good":              {change: func(*Config) {}},
		"good with a URL":   {change: func(c *Config) { c.Issuers[0].PublicKeyFile, c.Issuers[0].JWKSURL = "", "https://idp.example/jwks?a=b" }},
		"good with a set":   {change: func(c *Config) { c.Issuers[0].PublicKeyFile, c.Issuers[0].JWKSFile = "", "/etc/weir/jwks.json" }},
		"good with secret":  {change: func(c *Config) { hs(&c.Issuers[0], secret) }},
		"several good ones": {change: func(c *Config) { c.Issuers[0].Algorithms = []string{"RS256", "PS512", "ES384", "EdDSA"} }},
		"no issuer":         {change: func(c *Config) { c.Issuers = nil }, want: []string{"auth.issuers: at least one issuer is required"}},
		"nothing set": {
			change: func(c *Config) { c.Issuers[0] = Issuer{} },
			want: []string{
				"auth.issuers[0].issuer: is required",
				`auth.issuers[0].audiences: is required; "resource" stands for the URI of the endpoint called`,
				"auth.issuers[0].algorithms: is required",
				"auth.issuers[0].public_key_file: or jwks_url, jwks_file, hmac_secret: one is required",
			},
		},
		"algorithms": {
			change: func(c *Config) { c.Issuers[0].Algorithms = []string{"RS256", "none", "NONE", "rs256", "RS256"} },
			want: []string{
				`auth.issuers[0].algorithms[1]: "none" is never accepted`,
				`auth.issuers[0].algorithms[2]: "none" is never accepted`,
				`auth.issuers[0].algorithms[3]: "rs256" is not one of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA, HS256, HS384, HS512`,
				`auth.issuers[0].algorithms[4]: "RS256" stands here twice`,
			},
		},
		"HS beside RS": {
			change: func(c *Config) { c.Issuers[0].Algorithms = []string{"RS256", "HS256"} },
			want: []string{
				"auth.issuers[0].algorithms: HS algorithms cannot stand beside others for one issuer",
				"auth.issuers[0].hmac_secret: is required for HS algorithms, instead of public_key_file",
			},
		},
		"HS with a public key": {
			change: func(c *Config) { c.Issuers[0].Algorithms = []string{"HS256"} },
			want:   []string{"auth.issuers[0].hmac_secret: is required for HS algorithms, instead of public_key_file"},
		},
		"a secret for RS": {
			change: func(c *Config) { hs(&c.Issuers[0], secret); c.Issuers[0].Algorithms = []string{"RS256"} },
			want:   []string{"auth.issuers[0].hmac_secret: is for HS algorithms only, and algorithms has none"},
		},
		"a short secret": {
			change: func(c *Config) { hs(&c.Issuers[0], secret[1:]) },
			want:   []string{"auth.issuers[0].hmac_secret: has 31 bytes; at least 32 are required"},
		},
		"two sources of keys": {
			change: func(c *Config) { c.Issuers[0].JWKSURL = "https://idp.example/jwks" },
			want:   []string{"auth.issuers[0].jwks_url: is set beside public_key_file; one source of keys only"},
		},
		"a secret beside a file": {
			change: func(c *Config) { c.Issuers[0].HMACSecret = secret },
			want:   []string{"auth.issuers[0].hmac_secret: is set beside public_key_file; one source of keys only"},
		},
		"an audience that is empty": {
			change: func(c *Config) { c.Issuers[0].Audiences = []string{"weir", ""} },
			want:   []string{"auth.issuers[0].audiences[1]: is empty"},
		},
		"negative leeway": {
			change: func(c *Config) { c.Issuers[0].Leeway = -time.Second },
			want:   []string{"auth.issuers[0].leeway: -1s is negative"},
		},
		"endless leeway": {
			change: func(c *Config) { c.Issuers[0].Leeway = 5*time.Minute + 1 },
			want:   []string{"auth.issuers[0].leeway: 5m0.000000001s is over 5m0s"},
		},
		"no host at all": {
			change: func(c *Config) { c.Issuers[0].VirtualHosts = []string{} },
			want:   []string{"auth.issuers[0].virtual_hosts: is empty, so no token of this issuer could be used; leave it out for all hosts"},
		},
		"globs": {
			change: func(c *Config) { c.Issuers[0].VirtualHosts = []string{"*", "", strings.Repeat("a", 257)} },
			want: []string{
				"auth.issuers[0].virtual_hosts[1]: empty glob",
				"auth.issuers[0].virtual_hosts[2]: glob of 257 bytes is over 256",
			},
		},
		"the same issuer twice": {
			change: func(c *Config) { c.Issuers = append(c.Issuers, c.Issuers[0]) },
			want:   []string{`auth.issuers[1].issuer: "https://idp.example" is issuers[0] already; a token must lead to one issuer`},
		},
		"URLs": {
			change: func(c *Config) {
				c.Issuers = nil
				for _, u := range []string{"ftp://a/b", "https:///x", "https://user:pw@a/b", "https://a/b#c", "https://a b/", "/jwks"} {
					c.Issuers = append(c.Issuers, Issuer{Issuer: u, Audiences: []string{"a"}, Algorithms: []string{"RS256"}, JWKSURL: u})
				}
			},
			want: []string{
				"auth.issuers[0].jwks_url: is not an http or https URL",
				"auth.issuers[1].jwks_url: has no host",
				"auth.issuers[2].jwks_url: must not contain a user name or password",
				"auth.issuers[3].jwks_url: must not contain a fragment",
				"auth.issuers[4].jwks_url: is not a URL",
				"auth.issuers[5].jwks_url: is not an http or https URL",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := good()
			tt.change(&c)
			var got []string
			if err := c.Validate("auth"); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			if _, err := New(Options{Config: c}); (err == nil) && len(tt.want) > 0 {
				t.Error("New took it")
			}
		})
	}
}

func hs(is *Issuer, secret string) {
	is.PublicKeyFile, is.HMACSecret, is.Algorithms = "", secret, []string{"HS256"}
}

func TestValidateShowsNoSecret(t *testing.T) {
	const secret = "short-and-secret"
	c := Config{Issuers: []Issuer{
		{Issuer: "a", HMACSecret: secret, JWKSURL: "https://u:" + secret + "@x y/", Algorithms: []string{"HS256", "RS256"}},
		{Issuer: "b", JWKSURL: "https://u:" + secret + "@x/"},
		{Issuer: "c", JWKSURL: "https://u:" + secret + "@x:port/"},
	}}
	err := c.Validate("auth")
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("faults: %v", err)
	}
}

func TestConfigInYAML(t *testing.T) {
	const doc = `
virtual_host_claim: vh
tenant_claim: org
issuers:
  - issuer: https://idp.example
    audiences: [weir, resource]
    algorithms: [HS256]
    hmac_secret: s
    leeway: 10s
    require_scopes: true
    virtual_hosts: ["dev-*"]
  - {issuer: a, public_key_file: k, jwks_url: u, jwks_file: f}
`
	var got Config
	dec := yaml.NewDecoder(strings.NewReader(doc))
	dec.KnownFields(true)
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := Config{VirtualHostClaim: "vh", TenantClaim: "org", Issuers: []Issuer{
		{
			Issuer: "https://idp.example", Audiences: []string{"weir", "resource"}, Algorithms: []string{"HS256"}, HMACSecret: "s",
			Leeway: 10 * time.Second, RequireScopes: true, VirtualHosts: []string{"dev-*"},
		},
		{Issuer: "a", PublicKeyFile: "k", JWKSURL: "u", JWKSFile: "f"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

func TestWarnings(t *testing.T) {
	c := Config{Issuers: []Issuer{
		{JWKSURL: "https://idp.example/jwks"}, {JWKSURL: "http://127.0.0.1:9/jwks"}, {JWKSURL: "http://[::1]:9/jwks"},
		{JWKSURL: "http://localhost/jwks"}, {JWKSURL: "http://idp/jwks"}, {PublicKeyFile: "k"},
	}}
	want := []string{"auth.issuers[4].jwks_url: is http: whoever stands on the way can put in keys of his own and sign any token"}
	if diff := cmp.Diff(want, c.Warnings("auth")); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
