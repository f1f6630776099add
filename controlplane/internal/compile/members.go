package compile

import (
	"encoding/json"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// member is one backend of the host that can be routed to.
type member struct {
	use   *config.HostBackend
	route routes.Backend
	cat   *catalog.Catalog // nil: only what stands published tells of it
	pins  *catalog.Pins    // of a backend whose changes are blocked; nil: nothing is
}

// members resolves the host's list of backends, in its order. What can't be routed to is left out, with a problem.
func (c *hostCompiler) members() []member {
	var out []member
	for i := range c.host.Backends {
		use := &c.host.Backends[i]
		conf := c.known[use.Name]
		if conf == nil {
			c.problem(CodeBackendUndefined, use.Name, "", "no config and no discovery source defines this backend")
			c.missing = append(c.missing, use.Name)
			continue
		}
		if conf.Stdio != nil {
			c.problem(CodeStdioUnsupported, use.Name, "", "this build runs no stdio backends; nothing of it is published")
			c.missing = append(c.missing, use.Name)
			continue
		}
		m := member{use: use, route: conf.Route, cat: c.in.Catalogs[use.Name]}
		if conf.Pin == config.PinBlock {
			m.pins = c.in.Pins[use.Name]
		}
		if m.cat != nil {
			m.route.Protocol, m.route.Handshake = m.cat.Protocol, m.cat.Handshake
			m.route.Capabilities = backendCapabilities(m.cat.Protocol, m.cat.Capabilities)
		} else {
			prev, stands := c.prev.Backends[use.Name]
			if !stands {
				c.problem(CodeBackendUnheard, use.Name, "", "the backend has never answered; nothing of it is published yet")
				c.missing = append(c.missing, use.Name)
				continue
			}
			c.problem(CodeBackendUnheard, use.Name, "", "no catalog of this backend is known; what stands published stays")
			m.route.Protocol, m.route.Handshake, m.route.Capabilities = prev.Protocol, prev.Handshake, prev.Capabilities
		}
		m.route.ResourceAllow, m.route.ResourceDeny = globStrings(use.Resources.Allow), globStrings(use.Resources.Deny)
		out = append(out, m)
	}
	return out
}

// tasksExtension is how a modern backend declares tasks (SEP-2663).
const tasksExtension = "io.modelcontextprotocol/tasks"

// backendCapabilities picks what routing needs out of a backend's declaration (ServerCapabilities of the schema, 2025-11-25
// and 2026-07-28).
func backendCapabilities(protocol string, raw json.RawMessage) routes.BackendCapabilities {
	caps := objectOf(raw)
	_, completions := caps["completions"]
	_, logging := caps["logging"]
	return routes.BackendCapabilities{
		Tasks:       declaresTasks(protocol, caps),
		Completions: completions,
		Logging:     logging,
		Subscribe:   string(objectOf(caps["resources"])["subscribe"]) == "true",
	}
}

// declaresTasks reports whether a backend may answer tools/call with a task, by the rules of the version that it speaks: the ways of
// 2025-11-25 and of the extension have nothing to do with each other, and earlier versions know no tasks. Versions are dates.
// Source: SEP-2663 (Backward Compatibility); MCP 2025-11-25, basic/utilities/tasks (Capability Negotiation).
func declaresTasks(protocol string, caps map[string]json.RawMessage) bool {
	if protocol > routes.LegacyTasksVersion {
		_, extension := objectOf(caps["extensions"])[tasksExtension]
		return extension
	}
	_, call := objectOf(objectOf(objectOf(caps["tasks"])["requests"])["tools"])["call"]
	return protocol == routes.LegacyTasksVersion && call
}

// objectOf is the members of a JSON object by their exact names; nil where raw is none.
func objectOf(raw json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}

// toolSchemas are the input schemas of the member's published tools with x-mcp-header annotations: the dataplane checks
// Mcp-Param-* headers against them. Of a tool that only an earlier document tells of, its schema stays.
func (c *hostCompiler) toolSchemas(m *member, tools []offer) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage)
	for _, o := range tools {
		switch {
		case o.backend != m.use.Name:
		case o.item == nil:
			if schema := c.prev.Backends[o.backend].ToolSchemas[o.upstream]; schema != nil {
				out[o.upstream] = schema
			}
		case o.item.Annotated:
			if schema := objectOf(o.item.Raw)["inputSchema"]; objectOf(schema) != nil {
				out[o.upstream] = schema
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
