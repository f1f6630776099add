package wire

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidateAnnotations(t *testing.T) {
	tests := map[string]struct {
		schema string
		want   string // part of the error, "" for none
	}{
		"no annotations":                   {`{"type":"object","properties":{"a":{"type":"number"}}}`, ""},
		"no schema":                        {``, ""},
		"a string":                         {`{"properties":{"a":{"type":"string","x-mcp-header":"Region"}}}`, ""},
		"an integer and a boolean":         {`{"properties":{"a":{"type":"integer","x-mcp-header":"A"},"b":{"type":"boolean","x-mcp-header":"B"}}}`, ""},
		"a string or null":                 {`{"properties":{"a":{"type":["string","null"],"x-mcp-header":"A"}}}`, ""},
		"nested properties":                {`{"properties":{"a":{"type":"object","properties":{"b":{"type":"string","x-mcp-header":"B"}}}}}`, ""},
		"named like a standard header":     {`{"properties":{"a":{"type":"string","x-mcp-header":"Method"}}}`, ""},
		"a property of that name":          {`{"properties":{"x-mcp-header":{"type":"number"}}}`, ""},
		"in a default value":               {`{"properties":{"a":{"type":"object","default":{"x-mcp-header":"A"},"enum":[{"x-mcp-header":5}]}}}`, ""},
		"a number":                         {`{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`, "type"},
		"an array":                         {`{"properties":{"a":{"type":"array","x-mcp-header":"A"}}}`, "type"},
		"an object":                        {`{"properties":{"a":{"type":"object","x-mcp-header":"A"}}}`, "type"},
		"null":                             {`{"properties":{"a":{"type":"null","x-mcp-header":"A"}}}`, "type"},
		"no type":                          {`{"properties":{"a":{"x-mcp-header":"A"}}}`, "type"},
		"string or integer":                {`{"properties":{"a":{"type":["string","integer"],"x-mcp-header":"A"}}}`, "type"},
		"string or number":                 {`{"properties":{"a":{"type":["string","number"],"x-mcp-header":"A"}}}`, "type"},
		"an empty list of types":           {`{"properties":{"a":{"type":[],"x-mcp-header":"A"}}}`, "type"},
		"an empty name":                    {`{"properties":{"a":{"type":"string","x-mcp-header":""}}}`, "empty"},
		"a name that is no string":         {`{"properties":{"a":{"type":"string","x-mcp-header":true}}}`, "string"},
		"a space in the name":              {`{"properties":{"a":{"type":"string","x-mcp-header":"My Region"}}}`, "header name"},
		"a colon in the name":              {`{"properties":{"a":{"type":"string","x-mcp-header":"Region:Primary"}}}`, "header name"},
		"a tab in the name":                {`{"properties":{"a":{"type":"string","x-mcp-header":"Region\t1"}}}`, "header name"},
		"a line break in the name":         {`{"properties":{"a":{"type":"string","x-mcp-header":"A\r\nX-Evil"}}}`, "header name"},
		"a foreign letter in the name":     {`{"properties":{"a":{"type":"string","x-mcp-header":"Région"}}}`, "header name"},
		"twice":                            {`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"A"}}}`, "twice"},
		"twice in another case":            {`{"properties":{"a":{"type":"string","x-mcp-header":"Region"},"b":{"type":"string","x-mcp-header":"REGION"}}}`, "twice"},
		"twice at different depths":        {`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"properties":{"c":{"type":"string","x-mcp-header":"a"}}}}}`, "twice"},
		"at the root":                      {`{"type":"string","x-mcp-header":"A"}`, "properties alone"},
		"below items":                      {`{"properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}`, "properties alone"},
		"below properties below items":     {`{"properties":{"a":{"items":{"properties":{"b":{"type":"string","x-mcp-header":"A"}}}}}}`, "properties alone"},
		"below anyOf":                      {`{"properties":{"a":{"anyOf":[{"type":"string","x-mcp-header":"A"}]}}}`, "properties alone"},
		"below allOf at the root":          {`{"allOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}`, "properties alone"},
		"below not":                        {`{"not":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`, "properties alone"},
		"below then":                       {`{"then":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`, "properties alone"},
		"in $defs":                         {`{"$defs":{"r":{"type":"string","x-mcp-header":"A"}},"properties":{"a":{"$ref":"#/$defs/r"}}}`, "properties alone"},
		"below additionalProperties":       {`{"additionalProperties":{"type":"string","x-mcp-header":"A"}}`, "properties alone"},
		"below patternProperties":          {`{"patternProperties":{"^a":{"type":"string","x-mcp-header":"A"}}}`, "properties alone"},
		"below a keyword nobody knows":     {`{"x-mine":{"type":"string","x-mcp-header":"A"}}`, "properties alone"},
		"spelled with an escape":           {`{"properties":{"a":{"type":"number","x-mcp-h\u0065ader":"A"}}}`, "type"},
		"a schema that is no JSON":         {`{"x-mcp-header"`, "schema"},
		"a schema with a duplicate member": {`{"properties":{"a":{"type":"string","x-mcp-header":"A","x-mcp-header":"B"}}}`, "schema"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := ValidateAnnotations([]byte(tt.schema))
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

const paramSchema = `{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"Region"},
	"count":{"type":"integer","x-mcp-header":"count"},
	"dry":{"type":"boolean","x-mcp-header":"Dry-Run"},
	"where":{"type":"object","properties":{"zone":{"type":["string","null"],"x-mcp-header":"Zone"}}},
	"query":{"type":"string"}}}`

// mirroredArguments are arguments for paramSchema and the headers that mirror them.
type mirroredArguments struct {
	arguments string
	header    http.Header
	code      int
}

func mirroredCalls() map[string]mirroredArguments {
	return map[string]mirroredArguments{
		"nothing asked, nothing sent":       {`{"query":"x"}`, nil, 0},
		"no arguments at all":               {``, nil, 0},
		"all of them":                       {`{"region":"us","count":42,"dry":true,"where":{"zone":"a"}}`, http.Header{"Mcp-Param-Region": {"us"}, "Mcp-Param-Count": {"42"}, "Mcp-Param-Dry-Run": {"true"}, "Mcp-Param-Zone": {"a"}}, 0},
		"a header that nobody knows":        {`{}`, http.Header{"Mcp-Param-Other": {"x"}}, 0},
		"missing":                           {`{"region":"us"}`, nil, CodeHeaderMismatch},
		"another value":                     {`{"region":"us"}`, http.Header{"Mcp-Param-Region": {"eu"}}, CodeHeaderMismatch},
		"another case":                      {`{"region":"us"}`, http.Header{"Mcp-Param-Region": {"US"}}, CodeHeaderMismatch},
		"surrounding spaces":                {`{"region":"us"}`, http.Header{"Mcp-Param-Region": {" us "}}, 0},
		"Base64":                            {`{"region":"日本語"}`, http.Header{"Mcp-Param-Region": {"=?base64?5pel5pys6Kqe?="}}, 0},
		"Base64 of plain text":              {`{"region":"us"}`, http.Header{"Mcp-Param-Region": {"=?base64?dXM=?="}}, 0},
		"bad Base64":                        {`{"region":"Hello"}`, http.Header{"Mcp-Param-Region": {"=?base64?SGVsbG8?="}}, CodeHeaderMismatch},
		"bytes beyond ASCII":                {`{"region":"é"}`, http.Header{"Mcp-Param-Region": {"é"}}, CodeHeaderMismatch},
		"an empty string":                   {`{"region":""}`, http.Header{"Mcp-Param-Region": {""}}, 0},
		"an empty string without header":    {`{"region":""}`, nil, CodeHeaderMismatch},
		"null":                              {`{"region":null}`, nil, 0},
		"null with a header":                {`{"region":null}`, http.Header{"Mcp-Param-Region": {"null"}}, CodeHeaderMismatch},
		"absent with a header":              {`{}`, http.Header{"Mcp-Param-Region": {"us"}}, CodeHeaderMismatch},
		"absent with an empty header":       {`{}`, http.Header{"Mcp-Param-Region": {""}}, CodeHeaderMismatch},
		"no arguments with a header":        {``, http.Header{"Mcp-Param-Region": {"us"}}, CodeHeaderMismatch},
		"equal repeats":                     {`{"region":"us"}`, http.Header{"Mcp-Param-Region": {"us", "=?base64?dXM=?="}}, 0},
		"different repeats":                 {`{"region":"us"}`, http.Header{"Mcp-Param-Region": {"us", "eu"}}, CodeHeaderMismatch},
		"42.0 is 42":                        {`{"count":42}`, http.Header{"Mcp-Param-Count": {"42.0"}}, 0},
		"4.2e1 is 42":                       {`{"count":42}`, http.Header{"Mcp-Param-Count": {"4.2e1"}}, 0},
		"42 is 42.0":                        {`{"count":42.0}`, http.Header{"Mcp-Param-Count": {"42"}}, 0},
		"42 is not 43":                      {`{"count":42}`, http.Header{"Mcp-Param-Count": {"43"}}, CodeHeaderMismatch},
		"0x2a is no number":                 {`{"count":42}`, http.Header{"Mcp-Param-Count": {"0x2a"}}, CodeHeaderMismatch},
		"2^53-1":                            {`{"count":9007199254740991}`, http.Header{"Mcp-Param-Count": {"9007199254740991"}}, 0},
		"-(2^53-1)":                         {`{"count":-9007199254740991}`, http.Header{"Mcp-Param-Count": {"-9007199254740991"}}, 0},
		"2^53 can't be mirrored":            {`{"count":9007199254740992}`, http.Header{"Mcp-Param-Count": {"9007199254740992"}}, CodeHeaderMismatch},
		"a fraction can't be mirrored":      {`{"count":1.5}`, http.Header{"Mcp-Param-Count": {"1.5"}}, CodeHeaderMismatch},
		"a fraction beyond a double's eye":  {`{"count":9007199254740991}`, http.Header{"Mcp-Param-Count": {"9007199254740991.1"}}, CodeHeaderMismatch},
		"an object can't be mirrored":       {`{"region":{}}`, http.Header{"Mcp-Param-Region": {"{}"}}, CodeHeaderMismatch},
		"true is not True":                  {`{"dry":true}`, http.Header{"Mcp-Param-Dry-Run": {"True"}}, CodeHeaderMismatch},
		"true is not 1":                     {`{"dry":true}`, http.Header{"Mcp-Param-Dry-Run": {"1"}}, CodeHeaderMismatch},
		"nested, missing":                   {`{"where":{"zone":"a"}}`, nil, CodeHeaderMismatch},
		"nested, null":                      {`{"where":{"zone":null}}`, nil, 0},
		"nested below null":                 {`{"where":null}`, nil, 0},
		"nested below a string":             {`{"where":"zone"}`, nil, 0},
		"nested with a header and no value": {`{"where":{}}`, http.Header{"Mcp-Param-Zone": {"a"}}, CodeHeaderMismatch},
		"Region beside region":              {`{"region":"us","Region":"eu"}`, http.Header{"Mcp-Param-Region": {"us"}}, CodeInvalidRequest},
		"REGION alone":                      {`{"REGION":"eu"}`, nil, CodeInvalidRequest},
		"a folded name on the way":          {`{"Where":{"zone":"a"}}`, nil, CodeInvalidRequest},
		"a folded name inside":              {`{"where":{"Zone":"a"}}`, nil, CodeInvalidRequest},
		"a folded name off the path":        {`{"where":{"zone":"a","x":{"Zone":1}},"Query":"x"}`, http.Header{"Mcp-Param-Zone": {"a"}}, 0},
		"an escaped name":                   {`{"r\u0065gion":"us"}`, http.Header{"Mcp-Param-Region": {"us"}}, 0},
	}
}

func TestCheckParams(t *testing.T) {
	for name, tt := range mirroredCalls() {
		t.Run(name, func(t *testing.T) {
			code := 0
			err := CheckParams([]byte(paramSchema), []byte(tt.arguments), tt.header)
			if err != nil {
				code = err.Code
				if status := err.HTTPStatus(Modern); status != 400 {
					t.Errorf("status %d, want 400", status)
				}
			}
			if code != tt.code {
				t.Errorf("code %d (%v), want %d", code, err, tt.code)
			}
		})
	}
}

func TestParamHeaders(t *testing.T) {
	tests := map[string]struct {
		arguments string
		want      http.Header
	}{
		"all kinds": {
			`{"region":"日本語","count":4.20e1,"dry":false,"where":{"zone":" a"}}`,
			http.Header{"Mcp-Param-Region": {"=?base64?5pel5pys6Kqe?="}, "Mcp-Param-Count": {"42"}, "Mcp-Param-Dry-Run": {"false"}, "Mcp-Param-Zone": {"=?base64?IGE=?="}},
		},
		"null and absent ones are left out": {`{"region":null,"where":{}}`, http.Header{}},
		"no arguments":                      {``, http.Header{}},
		"an empty string":                   {`{"region":""}`, http.Header{"Mcp-Param-Region": {""}}},
		"an escape is decoded":              {`{"region":"a\"\u0062"}`, http.Header{"Mcp-Param-Region": {`a"b`}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParamHeaders([]byte(paramSchema), []byte(tt.arguments))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			if err := CheckParams([]byte(paramSchema), []byte(tt.arguments), got); err != nil {
				t.Errorf("what was computed does not pass: %v", err)
			}
		})
	}
	for _, bad := range []string{`{"count":1.5}`, `{"count":1e300}`, `{"region":[]}`, `{"dry":{}}`} {
		if got, err := ParamHeaders([]byte(paramSchema), []byte(bad)); err == nil || err.Code != CodeInvalidParams {
			t.Errorf("%s: %v, %v, want -32602", bad, got, err)
		}
	}
	if got, err := ParamHeaders([]byte(`{"properties":{}}`), []byte(`{}`)); got != nil || err != nil {
		t.Errorf("a schema that asks for nothing: %v, %v", got, err)
	}
}

func TestInteger(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "-0": 0, "0.0": 0, "0e99": 0, "7": 7, "-7": -7, "42.000": 42, "1e3": 1000, "1E+3": 1000, "1.5e1": 15, "1500e-2": 15,
		"9007199254740991": 1<<53 - 1, "-9007199254740991": -(1<<53 - 1), "9.007199254740991e15": 1<<53 - 1, "0.0000001e7": 1,
	} {
		if got, ok := integer(s); !ok || got != want {
			t.Errorf("%s is %d, %v, want %d", s, got, ok, want)
		}
	}
	for _, s := range []string{
		"", "-", "+1", ".5", "5.", "1.5", "1e-1", "1e", "1e+", "1e++1", "0x10", "1_000", "inf", "NaN", "01", "--1", " 1", "1 ",
		"9007199254740992", "-9007199254740992", "1e16", "1e99999999", "1e999999999999", "1e-99999999", "9007199254740991.5",
	} {
		if got, ok := integer(s); ok {
			t.Errorf("%q is %d", s, got)
		}
	}
}

func FuzzInteger(f *testing.F) {
	for _, s := range []string{"0", "42.0", "1e3", "-1.5e1", "9007199254740993", "1e-7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, ok := integer(s)
		if !ok {
			return
		}
		if n > 1<<53-1 || n < -(1<<53-1) {
			t.Fatalf("%q is %d, out of range", s, n)
		}
		if v, err := strconv.ParseFloat(s, 64); err != nil || v != float64(n) {
			t.Fatalf("%q is %d, but as a double %v (%v)", s, n, v, err)
		}
	})
}

func FuzzCheckParams(f *testing.F) {
	f.Add([]byte(paramSchema), []byte(`{"region":"us","count":42,"where":{"zone":"a"}}`))
	f.Add([]byte(`{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}`), []byte(`{"a":"=?base64?"}`))
	f.Fuzz(func(t *testing.T, schema, arguments []byte) {
		spec, err := ParseParamSpec(schema)
		if err != nil {
			return
		}
		if _, err := ParseObject(arguments); err != nil {
			return
		}
		h, herr := spec.Headers(arguments)
		if herr != nil {
			return
		}
		if err := spec.Check(arguments, h); err != nil {
			t.Fatalf("%s with %s gives %v, which does not pass: %v", schema, arguments, h, err)
		}
	})
}
