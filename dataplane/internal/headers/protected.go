package headers

import "strings"

// fold is how a backend may read a name: case is nothing, and a CGI-like server takes "_" for "-".
func fold(name string) string {
	for i := range len(name) {
		if c := name[i]; c == '_' || 'A' <= c && c <= 'Z' {
			return strings.ReplaceAll(strings.ToLower(name), "_", "-")
		}
	}
	return name
}

// Protected reports whether config can neither send, replace nor remove a header.
func Protected(name string) bool {
	name = fold(name)
	switch name {
	case "host", "content-length", "content-type", "content-encoding", "expect",
		"accept", "accept-encoding", "origin", "forwarded":
		return true // the request's own, or what the next hop believes of where it came from
	case "connection", "proxy-connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
		"proxy-authenticate", "proxy-authorization", "http2-settings":
		return true // of one hop; RFC 9110 § 7.6.1
	case "last-event-id", "cookie", "cookie2":
		return true // a client's affair with Weir
	case traceParentFolded, traceStateFolded:
		return true // set last, from the caller's own
	}
	return strings.HasPrefix(name, "x-forwarded-") || strings.HasPrefix(name, "mcp-") // the protocol's, today's and to come
}

// secretOfCaller reports whether a header of the caller is for Weir alone.
func secretOfCaller(name string) bool {
	switch fold(name) {
	case "authorization", "proxy-authorization", "cookie", "cookie2":
		return true // checked before Protected, for the better message
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
