package routes_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weir-mcp/weir/routes"
)

func TestGlob(t *testing.T) {
	for name, tt := range map[string]struct {
		glob  string
		match []string
		miss  []string
	}{
		"a star takes anything, slashes too": {"*", []string{"", "a", "a/b", "é\n"}, nil},
		"a star takes nothing":               {"a*b", []string{"ab", "axb", "a/b"}, []string{"a", "b", "abx", "xab"}},
		"a question mark takes exactly one":  {"a?c", []string{"abc", "a/c", "a?c"}, []string{"ac", "abbc"}},
		"one character is not one byte":      {"?", []string{"é", "€", "😀", "\xff"}, []string{"", "éé", "\xff\xff"}},
		"question marks at the end":          {"*??", []string{"ab", "xé€", "aab"}, []string{"a", "é"}},
		"question marks in the middle":       {"*a?b*", []string{"axb", "aaxbb", "aéb", "zaa?bz"}, []string{"ab", "axxb"}},
		"nothing else is special":            {`[a-z]{x}\.+^$`, []string{`[a-z]{x}\.+^$`}, []string{"a", `[a-z]{x}\a+^$`}},
		"case matters":                       {"Get_*", []string{"Get_x"}, []string{"get_x"}},
		"stars next to each other are one":   {"a**b", []string{"ab", "a*b"}, []string{"a"}},
		"the first place is enough":          {"*ab*ab", []string{"abab", "xabyab"}, []string{"ab", "aba"}},
		"the end is not taken twice":         {"a*a", []string{"aa", "aba"}, []string{"a"}},
		"the whole name":                     {"delete_*", []string{"delete_", "delete_repo"}, []string{"xdelete_repo", "delete"}},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := routes.ParseGlob(tt.glob)
			if err != nil {
				t.Fatal(err)
			}
			if g.String() != tt.glob {
				t.Errorf("String() = %q, want %q", g, tt.glob)
			}
			for _, s := range tt.match {
				if !g.Match(s) {
					t.Errorf("%q does not match %q", tt.glob, s)
				}
			}
			for _, s := range tt.miss {
				if g.Match(s) {
					t.Errorf("%q matches %q", tt.glob, s)
				}
			}
		})
	}
}

func TestParseGlobRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"an empty glob":      "",
		"more than 256 byte": strings.Repeat("a", 257),
		"what is not UTF-8":  "a\xff",
	} {
		t.Run(name, func(t *testing.T) {
			if g, err := routes.ParseGlob(s); err == nil {
				t.Errorf("ParseGlob(%q) = %v, want an error", s, g)
			}
		})
	}
	if _, err := routes.ParseGlob(strings.Repeat("é", 128)); err != nil {
		t.Errorf("256 bytes: %v", err)
	}
}

func TestZeroGlobMatchesTheEmptyNameOnly(t *testing.T) {
	var g routes.Glob
	if !g.Match("") || g.Match("a") {
		t.Error("the zero Glob matches something else than the empty name")
	}
}

func TestGlobAllocatesNothing(t *testing.T) {
	g, err := routes.ParseGlob("*a?b*c*")
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("ab", 100) + "axbc"
	if n := testing.AllocsPerRun(100, func() { g.Match(name) }); n != 0 {
		t.Errorf("Match: %v allocs, want 0", n)
	}
}

// FuzzGlob holds Match against Go's regular expressions.
func FuzzGlob(f *testing.F) {
	f.Add("*", "anything")
	f.Add("a*b?c", "axxbéc")
	f.Add("*a?*b*?", "aabbé\xff")
	f.Add("??", "\xc3\xa9\xe2\x82")
	f.Add("*?a?b", "\xf0\x90\x80a\x80b")
	f.Fuzz(func(t *testing.T, glob, name string) {
		g, err := routes.ParseGlob(glob)
		if err != nil {
			if glob != "" && len(glob) <= routes.MaxGlob && utf8.ValidString(glob) {
				t.Errorf("ParseGlob(%q): %v", glob, err)
			}
			return
		}
		if strings.ContainsRune(glob, utf8.RuneError) {
			return // regexp takes it for any byte that is not UTF-8
		}
		expr := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(glob))
		if got, want := g.Match(name), regexp.MustCompile(`(?s)\A`+expr+`\z`).MatchString(name); got != want {
			t.Errorf("%q on %q: %v, regexp says %v", glob, name, got, want)
		}
	})
}

// BenchmarkGlobHostile is the worst that a caller can send: the time must grow with the name alone.
func BenchmarkGlobHostile(b *testing.B) {
	for name, glob := range map[string]string{
		"literals":       "*" + strings.Repeat("a", 100) + "b*" + strings.Repeat("a", 100) + "c*",
		"question marks": "*" + strings.Repeat("a", 100) + "?" + strings.Repeat("a", 100) + "b*",
		"stars":          strings.Repeat("*a", 127) + "b",
	} {
		g, err := routes.ParseGlob(glob)
		if err != nil {
			b.Fatal(err)
		}
		long := strings.Repeat("a", 64<<10)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(long)))
			for b.Loop() {
				if g.Match(long) {
					b.Fatal("matched")
				}
			}
		})
	}
}
