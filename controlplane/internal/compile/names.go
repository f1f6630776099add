package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"

	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// Bounds of a downstream name: many models' APIs take no longer one.
const (
	maxName  = 64 // characters
	keptName = 53 // bytes kept of a longer one; with "_" and ten hex digits that makes 64
	hashName = 5  // bytes of SHA-256, two hex digits each
)

// downstream names an upstream item: by its alias exactly as written, else by prefix and name. It depends on nothing else, so
// that no name changes because another backend joined.
func downstream(prefix string, f config.Filter, upstream string) (name string, aliased bool) {
	if alias, ok := f.Alias[upstream]; ok {
		return alias, true
	}
	return shorten(prefix + upstream), false
}

// shorten cuts a name of more than 64 characters to its first 53 bytes, "_" and the first ten hex digits of its SHA-256. A
// character that would be torn at the 53rd byte is left out whole.
func shorten(name string) string {
	if len(name) <= maxName || utf8.RuneCountInString(name) <= maxName {
		return name
	}
	cut := keptName
	for !utf8.RuneStart(name[cut]) {
		cut--
	}
	sum := sha256.Sum256([]byte(name))
	return name[:cut] + "_" + hex.EncodeToString(sum[:hashName])
}

// allowed applies allow and deny globs to an upstream name or URI: deny wins, an empty allow list allows all.
func allowed(allow, deny []routes.Glob, upstream string) bool {
	for _, g := range deny {
		if g.Match(upstream) {
			return false
		}
	}
	for _, g := range allow {
		if g.Match(upstream) {
			return true
		}
	}
	return len(allow) == 0
}

// matchesAny matches globs as a document carries them; what does not parse matches nothing (the config loader refused it).
func matchesAny(globs []string, s string) bool {
	for _, text := range globs {
		if g, err := routes.ParseGlob(text); err == nil && g.Match(s) {
			return true
		}
	}
	return false
}

func globStrings(globs []routes.Glob) []string {
	var out []string
	for _, g := range globs {
		out = append(out, g.String())
	}
	return out
}
