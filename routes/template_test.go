package routes

import (
	"strings"
	"testing"

	"github.com/yosida95/uritemplate/v3"
)

func TestTemplateMatches(t *testing.T) {
	for name, tt := range map[string]struct {
		template    string
		match, miss []string
	}{
		"a simple variable ends at a slash": {
			"x://{a}", []string{"x://", "x://a", "x://a,b", "x://%2Fetc", "x://a%20b"}, []string{"x://a/b", "x://a?b", "y://a", "X://a"},
		},
		"a reserved variable does not": {"file:///{+path}", []string{"file:///a/b?c#d", "file:///"}, []string{"file://a"}},
		"a path that is exploded": {
			"repo://{owner}/{repo}/contents{/path*}",
			[]string{"repo://o/r/contents/a/b", "repo://o/r/contents"}, []string{"repo://o/r/content", "repo://o/r/contents2"},
		},
		"the text after the last variable": {"x://{a}.txt", []string{"x://b.txt"}, []string{"x://b.md", "x://b.txt2"}},
		"a query by its names": {
			"x://q{?a,b}", []string{"x://q", "x://q?a=1", "x://q?b=2", "x://q?a=1&b=2", "x://q?a="}, []string{"x://q?c=1", "x://q?a=1&c=2", "x://q?a=1&b=2#f"},
		},
		"a query that goes on": {
			"x://q{?a,b}{&c}", []string{"x://q?a=1&c=3", "x://q&c=3"}, []string{"x://q?a=1&d=3"},
		},
		"a query after a literal one": {"x://q?fixed=1{&a}", []string{"x://q?fixed=1&a=2"}, []string{"x://q?fixed=1&b=2"}},
		"a query of any names":        {"x://q{?all*}", []string{"x://q?z=1&y=2"}, []string{"x://q/z"}},
		"parameters by their names":   {"x://p{;a,b}", []string{"x://p;a=1;b=2", "x://p;a"}, []string{"x://p;c=1"}},
		"a fragment":                  {"x://f{#a}", []string{"x://f#b/c", "x://f"}, []string{"x://fb"}},
		"a label":                     {"x://f{.a}", []string{"x://f.b"}, []string{"x://f/b"}},
		"what clients leave unencoded": {
			"x://{name}", []string{"x://it's(1)!*", "x://my file", "x://é", "x://100%"}, []string{"x://it's/1"},
		},
		"literal text in any encoding": {"x://é!/{a}", []string{"x://%c3%a9!/1", "x://é%21/1"}, []string{"x://e!/1"}},
		"no variable at all":           {"x://fixed", []string{"x://fixed"}, []string{"x://fixed2", "x://fixe"}},
		"one variable twice":           {"x://{a}/{a}", []string{"x://1/2"}, []string{"x://1"}},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl, err := parseTemplate(tt.template)
			if err != nil {
				t.Fatal(err)
			}
			for _, uri := range tt.match {
				if !tmpl.takes(uri) {
					t.Errorf("%q does not match %q", tt.template, uri)
				}
			}
			for _, uri := range tt.miss {
				if tmpl.takes(uri) {
					t.Errorf("%q matches %q", tt.template, uri)
				}
			}
		})
	}
}

// takes does what findUnlisted does with one template.
func (t *template) takes(uri string) bool {
	canon := canonical(uri)
	return strings.HasPrefix(canon, t.literal) && t.plausible(canon) && t.match(canon)
}

func TestCheckTemplate(t *testing.T) {
	for name, tt := range map[string]struct{ template, want string }{
		"eight variables":          {"x://{a}{b}{c}{d}{e}{f}{g}{h}", ""},
		"a scheme with a plus":     {"git+ssh://{a}", ""},
		"a scheme without slashes": {"urn:isbn:{n}", ""},
		"nine variables":           {"x://{a}{b}{c}{d}{e}{f}{g,h,i}", "9 variables are over 8"},
		"no scheme":                {"{+uri}", "does not begin with a literal scheme"},
		"a variable as scheme":     {"{scheme}://x", "does not begin with a literal scheme"},
		"half a scheme":            {"htt{p}://x", "does not begin with a literal scheme"},
		"a path":                   {"/etc:{name}", `"/etc" is no scheme`},
		"a scheme that is a digit": {"1x:{a}", `"1x" is no scheme`},
		"an empty scheme":          {":{a}", "does not begin with a literal scheme"},
		"an open brace":            {"x://{a", "not a URI template (RFC 6570): incomplete expression: x://{a_"},
		"an empty expression":      {"x://{}", "not a URI template (RFC 6570): unacceptable variable name: x://{|"},
		"an operator of the future": {
			"x://{=a}", "not a URI template (RFC 6570): unimplemented operator (op-reserved): x://{=|",
		},
		"a space":  {"x://a b{c}", "not a URI template (RFC 6570): unacceptable character (hint: use %XX encoding): x://a_"},
		"too long": {"x://" + strings.Repeat("a", 2048), "template of 2052 bytes is over 2048"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := CheckTemplate(tt.template); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("CheckTemplate(%q): %q, want %q", tt.template, got, tt.want)
			}
		})
	}
}

// FuzzTemplate holds that whatever a template expands to is matched by it, for values of every kind, and that no template
// makes matching panic.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		"x://{a}", "file:///{+a}", "x://{a}/{b,c}{?a,b}{&c}", "x:{/a*}{#b}", "x:{;a,b*}{.c:3}", "x://é!{?a*}", "x:{%61}", "x:a{a.b}",
	} {
		f.Add(s, "value", "it's (1)/2")
	}
	f.Fuzz(func(t *testing.T, source, v1, v2 string) {
		tmpl, err := parseTemplate(source)
		if err != nil {
			return
		}
		plain, err := uritemplate.New(source)
		if err != nil {
			t.Fatalf("%q was accepted: %v", source, err)
		}
		names := plain.Varnames()
		for shape := range 4 {
			values := uritemplate.Values{}
			for i, n := range names {
				switch (i + shape) % 4 {
				case 0:
					values.Set(n, uritemplate.String(v1))
				case 1:
					values.Set(n, uritemplate.List(v1, v2))
				case 2:
					values.Set(n, uritemplate.KV("k.1", v1, "z", v2)) // its keys are written as they are, so plain ones
				}
			}
			uri, err := plain.Expand(values)
			if err != nil {
				continue // a value that is not UTF-8
			}
			if !tmpl.takes(uri) {
				t.Errorf("%q expands to %q and does not match it", source, uri)
			}
		}
	})
}
