package listing

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes/routestest"
)

// A legacy client that checks what it gets would refuse the whole page for one schema that it does not know.
func TestLegacyClientsSeeSchemasOfTheirEra(t *testing.T) {
	for name, tt := range map[string]struct{ tool, legacy string }{
		"an object": {
			`{"name":"x","outputSchema":{"type":"object","properties":{"a":{"maximum":1.0}},"required":["a"]},"inputSchema":{}}`,
			`{"name":"up__x","outputSchema":{"type":"object","properties":{"a":{"maximum":1.0}},"required":["a"]},"inputSchema":{}}`,
		},
		"an array":             {`{"outputSchema":{"type":"array"},"name":"x","v":1.0}`, `{"name":"up__x","v":1.0}`},
		"no type":              {`{"name":"x","outputSchema":{"$ref":"#/$defs/a"}}`, `{"name":"up__x"}`},
		"two types":            {`{"name":"x","outputSchema":{"type":["object","null"]}}`, `{"name":"up__x"}`},
		"a boolean property":   {`{"name":"x","outputSchema":{"type":"object","properties":{"a":true}}}`, `{"name":"up__x"}`},
		"required is a number": {`{"name":"x","outputSchema":{"type":"object","required":1}}`, `{"name":"up__x"}`},
		"true":                 {`{"name":"x","outputSchema":true}`, `{"name":"up__x"}`},
		"the word elsewhere":   {`{"name":"x","_meta":{"outputSchema":[]}}`, `{"name":"up__x","_meta":{"outputSchema":[]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.publish([]*catalog.Catalog{toolCatalog("a", def("x", tt.tool))}, routestest.Host("acme").Tool("up__x", "a", "x"))
				if diff := cmp.Diff(`{"tools":[`+tt.legacy+`]}`, string(b.legacy("acme", "tools/list", "{}").result)); diff != "" {
					t.Errorf("legacy (-want +got):\n%s", diff)
				}
				if got := b.modern("acme", "tools/list", "{}").page(t).names(); !cmp.Equal(got, []string{"up__x"}) {
					t.Errorf("modern: %v", got)
				}
			})
		})
	}
}
