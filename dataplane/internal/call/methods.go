package call

import (
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// server is who answers a method.
type server uint8

const (
	nobody server = iota
	aBackend
	aTaskOwner
	theSnapshot
	theControlPlane
	notNow // exists in another era only, and the refusal should say so
)

// servedBy says who answers a method for a client of the given version: a method that the version does not have is nobody's.
// Source: DESIGN § 7; MCP 2025-11-25 and 2026-07-28, schema.
func servedBy(method string, era wire.Era, version string) server {
	modern := era == wire.Modern
	switch method {
	case "tools/call", "resources/read", "prompts/get":
		return aBackend
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list", "completion/complete":
		return theControlPlane
	case "server/discover":
		if modern {
			return theSnapshot
		}
	case "subscriptions/listen":
		if modern {
			return theControlPlane
		}
	case "initialize":
		if modern {
			return notNow
		}
		return theSnapshot
	case "ping":
		if !modern {
			return theSnapshot
		}
	case "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		if !modern {
			return theControlPlane
		}
	case "tasks/get", "tasks/cancel":
		if modern || version == routes.LegacyTasksVersion {
			return aTaskOwner
		}
	case "tasks/update":
		if modern {
			return aTaskOwner
		}
	case "tasks/result":
		if version == routes.LegacyTasksVersion {
			return aTaskOwner
		}
	case "tasks/list":
		if version == routes.LegacyTasksVersion {
			return theControlPlane
		}
	}
	return nobody
}

// kindOf says what a targeted method names.
func kindOf(method string) routes.Kind {
	switch method {
	case "prompts/get":
		return routes.KindPrompt
	case "resources/read":
		return routes.KindResource
	}
	return routes.KindTool
}

// scopeOf is the scope that covers a kind whole.
func scopeOf(kind routes.Kind) string {
	switch kind {
	case routes.KindPrompt:
		return "mcp:prompts"
	case routes.KindResource:
		return "mcp:resources"
	}
	return "mcp:tools"
}

// labelOf bounds what a client can put into a metric: methods that nobody serves are one.
func labelOf(method string, by server) string {
	if by == nobody {
		return "other"
	}
	return method
}

// ofCall reports whether a backend's notification belongs to a call. What is about lists, resources or tasks belongs to
// subscriptions: on a call's stream it is forbidden to a modern client, and was not offered to a legacy one.
// Source: MCP 2026-07-28, basic/transports/streamable-http (Receiving Messages).
func ofCall(method string) bool {
	switch method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
		"notifications/resources/updated", "notifications/subscriptions/acknowledged",
		"notifications/tasks/status", "notifications/tasks",
		"notifications/cancelled", "notifications/roots/list_changed", "notifications/initialized":
		return false
	}
	return true
}
