package egress

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// CallBare is Call on a connection of its own that sees no handshake, as a call to a backend with HandshakeNone is made:
// discovery finds out by it whether a legacy backend answers so. On a modern backend it is Call.
func (s *Session) CallBare(ctx context.Context, method string, params wire.Object) (json.RawMessage, error) {
	s.mu.Lock()
	b := s.backend
	s.lastID++
	id := strconv.AppendInt(nil, s.lastID, 10)
	s.mu.Unlock()
	if wire.EraOf(b.Protocol) == wire.Modern {
		return s.Call(ctx, method, params)
	}
	b.Handshake = routes.HandshakeNone
	a, err := s.c.Do(ctx, Call{ID: s.id, Backend: &b, RPCID: id, Method: method, Params: params, Header: s.header, Probe: true})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	for {
		m, err := a.Next()
		if err != nil {
			return nil, err
		}
		if m.Final {
			return resultOf(m)
		}
	}
}
