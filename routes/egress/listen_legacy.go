package egress

import (
	"context"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// listenLegacy opens a session and its standalone stream, and subscribes to resources in it. The SDK opens such streams for its
// own client only, so that this GET is made by hand.
// Source: MCP 2025-11-25, basic/transports (Listening for Messages from the Server) and server/resources (Subscriptions).
func (c *Client) listenLegacy(ctx context.Context, id routes.BackendID, b *routes.Backend, want Filter) (*Subscription, error) {
	header, err := c.Header(b)
	if err != nil {
		return nil, &Failure{Reason: ReasonAuthFailed, Err: err}
	}
	p, err := c.pools.get(id, b)
	if err != nil {
		return nil, &Failure{Reason: ReasonUnreachable, Err: err}
	}
	l, err := c.dialLegacy(p, b, header, "")
	if err != nil {
		return nil, &Failure{Reason: ReasonUnreachable, Err: err}
	}
	if _, err := l.handshake(ctx, b.Protocol, nil, nil); err != nil {
		l.close()
		return nil, err
	}
	s, err := l.stream(ctx)
	if err != nil {
		l.close()
		return nil, err
	}
	for _, uri := range want.URIs { // after the stream was opened, so that no update falls between
		if err := l.subscribe(ctx, uri); err != nil {
			s.close()
			l.close()
			return nil, noStream(err)
		}
	}
	return &Subscription{Agreed: want, next: s.next, close: func() { s.close(); l.close() }}, nil
}

func (l *legacyConn) subscribe(ctx context.Context, uri string) error {
	a, err := l.send(ctx, "resources/subscribe", wire.Object{{Name: "uri", Value: wire.Quote(uri)}}, nil, time.Now().Add(l.limits.total))
	defer a.end(true)
	if err != nil {
		return err
	}
	_, err = a.result()
	return err
}

// legacyStream is the standalone stream of a session.
type legacyStream struct {
	l      *legacyConn
	x      *exchange
	resp   *http.Response
	events *wire.EventReader
}

// stream opens the session's standalone stream. A backend that has none answers 405.
func (l *legacyConn) stream(ctx context.Context) (*legacyStream, error) {
	x := newExchange(ctx, limits{response: l.limits.response, idle: quiet, total: quiet})
	out, err := l.wire.build(&http.Request{Method: http.MethodGet, Header: http.Header{"Accept": {mediaStream}}})
	if err != nil {
		x.finish()
		return nil, x.failed(err)
	}
	resp, err := l.p.roundTrip(x, out)
	if err != nil {
		x.finish()
		return nil, err
	}
	media, _ := mediaOf(resp.Header)
	if resp.StatusCode == http.StatusOK && media == mediaStream {
		return &legacyStream{l: l, x: x, resp: resp, events: wire.NewEventReader(resp.Body, l.c.opts.ResponseLimit)}, nil
	}
	switch {
	case resp.StatusCode == http.StatusMethodNotAllowed:
		err = ErrNoStream
	case resp.StatusCode/100 == 2:
		err = x.bad(errBadMedia)
	default:
		err = x.refused(resp.StatusCode, resp.Header)
	}
	x.finish()
	resp.Body.Close()
	return nil, err
}

func (s *legacyStream) next() (Notification, error) {
	for {
		data, err := s.events.Next()
		if err != nil {
			return Notification{}, s.x.failed(err)
		}
		scan, err := wire.ScanMessage(data)
		if err != nil {
			return Notification{}, s.x.bad(err)
		}
		switch scan.Kind {
		case wire.KindRequest: // a ping, most likely
			if m, err := jsonrpc.DecodeMessage(data); err == nil {
				if req, ok := m.(*jsonrpc.Request); ok {
					s.l.reply(s.x.plain, req)
				}
			}
		case wire.KindNotification:
			if n, ok := notificationOf(scan.Method, data); ok {
				return n, nil
			}
		}
	}
}

func (s *legacyStream) close() {
	s.x.finish()
	s.resp.Body.Close()
}
