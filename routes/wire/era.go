package wire

import (
	"encoding/json"
	"net/http"
	"net/textproto"
	"slices"
)

// Era is a generation of the protocol.
type Era uint8

// The eras.
const (
	Legacy Era = iota // 2025-11-25 and earlier
	Modern            // 2026-07-28 and later
)

// String returns "legacy" or "modern"; it is a metric label.
func (e Era) String() string {
	if e == Modern {
		return "modern"
	}
	return "legacy"
}

// The protocol versions that Weir serves, newest first. Read-only.
var Versions = []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"}

const (
	// LatestModern and LatestLegacy are the newest version of each era.
	LatestModern = "2026-07-28"
	LatestLegacy = "2025-11-25"
	// UnstatedVersion is what a client without MCP-Protocol-Version speaks: the header came with 2025-06-18.
	// Source: MCP 2026-07-28, basic/transports/streamable-http (Protocol Version Header).
	UnstatedVersion = "2025-03-26"
)

// EraOf tells the era of a protocol version. Only the versions that were published before 2026-07-28 are Legacy, served or
// not; every other text, unknown and malformed ones too, is Modern (DESIGN § 7).
func EraOf(version string) Era {
	switch version {
	case "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "2024-10-07":
		return Legacy
	}
	return Modern
}

// Served reports whether Weir serves the version.
func Served(version string) bool { return slices.Contains(Versions, version) }

// The header that states the version, in canonical form.
const headerVersion = "Mcp-Protocol-Version"

// statedVersion returns the version in the header, empty when there is none. Repeats must be equal.
func statedVersion(h http.Header) (string, *Error) {
	values := h[headerVersion]
	if len(values) == 0 {
		return "", nil
	}
	first := textproto.TrimString(values[0])
	for _, v := range values[1:] {
		if textproto.TrimString(v) != first {
			return "", headerMismatch("the MCP-Protocol-Version header is repeated with different values")
		}
	}
	return first, nil
}

// negotiate finds the era and version of a message from its header and its _meta, as the table of DESIGN § 7 says. The era
// is meaningful with an error too: it is that of the answer.
//
// Notifications need neither header nor _meta (the 2026-07-28 text defines no header rules for them), but what they state
// must agree and be served.
func negotiate(h http.Header, m *Message) (Era, string, *Error) {
	header, err := statedVersion(h)
	if err != nil {
		return Modern, "", err
	}
	request := m.ID != nil
	raw, inMeta := m.Meta.Get(MetaProtocolVersion)
	if !inMeta {
		switch {
		case header == "":
			return Legacy, UnstatedVersion, nil
		case EraOf(header) == Modern && request:
			return Modern, header, missingMeta(MetaProtocolVersion)
		case !Served(header):
			return EraOf(header), header, unsupportedVersion(header)
		}
		return EraOf(header), header, nil
	}
	meta, ok := text(raw)
	switch {
	case !ok:
		return Modern, header, invalidMeta(MetaProtocolVersion, "a string")
	case header == "" && request:
		return Modern, meta, headerMismatch("the MCP-Protocol-Version header is missing")
	case header != "" && header != meta:
		return Modern, meta, headerMismatch("the MCP-Protocol-Version header does not match the version in _meta")
	case !Served(meta):
		return Modern, meta, unsupportedVersion(meta)
	}
	return EraOf(meta), meta, nil
}

// Names of the members of _meta that the protocol itself reads.
// Source: MCP 2026-07-28, basic/index (_meta).
const (
	MetaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo         = "io.modelcontextprotocol/clientInfo"
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaLogLevel           = "io.modelcontextprotocol/logLevel"
	MetaSubscriptionID     = "io.modelcontextprotocol/subscriptionId"
	MetaServerInfo         = "io.modelcontextprotocol/serverInfo"
	MetaProgressToken      = "progressToken"
)

// checkMeta checks the members that every modern request must carry. clientInfo is optional in the schema.
// Source: MCP 2026-07-28, basic/index (per-request protocol fields).
func checkMeta(meta Object) *Error {
	switch raw, ok := meta.Get(MetaClientCapabilities); {
	case !ok:
		return missingMeta(MetaClientCapabilities)
	case !isObject(raw):
		return invalidMeta(MetaClientCapabilities, "an object")
	}
	if raw, ok := meta.Get(MetaClientInfo); ok && !isObject(raw) {
		return invalidMeta(MetaClientInfo, "an object")
	}
	return nil
}

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
