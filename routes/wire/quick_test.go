package wire

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// surelyJSON reports whether b is exactly one JSON value; false means that it may not be.
func surelyJSON(b []byte, strict bool) bool {
	w := check(b, strict)
	w.space()
	w.value()
	return w.sure()
}

// If these were left to jsontext nothing would be wrong, only slow.
func TestQuickIsSureOfWhatIsCommon(t *testing.T) {
	for name, doc := range map[string]string{
		"a call":            string(bodies["300B"]),
		"many items":        string(bodies["64KiB/items"]),
		"all kinds":         ` { "a" : [ 1 , -2.5e+10 , 0, -0.0, 1E5, true,false , null , "" ] ,"b":{},"c":[] } `,
		"escapes":           `"\"\\\/\b\f\n\r\t\u00e9\u0000"`,
		"foreign letters":   `{"é":"日本語 and a long tail of plain text, so that words are skipped"}`,
		"64 names":          "{" + manyNames(64) + "}",
		"256 levels":        strings.Repeat("[", 256) + strings.Repeat("]", 256),
		"names come back":   `[{"a":1,"b":{"a":2}},{"a":3,"b":4}]`,
		"a word's boundary": `["1234567","12345678","123456789"]`,
	} {
		if !surelyJSON([]byte(doc), true) {
			t.Errorf("%s: not sure of %.60s", name, doc)
		}
	}
	for name, doc := range map[string]string{
		"duplicates": `{"a":{"b":1,"b":1}}`, "surrogates": `"\ud800"`, "bad UTF-8": "\"\xff\"", "65 names": "{" + manyNames(65) + "}",
	} {
		if surelyJSON([]byte(doc), true) {
			t.Errorf("%s: strictly sure of %.60s", name, doc)
		}
		if !surelyJSON([]byte(doc), false) {
			t.Errorf("%s: not sure of %.60s", name, doc)
		}
	}
}

// What is special is found at every place of a long string, and nothing else is.
func TestPlainStopsWhereItShould(t *testing.T) {
	for _, size := range []int{1, 31, 64, 300, longRun + stretch - 1, longRun + stretch, longRun + stretch + 1, longRun + 3*stretch + 70} {
		text := []byte(strings.Repeat("plain ~ text\x7f", size/13+1)[:size])
		q := quick{b: text}
		if q.plain(); q.i != size {
			t.Fatalf("stopped at %d of %d plain bytes", q.i, size)
		}
		for at := range size {
			for _, c := range []byte{'"', '\\', 0, 0x1f, 0x80, 0xff} {
				was := text[at]
				text[at] = c
				for _, start := range []int{0, min(at, 1), at} {
					q := quick{b: text, i: start}
					if q.plain(); q.i != at {
						t.Fatalf("from %d: stopped at %d of %d, want %d for %q", start, q.i, size, at, c)
					}
				}
				text[at] = was
			}
		}
	}
}

// FuzzQuick: what quick is sure of, jsontext takes as well.
func FuzzQuick(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-2.5e+10,0.0,true,false,null,""],"b":{"c":{}}}`, `"\u00e9\"\\\ud83d\ude00"`, `{"a":1,"\u0061":2}`, `{"a":1,"a":2}`,
		"\"\xc3\xa9\"", "\"\xff\"", `01`, `-`, `1.`, `[1,]`, `{"a"}`, `"1234567` + "\x01" + `"`, "[[[[[[[[", `nul`, `{"":{"":{"":0}}}`, "\xef\xbb\xbf1",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if surelyJSON(doc, true) && !jsontext.Value(doc).IsValid() {
			t.Fatalf("strictly sure of %q", doc)
		}
		sure := surelyJSON(doc, false)
		valid := jsontext.Value(doc).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
		if sure && !valid {
			t.Fatalf("sure of %q", doc)
		}
		if valid && !sure && len(doc) < maxDepth {
			t.Fatalf("not sure of %q, which is valid", doc)
		}
	})
}
