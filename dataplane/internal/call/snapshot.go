package call

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// discoverTTL is how long a client may keep what server/discover said, in milliseconds: capabilities change when a backend
// joins or leaves a host.
const discoverTTL = 60_000

// fromSnapshot answers what no backend is needed for.
func (c *call) fromSnapshot() *wire.Error {
	switch c.r.Method {
	case "server/discover":
		c.w.Result(c.discover())
	case "ping":
		c.w.Result(json.RawMessage("{}"))
	case "initialize":
		result, err := c.initialize()
		if err != nil {
			return c.refuse(err, "invalid_params")
		}
		c.w.Result(result)
	}
	return nil
}

// discover makes a DiscoverResult.
// Source: MCP 2026-07-28, server/discover and server/utilities/caching.
func (c *call) discover() json.RawMessage {
	vh := c.r.Index.Host()
	scope := "private"
	if c.h.o.Public {
		scope = "public"
	}
	versions := make([]byte, 0, 64)
	for i, v := range wire.Versions {
		versions = append(versions, "[,"[min(i, 1)])
		versions = append(versions, wire.Quote(v)...)
	}
	meta := wire.Object{{Name: wire.MetaServerInfo, Value: c.h.serverInfo(vh)}}
	result := wire.Object{
		{Name: "resultType", Value: wire.Quote("complete")},
		{Name: "supportedVersions", Value: append(versions, ']')},
		{Name: "capabilities", Value: c.h.tables.of(c.r.Index).capabilities},
		{Name: "_meta", Value: meta.Append(nil)},
	}
	if vh.Instructions != "" {
		result = append(result, wire.Member{Name: "instructions", Value: wire.Quote(vh.Instructions)})
	}
	result = append(result, wire.Member{Name: "ttlMs", Value: strconv.AppendInt(nil, discoverTTL, 10)},
		wire.Member{Name: "cacheScope", Value: wire.Quote(scope)})
	return result.Append(nil)
}

// initialize makes an InitializeResult that promises no session. A version that Weir does not serve to legacy clients gets the
// newest one that it does.
// Source: MCP 2025-11-25, basic/lifecycle (Version Negotiation).
func (c *call) initialize() (json.RawMessage, *wire.Error) {
	version, ok := c.r.Params.Text("protocolVersion")
	if !ok {
		return nil, wire.InvalidParams("params.protocolVersion must be a string")
	}
	if !wire.Served(version) || wire.EraOf(version) != wire.Legacy {
		version = wire.LatestLegacy
	}
	vh := c.r.Index.Host()
	result := wire.Object{
		{Name: "protocolVersion", Value: wire.Quote(version)},
		{Name: "capabilities", Value: c.h.tables.of(c.r.Index).forLegacy(version)},
		{Name: "serverInfo", Value: c.h.serverInfo(vh)},
	}
	if vh.Instructions != "" {
		result = append(result, wire.Member{Name: "instructions", Value: wire.Quote(vh.Instructions)})
	}
	return result.Append(nil), nil
}

func (h *Handler) serverInfo(vh *routes.VirtualHost) json.RawMessage {
	if len(vh.ServerInfo) > 0 {
		return vh.ServerInfo
	}
	return wire.Object{
		{Name: "name", Value: wire.Quote(cmp.Or(h.o.Name, "weir"))},
		{Name: "version", Value: wire.Quote(cmp.Or(h.o.Version, "0"))},
	}.Append(nil)
}

// capabilitiesOf returns the published capabilities, or those that the routes imply, and of the same what a legacy client can
// use: without a session there is no stream to tell it of changes, and extensions are not defined for it. Tasks of its own kind are added
// by forLegacy.
func capabilitiesOf(vh *routes.VirtualHost) (modern, legacy json.RawMessage) {
	published, err := wire.ParseObject(vh.Capabilities)
	if err != nil {
		published = impliedBy(vh)
	}
	kept := make(wire.Object, 0, len(published))
	for _, m := range published {
		switch m.Name {
		case "extensions", "tasks":
			continue
		case "tools", "prompts", "resources":
			if o, err := wire.ParseObject(m.Value); err == nil {
				m.Value = o.Without("listChanged", "subscribe").Append(nil)
			}
		}
		kept = append(kept, m)
	}
	return published.Append(nil), kept.Append(nil)
}

// legacyTasks is what 2025-11-25 calls the service of tasks.
// Source: MCP 2025-11-25, basic/utilities/tasks (Capabilities).
var legacyTasks = json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`) // read-only

// forLegacy is what a client of a legacy version can use: tasks are of one version alone.
func (t *table) forLegacy(version string) json.RawMessage {
	if version == routes.LegacyTasksVersion && t.taskCapabilities != nil {
		return t.taskCapabilities
	}
	return t.legacyCapabilities
}

func impliedBy(vh *routes.VirtualHost) wire.Object {
	var o wire.Object
	for _, has := range []struct {
		name string
		any  bool
	}{
		{"tools", len(vh.Tools) > 0},
		{"prompts", len(vh.Prompts) > 0},
		{"resources", len(vh.Resources)+len(vh.ResourceTemplates)+len(vh.ResourcePrefixes) > 0},
	} {
		if has.any {
			o = append(o, wire.Member{Name: has.name, Value: json.RawMessage("{}")})
		}
	}
	return o
}

// served names the versions, for clients whose users get to see nothing else.
func served() string { return "Served versions: " + strings.Join(wire.Versions, ", ") }
