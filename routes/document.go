package routes

import (
	"encoding/json"
	"time"
)

// SchemaVersion is the major version of the document that this build writes. A reader refuses any other one, for that
// host only.
const SchemaVersion = 1

// HostID names a virtual host; it is taken from a verified token or a path, never from a request's body. See ValidID.
type HostID string

// BackendID names a backend as the config writes it. It is a metric label too, so there are as many as the config has.
type BackendID string

// VirtualHost is the compiled routing table of one virtual host at one revision: what a token is scoped to. It is read-only
// once published. Absent maps are empty ones.
type VirtualHost struct {
	Schema int    `json:"schema"`
	ID     HostID `json:"id"`

	// Incarnation, Epoch and Revision order documents: see Version.
	Incarnation string `json:"incarnation"`
	Epoch       uint64 `json:"epoch"`
	Revision    uint64 `json:"revision"`

	// Order lists the host's backends as its config does; it breaks ties between templates.
	Order    []BackendID           `json:"order,omitempty"`
	Backends map[BackendID]Backend `json:"backends,omitempty"`

	// Tools and Prompts map downstream names. Resources maps URIs, ResourceTemplates RFC 6570 templates and
	// ResourcePrefixes literal URI prefixes (for URIs that no backend lists); URIs are never rewritten.
	Tools             map[string]ServiceRoute `json:"tools,omitempty"`
	Prompts           map[string]ServiceRoute `json:"prompts,omitempty"`
	Resources         map[string]ServiceRoute `json:"resources,omitempty"`
	ResourceTemplates map[string]ServiceRoute `json:"resourceTemplates,omitempty"`
	ResourcePrefixes  map[string]ServiceRoute `json:"resourcePrefixes,omitempty"`

	Tasks   TaskPolicy  `json:"tasks,omitzero"`
	Plugins []PluginRef `json:"plugins,omitempty"`

	// Capabilities, ServerInfo and Instructions are what server/discover and the legacy initialize stub answer: raw JSON
	// objects of the modern schema. The dataplane leaves out of a legacy answer what a legacy client can't use.
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	ServerInfo   json.RawMessage `json:"serverInfo,omitempty"`
	Instructions string          `json:"instructions,omitempty"`
}

// ServiceRoute is where a downstream name leads: one backend, and the name or URI that it knows the thing by.
type ServiceRoute struct {
	Backend  BackendID `json:"backend"`
	Upstream string    `json:"upstream"`
}

// Handshake says whether a legacy backend must see initialize before a call. Zero means required.
type Handshake string

// The values of Handshake.
const (
	HandshakeRequired Handshake = "required"
	HandshakeNone     Handshake = "none" // discovery proved that calls work without
)

// Backend is how one virtual host reaches one backend.
type Backend struct {
	// URL is the backend's MCP endpoint, http or https, without userinfo.
	URL string `json:"url"`
	// Protocol is the version that discovery negotiated, such as "2026-07-28", so that a modern call is one HTTP request.
	Protocol string `json:"protocol"`
	// Handshake matters for a legacy Protocol only.
	Handshake Handshake `json:"handshake,omitempty"`

	Capabilities BackendCapabilities `json:"capabilities,omitzero"`

	PassthroughHeaders []string `json:"passthroughHeaders,omitempty"`
	// AddHeaders holds literal values and secret references (see package secret), never a secret itself.
	AddHeaders    map[string]SecretRef `json:"addHeaders,omitempty"`
	RemoveHeaders []string             `json:"removeHeaders,omitempty"`
	// ForwardCaller maps an upstream header to the caller's header that feeds it; never the verified token.
	ForwardCaller map[string]string `json:"forwardCaller,omitempty"`

	// ResourceAllow and ResourceDeny are globs on URIs; they hold for templates and prefixes too, where the compiler could
	// not apply them. An empty ResourceAllow allows all; deny wins.
	ResourceAllow []string `json:"resourceAllow,omitempty"`
	ResourceDeny  []string `json:"resourceDeny,omitempty"`

	// ToolSchemas holds input schemas by upstream tool name, only of tools whose Mcp-Param-* headers or arguments are checked.
	ToolSchemas map[string]json.RawMessage `json:"toolSchemas,omitempty"`

	Timeouts   Timeouts `json:"timeouts,omitzero"`
	TLS        TLS      `json:"tls,omitzero"`
	StdioLease string   `json:"stdioLease,omitempty"`
	// Discovered is true for a backend that a discovery source named and not the operator's own config: private and loopback
	// addresses are refused for it unless AllowPrivate is true as well.
	Discovered   bool `json:"discovered,omitempty"`
	AllowPrivate bool `json:"allowPrivate,omitempty"`
	// Source names the discovery source, for people and for a control plane that starts while the source is down.
	Source string `json:"source,omitempty"`
	// SourcePrefix is the prefix that the source suggests for it, kept for the same reason.
	SourcePrefix string `json:"sourcePrefix,omitempty"`
}

// SecretRef is a header value that may contain references: ${env:NAME}, ${file:/path}. It is resolved by the plane that
// makes the call, from what that plane's own config allows.
type SecretRef string

// BackendCapabilities is what a backend declared, as far as routing needs it.
type BackendCapabilities struct {
	// Tasks: it may answer tools/call with a task, in the way of its Protocol: by the extension io.modelcontextprotocol/tasks, or as
	// LegacyTasksVersion has it.
	Tasks       bool `json:"tasks,omitempty"`
	Completions bool `json:"completions,omitempty"`
	Subscribe   bool `json:"subscribe,omitempty"`
	Logging     bool `json:"logging,omitempty"`
}

// LegacyTasksVersion is the one version before 2026-07-28 that knows tasks, in a way of its own.
const LegacyTasksVersion = "2025-11-25"

// OffersLegacyTasks reports whether a backend of the host serves tasks in the way of LegacyTasksVersion.
func (vh *VirtualHost) OffersLegacyTasks() bool {
	for _, b := range vh.Backends {
		if b.Capabilities.Tasks && b.Protocol == LegacyTasksVersion {
			return true
		}
	}
	return false
}

// Timeouts bounds one call to a backend. In JSON they are nanoseconds. Zero means the default that its field names.
type Timeouts struct {
	Connect  time.Duration `json:"connect,omitempty"`  // dial and TLS; zero means 5s
	Response time.Duration `json:"response,omitempty"` // until the answer's headers; zero means 60s
	Idle     time.Duration `json:"idle,omitempty"`     // between bytes of the answer; zero means 5m
	Total    time.Duration `json:"total,omitempty"`    // the whole call; zero means 1h
}

// TLS names files on the dataplane's own disk. The zero value means the system's roots and no client certificate.
type TLS struct {
	CAFile     string `json:"caFile,omitempty" yaml:"ca_file"`
	CertFile   string `json:"certFile,omitempty" yaml:"cert_file"`
	KeyFile    string `json:"keyFile,omitempty" yaml:"key_file"`
	ServerName string `json:"serverName,omitempty" yaml:"server_name"`
}

// TaskPolicy is how a virtual host treats task ids that nobody recorded.
type TaskPolicy struct {
	Unrecorded string `json:"unrecorded,omitempty"` // claim, probe or deny; empty means claim
	NotFound   int    `json:"notFound,omitempty"`   // -32602 or -32002 (legacy clients only); zero means -32602
}

// PluginRef is one configured hook, as published; see package plugins.
type PluginRef struct {
	Name     string          `json:"name"`
	Kind     string          `json:"kind"`
	Hooks    []string        `json:"hooks,omitempty"`
	Mode     string          `json:"mode,omitempty"`
	Priority int             `json:"priority,omitempty"`
	Timeout  time.Duration   `json:"timeout,omitempty"`
	OnError  string          `json:"onError,omitempty"`
	When     PluginCondition `json:"when,omitzero"`
	Settings json.RawMessage `json:"settings,omitempty"`
}

// PluginCondition limits a hook to hosts and tools by glob; an empty list means all.
type PluginCondition struct {
	Hosts []string `json:"hosts,omitempty"`
	Tools []string `json:"tools,omitempty"`
}

// HostList is what a virtual host's lists contain, in the order in which they are shown. The items themselves are stored
// once per backend, in its catalog; an entry finds its item by (Backend, Digest).
type HostList struct {
	Tools             []ListEntry `json:"tools,omitempty"`
	Prompts           []ListEntry `json:"prompts,omitempty"`
	Resources         []ListEntry `json:"resources,omitempty"`
	ResourceTemplates []ListEntry `json:"resourceTemplates,omitempty"`
	// Missing names the host's backends that have never answered, so that the lists lack their items.
	Missing []BackendID `json:"missing,omitempty"`
}

// ListEntry is one item of a list: its downstream name (or URI, or template), and where its definition stands.
type ListEntry struct {
	Name     string    `json:"name"`
	Backend  BackendID `json:"backend"`
	Upstream string    `json:"upstream"`
	Digest   string    `json:"digest"`
}
