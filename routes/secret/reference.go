package secret

import (
	"fmt"
	"path/filepath"
	"strings"
)

const (
	schemeEnv  = "env"
	schemeFile = "file"
)

// reference is one ${scheme:name}.
type reference struct{ scheme, name string }

func (r reference) String() string { return "${" + r.scheme + ":" + r.name + "}" }

// walk splits s into literal texts and references, in order, and stops at the first error.
func walk(s string, literal func(string), ref func(reference) error) error {
	for {
		text, after, more := strings.Cut(s, "${")
		literal(text)
		if !more {
			return nil
		}
		body, rest, closed := strings.Cut(after, "}")
		if !closed {
			// What follows is not shown: it may be anything, a secret typed in by mistake included.
			return fmt.Errorf("%w: a \"${\" without \"}\"", ErrMalformed)
		}
		r, err := parseReference(body)
		if err != nil {
			return err
		}
		if err := ref(r); err != nil {
			return err
		}
		s = rest
	}
}

func parseReference(body string) (reference, error) {
	scheme, name, ok := strings.Cut(body, ":")
	r := reference{scheme, name}
	switch {
	case !ok || scheme != schemeEnv && scheme != schemeFile:
		return r, fmt.Errorf("%w ${%s}: want ${env:NAME} or ${file:/path}", ErrMalformed, shorten(body))
	case scheme == schemeEnv && !variableName(name):
		return r, fmt.Errorf("%w ${%s}: not the name of a variable", ErrMalformed, shorten(body))
	case scheme == schemeFile && (!filepath.IsAbs(name) || filepath.Clean(name) != name || strings.ContainsRune(name, 0)):
		return r, fmt.Errorf("%w ${%s}: want an absolute path without \".\" and \"..\"", ErrMalformed, shorten(body))
	}
	return r, nil
}

func variableName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '_' || i > 0 && '0' <= c && c <= '9') {
			return false
		}
	}
	return s != ""
}

func shorten(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
