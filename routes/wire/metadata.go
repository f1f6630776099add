package wire

import (
	"net/http"
	"strings"

	"github.com/weir-mcp/weir/routes"
)

// base returns the URL that the endpoint's paths hang on: the configured one, else what the request says.
func (x *exchange) base() string {
	if x.e.public != nil {
		return x.e.public.base
	}
	scheme := "http"
	if x.r.TLS != nil {
		scheme = "https"
	}
	name, port, ok := splitHost(x.r.Host)
	if !ok {
		name, port = "localhost", ""
	}
	return origin{scheme, name, port}.normal().String()
}

// normal drops a default port.
func (o origin) normal() origin {
	if o.port == defaultPort(o.scheme) {
		o.port = ""
	}
	return o
}

// resource returns the canonical URI of the endpoint that was called (RFC 8707).
func (x *exchange) resource() string {
	return x.base() + x.safeEndpoint()
}

// safeEndpoint returns the endpoint's path; one with a malformed host is not echoed.
func (x *exchange) safeEndpoint() string {
	if x.malformedHost() {
		return mcpPath
	}
	return x.path.endpoint
}

// malformedHost reports whether the path names a host that can't exist.
func (x *exchange) malformedHost() bool { return x.path.named && !routes.ValidID(x.path.host) }

// metadataURL returns where the metadata of the endpoint that was called stands; empty where there is no auth.
func (x *exchange) metadataURL() string {
	if x.e.o.Auth == nil {
		return ""
	}
	if path := x.safeEndpoint(); path != mcpPath {
		return x.base() + wellKnown + path
	}
	return x.base() + wellKnown
}

// withMetadata adds resource_metadata to a Bearer challenge.
// Source: RFC 9728, section 5.1.
func withMetadata(challenge, url string) string {
	if url == "" {
		return challenge
	}
	separator := ", "
	if !strings.Contains(challenge, " ") {
		separator = " "
	}
	return challenge + separator + `resource_metadata="` + url + `"`
}

// serveMetadata answers with the protected resource's metadata, computed from config for any well-formed host.
// Source: RFC 9728, section 2; MCP 2026-07-28, basic/authorization.
func (x *exchange) serveMetadata() {
	switch x.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		x.w.w.Header().Set("Allow", http.MethodGet)
		x.refuse(http.StatusMethodNotAllowed, "method", "Method not allowed")
		return
	}
	if !x.throughGate() {
		return
	}
	switch {
	case x.r.Method == http.MethodOptions:
		x.preflight()
	case x.malformedHost():
		x.unknownHost()
	case x.e.o.Auth == nil:
		x.refuse(http.StatusNotFound, "not_found", "Not found")
	default:
		x.writeMetadata()
	}
}

func (x *exchange) writeMetadata() {
	doc := appendQuoted([]byte(`{"resource":`), x.resource())
	doc = appendStrings(append(doc, `,"authorization_servers":`...), x.e.o.AuthServers)
	doc = append(doc, `,"bearer_methods_supported":["header"]`...)
	if len(x.e.o.Scopes) > 0 {
		doc = appendStrings(append(doc, `,"scopes_supported":`...), x.e.o.Scopes)
	}
	doc = append(doc, '}')
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	x.w.document(http.StatusOK, doc)
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendQuoted(dst, s)
	}
	return append(dst, ']')
}
