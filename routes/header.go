package routes

import (
	"bytes"
	"strings"
)

// FoldHeader is how a backend may read a header's name: case is nothing, and a CGI-like server takes "_" for "-". It allocates
// only where something changes.
func FoldHeader(name string) string {
	for i := range len(name) {
		if c := name[i]; c == '_' || 'A' <= c && c <= 'Z' {
			return strings.ReplaceAll(strings.ToLower(name), "_", "-")
		}
	}
	return name
}

// ProtectedHeader reports whether a header of a call to a backend belongs to the transport, to the hop, or to Weir: neither config
// nor a client may set, pass or remove it. The name is folded first. The trace context is not among them, since Weir itself passes
// it; config can't touch it either. It allocates nothing. Source: DESIGN § 7, "Headers to a backend".
func ProtectedHeader(name string) bool {
	var buf [64]byte // longer than every name that is compared whole
	folded := buf[:0]
	for i := range min(len(name), len(buf)) {
		c := name[i]
		switch {
		case c == '_':
			c = '-'
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		folded = append(folded, c)
	}
	switch string(folded) {
	case "host", "content-length", "content-type", "content-encoding", "expect", "accept", "accept-encoding", "origin", "forwarded":
		return true // the request's own, or what the next hop believes of where it came from
	case "connection", "proxy-connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
		"proxy-authenticate", "proxy-authorization", "http2-settings":
		return true // of one hop; RFC 9110 § 7.6.1
	case "last-event-id", "cookie", "cookie2":
		return true // a client's affair with Weir
	}
	return bytes.HasPrefix(folded, []byte("x-forwarded-")) || bytes.HasPrefix(folded, []byte("mcp-")) // the protocol's, today's and to come
}

// TraceHeader reports whether a header carries the trace context, which Weir writes last so that config can neither strip nor
// forge it.
func TraceHeader(name string) bool {
	name = FoldHeader(name)
	return name == "traceparent" || name == "tracestate"
}
