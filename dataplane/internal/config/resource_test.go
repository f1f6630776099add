package config

import (
	"strings"
	"testing"
)

func TestAResourceAudienceNeedsAPublicURL(t *testing.T) {
	const doc = `redis: "redis://127.0.0.1:1"
auth:
  issuers:
    - {issuer: i, audiences: [resource], algorithms: [HS256], hmac_secret: 01234567890123456789012345678901}
`
	for name, tt := range map[string]struct {
		more  string
		fault bool
	}{
		"everywhere":             {"listen: :8080\n", true},
		"one address":            {"listen: 10.0.0.1:8080\n", true},
		"everywhere, with a URL": {"listen: :8080\npublic_url: https://mcp.example\n", false},
		"loopback":               {"listen: 127.0.0.1:8080\n", false},
		"the default":            {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(doc + tt.more))
			if tt.fault != (err != nil) || tt.fault && !strings.Contains(err.Error(), `auth.issuers[0].audiences: "resource" needs public_url`) {
				t.Errorf("Parse: %v, want a fault: %v", err, tt.fault)
			}
		})
	}
}
