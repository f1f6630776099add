package listing

import (
	"bytes"
	"encoding/json"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// empty is an EmptyResult.
var empty = json.RawMessage("{}") // read-only

// setLevel checks a legacy logging/setLevel and remembers nothing: a level belongs to a session, and Weir mints none (decision 40).
// Source: MCP 2025-11-25, server/utilities/logging (Error Handling).
func setLevel(doc *routes.VirtualHost, params wire.Object) (json.RawMessage, *wire.Error) {
	if !anyBackend(doc, func(b routes.BackendCapabilities) bool { return b.Logging }) {
		return nil, lacking("logging")
	}
	switch level, _ := params.Text("level"); level {
	case "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency":
		return empty, nil
	}
	return nil, wire.InvalidParams("level must be debug, info, notice, warning, error, critical, alert or emergency")
}

// subscribe checks a legacy resources/subscribe or resources/unsubscribe and remembers nothing: updates would need a stream of a
// session (decision 40).
// Source: MCP 2025-11-25, server/resources (Subscriptions, Error Handling).
func subscribe(r *wire.Request) (json.RawMessage, *wire.Error) {
	uri, ok := r.Params.Text("uri")
	if !ok {
		return nil, wire.InvalidParams("uri must be a string")
	}
	if !r.Identity.Scopes.Allows(routes.KindResource, uri) {
		return nil, wire.InsufficientScope(scopeOf(routes.KindResource))
	}
	if _, ok := r.Index.Lookup(routes.KindResource, uri); !ok {
		return nil, wire.UnknownName(routes.KindResource, r.Era, uri)
	}
	return empty, nil
}

// legacyTool is a tool's definition without an outputSchema that the schema of 2025-11-25 does not allow; nil: it may stay as it is
// (decision 42).
// Source: MCP 2025-11-25, schema (Tool).
func legacyTool(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(raw, []byte(`"outputSchema"`)) {
		return nil // most tools
	}
	tool, err := wire.ParseObject(raw)
	if err != nil {
		return nil
	}
	schema, ok := tool.Get("outputSchema")
	if !ok || legacySchema(schema) {
		return nil
	}
	return tool.Without("outputSchema").Append(nil)
}

func legacySchema(raw json.RawMessage) bool {
	var s struct {
		Schema     *string                    `json:"$schema"`
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if json.Unmarshal(raw, &s) != nil || s.Type != "object" {
		return false
	}
	for _, property := range s.Properties {
		if len(property) == 0 || property[0] != '{' {
			return false
		}
	}
	return true
}
