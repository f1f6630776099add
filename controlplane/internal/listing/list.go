package listing

import (
	"encoding/json"
	"strconv"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

// Bounds of one page. They are generous: many clients ask for the first page only.
const (
	defaultPageSize = 1000 // items
	pageBytes       = 4 << 20
)

// listMethod is what differs between the four lists.
type listMethod struct {
	kind  routes.Kind
	array string // the result's member
	scope string // that opens the whole kind
}

func listMethodOf(method string) (listMethod, bool) {
	switch method {
	case "tools/list":
		return listMethod{routes.KindTool, "tools", "mcp:tools"}, true
	case "prompts/list":
		return listMethod{routes.KindPrompt, "prompts", "mcp:prompts"}, true
	case "resources/list":
		return listMethod{routes.KindResource, "resources", "mcp:resources"}, true
	case "resources/templates/list":
		return listMethod{routes.KindResourceTemplate, "resourceTemplates", "mcp:resources"}, true
	}
	return listMethod{}, false
}

// list answers one page.
func (s *Server) list(v *view, m listMethod, r *wire.Request) (json.RawMessage, *wire.Error) {
	scopes := r.Identity.Scopes
	if !scopes.AllowsKind(m.kind) {
		return nil, wire.InsufficientScope(m.scope)
	}
	offset := 0
	if raw, asked := r.Params.Get("cursor"); asked {
		var cursor string
		if json.Unmarshal(raw, &cursor) != nil {
			return nil, wire.InvalidParams("cursor is not a string")
		}
		var ok bool
		if v, offset, ok = openCursor(v, m.kind, cursor); !ok {
			return nil, wire.InvalidParams("cursor is unknown or the list has changed; begin again without one")
		}
	}
	return s.page(v, m, offset, scopes, r.Era), nil
}

// page builds the result from the entry at offset on.
func (s *Server) page(v *view, m listMethod, offset int, scopes access.Scopes, era wire.Era) json.RawMessage {
	k := &v.kinds[m.kind]
	items := s.pageSize()
	size := 512
	for i := offset; i < len(k.entries) && i < offset+items && size < pageBytes; i++ {
		size += k.entries[i].size() + 1
	}
	b := append(make([]byte, 0, size), '{')
	if era == wire.Modern {
		b = append(b, `"resultType":"complete",`...)
	}
	b = append(appendQuoted(b, m.array), ":["...)
	begin, shown, next := len(b), 0, offset
	for ; next < len(k.entries); next++ {
		e := &k.entries[next]
		if !scopes.Allows(m.kind, e.name) {
			continue
		}
		if shown == items || shown > 0 && len(b)-begin+e.size() > pageBytes {
			break
		}
		if shown > 0 {
			b = append(b, ',')
		}
		b = e.append(b, era)
		shown++
	}
	b = append(b, ']')
	if next < len(k.entries) {
		b = append(b, `,"nextCursor":`...)
		b = appendQuoted(b, cursorFor(v.doc.ID, m.kind, v.version, next))
	}
	if era == wire.Modern {
		ttl := defaultTTL.Milliseconds()
		if k.ttl != nil {
			ttl = *k.ttl
		}
		b = s.appendCaching(b, ttl)
	}
	return append(appendMeta(b, v.doc.ServerInfo, k.partial, era), '}')
}

// appendCaching appends the members of a CacheableResult (2026-07-28, server/utilities/caching).
func (s *Server) appendCaching(b []byte, ttl int64) []byte {
	b = strconv.AppendInt(append(b, `,"ttlMs":`...), max(0, ttl), 10)
	return append(append(append(b, `,"cacheScope":"`...), s.cacheScope...), '"')
}

// appendMeta appends _meta where there is something to say: who answers (2026-07-28, basic/index, _meta), and which backends'
// items are missing or old.
func appendMeta(b []byte, serverInfo json.RawMessage, partial []routes.BackendID, era wire.Era) []byte {
	who := era == wire.Modern && len(serverInfo) > 0
	if !who && len(partial) == 0 {
		return b
	}
	b = append(b, `,"_meta":{`...)
	if who {
		b = append(append(b, `"io.modelcontextprotocol/serverInfo":`...), serverInfo...)
	}
	if len(partial) > 0 {
		if who {
			b = append(b, ',')
		}
		b = append(b, `"weir/partialFailure":{"backends":[`...)
		for i, id := range partial {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendQuoted(b, string(id))
		}
		b = append(b, "]}"...)
	}
	return append(b, '}')
}
