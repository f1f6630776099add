package wire

import (
	"testing"

	"github.com/weir-mcp/weir/routes"
)

func TestReferenceOf(t *testing.T) {
	const argument = `,"argument":{"name":"a","value":""}}`
	for name, tt := range map[string]struct {
		params string
		want   Reference
		code   int // 0: taken
	}{
		"a prompt":                            {`{"ref":{"type":"ref/prompt","name":"p","title":"P"}` + argument, Reference{routes.KindPrompt, "p"}, 0},
		"a template":                          {`{"ref":{"type":"ref/resource","uri":"x:{a}"},"context":{"arguments":{"b":"1"}}` + argument, Reference{routes.KindResourceTemplate, "x:{a}"}, 0},
		"escapes are read":                    {`{"ref":{"type":"ref\/prompt","n\u0061me":"\u0070"}` + argument, Reference{routes.KindPrompt, "p"}, 0},
		"no ref":                              {`{"x":1` + argument, Reference{}, CodeInvalidParams},
		"ref is a text":                       {`{"ref":"p"` + argument, Reference{}, CodeInvalidParams},
		"no type":                             {`{"ref":{"name":"p"}` + argument, Reference{}, CodeInvalidParams},
		"another type":                        {`{"ref":{"type":"ref/tool","name":"p"}` + argument, Reference{}, CodeInvalidParams},
		"a prompt without a name":             {`{"ref":{"type":"ref/prompt","uri":"p"}` + argument, Reference{}, CodeInvalidParams},
		"a template without a URI":            {`{"ref":{"type":"ref/resource","name":"p"}` + argument, Reference{}, CodeInvalidParams},
		"a name that is a number":             {`{"ref":{"type":"ref/prompt","name":1}` + argument, Reference{}, CodeInvalidParams},
		"a second name in another case":       {`{"ref":{"type":"ref/prompt","name":"p","Name":"secret"}` + argument, Reference{}, CodeInvalidRequest},
		"a type in another case":              {`{"ref":{"type":"ref/prompt","name":"p","TYPE":"ref/resource"}` + argument, Reference{}, CodeInvalidRequest},
		"no argument":                         {`{"ref":{"type":"ref/prompt","name":"p"}}`, Reference{}, CodeInvalidParams},
		"an argument without a value":         {`{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a"}}`, Reference{}, CodeInvalidParams},
		"an argument whose value is a number": {`{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":1}}`, Reference{}, CodeInvalidParams},
	} {
		params, err := ParseObject([]byte(tt.params))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, refused := ReferenceOf(params)
		code := 0
		if refused != nil {
			code, got = refused.Code, Reference{}
		}
		if got != tt.want || code != tt.code {
			t.Errorf("%s: %v, %d; want %v, %d", name, got, code, tt.want, tt.code)
		}
	}
}
