package routes

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxGlob bounds a glob, in bytes.
const MaxGlob = 256

// In a compiled glob the wildcards are bytes that UTF-8 never contains, so that a literal can be any character.
const (
	anyRun = 0xff // '*'
	anyOne = 0xfe // '?'
)

// Glob is a compiled glob: '*' stands for any run of characters, '/' and the empty run included, '?' for exactly one
// character (one code point; of text that is not UTF-8, one byte), everything else for itself; case matters. The zero
// Glob matches the empty name only. A Glob is immutable and comparable.
type Glob struct {
	source  string
	pattern string // source with anyRun and anyOne in place of its wildcards
}

// ParseGlob compiles s. An empty s, one over MaxGlob bytes and one that is not UTF-8 are errors.
func ParseGlob(s string) (Glob, error) {
	if err := checkGlob(s); err != nil {
		return Glob{}, err
	}
	return Glob{source: s, pattern: compileWildcards(s)}, nil
}

func checkGlob(s string) error {
	switch {
	case s == "":
		return errors.New("empty glob")
	case len(s) > MaxGlob:
		return fmt.Errorf("glob of %d bytes is over %d", len(s), MaxGlob)
	case !utf8.ValidString(s):
		return fmt.Errorf("glob %q is not UTF-8", s)
	}
	return nil
}

func compileWildcards(s string) string {
	b := []byte(s)
	for i, c := range b {
		switch c {
		case '*':
			b[i] = anyRun
		case '?':
			b[i] = anyOne
		}
	}
	return string(b)
}

// String returns the glob as written.
func (g Glob) String() string { return g.source }

// Match reports whether name as a whole matches the glob. It allocates nothing and never backtracks over a '*': the time is
// linear in len(name), times at most the 256 bytes of the glob where a '?' stands between two '*'.
func (g Glob) Match(name string) bool { return matchPattern(g.pattern, name) }

// matchPattern goes from '*' to '*': the text before the first must begin the name, each text between two is taken where it
// first occurs (taking it later never helps, since the '*' behind it takes any rest), and the text after the last must end
// the name.
func matchPattern(pattern, name string) bool {
	star := strings.IndexByte(pattern, anyRun)
	if star < 0 {
		n, ok := matchHead(pattern, name)
		return ok && n == len(name)
	}
	n, ok := matchHead(pattern[:star], name)
	if !ok {
		return false
	}
	name, pattern = name[n:], pattern[star+1:]
	for {
		if star = strings.IndexByte(pattern, anyRun); star < 0 {
			return matchTail(pattern, name)
		}
		if name, ok = cutFirst(pattern[:star], name); !ok {
			return false
		}
		pattern = pattern[star+1:]
	}
}

// matchHead matches a star-free pattern at the start of s and returns how much of s it took.
func matchHead(pattern, s string) (n int, ok bool) {
	for i := range len(pattern) {
		switch {
		case n == len(s):
			return 0, false
		case pattern[i] == anyOne:
			_, size := utf8.DecodeRuneInString(s[n:])
			n += size
		case pattern[i] == s[n]:
			n++
		default:
			return 0, false
		}
	}
	return n, true
}

// matchTail matches a star-free pattern at the end of s.
func matchTail(pattern, s string) bool {
	for i := len(pattern) - 1; i >= 0; i-- {
		switch {
		case s == "":
			return false
		case pattern[i] == anyOne:
			_, size := utf8.DecodeLastRuneInString(s)
			s = s[:len(s)-size]
		case pattern[i] == s[len(s)-1]:
			s = s[:len(s)-1]
		default:
			return false
		}
	}
	return true
}

// cutFirst finds the first place in s where a star-free pattern matches and returns what follows it.
func cutFirst(pattern, s string) (rest string, ok bool) {
	if strings.IndexByte(pattern, anyOne) < 0 {
		_, rest, ok = strings.Cut(s, pattern)
		return rest, ok
	}
	for {
		if n, ok := matchHead(pattern, s); ok {
			return s[n:], true
		}
		if s == "" {
			return "", false
		}
		_, size := utf8.DecodeRuneInString(s)
		s = s[size:]
	}
}
