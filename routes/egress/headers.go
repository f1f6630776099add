package egress

import (
	"maps"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// Header names in the form in which net/http writes them.
const (
	headerVersion   = "Mcp-Protocol-Version"
	headerMethod    = "Mcp-Method"
	headerName      = "Mcp-Name"
	headerSession   = "Mcp-Session-Id"
	headerLastEvent = "Last-Event-Id"
	prefixParam     = "mcp-param-"
)

var ( // shared by all requests; read-only
	valueJSON   = []string{"application/json"}
	valueAccept = []string{"application/json, text/event-stream"}
)

// addHeaders copies to dst what of src may be sent: the last line of defence behind the planes, which computed src.
//
// Idempotency-Key gets a key that net/http does not know: it would replay a POST that carries one on a connection that broke.
func addHeaders(dst, src http.Header, era wire.Era) {
	listed := src["Connection"]
	for name, values := range src {
		if len(values) == 0 || routes.ProtectedHeader(name) && !(era == wire.Modern && isParam(name)) {
			continue
		}
		if len(listed) > 0 && listedIn(listed, name) {
			continue
		}
		switch name = textproto.CanonicalMIMEHeaderKey(name); name {
		case "Idempotency-Key", "X-Idempotency-Key":
			name = strings.ToLower(name)
		}
		dst[name] = values
	}
}

// listedIn reports whether a Connection header names name, which makes it hop-by-hop.
func listedIn(connection []string, name string) bool {
	for _, v := range connection {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(part), name) {
				return true
			}
		}
	}
	return false
}

func isParam(name string) bool {
	return len(name) > len(prefixParam) && strings.EqualFold(name[:len(prefixParam)], prefixParam)
}

// Header resolves what the operator adds to every request to a backend, for a Call that the plane makes without a caller's own
// headers: AddHeaders less RemoveHeaders. A discovered backend's config is not the operator's: a reference in it is an error.
func (c *Client) Header(b *routes.Backend) (http.Header, error) {
	h := make(http.Header, len(b.AddHeaders))
	for name, ref := range b.AddHeaders {
		v := string(ref)
		if strings.Contains(v, "${") {
			if c.opts.Expand == nil || b.Discovered {
				return nil, errNoSecrets
			}
			var err error
			if v, err = c.opts.Expand(v); err != nil {
				return nil, err
			}
		}
		h.Set(name, v)
	}
	for _, remove := range b.RemoveHeaders {
		maps.DeleteFunc(h, func(name string, _ []string) bool { return routes.FoldHeader(name) == routes.FoldHeader(remove) })
	}
	return h, nil
}
