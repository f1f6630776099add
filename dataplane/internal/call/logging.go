package call

import (
	"encoding/json"
	"slices"

	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/wire"
)

// levels of log messages, the least severe first (2026-07-28 and 2025-11-25, LoggingLevel; after RFC 5424).
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"} // read-only

// legacyLevel is the level of every legacy client: what one sets belongs to a session, and there is none (decision 40).
const legacyLevel = "info"

// logLevel is the level from which on the client wants log messages of this call; empty: it wants none.
// Source: MCP 2026-07-28, server/utilities/logging (Per-request log level).
func (c *call) logLevel() string {
	if c.r.Era == wire.Legacy {
		return legacyLevel
	}
	level, _ := c.r.Meta.Text(wire.MetaLogLevel)
	if !slices.Contains(levels, level) {
		return ""
	}
	return level
}

// withLogLevel asks a modern backend for the log messages that a legacy client gets without asking.
func (c *call) withLogLevel(params wire.Object) wire.Object {
	if c.r.Era != wire.Legacy || !c.target.Backend.Capabilities.Logging || wire.EraOf(c.target.Backend.Protocol) != wire.Modern {
		return params
	}
	raw, _ := params.Get("_meta")
	meta, err := wire.ParseObject(raw)
	if err != nil { // RequestFor made it
		return params
	}
	if _, set := meta.Get(wire.MetaLogLevel); set {
		return params
	}
	return params.With("_meta", meta.With(wire.MetaLogLevel, wire.Quote(legacyLevel)).Append(nil))
}

// unwanted reports whether a notification is a log message that a modern client did not ask for. A modern backend sends none; a
// legacy one knows no level of a single call.
func (c *call) unwanted(m egress.Message) bool {
	if m.Method != "notifications/message" || c.r.Era == wire.Legacy || wire.EraOf(c.target.Backend.Protocol) == wire.Modern {
		return false
	}
	from := c.logLevel()
	if from == "" {
		return true
	}
	var doc struct{ Params struct{ Level string } }
	_ = json.Unmarshal(m.Doc, &doc) // of another shape: passed on as it is
	level := slices.Index(levels, doc.Params.Level)
	return level >= 0 && level < slices.Index(levels, from)
}
