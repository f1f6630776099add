package wire

import (
	"encoding/json"
	"net/http"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
)

// Request is one checked request of a client, ready for dispatch. It is read-only; its context is HTTP.Context().
type Request struct {
	*Message
	Memory   *Memory       // what Message lies in; nil: memory that nobody uses again. See [Response.Reuse]
	HTTP     *http.Request // its body was read: see Message.Raw
	Identity *access.Identity
	Host     routes.HostID // the virtual host that was asked for
	Index    *routes.Index // what Options.Resolve returned
	Era      Era
	Version  string // the protocol version the client speaks
	Name     string // tools/call, prompts/get: params.name; resources/read: params.uri; tasks/*: params.taskId; else ""
	// ClientInfo is what a modern backend is told about a legacy client, a JSON object. Nil means {"name":"weir",…}.
	ClientInfo json.RawMessage

	x *exchange // nil: made by hand
}

// Token returns the bearer token that the request came with, empty where there is no auth. It is for asking the control plane on the
// caller's behalf, and for nothing else.
func (r *Request) Token() string {
	if r.x == nil || r.x.e.o.Auth == nil {
		return ""
	}
	token, _ := bearer(r.HTTP.Header)
	return token
}

// Resource returns the URI of the endpoint that the request came to: the audience `resource` of its token.
func (r *Request) Resource() string {
	if r.x == nil {
		return ""
	}
	return r.x.resource()
}

// clientInfo returns ClientInfo or its default.
func (r *Request) clientInfo() json.RawMessage {
	if r.ClientInfo != nil {
		return r.ClientInfo
	}
	return json.RawMessage(`{"name":"weir","version":"1"}`)
}

// ClientCapabilities returns what a modern client declared, a JSON object; nil for a legacy one.
func (r *Request) ClientCapabilities() json.RawMessage {
	if r.Era == Legacy {
		return nil
	}
	raw, _ := r.Meta.Get(MetaClientCapabilities)
	return raw
}
