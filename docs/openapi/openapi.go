// Package openapi is the machine-readable description of Weir's HTTP APIs, as the control plane serves it.
package openapi

import _ "embed"

// Admin describes the admin API: OpenAPI 3.1, JSON. It must not be changed.
//
//go:embed admin.json
var Admin []byte
