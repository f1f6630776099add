package headers

import (
	"strings"

	"github.com/weir-mcp/weir/routes"
)

// protected reports whether config can neither send, replace nor remove a header.
func protected(name string) bool { return routes.ProtectedHeader(name) || routes.TraceHeader(name) }

// secretOfCaller reports whether a header of the caller is for Weir alone.
func secretOfCaller(name string) bool {
	switch routes.FoldHeader(name) {
	case "authorization", "proxy-authorization", "cookie", "cookie2":
		return true // checked before protected, for the better message
	}
	return false
}

// validName reports whether s is a field name: RFC 9110 § 5.1, 1*tchar.
func validName(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// validValue reports whether s can be a field value: no control character but the tab (RFC 9110 § 5.5).
func validValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
