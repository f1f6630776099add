package access

import "github.com/weir-mcp/weir/routes"

// MayFollow reports whether an identity may follow a task of a host that belongs to it, as both planes decide it: its backend is still in
// the host, and the token covers the tool that made the task. Where the tool is not known, all tools. A tool that was removed from the
// host since does not matter: its task is followed until it expires. That the token covers task methods at all (Scopes.AllowsTasks) is
// asked before.
func MayFollow(id *Identity, vh *routes.VirtualHost, o *routes.TaskOwner) bool {
	if _, ok := vh.Backends[o.Backend]; !ok {
		return false
	}
	if o.Tool == "" {
		return id.Scopes.AllowsAllTools()
	}
	return id.Scopes.Allows(routes.KindTool, o.Tool)
}
