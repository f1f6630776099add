package wire

import "strings"

// pathKind is what a request's path leads to.
type pathKind uint8

const (
	pathUnknown  pathKind = iota
	pathMCP               // /mcp
	pathHost              // /servers/{host}/mcp
	pathMetadata          // RFC 9728 metadata of either
)

// endpointPath is a request's path, taken apart.
type endpointPath struct {
	kind     pathKind
	host     string // as it stands in the path, not checked, with pathHost or pathMetadata
	named    bool   // the path names a host, be it an empty one
	endpoint string // the path of the MCP endpoint that is meant: /mcp or /servers/{host}/mcp
}

const (
	mcpPath       = "/mcp"
	serversPrefix = "/servers/"
	wellKnown     = "/.well-known/oauth-protected-resource"
)

// parsePath takes a raw (still escaped) path apart. Nothing is unescaped: an escape in a host's id makes it malformed.
func (e *Endpoint) parsePath(raw string) endpointPath {
	if rest, ok := strings.CutPrefix(raw, wellKnown); ok {
		if e.public != nil { // RFC 9728 puts the well-known part before the whole path, the public URL's own included
			rest = cutPathPrefix(rest, e.public.path)
		}
		if rest == "" {
			rest = mcpPath
		}
		p := mcpEndpoint(rest)
		if p.kind != pathUnknown {
			p.kind = pathMetadata
		}
		return p
	}
	return mcpEndpoint(raw)
}

// cutPathPrefix removes a prefix that ends at a segment's end.
func cutPathPrefix(path, prefix string) string {
	rest, ok := strings.CutPrefix(path, prefix)
	if !ok || rest != "" && rest[0] != '/' {
		return path
	}
	return rest
}

func mcpEndpoint(raw string) endpointPath {
	if raw == mcpPath {
		return endpointPath{kind: pathMCP, endpoint: mcpPath}
	}
	rest, ok := strings.CutPrefix(raw, serversPrefix)
	if !ok {
		return endpointPath{}
	}
	host, ok := strings.CutSuffix(rest, mcpPath)
	if !ok {
		return endpointPath{}
	}
	return endpointPath{kind: pathHost, host: host, named: true, endpoint: raw}
}
