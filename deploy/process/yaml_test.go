package process

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

type inner struct {
	Wait  time.Duration `yaml:"wait"`
	Names []string      `yaml:"names"`
}

type shared struct {
	Level string `yaml:"level"`
}

// loose decodes itself, as the ordered maps of a config do.
type loose struct{ Inner inner }

func (l *loose) UnmarshalYAML(n *yaml.Node) error { return DecodeNode(n, "own", &l.Inner) }

type outer struct {
	Shared shared            `yaml:",inline"`
	Name   string            `yaml:"name"`
	Count  int               `yaml:"count"`
	On     bool              `yaml:"on"`
	Body   Size              `yaml:"body"`
	In     inner             `yaml:"in"`
	Ptr    *inner            `yaml:"ptr"`
	Map    map[string]inner  `yaml:"map"`
	List   []inner           `yaml:"list"`
	Own    loose             `yaml:"own"`
	Env    map[string]string `yaml:"env"`
	Hidden string            `yaml:"-"`
}

func TestDecodeYAML(t *testing.T) {
	tests := map[string]struct {
		doc  string
		want []string
	}{
		"all good": {doc: "name: x\nlevel: debug\nin: {wait: 3s, names: [a]}\nmap: {k: {wait: 1s}}\nown: {wait: 2s}\nenv: {A: b}\n"},
		"empty":    {doc: ""},
		"comments": {doc: "# nothing\n"},
		"unknown fields at every depth, in order": {
			doc: "own:\n  wiat: 1s\nlist:\n  - wait: 1s\n  - names: []\n    x: 1\nnope: 1\nptr: {y: 2}\nmap:\n  k: {z: 3}\n",
			want: []string{
				"line 2: field wiat not found in own",
				"line 6: field x not found in list[1]",
				"line 7: field nope not found",
				"line 8: field y not found in ptr",
				"line 10: field z not found in map.k",
			}},
		"a field that is not for files": {doc: "hidden: x\n", want: []string{"line 1: field hidden not found"}},
		"a duplicate hides nothing behind it": {
			doc: "name: a\nin: {wait: 1s, wait: 2s, nope: 1}\nname: b\ncount: x\nname: c\n",
			want: []string{
				"line 2: key wait already set at line 2",
				"line 2: field nope not found in in",
				"line 3: key name already set at line 1",
				"line 4: want a whole number in range, found a string",
				"line 5: key name already set at line 1",
			}},
		"duplicates in a map": {doc: "env: {A: b, A: c}\n", want: []string{"line 1: key A already set at line 1"}},
		"wrong types, without the value": {
			doc: "name: [s3cret]\ncount: s3cret\non: maybe\nin: s3cret\nlist: 3\nenv: s3cret\nown: s3cret\nbody: s3cret\n",
			want: []string{
				"line 1: want a string, found a list",
				"line 2: want a whole number in range, found a string",
				"line 3: want true or false, found a string",
				"line 4: want a mapping, found a string",
				"line 5: want a list, found a number",
				"line 6: want a mapping, found a string",
				"line 7: want a mapping, found a string",
				"line 8: want a size such as 4MiB, 512KiB or a number of bytes",
			}},
		"a duration needs a unit": {doc: "in: {wait: 30}\n", want: []string{"line 1: want a duration such as 30s, found a number"}},
		"two documents":           {doc: "name: a\n---\nname: b\n", want: []string{"line 2: a second document; one file holds one"}},
		"two documents and a fault": {doc: "nope: a\n---\nname: b\n",
			want: []string{"line 1: field nope not found", "line 2: a second document; one file holds one"}},
		"broken syntax": {doc: "name: [a\n", want: []string{"line 1: did not find expected ',' or ']'"}},
		"merge keys are looked into": {
			doc: "map:\n  a: &a {wait: 1s, bad: 1}\n  b: {<<: *a, names: [x]}\n", want: []string{"line 2: field bad not found in map.a"}},
		"an anchor that contains itself": {doc: "list: &a [*a]\n", want: []string{"line 1: want a mapping, found a list"}},
		"a list for the root":            {doc: "# a list\n- a\n", want: []string{"line 2: want fields and their values, found a list"}},
		"a word for the root":            {doc: "hello\n", want: []string{"line 1: want fields and their values, found a string"}},
		"a number for the root":          {doc: "7\n", want: []string{"line 1: want fields and their values, found a number"}},
		"nothing for the root":           {doc: "---\n"},
		"broken on the first line":       {doc: "\tname: x\n", want: []string{"line 1: found character that cannot start any token"}},
		"a string without an end":        {doc: "\"a", want: []string{"line 1: found unexpected end of stream"}},
		"an anchor that nobody set":      {doc: "name: x\nlevel: *base\n", want: []string{"line 2: unknown anchor 'base' referenced"}},
		"a control character":            {doc: "name: x\nlevel: \x01\n", want: []string{"line 2: control characters are not allowed"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			var into outer
			for _, p := range Problems(DecodeYAML([]byte(tt.doc), &into)) {
				got = append(got, p.Error())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeYAMLKeepsDefaults(t *testing.T) {
	got := outer{Name: "default", Count: 7, In: inner{Wait: time.Second}}
	if err := DecodeYAML([]byte("count: 8\nin: {names: [a]}\nbody: 4MiB\nmap: {b: {}}\n"), &got); err != nil {
		t.Fatal(err)
	}
	want := outer{Name: "default", Count: 8, In: inner{Wait: time.Second, Names: []string{"a"}}, Body: 4 << 20, Map: map[string]inner{"b": {}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseSize(t *testing.T) {
	good := map[string]Size{"0": 0, "17": 17, "512KiB": 512 << 10, "4 MiB": 4 << 20, "1GiB": 1 << 30}
	for in, want := range good {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1", "4MB", "4mib", "MiB", "1.5MiB", "9223372036854775808", "9007199254740992MiB", "0x10"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", in, got)
		}
	}
	for s, want := range map[Size]string{0: "0", 17: "17", 4 << 20: "4MiB", 1 << 30: "1GiB", 1536: "1536", 3 << 10: "3KiB"} {
		if got := s.String(); got != want {
			t.Errorf("%d prints as %s, want %s", int64(s), got, want)
		}
	}
}

func FuzzDecodeYAML(f *testing.F) {
	for _, seed := range []string{"name: x", "a: &a [*a]", "map: {<<: {a: 1}}", "? [a, b]\n: c", "list: [{wait: 1s}, 3]", "\x00", "---\n---\n", "a: !!binary x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		var strict, again outer
		err := DecodeYAML([]byte(doc), &strict)
		if err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Error("an error without a text")
		}
		if err2 := DecodeYAML([]byte(doc), &again); (err == nil) != (err2 == nil) {
			t.Errorf("%v, then %v", err, err2)
		}
		if err != nil {
			return
		}
		dec := yaml.NewDecoder(strings.NewReader(doc))
		dec.KnownFields(true)
		var plainly outer
		if err := dec.Decode(&plainly); err != nil && err.Error() != "EOF" {
			t.Errorf("yaml refuses what DecodeYAML took: %v", err)
		}
	})
}

func TestLocate(t *testing.T) {
	doc := "redis: x\nbackends:\n  a.b:\n    url: x\n    tags:\n      - one\n      - {k: v}\nlisten: x\n"
	err := errors.Join(
		errors.New("listen: bad"),
		errors.New("backends.a.b.tags[1].k: bad"),
		errors.Join(errors.New("backends.a.b.url: bad"), errors.New("backends.a.b.timeouts.idle: negative")),
		errors.New("line 5: said already"),
		errors.New("public_url: nowhere"),
	)
	want := "public_url: nowhere\nline 3: backends.a.b.timeouts.idle: negative\nline 4: backends.a.b.url: bad\n" +
		"line 5: said already\nline 7: backends.a.b.tags[1].k: bad\nline 8: listen: bad"
	if diff := cmp.Diff(want, Locate([]byte(doc), err).Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := Locate([]byte(doc), nil); err != nil {
		t.Errorf("no problem became %v", err)
	}
	if err := Locate([]byte("a: &a {b: *a}\n"), errors.New("a.b.b: bad")); err == nil || err.Error() != "line 1: a.b.b: bad" {
		t.Errorf("a document that contains itself: %v", err)
	}
}

func TestInFile(t *testing.T) {
	err := InFile("weir.yaml", errors.Join(errors.New("line 1: a"), errors.Join(errors.New("b"))))
	if diff := cmp.Diff("weir.yaml: line 1: a\nweir.yaml: b", err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := InFile("weir.yaml", nil); err != nil {
		t.Errorf("no problem: %v", err)
	}
}
