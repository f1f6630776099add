package access

import "testing"

func TestNamesResource(t *testing.T) {
	for name, tt := range map[string]struct {
		audience, resource string
		want               bool
	}{
		"equal":                           {"https://a.example/mcp", "https://a.example/mcp", true},
		"host and scheme in other case":   {"HTTPS://A.example/mcp", "https://a.example/mcp", true},
		"path in other case":              {"https://a.example/MCP", "https://a.example/mcp", false},
		"query in other case":             {"https://a.example?H=1", "https://a.example?h=1", false},
		"no path":                         {"https://A.example", "https://a.example", true},
		"a slash more":                    {"https://a.example/", "https://a.example", false},
		"another port":                    {"https://a.example:443/mcp", "https://a.example:444/mcp", false},
		"of one length, another host":     {"https://b.example/mcp", "https://a.example/mcp", false},
		"no URI, so no part without case": {"URN:a", "urn:a", false},
		"nothing":                         {"", "", false},
	} {
		if got := namesResource([]string{"x", tt.audience}, tt.resource); got != tt.want {
			t.Errorf("%s: %q for %q: %v, want %v", name, tt.audience, tt.resource, got, tt.want)
		}
	}
}
