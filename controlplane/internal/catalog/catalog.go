// Package catalog holds what discovery learned of each backend: raw items, era and health. It is values only: no network, no
// clock, no logger.
package catalog

import (
	"encoding/json"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// Catalog is everything known of one backend. It is read-only once made.
type Catalog struct {
	Backend      routes.BackendID `json:"backend"`
	Protocol     string           `json:"protocol"`            // negotiated version
	Handshake    routes.Handshake `json:"handshake,omitempty"` // legacy only
	ServerInfo   json.RawMessage  `json:"serverInfo,omitempty"`
	Capabilities json.RawMessage  `json:"capabilities,omitempty"`
	Instructions string           `json:"instructions,omitempty"`

	Tools             List `json:"tools,omitzero"`
	Prompts           List `json:"prompts,omitzero"`
	Resources         List `json:"resources,omitzero"`
	ResourceTemplates List `json:"resourceTemplates,omitzero"`

	// Taken is when the last round ended in which every walk was complete; zero: none yet.
	Taken time.Time `json:"taken"`
}

// List is one kind of items, from the last complete walk over all of its pages.
type List struct {
	Items []Item `json:"items,omitempty"`
	// Stale is true when the last walk failed, for Reason; Items are then the last good ones.
	Stale bool `json:"stale,omitempty"`
	// Since is when Items were taken; zero: no walk was ever complete, which says nothing about what the backend has.
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitempty"`
	// TTL is the backend's own ttlMs, the shortest of its pages; nil where it said nothing.
	TTL *int64 `json:"ttlMs,omitempty"`
}

// Item is one tool, prompt, resource or template: the backend's bytes plus the fields we route on.
type Item struct {
	Name   string          `json:"name"`   // name, uri or uriTemplate
	Digest string          `json:"digest"` // routes.Digest(Raw)
	Raw    json.RawMessage `json:"raw"`
	// Reject is why the item is not published (an x-mcp-header annotation that breaks the rules, no name, …); empty: it is.
	Reject string `json:"reject,omitempty"`
	// Annotated is true for a tool with x-mcp-header annotations.
	Annotated bool `json:"annotated,omitempty"`
}

// Health is the state of one backend, for the admin API and metrics; it is not part of the catalog.
type Health struct {
	Up        bool          `json:"up"`
	LastError string        `json:"lastError,omitempty"`
	Checked   time.Time     `json:"checked,omitzero"`
	Duration  time.Duration `json:"durationNs,omitempty"`
}
