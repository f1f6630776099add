package listing

import (
	"encoding/json"
	"slices"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// discover builds a DiscoverResult (2026-07-28, server/discover).
func (s *Server) discover(doc *routes.VirtualHost) json.RawMessage {
	b := []byte(`{"resultType":"complete","supportedVersions":[`)
	for i, version := range wire.Versions {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(b, version)
	}
	b = append(append(b, `],"capabilities":`...), objectOr(doc.Capabilities)...)
	if doc.Instructions != "" {
		b = appendQuoted(append(b, `,"instructions":`...), doc.Instructions)
	}
	b = s.appendCaching(b, discoverTTL.Milliseconds())
	return append(appendMeta(b, doc.ServerInfo, nil, wire.Modern), '}')
}

// initialize builds an InitializeResult without a session (2025-11-25, basic/lifecycle): the version asked for if it is a
// legacy one that Weir serves, else the newest legacy one.
func initialize(doc *routes.VirtualHost, params wire.Object) (json.RawMessage, *wire.Error) {
	var asked string
	raw, _ := params.Get("protocolVersion")
	if json.Unmarshal(raw, &asked) != nil {
		return nil, wire.InvalidParams("protocolVersion is not a string")
	}
	version := wire.LatestLegacy
	if slices.Contains(wire.Versions, asked) && wire.EraOf(asked) == wire.Legacy {
		version = asked
	}
	b := appendQuoted([]byte(`{"protocolVersion":`), version)
	b = append(append(b, `,"capabilities":`...), objectOr(legacyCapabilities(doc, version))...)
	b = append(append(b, `,"serverInfo":`...), objectOr(doc.ServerInfo)...)
	if doc.Instructions != "" {
		b = appendQuoted(append(b, `,"instructions":`...), doc.Instructions)
	}
	return append(b, '}'), nil
}

// legacyTasks is what the one legacy version with tasks is offered: methods of all the backends, each of which may refuse.
// Source: MCP 2025-11-25, basic/utilities/tasks (Capabilities).
const legacyTasks = `{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`

// legacyCapabilities leaves out what a legacy client of the version can't use: extensions, and what needs a stream of its own or a
// session. Tasks are offered where a backend serves them in the client's own way.
func legacyCapabilities(doc *routes.VirtualHost, version string) json.RawMessage {
	var caps map[string]json.RawMessage
	if json.Unmarshal(doc.Capabilities, &caps) != nil {
		return nil
	}
	kept := make(map[string]json.RawMessage)
	for _, name := range []string{"prompts", "resources", "tools", "completions", "logging"} {
		var inner map[string]json.RawMessage
		if json.Unmarshal(caps[name], &inner) != nil || inner == nil {
			continue
		}
		delete(inner, "listChanged")
		delete(inner, "subscribe")
		raw, err := json.Marshal(inner)
		if err != nil { // it was just decoded
			continue
		}
		kept[name] = raw
	}
	if version == routes.LegacyTasksVersion && doc.OffersLegacyTasks() {
		kept["tasks"] = json.RawMessage(legacyTasks)
	}
	raw, err := json.Marshal(kept)
	if err != nil { // as above
		return nil
	}
	return raw
}

func objectOr(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}
