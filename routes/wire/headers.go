package wire

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/textproto"
	"strings"
	"unicode/utf8"
)

// Headers of a modern request that mirror its body, in canonical form.
// Source: MCP 2026-07-28, basic/transports/streamable-http (Request Metadata).
const (
	headerMethod      = "Mcp-Method"
	headerName        = "Mcp-Name"
	headerParamPrefix = "Mcp-Param-"
	headerSession     = "Mcp-Session-Id"
)

// Limits of ingress; zero fields mean the defaults of CONTRACT.
type Limits struct {
	Body            int64 // bytes of a request's body; zero means 4 MiB
	MCPHeaders      int   // how many MCP headers, every repeat counts; zero means 32
	MCPHeaderValue  int   // bytes of one value; zero means 8192
	MCPHeadersTotal int   // bytes of names and values together; zero means 65536
}

func (l Limits) withDefaults() Limits {
	if l.Body == 0 {
		l.Body = 4 << 20
	}
	if l.MCPHeaders == 0 {
		l.MCPHeaders = 32
	}
	if l.MCPHeaderValue == 0 {
		l.MCPHeaderValue = 8192
	}
	if l.MCPHeadersTotal == 0 {
		l.MCPHeadersTotal = 65536
	}
	return l
}

// isMCPHeader reports whether the canonical name counts against the budget of MCP headers.
func isMCPHeader(name string) bool {
	switch name {
	case headerMethod, headerName, headerVersion, headerSession:
		return true
	}
	return strings.HasPrefix(name, headerParamPrefix)
}

// withinBudget reports whether the MCP headers of h stay within the limits.
func (l Limits) withinBudget(h http.Header) bool {
	var count, total int
	for name, values := range h {
		if len(name) < 4 || name[:4] != "Mcp-" || !isMCPHeader(name) {
			continue
		}
		for _, v := range values {
			count++
			total += len(name) + len(v)
			if count > l.MCPHeaders || len(v) > l.MCPHeaderValue || total > l.MCPHeadersTotal {
				return false
			}
		}
	}
	return true
}

// nameField returns the member of params that Mcp-Name mirrors, "" when the method has none. For tasks/* it is the task's id
// (SEP-2663, Routing Headers).
func nameField(method string) string {
	switch method {
	case "tools/call", "prompts/get":
		return "name"
	case "resources/read":
		return "uri"
	case "tasks/get", "tasks/update", "tasks/cancel", "tasks/result":
		return "taskId"
	}
	return ""
}

// nameOf returns what a request names, "" for a method that names nothing.
func nameOf(m *Message) (string, *Error) {
	field := nameField(m.Method)
	if field == "" {
		return "", nil
	}
	name, ok := m.Params.Text(field)
	if !ok {
		return "", invalidParams("params." + field + " must be a string")
	}
	return name, nil
}

// checkStandardHeaders compares Mcp-Method and Mcp-Name of a modern request with its body.
// Source: MCP 2026-07-28, basic/transports/streamable-http (Server Validation).
func checkStandardHeaders(h http.Header, m *Message, name string) *Error {
	methods := h[headerMethod]
	if len(methods) == 0 {
		return headerMismatch("the Mcp-Method header is missing")
	}
	for _, v := range methods {
		if textproto.TrimString(v) != m.Method {
			return headerMismatch("the Mcp-Method header does not match the body's method")
		}
	}
	if nameField(m.Method) == "" || m.Method == "tasks/result" { // modern MCP has no tasks/result, which must be heard: -32601
		return nil
	}
	names := h[headerName]
	if len(names) == 0 {
		return headerMismatch("the Mcp-Name header is missing")
	}
	for _, v := range names {
		switch decoded, err := DecodeHeaderValue(v); {
		case err != nil:
			return headerMismatch("the Mcp-Name header: " + err.Error())
		case decoded != name:
			return headerMismatch("the Mcp-Name header does not match the body's " + nameField(m.Method))
		}
	}
	return nil
}

// The sentinel that marks a Base64 value; case-sensitive.
// Source: MCP 2026-07-28, basic/transports/streamable-http (Value Encoding).
const (
	sentinelPrefix = "=?base64?"
	sentinelSuffix = "?="
)

var (
	errBadBase64 = errors.New("bad Base64 in the value")
	errBadBytes  = errors.New("the value has characters that are not allowed")
)

// EncodeHeaderValue encodes a value for Mcp-Name and Mcp-Param-*: as it is when it is plain ASCII, else (control or foreign
// characters, spaces at an end, or a look-alike of the sentinel) in Base64 between sentinels.
func EncodeHeaderValue(v string) string {
	if plainValue(v) {
		return v
	}
	return sentinelPrefix + base64.StdEncoding.EncodeToString([]byte(v)) + sentinelSuffix
}

func plainValue(v string) bool {
	if v == "" {
		return true
	}
	if v[0] == ' ' || v[len(v)-1] == ' ' {
		return false
	}
	for i := range len(v) {
		if v[i] < 0x20 || v[i] > 0x7e {
			return false
		}
	}
	return !strings.HasPrefix(v, sentinelPrefix) || !strings.HasSuffix(v, sentinelSuffix)
}

// DecodeHeaderValue is the inverse of [EncodeHeaderValue]. Surrounding white space does not count. What only looks like the
// sentinel (no prefix, no suffix, other case) is a literal; bad padding, alphabet or UTF-8 inside it is an error, and so
// is a byte that a header may not have.
func DecodeHeaderValue(v string) (string, error) {
	v = textproto.TrimString(v)
	for i := range len(v) {
		if v[i] != '\t' && (v[i] < 0x20 || v[i] > 0x7e) {
			return "", errBadBytes
		}
	}
	if len(v) < len(sentinelPrefix)+len(sentinelSuffix) ||
		!strings.HasPrefix(v, sentinelPrefix) || !strings.HasSuffix(v, sentinelSuffix) {
		return v, nil
	}
	out, err := base64.StdEncoding.Strict().DecodeString(v[len(sentinelPrefix) : len(v)-len(sentinelSuffix)])
	if err != nil {
		return "", errBadBase64
	}
	if !utf8.Valid(out) {
		return "", errBadBase64
	}
	return string(out), nil
}
