package catalog

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weir-mcp/weir/routes"
)

var at = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func raws(in ...string) []json.RawMessage {
	out := make([]json.RawMessage, 0, len(in))
	for _, s := range in {
		out = append(out, json.RawMessage(s))
	}
	return out
}

// odd is an item in which every byte matters: white space, escapes, numbers, order, unknown fields, a duplicate.
const odd = "{ \"name\" : \"a<b>&\\u0041\",\n\t\"inputSchema\":{\"$defs\":{\"x\":{}},\"type\":\"object\"}, \"n\": 1.0e+2, \"big\": 9007199254740993, \"f\": 1, \"f\": 2 }"

func sample() *Catalog {
	ttl := int64(0)
	return &Catalog{
		Backend: "b", Protocol: "2025-11-25", Handshake: routes.HandshakeNone, ServerInfo: json.RawMessage(`{"name": "<s>"}`),
		Capabilities: json.RawMessage(`{ "tools": {} }`), Instructions: "be <nice>", Taken: at,
		Tools:   List{Items: Items(Tools, raws(odd, `{"name":1}`), nil), Since: at, TTL: &ttl},
		Prompts: List{Stale: true, Reason: "timeout"},
	}
}

func TestCodec(t *testing.T) {
	c := sample()
	doc, err := Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Encode(c); err != nil || !bytes.Equal(doc, again) {
		t.Errorf("two encodings differ: %v\n%s\n%s", err, doc, again)
	}
	if !json.Valid(doc) || !bytes.Contains(doc, []byte(odd)) {
		t.Errorf("the item's bytes do not stand in %s", doc)
	}
	got, err := Decode(doc)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i := range doc {
		doc[i] = 'x'
	}
	if string(got.Tools.Items[0].Raw) != odd {
		t.Error("the decoded catalog shares memory with the document")
	}
	if _, err := Encode(&Catalog{Tools: List{Items: []Item{{Name: "a", Raw: json.RawMessage(`{"a":`)}}}}); err == nil {
		t.Error("an item that is no JSON was encoded")
	}
	for doc, want := range map[string]string{`{"schema":2}`: "schema 2", `{"backend":`: "decode catalog", `[]`: "decode catalog"} {
		if _, err := Decode([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Decode(%s) = %v, want %q", doc, err, want)
		}
	}
	if c, err := Decode([]byte(`{"backend":"b","taken":"2026-08-01T12:00:00Z","future":[1]}`)); err != nil || c.Backend != "b" || !c.Taken.Equal(at) {
		t.Errorf("a member of the future: %+v, %v", c, err)
	}
}

const noScheme = "uri has no scheme, so that it is no URI (RFC 3986, section 3)"

func TestItems(t *testing.T) {
	check := func(raw, schema json.RawMessage) (string, bool) {
		if bytes.Contains(schema, []byte("bad")) {
			return "bad annotation", true
		}
		return "", bytes.Contains(schema, []byte("x-mcp-header"))
	}
	long := strings.Repeat("é", maxName/2) + "é"
	tests := map[string]struct {
		kind Kind
		raws []string
		want []Item // without Raw and Digest
	}{
		"tools": {Tools, []string{
			`{"name":"ok","inputSchema":{"type":"object"}}`,
			`{"name":"annotated","inputSchema":{"x-mcp-header":1}}`,
			`{"name":"refused","inputSchema":{"bad":1}}`,
			`{"name":"noschema"}`,
			`{"name":"list","inputSchema":[]}`,
			`{"name":"null","inputSchema":null}`,
			`{"Name":"case","inputSchema":{}}`,
			`{"name":""}`, `{"name":7}`, `"name"`, `null`, `[]`,
			`{"name":"ok","inputSchema":{},"second":true}`,
			`{"name":"noschema","inputSchema":{}}`,
		}, []Item{
			{Name: "ok"},
			{Name: "annotated", Annotated: true},
			{Name: "refused", Reject: "bad annotation", Annotated: true},
			{Name: "noschema", Reject: "inputSchema is missing or not an object"},
			{Name: "list", Reject: "inputSchema is missing or not an object"},
			{Name: "null", Reject: "inputSchema is missing or not an object"},
			{Reject: "name is missing or not a string"},
			{Reject: "name is missing or not a string"}, {Reject: "name is missing or not a string"}, {Reject: "not an object"},
			{Reject: "not an object"}, {Reject: "not an object"},
			{Name: "ok", Reject: "listed before: the first of this name counts"},
			{Name: "noschema"}, // the one before does not count
		}},
		"what is not strict JSON is left out alone": {Tools, []string{
			`{"name":"twice","inputSchema":{"type":"object","properties":{"a":{"type":"string","type":"number"}}}}`,
			`{"name":"bytes","description":"` + "\xff" + `","inputSchema":{}}`,
			`{"name":"good","inputSchema":{}}`,
		}, []Item{
			{Name: "twice", Reject: `not strict JSON: jsontext: duplicate object member name "type" within "/inputSchema/properties/a"`},
			{Name: "bytes", Reject: `not strict JSON: jsontext: invalid UTF-8 within "/description" after offset 31`},
			{Name: "good"},
		}},
		"a schema that takes no objects": {Tools, []string{
			`{"name":"a","inputSchema":{"type":"array"}}`, `{"name":"b","inputSchema":{"type":["object"]}}`, `{"name":"c","inputSchema":{"type":null}}`,
			`{"name":"d","inputSchema":{"type":"obj\u0065ct"}}`, `{"name":"e","inputSchema":true}`,
		}, []Item{
			{Name: "a", Reject: `inputSchema has another type than "object"`}, {Name: "b", Reject: `inputSchema has another type than "object"`},
			{Name: "c", Reject: `inputSchema has another type than "object"`}, {Name: "d"}, {Name: "e", Reject: "inputSchema is missing or not an object"},
		}},
		"control characters in names": {Prompts, []string{`{"name":"a\u0007b"}`, `{"name":"a\nb"}`, `{"name":"\u0085"}`, `{"name":"a b é \u200d"}`},
			[]Item{{Name: "a\ab", Reject: "name has a control character"}, {Name: "a\nb", Reject: "name has a control character"},
				{Name: "\u0085", Reject: "name has a control character"}, {Name: "a b é \u200d"}}},
		"URIs that are none": {Resources, []string{`{"uri":"/etc/passwd"}`, `{"uri":"readme.md"}`, `{"uri":"://x"}`, `{"uri":"1a:x"}`, `{"uri":"a:\tx"}`,
			`{"uri":"urn:x"}`, `{"uri":"a+b-c.d:"}`},
			[]Item{{Name: "/etc/passwd", Reject: noScheme}, {Name: "readme.md", Reject: noScheme}, {Name: "://x", Reject: noScheme},
				{Name: "1a:x", Reject: noScheme}, {Name: "a:\tx", Reject: "uri has a control character"}, {Name: "urn:x"}, {Name: "a+b-c.d:"}}},
		"members that differ in case only": {Tools, []string{
			`{"name":"a","NAME":"b","inputSchema":{}}`, `{"name":"a","inputschema":{},"inputSchema":{}}`, `{"name":"a","inputSchema":{},"de\u017fcription":"x"}`,
			`{"name":"fine","inputSchema":{"Type":"x"},"x-Name":"b"}`,
		}, []Item{
			{Name: "a", Reject: `its member "NAME" is "name" but for case, and readers disagree on what that means`},
			{Name: "a", Reject: `its member "inputschema" is "inputSchema" but for case, and readers disagree on what that means`},
			{Name: "a", Reject: `its member "deſcription" is "description" but for case, and readers disagree on what that means`},
			{Name: "fine"},
		}},
		"prompts need no schema": {Prompts, []string{`{"name":"p"}`}, []Item{{Name: "p"}}},
		"resources go by their URI": {Resources, []string{`{"name":"n","uri":"file:///a"}`, `{"name":"n"}`},
			[]Item{{Name: "file:///a"}, {Reject: "uri is missing or not a string"}}},
		"templates by theirs": {ResourceTemplates, []string{`{"uriTemplate":"file:///{x}","uri":"y"}`}, []Item{{Name: "file:///{x}"}}},
		"a name beyond all measure": {Prompts, []string{`{"name":"` + long + `"}`},
			[]Item{{Name: strings.Repeat("é", 32), Reject: "name has 2050 bytes; at most 2048 are served"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Items(tt.kind, raws(tt.raws...), check)
			for i := range got {
				if string(got[i].Raw) != tt.raws[i] || got[i].Digest != routes.Digest([]byte(tt.raws[i])) {
					t.Errorf("item %d is not byte for byte what was listed: %s", i, got[i].Raw)
				}
				got[i].Raw, got[i].Digest = nil, ""
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	later := at.Add(time.Minute)
	item := func(name string) []Item { return Items(Prompts, raws(`{"name":"`+name+`"}`), nil) }
	walk := func(ended time.Time, prompts Result) Walk {
		w := Walk{Backend: "b", Protocol: "2026-07-28", Ended: ended}
		w.Lists[Prompts] = prompts
		return w
	}
	ttl := int64(5)
	good := Merge(nil, walk(at, Result{Items: item("p"), TTL: &ttl}))
	if diff := cmp.Diff(List{Items: item("p"), Since: at, TTL: &ttl}, good.Prompts); diff != "" || !good.Taken.Equal(at) || good.Tools.Stale {
		t.Errorf("a complete round: taken %v (-want +got):\n%s", good.Taken, diff)
	}

	failed := Merge(good, walk(later, Result{Failed: "cursor loop", Items: item("half")}))
	if diff := cmp.Diff(List{Items: item("p"), Since: at, TTL: &ttl, Stale: true, Reason: "cursor loop"}, failed.Prompts); diff != "" {
		t.Errorf("a failed walk keeps the last good items (-want +got):\n%s", diff)
	}
	if !failed.Taken.Equal(at) || failed.Tools.Stale || !failed.Tools.Since.Equal(later) {
		t.Errorf("one failed list: taken %v, tools %+v", failed.Taken, failed.Tools)
	}
	if good.Prompts.Stale {
		t.Error("the previous catalog was changed")
	}

	down := Stale(failed, "unreachable")
	if down.Prompts.Reason != "unreachable" || !down.Tools.Stale || !down.Prompts.Since.Equal(at) || len(down.Prompts.Items) != 1 {
		t.Errorf("a backend that is down: %+v", down)
	}
	if Stale(nil, "unreachable") != nil {
		t.Error("a backend that was never heard of got a catalog")
	}

	empty := Merge(down, walk(later, Result{}))
	if len(empty.Prompts.Items) != 0 || empty.Prompts.Stale || empty.Prompts.Reason != "" || !empty.Taken.Equal(later) {
		t.Errorf("after a complete, empty walk: %+v", empty.Prompts)
	}

	never := Merge(nil, walk(at, Result{Failed: "timeout"}))
	if !never.Prompts.Since.IsZero() || !never.Prompts.Stale || !never.Taken.IsZero() {
		t.Errorf("a list that was never read: %+v", never.Prompts)
	}
}

func TestDigest(t *testing.T) {
	base := sample()
	if sample().Digest() != base.Digest() || (*Catalog)(nil).Digest() != "" {
		t.Error("the digest is not one of the value")
	}
	for name, change := range map[string]func(*Catalog){
		"when it was taken":  func(c *Catalog) { c.Taken = at.Add(time.Hour) },
		"when the list was":  func(c *Catalog) { c.Tools.Since = at.Add(time.Hour) },
		"white space in Raw": func(c *Catalog) { c.Tools.Items[0].Raw = json.RawMessage(`{}`) }, // Item.Digest speaks for it
	} {
		c := sample()
		if change(c); c.Digest() != base.Digest() {
			t.Errorf("%s counts", name)
		}
	}
	for name, change := range map[string]func(*Catalog){
		"era":          func(c *Catalog) { c.Protocol = "2026-07-28" },
		"handshake":    func(c *Catalog) { c.Handshake = routes.HandshakeRequired },
		"capabilities": func(c *Catalog) { c.Capabilities = json.RawMessage(`{}`) },
		"server":       func(c *Catalog) { c.ServerInfo = nil },
		"instructions": func(c *Catalog) { c.Instructions = "" },
		"stale":        func(c *Catalog) { c.Tools.Stale = true },
		"ttl":          func(c *Catalog) { c.Tools.TTL = nil },
		"never read":   func(c *Catalog) { c.Tools.Since = time.Time{} },
		"reason":       func(c *Catalog) { c.Prompts.Reason = "other" },
		"item":         func(c *Catalog) { c.Tools.Items[0].Digest = "other" },
		"annotated":    func(c *Catalog) { c.Tools.Items[0].Annotated = true },
		"reject":       func(c *Catalog) { c.Tools.Items[0].Reject = "x" },
		"another list": func(c *Catalog) { c.Prompts, c.Tools = c.Tools, c.Prompts },
		"order":        func(c *Catalog) { i := c.Tools.Items; i[0], i[1] = i[1], i[0] },
	} {
		c := sample()
		if change(c); c.Digest() == base.Digest() {
			t.Errorf("%s does not count", name)
		}
	}
}

// TestCodecProperty: any items that JSON can hold come back byte for byte.
func TestCodecProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Catalog{Backend: "b"}
		for range rapid.IntRange(0, 4).Draw(t, "items") {
			name, err := json.Marshal(rapid.String().Draw(t, "name"))
			if err != nil {
				t.Fatal(err)
			}
			space := rapid.SampledFrom([]string{"", " ", "\n\t", "\r\n"}).Draw(t, "space")
			c.Resources.Items = append(c.Resources.Items, Items(Resources, raws("{"+space+`"uri":`+string(name)+space+"}"), nil)...)
		}
		doc, err := Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(doc)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, got); diff != "" || got.Digest() != c.Digest() {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func FuzzDecode(f *testing.F) {
	doc, err := Encode(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(doc)
	f.Add([]byte(`{"tools":{"items":[{"name":"a","raw":null}]}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		c, err := Decode(doc)
		if err != nil {
			return
		}
		again, err := Encode(c)
		if err != nil {
			t.Fatalf("what was decoded can't be encoded: %v", err)
		}
		back, err := Decode(again)
		if err != nil || back.Digest() != c.Digest() {
			t.Fatalf("%v\n%+v\n%+v", err, c, back)
		}
	})
}
