package config

import (
	"strings"
	"testing"
)

const authDoc = `redis: "redis://127.0.0.1:1"
auth:
  issuers:
    - {issuer: i, audiences: [AUDIENCE], algorithms: [HS256], hmac_secret: "${env:WEIR_TEST_HMAC}"}
`

func TestAResourceAudienceNeedsAPublicURL(t *testing.T) {
	t.Setenv("WEIR_TEST_HMAC", strings.Repeat("x", 32))
	doc := strings.Replace(authDoc, "AUDIENCE", "resource", 1)
	for name, tt := range map[string]struct{ more, want string }{
		"everywhere":                {"listen: :8081\n", `"resource" needs public_url`},
		"one address":               {"listen: 10.0.0.1:8081\n", `"resource" needs public_url`},
		"everywhere, with a URL":    {"listen: :8081\npublic_url: https://mcp.example\n", ""},
		"loopback":                  {"listen: 127.0.0.1:8081\n", ""},
		"loopback by name and IPv6": {"listen: \"[::1]:8081\"\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, warnings, err := Parse([]byte(doc + tt.more))
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("Parse: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "auth.issuers[0].audiences")):
				t.Errorf("Parse: %v, want %s", err, tt.want)
			case strings.HasPrefix(name, "loopback") && len(warnings) == 0:
				t.Error("no warning")
			}
		})
	}
}

func TestAnHMACSecretIsResolvedAnew(t *testing.T) {
	t.Setenv("WEIR_TEST_HMAC", strings.Repeat("x", 32))
	cfg, _, err := Parse([]byte(strings.Replace(authDoc, "AUDIENCE", "a", 1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("WEIR_TEST_HMAC", strings.Repeat("y", 32))
	if s, err := cfg.HMACSecret("i"); err != nil || s != strings.Repeat("y", 32) {
		t.Errorf("HMACSecret: %q, %v; want the new one", s, err)
	}
	if _, err := cfg.HMACSecret("other"); err == nil {
		t.Error("another issuer has a secret")
	}
	again := *cfg
	if !again.SameAuth(cfg) {
		t.Error("a copy is another auth")
	}
	again.HMACReferences = map[string]string{"i": "${env:OTHER}"}
	if again.SameAuth(cfg) {
		t.Error("another reference is the same auth")
	}
}
