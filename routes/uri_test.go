package routes

import (
	"strings"
	"testing"
)

func TestCanonical(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"an ordinary URI stays":                 {"file:///a-b_c.d~/e?q=1&r=[2]#x@$+,;=", "file:///a-b_c.d~/e?q=1&r=[2]#x@$+,;="},
		"upper-case triplets stay":              {"x://a%2Fb", "x://a%2Fb"},
		"lower-case triplets are raised":        {"x://a%2fb%c3%A9", "x://a%2Fb%C3%A9"},
		"what encodeURIComponent leaves alone":  {"x://it's(1)!*", "x://it%27s%281%29%21%2A"},
		"letters of other alphabets, as UTF-8":  {"x://é", "x://%C3%A9"},
		"spaces, quotes, braces":                {"x:// \"{}|\\^`<>", "x://%20%22%7B%7D%7C%5C%5E%60%3C%3E"},
		"a percent sign that encodes nothing":   {"x://100%/%4/%zz%", "x://100%25/%254/%25zz%25"},
		"control characters and invalid UTF-8":  {"x://\x00\n\xff", "x://%00%0A%FF"},
		"encoded letters are left as they came": {"x://%61", "x://%61"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := canonical(tt.in); got != tt.want {
				t.Errorf("canonical(%q) = %q, want %q", tt.in, got, tt.want)
			}
			if again := canonical(tt.want); again != tt.want {
				t.Errorf("canonical(%q) = %q: not stable", tt.want, again)
			}
		})
	}
}

func TestFolded(t *testing.T) {
	for name, tt := range map[string]struct {
		in, want string
		climbs   bool
	}{
		"slashes collapse":                      {"file:////a//b", "file:/a/b", false},
		"triplets are decoded once":             {"file:///a%2Fb%252F", "file:/a/b%2F", false},
		"backslashes are slashes":               {`file:///a\b%5Cc`, "file:/a/b/c", false},
		"single dots are dropped":               {"file:///a/./b/%2e/c/.", "file:/a/b/c/", false},
		"a name with dots stays":                {"file:///.git/a..b/...", "file:/.git/a..b/...", false},
		"a range in a query stays":              {"git://diff?range=a..b", "git:/diff?range=a..b", false},
		"a parent segment":                      {"file:///a/../b", "file:/a/../b", true},
		"an encoded parent segment":             {"file:///a/%2E%2e%2fb", "file:/a/../b", true},
		"a parent segment between backslashes":  {`file:///a\..\b`, "file:/a/../b", true},
		"a parent segment at the end":           {"file:///a/..", "file:/a/..", true},
		"a parent segment before a parameter":   {"file:///a/..;x/b", "file:/a/..;x/b", true},
		"a parent segment before a query":       {"file:///a/..?x", "file:/a/..?x", true},
		"a parent segment after a query began":  {"file:///a?/../b", "file:/a?/../b", true},
		"encoded twice it is a name":            {"file:///a/%252e%252e/b", "file:/a/%2e%2e/b", false},
		"three dots at the end are a name":      {"file:///a...", "file:/a...", false},
		"a parent segment without a scheme":     {"../a", "../a", true},
		"an encoded NUL is decoded, to be seen": {"file:///a%00", "file:/a\x00", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := folded(tt.in)
			if got != tt.want {
				t.Errorf("folded(%q) = %q, want %q", tt.in, got, tt.want)
			}
			if c := climbs(got); c != tt.climbs {
				t.Errorf("climbs(%q) = %v, want %v", got, c, tt.climbs)
			}
		})
	}
}

func TestURIGlobHoldsForBothReadings(t *testing.T) {
	for name, tt := range map[string]struct {
		glob, uri    string
		either, both bool
	}{
		"as written":                          {"file:///a/*", "file:///a/b", true, true},
		"an encoded slash":                    {"file:///a/*", "file:///a%2Fb", true, false},
		"a doubled slash":                     {"file:///a/*", "file:////a/b", true, false},
		"a dot segment":                       {"file:///a/*", "file:///./a/b", true, false},
		"an encoded letter":                   {"file:///secret", "file:///%73ecret", true, false},
		"an encoded glob":                     {"file:///my%20docs/*", "file:///my%20docs/a", true, true},
		"an encoded glob, a plain URI":        {"file:///my%20docs/*", "file:///my docs/a", true, false},
		"an encoded star in a glob is a star": {"x://%2A", "x://a", false, false},
		"an encoded star meets a star":        {"x://%2A", "x://*", true, false},
		"a wildcard meets an encoded one":     {"x://?", "x://%3F", true, false},
		"the longest triplet is no wildcard":  {"x://%FF", "x://a", false, false},
		"a dot segment at the end of a glob":  {"file:///a/.", "file:///a/", true, false},
		"somewhere else":                      {"file:///a/*", "file:///b/a/", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := parseURIGlob(tt.glob)
			if err != nil {
				t.Fatal(err)
			}
			f := folded(tt.uri)
			if got := g.either(tt.uri, f); got != tt.either {
				t.Errorf("either reading of %q matches %q: %v, want %v", tt.uri, tt.glob, got, tt.either)
			}
			if got := g.both(tt.uri, f); got != tt.both {
				t.Errorf("both readings of %q match %q: %v, want %v", tt.uri, tt.glob, got, tt.both)
			}
		})
	}
}

// FuzzFolded checks what the policy relies on: the folded form has no trace of what it folds, and folding it again, where
// nothing is left to decode, changes nothing.
func FuzzFolded(f *testing.F) {
	f.Add("file:///a/%2e%2e/b")
	f.Add(`x:\\a\.\b/./.`)
	f.Add("%2f%2F/./%2e/")
	f.Fuzz(func(t *testing.T, uri string) {
		got := folded(uri)
		if strings.Contains(got, "//") || strings.Contains(got, `\`) || strings.Contains(got, "/./") || strings.HasSuffix(got, "/.") {
			t.Errorf("folded(%q) = %q", uri, got)
		}
		if !strings.Contains(got, "%") && folded(got) != got {
			t.Errorf("folded(%q) = %q, and again %q", uri, got, folded(got))
		}
		if !strings.Contains(uri, "..") && !strings.Contains(strings.ToLower(uri), "%2e") && climbs(got) {
			t.Errorf("climbs(%q), from %q", got, uri)
		}
		if c := canonical(uri); canonical(c) != c {
			t.Errorf("canonical(%q) = %q, and again %q", uri, c, canonical(c))
		}
	})
}
