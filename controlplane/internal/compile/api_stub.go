package compile

import (
	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

// Input of one compilation.
type Input struct {
	Config   *config.Config
	Catalogs map[routes.BackendID]*catalog.Catalog
	// Previous is what stands published, per host: whoever holds a name keeps it.
	Previous map[routes.HostID]*routes.VirtualHost
}

// Output: documents carry no incarnation, epoch or revision; the publisher sets them.
type Output struct {
	Hosts    map[routes.HostID]*routes.VirtualHost
	Lists    map[routes.HostID]*routes.HostList
	Problems []Problem
}

// Problem is a mistake that the plane survives, with a stable code.
type Problem struct {
	Code    string           `json:"code"`
	Host    routes.HostID    `json:"host,omitempty"`
	Backend routes.BackendID `json:"backend,omitempty"`
	Subject string           `json:"subject,omitempty"`
	Text    string           `json:"text"`
}

// Compile is pure: same input, same output, byte for byte.
func Compile(in Input) Output { panic("stub") }
