package routes_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weir-mcp/weir/routes"
)

// unlisted adds templates and prefixes, "BACKEND PATTERN" each, to a document; what has no variable is a prefix.
func unlisted(vh *routes.VirtualHost, patterns ...string) *routes.VirtualHost {
	vh.ResourceTemplates, vh.ResourcePrefixes = map[string]routes.ServiceRoute{}, map[string]routes.ServiceRoute{}
	for _, p := range patterns {
		id, pattern, _ := strings.Cut(p, " ")
		m := vh.ResourcePrefixes
		if strings.Contains(pattern, "{") {
			m = vh.ResourceTemplates
		}
		m[pattern] = routes.ServiceRoute{Backend: routes.BackendID(id), Upstream: pattern}
	}
	return vh
}

func TestLookupUnlisted(t *testing.T) {
	globs := func(id routes.BackendID, allow, deny []string) func(*routes.VirtualHost) {
		return func(vh *routes.VirtualHost) {
			b := vh.Backends[id]
			b.ResourceAllow, b.ResourceDeny = allow, deny
			vh.Backends[id] = b
		}
	}
	const climbing = `no such resource, and a URI with a segment ".." or a NUL matches no template or prefix`
	const nothing = "no such resource, and no template or prefix matches"
	for name, tt := range map[string]struct {
		patterns []string
		change   func(*routes.VirtualHost)
		uri      string
		want     string // "BACKEND STEP RULE", or the reason why not
		tried    []routes.Attempt
	}{
		"a listed resource goes first": {
			patterns: []string{"a x://{n}"},
			change: func(vh *routes.VirtualHost) {
				vh.Resources = map[string]routes.ServiceRoute{"x://1": {Backend: "b", Upstream: "x://1"}}
			},
			uri: "x://1", want: "b exact x://1",
		},
		"the longest literal prefix wins": {
			patterns: []string{"a x://{+n}", "b x://docs/{n}", "a x://docs/{+n}"},
			uri:      "x://docs/1", want: "a template x://docs/{+n}",
			tried: []routes.Attempt{{"x://docs/{+n}", "a", "matches"}},
		},
		"one that does not match leaves it to a shorter one": {
			patterns: []string{"a x://{+n}", "b x://docs/{n}.md"},
			uri:      "x://docs/1.txt", want: "a template x://{+n}",
			tried: []routes.Attempt{{"x://docs/{n}.md", "b", "does not match"}, {"x://{+n}", "a", "matches"}},
		},
		"a prefix that is longer than a template wins": {patterns: []string{"a x://{+n}", "b x://d/"}, uri: "x://d/1", want: "b prefix x://d/"},
		"a template that is longer than a prefix wins": {patterns: []string{"a x://", "b x://d/{n}"}, uri: "x://d/1", want: "b template x://d/{n}"},
		"a tie goes by the order of the backends":      {patterns: []string{"b x://d/{n}", "a x://d/"}, uri: "x://d/1", want: "a prefix x://d/"},
		"a tie between templates too":                  {patterns: []string{"b x://d/{a}", "a x://d/{z}"}, uri: "x://d/1", want: "a template x://d/{z}"},
		"a backend that the order leaves out comes last": {
			patterns: []string{"a x://d/{a}", "b x://d/{z}"}, change: func(vh *routes.VirtualHost) { vh.Order = []routes.BackendID{"b"} },
			uri: "x://d/1", want: "b template x://d/{z}",
		},
		"a neighbour in the alphabet is no prefix": {
			patterns: []string{"a x://d/", "b x://d/e/f/", "b x://d/e!"}, uri: "x://d/e/g", want: "a prefix x://d/",
		},
		"two names of one query tell templates apart": {
			patterns: []string{"a x://q{?a}", "b x://q{?b}"}, uri: "x://q?b=1", want: "b template x://q{?b}",
			tried: []routes.Attempt{{"x://q{?a}", "a", "does not match"}, {"x://q{?b}", "b", "matches"}},
		},
		"what no pattern takes": {patterns: []string{"a x://{n}"}, uri: "y://1", want: nothing},
		"a denied URI": {
			patterns: []string{"a file:///{+p}"}, change: globs("a", nil, []string{"file:///secret/*"}),
			uri: "file:///secret/1", want: nothing,
			tried: []routes.Attempt{{"file:///{+p}", "a", "denied by file:///secret/*"}},
		},
		"deny wins over allow": {
			patterns: []string{"a file:///"}, change: globs("a", []string{"*"}, []string{"*secret*"}),
			uri: "file:///secret/1", want: nothing,
			tried: []routes.Attempt{{"file:///", "a", "denied by *secret*"}},
		},
		"a URI that nothing allows": {
			patterns: []string{"a file:///"}, change: globs("a", []string{"file:///public/*"}, nil),
			uri: "file:///secret/1", want: nothing,
			tried: []routes.Attempt{{"file:///", "a", "allowed by no glob"}},
		},
		"an allowed URI": {
			patterns: []string{"a file:///"}, change: globs("a", []string{"nothing", "file:///public/*"}, nil),
			uri: "file:///public/a%20b", want: "a prefix file:///",
		},
		"another backend may serve what one has denied: globs say what a backend contributes": {
			patterns: []string{"a file:///{+p}", "b file:///{+path}"}, change: globs("a", nil, []string{"file:///b/*"}),
			uri: "file:///b/1", want: "b template file:///{+path}",
			tried: []routes.Attempt{{"file:///{+p}", "a", "denied by file:///b/*"}, {"file:///{+path}", "b", "matches"}},
		},
		"two backends share a template by what they allow": {
			patterns: []string{"a file:///{+p}", "b file:///{+path}"}, change: globs("a", []string{"file:///a/*"}, nil),
			uri: "file:///b/1", want: "b template file:///{+path}",
			tried: []routes.Attempt{{"file:///{+p}", "a", "allowed by no glob"}, {"file:///{+path}", "b", "matches"}},
		},
		"globs don't touch what is listed: the compiler held them": {
			patterns: nil,
			change: func(vh *routes.VirtualHost) {
				globs("a", nil, []string{"*"})(vh)
				vh.Resources = map[string]routes.ServiceRoute{"x://1": {Backend: "a", Upstream: "x://1"}}
			},
			uri: "x://1", want: "a exact x://1",
		},
		"an encoded slash is no way round a deny": {
			patterns: []string{"a file:///{p}"}, change: globs("a", nil, []string{"file:///secret/*"}),
			uri: "file:///secret%2F1", want: nothing, tried: []routes.Attempt{{"file:///{p}", "a", "denied by file:///secret/*"}},
		},
		"a doubled slash is no way round a deny": {
			patterns: []string{"a file:///{+p}"}, change: globs("a", nil, []string{"file:///secret/*"}),
			uri: "file:////secret/1", want: nothing, tried: []routes.Attempt{{"file:///{+p}", "a", "denied by file:///secret/*"}},
		},
		"an encoded slash is no way into an allow": {
			patterns: []string{"a file:///{p}"}, change: globs("a", []string{"file:///public/*"}, nil),
			uri: "file:///public%2F1", want: nothing, tried: []routes.Attempt{{"file:///{p}", "a", "allowed by no glob"}},
		},
		"an encoded slash without globs is a value": {patterns: []string{"a x://{n}"}, uri: "x://a%2Fb", want: "a template x://{n}"},
		"a parent segment leads out of a prefix":    {patterns: []string{"a file:///data/"}, uri: "file:///data/../etc/passwd", want: climbing},
		"an encoded parent segment too":             {patterns: []string{"a file:///data/"}, uri: "file:///data/%2e%2E%2fetc", want: climbing},
		"a parent segment between backslashes too":  {patterns: []string{"a file:///data/"}, uri: `file:///data/..\etc`, want: climbing},
		"a template takes no parent segment either": {patterns: []string{"a file:///{+p}"}, uri: "file:///a/..", want: climbing},
		"a NUL":                                 {patterns: []string{"a x://{n}"}, uri: "x://a%00.txt", want: climbing},
		"a file name that begins with dots":     {patterns: []string{"a file:///data/"}, uri: "file:///data/..a/.b", want: "a prefix file:///data/"},
		"a URI of 2,048 bytes":                  {patterns: []string{"a x://{n}"}, uri: "x://" + strings.Repeat("a", 2044), want: "a template x://{n}"},
		"a URI of 2,049 bytes":                  {patterns: []string{"a x://{n}", "a x://"}, uri: "x://" + strings.Repeat("a", 2045), want: "no such resource, and a URI of over 2048 bytes matches no template or prefix"},
		"a prefix in another encoding":          {patterns: []string{"a x://my docs/"}, uri: "x://my%20docs/1", want: "a prefix x://my docs/"},
		"a host without templates and prefixes": {uri: "x://../1", want: nothing},
		"the prefix itself":                     {patterns: []string{"a x://d/"}, uri: "x://d/", want: "a prefix x://d/"},
		"the empty URI":                         {patterns: []string{"a x://d/"}, uri: "", want: nothing},
	} {
		t.Run(name, func(t *testing.T) {
			vh := unlisted(host(), tt.patterns...)
			if tt.change != nil {
				tt.change(vh)
			}
			ix := index(t, vh)
			e := ix.Explain(routes.KindResource, tt.uri)
			got := e.Reason
			if got == "" {
				got = fmt.Sprintf("%s %s %s", e.Target.ID, e.Step, e.Rule)
				if e.Target.Upstream != tt.uri {
					t.Errorf("upstream %q: URIs are never rewritten", e.Target.Upstream)
				}
			}
			if got != tt.want {
				t.Errorf("Explain(%q) = %q, want %q", tt.uri, got, tt.want)
			}
			if tt.tried != nil {
				if diff := cmp.Diff(tt.tried, e.Tried); diff != "" {
					t.Errorf("tried (-want +got):\n%s", diff)
				}
			}
			if target, ok := ix.Lookup(routes.KindResource, tt.uri); target != e.Target || ok != (e.Reason == "") {
				t.Errorf("Lookup(%q) = %v, %v; Explain says %+v", tt.uri, target, ok, e)
			}
		})
	}
}

// TestLookupIsBounded has 1,000 templates with one literal prefix, as bad to match as they can be: a short URI is held
// against all of them, a long one is given up before it costs seconds.
func TestLookupIsBounded(t *testing.T) {
	var patterns []string
	for i := range routes.MaxTemplates - 1 {
		patterns = append(patterns, fmt.Sprintf("a x://{+v%d}{+b}{+c}!", i))
	}
	ix := index(t, unlisted(host(), append(patterns, "b x://{+last}")...))
	if got, ok := ix.Lookup(routes.KindResource, "x://short!/"); !ok || got.ID != "b" {
		t.Errorf("a short URI went to %v, %v; want the last template", got, ok)
	}
	e := ix.Explain(routes.KindResource, "x://!"+strings.Repeat("a", 2000))
	if !strings.HasPrefix(e.Reason, "gave up") || len(e.Tried) > 100 {
		t.Errorf("a long URI: %q after %d templates", e.Reason, len(e.Tried))
	}
}

// TestLookupAgainstTheRule holds the search by sorted prefixes against the rule as written: of all patterns that match, the
// one with the longest literal, then the first backend, then the first text.
func TestLookupAgainstTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vh := host()
		letters := rapid.StringOfN(rapid.RuneFrom([]rune("ab/")), 0, 4, -1)
		ids := rapid.SampledFrom([]string{"a", "b"})
		patterns := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return ids.Draw(t, "backend") + " x:" + letters.Draw(t, "literal") + rapid.SampledFrom([]string{"", "{v}", "{+v}", "{v}a"}).Draw(t, "variable")
		}), 0, 12).Draw(t, "patterns")
		unlisted(vh, patterns...)
		ix, err := routes.NewIndex(vh)
		if err != nil {
			t.Fatal(err)
		}
		uri := "x:" + letters.Draw(t, "uri") + letters.Draw(t, "more")

		var matching []string
		for source := range vh.ResourcePrefixes {
			if strings.HasPrefix(uri, source) {
				matching = append(matching, source)
			}
		}
		for source := range vh.ResourceTemplates {
			if one := mustIndex(unlisted(host(), "a "+source)); found(one, uri) {
				matching = append(matching, source)
			}
		}
		backend := func(source string) string {
			return string(vh.ResourcePrefixes[source].Backend + vh.ResourceTemplates[source].Backend)
		}
		slices.SortFunc(matching, func(p, q string) int {
			literalP, _, _ := strings.Cut(p, "{")
			literalQ, _, _ := strings.Cut(q, "{")
			if d := len(literalQ) - len(literalP); d != 0 {
				return d
			}
			if d := strings.Compare(backend(p), backend(q)); d != 0 {
				return d
			}
			return strings.Compare(p, q)
		})
		e := ix.Explain(routes.KindResource, uri)
		switch {
		case len(matching) == 0 && e.Reason == "":
			t.Fatalf("%q: found %q, want nothing", uri, e.Rule)
		case len(matching) > 0 && (e.Rule != matching[0] || string(e.Target.ID) != backend(matching[0])):
			t.Fatalf("%q: found %q (%s), want %q", uri, e.Rule, e.Reason, matching[0])
		}
	})
}

func found(ix *routes.Index, uri string) bool {
	_, ok := ix.Lookup(routes.KindResource, uri)
	return ok
}

// FuzzLookupURI checks that no URI gets past the policy: what is found under a prefix stays under it however it is read.
func FuzzLookupURI(f *testing.F) {
	vh := unlisted(host(), "a file:///data/", "b file:///{+path}", "a x://{a}/{b}{?q}")
	b := vh.Backends["b"]
	b.ResourceAllow, b.ResourceDeny = []string{"file:///pub/*"}, []string{"*/secret*"}
	vh.Backends["b"] = b
	ix := index(f, vh)
	f.Add("file:///data/%2e%2e/x")
	f.Add("file:///pub/secret%2Fx")
	f.Add("file:///pub//./a")
	f.Add("x://1/2?q=3")
	f.Fuzz(func(t *testing.T, uri string) {
		got, ok := ix.Lookup(routes.KindResource, uri)
		if !ok {
			return
		}
		plain := strings.NewReplacer("%2f", "/", "%2F", "/", "%2e", ".", "%2E", ".", "%5c", "/", "%5C", "/", `\`, "/").Replace(uri)
		if slices.Contains(strings.Split(plain, "/"), "..") {
			t.Errorf("%q went to %q", uri, got.ID)
		}
		if got.ID == "b" && (!strings.HasPrefix(uri, "file:///pub/") || strings.Contains(plain, "/secret")) {
			t.Errorf("%q went to b, whose globs keep it out", uri)
		}
		if got.Upstream != uri {
			t.Errorf("%q was rewritten to %q", uri, got.Upstream)
		}
	})
}

func BenchmarkLookupTemplate(b *testing.B) {
	github := []string{
		"a repo://{owner}/{repo}/contents{/path*}", "a repo://{owner}/{repo}/refs/heads/{branch}/contents{/path*}",
		"a repo://{owner}/{repo}/refs/tags/{tag}/contents{/path*}", "a repo://{owner}/{repo}/refs/pull/{pr}/head/contents{/path*}",
		"a repo://{owner}/{repo}/sha/{sha}/contents{/path*}",
	}
	var same, apart []string
	for i := range routes.MaxTemplates {
		same = append(same, fmt.Sprintf("a x://{+a}{+b}{+c}{+d}{+e}{+f}{+g}{+h%d}$", i))
		apart = append(apart, fmt.Sprintf("a x://%d/{a}", i))
	}
	for name, tt := range map[string]struct {
		patterns []string
		uri      string
	}{
		"five of a real server":      {github, "repo://octocat/hello-world/refs/heads/main/contents/src/main.go"},
		"1,000, each its own prefix": {apart, "x://777/a"},
		"1,000 hostile ones, 2 KiB":  {same, "x://$" + strings.Repeat("a", 2040)},
		"1,000 hostile ones, 40 B":   {same, "x://$" + strings.Repeat("a", 35)},
	} {
		ix := index(b, unlisted(host(), tt.patterns...))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ix.Lookup(routes.KindResource, tt.uri)
			}
		})
	}
}

func mustIndex(vh *routes.VirtualHost) *routes.Index {
	ix, err := routes.NewIndex(vh)
	if err != nil {
		panic(err)
	}
	return ix
}
