package routes_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weir-mcp/weir/routes"
)

func TestValidID(t *testing.T) {
	for name, tt := range map[string]struct {
		id   string
		want bool
	}{
		"one letter":                       {"a", true},
		"digits only":                      {"0", true},
		"all characters":                   {"a.b_c-d9", true},
		"63 characters":                    {strings.Repeat("a", 63), true},
		"64 characters are one too many":   {strings.Repeat("a", 64), false},
		"empty":                            {"", false},
		"upper case":                       {"Acme", false},
		"a dash first":                     {"-a", false},
		"a dot last":                       {"a.", false},
		"a slash":                          {"a/b", false},
		"a space":                          {"a b", false},
		"a line break at the end":          {"a\n", false},
		"a letter of another alphabet":     {"caf\u00e9", false},
		"a percent-encoded letter":         {"%61", false},
		"a NUL":                            {"a\x00b", false},
		"the parent directory is no id":    {"..", false},
		"dots inside are fine: it is flat": {"a..b", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := routes.ValidID(tt.id); got != tt.want {
				t.Errorf("ValidID(%q) = %v, want %v", tt.id, got, tt.want)
			}
		})
	}
}

func FuzzValidID(f *testing.F) {
	grammar := regexp.MustCompile(`\A[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?\z`)
	f.Add("a")
	f.Add("a.b-c_d")
	f.Add(strings.Repeat("x", 64))
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := routes.ValidID(s), grammar.MatchString(s); got != want {
			t.Errorf("ValidID(%q) = %v, the grammar says %v", s, got, want)
		}
	})
}
