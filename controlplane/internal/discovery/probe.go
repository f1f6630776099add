package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/wire"
)

// probe is one round of one backend.
type probe struct {
	client   *egress.Client
	limits   Limits
	id       routes.BackendID
	route    routes.Backend
	previous *catalog.Catalog // nil: never heard of
	probed   string           // see watcher
}

// found is what a round that reached the backend found.
type found struct {
	walk   catalog.Walk
	probed string
}

// walk negotiates with the backend and walks its lists. Without an answer found is nil. An error beside found names the lists that
// failed.
func (p *probe) walk(ctx context.Context) (*found, error) {
	preferred := ""
	if p.previous != nil {
		preferred = p.previous.Protocol
	}
	s, err := p.client.Open(ctx, p.id, &p.route, preferred)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	f := &found{walk: catalog.Walk{Backend: p.id, Protocol: s.Protocol}}
	capabilities, err := f.describe(s)
	if err != nil {
		return nil, err
	}

	bytes := new(atomic.Int64)
	bytes.Add(int64(len(s.Discover)))
	var pages [len(lists)]json.RawMessage // the first ones
	var errs [len(lists)]error
	var walks sync.WaitGroup
	for i, l := range lists {
		if _, declared := capabilities[l.capability]; !declared {
			continue // nothing there: an empty list, and a complete one
		}
		walks.Go(func() {
			w := walker{session: s, list: l, limits: p.limits, bytes: bytes, legacy: wire.EraOf(s.Protocol) == wire.Legacy}
			f.walk.Lists[l.kind], errs[i] = w.walk(ctx)
			pages[i] = w.first
		})
	}
	walks.Wait()
	for i, l := range lists {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s: %w", l.method, errs[i])
		}
	}
	if err := errors.Join(errs[:]...); err != nil || wire.EraOf(s.Protocol) == wire.Modern {
		f.walk.Handshake, f.probed = p.keptHandshake(s.Protocol), p.probed
		return f, err
	}
	f.walk.Handshake, f.probed = p.handshake(ctx, s, &f.walk, pages[:])
	return f, nil
}

// describe reads what the backend says of itself: the DiscoverResult (2026-07-28, server/discover) or the InitializeResult
// (2025-11-25, basic/lifecycle), where the server's name stands in another place.
func (f *found) describe(s *egress.Session) (capabilities map[string]json.RawMessage, err error) {
	var said struct {
		Capabilities json.RawMessage `json:"capabilities"`
		ServerInfo   json.RawMessage `json:"serverInfo"`
		Instructions json.RawMessage `json:"instructions"`
		Meta         struct {
			ServerInfo json.RawMessage `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(s.Discover, &said); err != nil {
		return nil, &failedWalk{"bad_response", errors.New("what the backend says of itself is malformed")}
	}
	if len(said.Capabilities) > 0 && json.Unmarshal(said.Capabilities, &capabilities) != nil {
		return nil, &failedWalk{"bad_response", errors.New("the backend's capabilities are no object")}
	}
	w := &f.walk
	w.Capabilities, w.ServerInfo = said.Capabilities, said.ServerInfo
	if wire.EraOf(s.Protocol) == wire.Modern {
		w.ServerInfo = said.Meta.ServerInfo
	}
	if json.Unmarshal(said.Instructions, &w.Instructions) != nil {
		w.Instructions = "" // of another type: they are for display only
	}
	return capabilities, nil
}

// keptHandshake is what was known of a legacy backend's handshake, where a round can't find out.
func (p *probe) keptHandshake(protocol string) routes.Handshake {
	switch {
	case wire.EraOf(protocol) == wire.Modern:
		return ""
	case p.previous != nil && p.previous.Handshake != "":
		return p.previous.Handshake
	}
	return routes.HandshakeRequired
}

// handshake finds out whether calls to a legacy backend work without one. It asks for a list on a connection of its own that saw no
// initialize, and only the very answer that the session got counts: ping, for one, is answered before a handshake by strict
// servers too. Two such answers in a row are asked for, and one in each later round: where none comes, the handshake is back at
// once. A backend that needs one is not tried again until it says that it is another version.
func (p *probe) handshake(ctx context.Context, s *egress.Session, w *catalog.Walk, firstPages []json.RawMessage) (routes.Handshake, string) {
	identity := routes.Digest([]byte(p.route.URL), []byte(w.Protocol), w.ServerInfo, w.Capabilities)
	confirmed := p.previous != nil && p.previous.Handshake == routes.HandshakeNone && p.previous.Protocol == w.Protocol
	if p.probed == identity && !confirmed {
		return routes.HandshakeRequired, identity
	}
	i := slices.IndexFunc(firstPages, func(page json.RawMessage) bool { return page != nil })
	if i < 0 {
		return routes.HandshakeRequired, identity // nothing to ask for, and nothing to call
	}
	want := listed(lists[i].kind, firstPages[i])
	if len(want) == 0 {
		return routes.HandshakeRequired, identity // an empty list is what a stranger might get
	}
	times := 2
	if confirmed && p.probed == identity {
		times = 1
	}
	for range times {
		page, err := s.CallBare(ctx, lists[i].method, wire.Object{})
		switch {
		case refusedBare(err):
			return routes.HandshakeRequired, identity
		case err != nil || !slices.Equal(listed(lists[i].kind, page), want):
			return routes.HandshakeRequired, "" // perhaps by chance: the next round asks again
		}
	}
	return routes.HandshakeNone, identity
}

// refusedBare reports whether the backend itself would not answer without a handshake.
func refusedBare(err error) bool {
	if _, ok := errors.AsType[*egress.RPCError](err); ok {
		return true
	}
	f, ok := errors.AsType[*egress.Failure](err)
	return ok && f.Status >= 400 && f.Status < 500 && f.Status != http.StatusRequestTimeout && f.Status != http.StatusTooManyRequests
}

// listed are the digests of the items on a page; nil when it is none.
func listed(k catalog.Kind, page json.RawMessage) []string {
	items, _, err := pageOf(k, page, true)
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(items))
	for _, raw := range items {
		out = append(out, routes.Digest(raw))
	}
	return out
}

// reasonOf is why a walk failed, in a word or two that stay the same while the cause does: it is published.
func reasonOf(err error) string {
	if w, ok := errors.AsType[*failedWalk](err); ok {
		return w.reason
	}
	if f, ok := errors.AsType[*egress.Failure](err); ok {
		if f.Status >= 300 {
			return fmt.Sprintf("%s (HTTP %d)", f.Reason, f.Status)
		}
		return f.Reason
	}
	if r, ok := errors.AsType[*egress.RPCError](err); ok {
		return fmt.Sprintf("error %d", r.Code)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return egress.ReasonTimeout
	}
	return egress.ReasonBadResponse
}

// maxDescription bounds an error's text, of which the backend may write a part.
const maxDescription = 512

// describe is an error's text for operators.
func describe(err error) string {
	s := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\n", "; "), "\uFFFD")
	if len(s) <= maxDescription {
		return s
	}
	n := maxDescription
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
