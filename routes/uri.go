package routes

import "strings"

// MaxUnlistedURI is the longest URI that templates and prefixes match, in bytes.
const MaxUnlistedURI = 2048

// canonical percent-encodes every byte of a URI that is neither unreserved nor one of :/?#[]@$&+,;= , a '%' without two hex
// digits included, and writes the digits of every triplet in upper case. Templates, prefixes and URIs are compared in this
// form: clients disagree about what to encode (encodeURIComponent leaves !'()* alone, RFC 6570 encodes them), and a route
// should not depend on it. What is forwarded is the URI as asked.
func canonical(s string) string {
	i := 0
	for i < len(s) && canonicalByte(s, i) {
		i++
	}
	if i == len(s) {
		return s
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(s) + 16)
	b.WriteString(s[:i])
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case uriByte(c):
			b.WriteByte(c)
		case triplet(s, i):
			hi, lo := unhex(s[i+1]), unhex(s[i+2])
			b.Write([]byte{'%', digits[hi], digits[lo]})
			i += 2
		default:
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

// canonicalByte reports whether s[i] may stay as it is.
func canonicalByte(s string, i int) bool {
	return uriByte(s[i]) || triplet(s, i) && !('a' <= s[i+1] && s[i+1] <= 'f') && !('a' <= s[i+2] && s[i+2] <= 'f')
}

func uriByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("-._~:/?#[]@$&+,;=", c) >= 0
}

// triplet reports whether a percent-encoded byte stands at s[i].
func triplet(s string, i int) bool {
	return s[i] == '%' && i+2 < len(s) && hexDigit(s[i+1]) && hexDigit(s[i+2])
}

func hexDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	}
	return c - '0'
}

// folded is the widest reading that a backend may give a URI: every triplet decoded once, '\' for '/', runs of '/'
// collapsed into one, and segments "." dropped. Globs are held against a URI as written and against this, so that
// file:///a%2Fsecret, file:////a/secret and file:///a/./secret are no way round a deny of file:///a/secret*.
func folded(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if triplet(s, i) {
			c = unhex(s[i+1])<<4 | unhex(s[i+2])
			i += 2
		}
		b = appendFolded(b, c)
	}
	return string(dropDot(b))
}

// appendFolded appends one decoded byte, keeping out what folded drops.
func appendFolded(b []byte, c byte) []byte {
	if c != '/' && c != '\\' {
		return append(b, c)
	}
	if b = dropDot(b); len(b) > 0 && b[len(b)-1] == '/' {
		return b
	}
	return append(b, '/')
}

// dropDot removes a last segment that is ".".
func dropDot(b []byte) []byte {
	if n := len(b); n >= 2 && b[n-1] == '.' && b[n-2] == '/' {
		return b[:n-1]
	}
	return b
}

// climbs reports whether a folded URI has a segment "..": whoever resolves it ends elsewhere than the text says. A segment
// also ends at '?', '#' and ';' since some servers cut there before they resolve.
func climbs(folded string) bool {
	for i := 0; i+2 <= len(folded); i++ {
		if folded[i:i+2] == ".." &&
			(i == 0 || segmentEnd(folded[i-1])) && (i+2 == len(folded) || segmentEnd(folded[i+2])) {
			return true
		}
	}
	return false
}

func segmentEnd(c byte) bool { return c == '/' || c == '?' || c == '#' || c == ';' }

// uriGlob is a glob on URIs in both readings; see folded.
type uriGlob struct {
	Glob
	folded string
}

func parseURIGlob(s string) (uriGlob, error) {
	g, err := ParseGlob(s)
	if err != nil {
		return uriGlob{}, err
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := g.pattern[i]
		if triplet(s, i) {
			d := unhex(s[i+1])<<4 | unhex(s[i+2])
			if d < anyOne { // %FE and %FF would become wildcards; no UTF-8 text has them
				c = d
				i += 2
			}
		}
		b = appendFolded(b, c)
	}
	return uriGlob{Glob: g, folded: string(dropDot(b))}, nil
}

// either reports whether one of the two readings matches, both whether both do: a deny asks the first, an allow the second.
func (g uriGlob) either(uri, folded string) bool {
	return g.Match(uri) || matchPattern(g.folded, folded)
}

func (g uriGlob) both(uri, folded string) bool {
	return g.Match(uri) && matchPattern(g.folded, folded)
}
