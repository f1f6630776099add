package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeMessage(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	tests := map[string]struct {
		body string
		want Message // without Raw
	}{
		"a request": {
			`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
			Message{ID: raw("1"), Method: "tools/list"},
		},
		"a notification": {
			`{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}`,
			Message{Method: "notifications/initialized", Params: Object{}},
		},
		"members in any order, white space anywhere": {
			" {\r\n\"params\" : { \"name\" : \"a\" , \"_meta\" : { } } ,\t\"method\":\"tools/call\",\"id\":\"x\" ,\"jsonrpc\":\"2.0\"} \n",
			Message{
				ID: raw(`"x"`), Method: "tools/call",
				Params: Object{{"name", raw(`"a"`)}, {"_meta", raw("{ }")}}, Meta: Object{},
			},
		},
		"values keep their text": {
			`{"jsonrpc":"2.0","id":9007199254740993,"method":"m","params":{"a":1e3,"b":[ 1.0,{"\u0063":null} ],"c":"\ud83d\ude00"}}`,
			Message{
				ID: raw("9007199254740993"), Method: "m",
				Params: Object{{"a", raw("1e3")}, {"b", raw(`[ 1.0,{"\u0063":null} ]`)}, {"c", raw(`"\ud83d\ude00"`)}},
			},
		},
		"an id such as 1e3 keeps its text":      {`{"jsonrpc":"2.0","id":1e3,"method":"m"}`, Message{ID: raw("1e3"), Method: "m"}},
		"an id such as -0.0 keeps its text":     {`{"jsonrpc":"2.0","id":-0.0,"method":"m"}`, Message{ID: raw("-0.0"), Method: "m"}},
		"an id of digits in quotes is a string": {`{"jsonrpc":"2.0","id":"1","method":"m"}`, Message{ID: raw(`"1"`), Method: "m"}},
		"an empty id":                           {`{"jsonrpc":"2.0","id":"","method":"m"}`, Message{ID: raw(`""`), Method: "m"}},
		"escaped names are the names they spell": {
			`{"jsonrpc":"2.0","\u0069d":7,"m\u0065thod":"m","params":{"n\u0061me":"x"}}`,
			Message{ID: raw("7"), Method: "m", Params: Object{{"name", raw(`"x"`)}}},
		},
		"unknown members of the envelope are let be": {
			`{"jsonrpc":"2.0","id":1,"method":"m","extra":{"id":2}}`, Message{ID: raw("1"), Method: "m"},
		},
		"arguments may have names of any case": {
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"Name":1,"NAME":2,"name":3}}}`,
			Message{ID: raw("1"), Method: "m", Params: Object{{"arguments", raw(`{"Name":1,"NAME":2,"name":3}`)}}},
		},
		"_meta keeps foreign members": {
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":"t","com.example/x":{"a":[]}}}}`,
			Message{
				ID: raw("1"), Method: "m",
				Params: Object{{"_meta", raw(`{"progressToken":"t","com.example/x":{"a":[]}}`)}},
				Meta:   Object{{"progressToken", raw(`"t"`)}, {"com.example/x", raw(`{"a":[]}`)}},
			},
		},
		"256 levels are allowed": {
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":` + strings.Repeat("[", 254) + strings.Repeat("]", 254) + `}}`,
			Message{ID: raw("1"), Method: "m", Params: Object{{"a", raw(strings.Repeat("[", 254) + strings.Repeat("]", 254))}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeMessage([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Raw = []byte(tt.body)
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// refusedBody is a body that DecodeMessage refuses.
type refusedBody struct {
	body string
	code int
	id   string // that the answer carries
}

func refusedBodies() map[string]refusedBody {
	const parse, invalid, params = CodeParse, CodeInvalidRequest, CodeInvalidParams
	return map[string]refusedBody{
		"nothing":                          {"", parse, ""},
		"white space":                      {" \n", parse, ""},
		"no JSON":                          {"hello", parse, ""},
		"cut off":                          {`{"jsonrpc":"2.0","id":1,"method":"m","params":{`, parse, ""},
		"cut off in a string":              {`{"jsonrpc":"2.0","id":1,"method":"m`, parse, ""},
		"trailing data":                    {`{"jsonrpc":"2.0","id":1,"method":"m"} x`, parse, ""},
		"two messages":                     {`{"jsonrpc":"2.0","id":1,"method":"m"}{"jsonrpc":"2.0","id":2,"method":"m"}`, parse, ""},
		"a byte order mark":                {"\xef\xbb\xbf" + `{"jsonrpc":"2.0","id":1,"method":"m"}`, parse, ""},
		"invalid UTF-8":                    {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\xff\"}", parse, ""},
		"a lone surrogate":                 {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\ud800"}}`, parse, ""},
		"a control character in a string":  {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\n\"}", parse, ""},
		"a comment":                        {`{"jsonrpc":"2.0",/* */"id":1,"method":"m"}`, parse, ""},
		"a trailing comma":                 {`{"jsonrpc":"2.0","id":1,"method":"m",}`, parse, ""},
		"NaN":                              {`{"jsonrpc":"2.0","id":NaN,"method":"m"}`, parse, ""},
		"a number with a leading zero":     {`{"jsonrpc":"2.0","id":01,"method":"m"}`, parse, ""},
		"10,000 nested arrays":             {strings.Repeat("[", 10000), invalid, ""},
		"10,000 nested arrays in params":   {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `}}`, invalid, ""},
		"257 levels":                       {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":` + strings.Repeat("[", 255) + strings.Repeat("]", 255) + `}}`, invalid, "1"},
		"257 levels of objects":            {strings.Repeat(`{"a":`, 257) + "1" + strings.Repeat("}", 257), invalid, ""},
		"a batch":                          {`[{"jsonrpc":"2.0","id":1,"method":"m"}]`, invalid, ""},
		"an empty batch":                   {" []", invalid, ""},
		"a string":                         {`"hello"`, invalid, ""},
		"null":                             {"null", invalid, ""},
		"no jsonrpc":                       {`{"id":1,"method":"m"}`, invalid, "1"},
		"jsonrpc 1.0":                      {`{"jsonrpc":"1.0","id":1,"method":"m"}`, invalid, "1"},
		"jsonrpc as a number":              {`{"jsonrpc":2.0,"id":1,"method":"m"}`, invalid, "1"},
		"id null":                          {`{"jsonrpc":"2.0","id":null,"method":"m"}`, invalid, ""},
		"id true":                          {`{"jsonrpc":"2.0","id":true,"method":"m"}`, invalid, ""},
		"id as an object":                  {`{"jsonrpc":"2.0","id":{},"method":"m"}`, invalid, ""},
		"no method":                        {`{"jsonrpc":"2.0","id":1}`, invalid, "1"},
		"method as a number":               {`{"jsonrpc":"2.0","id":1,"method":5}`, invalid, "1"},
		"an empty method":                  {`{"jsonrpc":"2.0","id":1,"method":""}`, invalid, "1"},
		"a response":                       {`{"jsonrpc":"2.0","id":1,"result":{}}`, invalid, "1"},
		"an error response":                {`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}`, invalid, "1"},
		"a method and a result":            {`{"jsonrpc":"2.0","id":1,"method":"m","result":{}}`, invalid, "1"},
		"params as an array":               {`{"jsonrpc":"2.0","id":1,"method":"m","params":[]}`, invalid, "1"},
		"params null":                      {`{"jsonrpc":"2.0","id":1,"method":"m","params":null}`, invalid, "1"},
		"_meta as a string":                {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":"x"}}`, params, "1"},
		"_meta null":                       {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":null}}`, params, "1"},
		"duplicate id":                     {`{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`, invalid, ""},
		"duplicate name deep down":         {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"a":[{"b":1,"b":2}]}}}`, invalid, ""},
		"duplicate name, once escaped":     {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","n\u0061me":"b"}}`, invalid, ""},
		"Method beside method":             {`{"jsonrpc":"2.0","id":1,"method":"a","Method":"b"}`, invalid, "1"},
		"PARAMS alone":                     {`{"jsonrpc":"2.0","PARAMS":{},"id":1,"method":"a"}`, invalid, "1"},
		"ID alone":                         {`{"jsonrpc":"2.0","ID":1,"method":"a"}`, invalid, ""},
		"Name beside name in params":       {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}`, invalid, "1"},
		"_Meta in params":                  {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_Meta":{}}}`, invalid, "1"},
		"a Kelvin sign in taskId's k":      {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"tas` + "\u212a" + `Id":"x"}}`, invalid, "1"},
		"a long s in arguments":            {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"argument\u017f":{}}}`, invalid, "1"},
		"progresstoken in _meta":           {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progresstoken":1}}}`, invalid, "1"},
		"protocolversion in _meta":         {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"IO.modelcontextprotocol/protocolVersion":"x"}}}`, invalid, "1"},
		"the first fault counts, id found": {`{"JSONRPC":"2.0","params":[],"id":"late","method":"m"}`, invalid, `"late"`},
	}
}

func TestDecodeMessageRefuses(t *testing.T) {
	for name, tt := range refusedBodies() {
		t.Run(name, func(t *testing.T) {
			m, err := DecodeMessage([]byte(tt.body))
			if err == nil {
				t.Fatalf("took it: %+v", m)
			}
			id := ""
			if m != nil {
				id = string(m.ID)
			}
			if err.Code != tt.code || id != tt.id {
				t.Errorf("code %d with id %q, want %d with %q (%s)", err.Code, id, tt.code, tt.id, err.Message)
			}
			if len(err.Message) > 200 {
				t.Errorf("the message is %d bytes long", len(err.Message))
			}
		})
	}
}

func TestDecodedValuesAreSlicesOfTheBody(t *testing.T) {
	body := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1}}}`)
	m, err := DecodeMessage(body)
	if err != nil {
		t.Fatal(err)
	}
	arguments := m.Arguments()
	body[strings.Index(string(body), "1}}}")] = '7'
	if got, want := string(arguments), `{"x":7}`; got != want {
		t.Errorf("arguments are %s, want %s: a copy", got, want)
	}
}

func TestMessageAccessors(t *testing.T) {
	m, err := DecodeMessage([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"x":1},"_meta":{"progressToken":7}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(m.Arguments()); got != `{"x":1}` {
		t.Errorf("arguments: %s", got)
	}
	if got := string(m.ProgressToken()); got != "7" {
		t.Errorf("progress token: %s", got)
	}
	if bare := (&Message{}); bare.Arguments() != nil || bare.ProgressToken() != nil {
		t.Error("a message without params has arguments or a progress token")
	}
}

func TestEncode(t *testing.T) {
	tests := map[string]struct{ body, want string }{
		"a request is written without white space between members": {
			` {"jsonrpc": "2.0", "id" : 1e3, "method": "m", "params": {"b": [ 1 ], "a": "\u0061"}}`,
			`{"jsonrpc":"2.0","id":1e3,"method":"m","params":{"b":[ 1 ],"a":"\u0061"}}`,
		},
		"a notification has no id": {
			`{"jsonrpc":"2.0","method":"m"}`, `{"jsonrpc":"2.0","method":"m"}`,
		},
		"names are quoted": {
			`{"jsonrpc":"2.0","id":1,"method":"m\"\u0001","params":{"a\"b":{}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"m\"\u0001","params":{"a\"b":{}}}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m, err := DecodeMessage([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(m.Encode()); got != tt.want {
				t.Errorf("encoded\n%s, want\n%s", got, tt.want)
			}
		})
	}
}

// A large value is a part of its own, where it was; the bytes are those of Encode.
func TestEncodeParts(t *testing.T) {
	large := `"` + strings.Repeat("x", largeValue) + `"`
	for name, tt := range map[string]struct {
		params string
		parts  int
	}{
		"no params":           {"", 1},
		"small":               {`,"params":{"a":1}`, 1},
		"many small ones":     {`,"params":{"n":"` + strings.Repeat("x", largeValue-10) + `","m":"` + strings.Repeat("x", largeValue-10) + `"}`, 1},
		"large":               {`,"params":{"a":` + large + `}`, 3},
		"large, between":      {`,"params":{"\"":1,"a":` + large + `,"b":{}}`, 3},
		"large, one by one":   {`,"params":{"a":` + large + `,"b":` + large + `}`, 5},
		"large, with another": {`,"params":{"b":2,"a":` + large + `,"c":3,"d":` + large + `,"e":4}`, 5},
	} {
		for _, id := range []string{"", `,"id":"i"`} {
			m, err := DecodeMessage([]byte(`{"jsonrpc":"2.0"` + id + `,"method":"m"` + tt.params + `}`))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			parts := m.EncodeParts()
			if !bytes.Equal(bytes.Join(parts, nil), m.Encode()) || len(parts) != tt.parts {
				t.Errorf("%s: %d parts, want %d, or not the bytes of Encode", name, len(parts), tt.parts)
			}
			if v, _ := m.Params.Get("a"); tt.parts > 1 && &parts[1][0] != &v[0] {
				t.Errorf("%s: the large value was copied", name)
			}
		}
	}
}

func TestObject(t *testing.T) {
	o, err := ParseObject([]byte(` {"a":1,"b":{"c":[]},"d":"x\ny"} `))
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := o.Get("b"); !ok || string(v) != `{"c":[]}` {
		t.Errorf("b is %s, %v", v, ok)
	}
	if s, ok := o.Text("d"); !ok || s != "x\ny" {
		t.Errorf("d is %q, %v", s, ok)
	}
	if _, ok := o.Text("a"); ok {
		t.Error("a number is a text")
	}
	before := string(o.Append(nil))
	for want, got := range map[string]Object{
		`{"a":2,"b":{"c":[]},"d":"x\ny"}`:         o.With("a", json.RawMessage("2")),
		`{"a":1,"b":{"c":[]},"d":"x\ny","e":"é"}`: o.With("e", Quote("é")),
		`{"b":{"c":[]}}`:                          o.Without("a", "d", "z"),
		`{}`:                                      Object(nil),
		`{"a":null}`:                              Object{{Name: "a"}},
	} {
		doc, err := json.Marshal(got)
		if err != nil || string(doc) != want {
			t.Errorf("got %s (%v), want %s", doc, err, want)
		}
	}
	if after := string(o.Append(nil)); after != before {
		t.Errorf("With or Without changed the object: %s", after)
	}
	for _, bad := range []string{"", "[]", "1", `{"a":1,"a":2}`, `{"a":{"b":1,"b":1}}`, "{} {}", "{\"a\":\"\xff\"}", strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300)} {
		if o, err := ParseObject([]byte(bad)); err == nil {
			t.Errorf("took %.40q: %v", bad, o)
		}
	}
}

func TestDecodingHostileBodiesIsCheap(t *testing.T) {
	const size = 1 << 20
	for name, body := range map[string]string{
		"open arrays":              strings.Repeat("[", size),
		"open objects":             strings.Repeat(`{"a":`, size/5),
		"quotes":                   `{"a":"` + strings.Repeat(`\"`, size/2) + `"}`,
		"backslashes":              `{"a":"` + strings.Repeat(`\\`, size/2) + `"}`,
		"one long name":            `{"` + strings.Repeat("a", size) + `":1}`,
		"names, one of them twice": `{"x":{` + manyNames(size/16-1) + `,"n1":1}}`,
		"too many names":           `{"x":{` + manyNames(maxNames+1) + `}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := DecodeMessage([]byte(body)); err == nil {
				t.Error("took it")
			}
			raw := []byte(body)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = DecodeMessage(raw)
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 32*size {
				t.Errorf("allocates %d bytes for a body of %d", n, len(body))
			}
		})
	}
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"n%d":%d`, i, i)
	}
	return b.String()
}
