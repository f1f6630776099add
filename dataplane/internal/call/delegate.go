package call

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-mcp/weir/routes/wire"
)

// Delegate is the way to the control plane.
type Delegate struct {
	// Transport makes the HTTP exchange; it follows no redirects.
	Transport http.RoundTripper
	// Base is the control plane's base URL; the request's own path is appended.
	Base *url.URL
	// KeepHost sends the client's Host instead of Base's, for a control plane in the same process.
	KeepHost bool
	// ResponseLimit bounds a JSON answer, and an event, in bytes. Zero means 16 MiB.
	ResponseLimit int64
	// Patience bounds the wait for the answer's headers. Zero means 60s.
	Patience time.Duration
}

var errPatience = errors.New("no answer in time")

// wrongEra refuses a method that another era has. Where the control plane can be asked, its answer is the one that the
// specification wants of a whole server: 404 and -32601 (2026-07-28, basic/transports/streamable-http).
func (c *call) wrongEra() *wire.Error {
	if c.h.o.Delegate != nil {
		return c.toControlPlane()
	}
	return c.refuse(wire.InvalidRequest(c.r.Method+" is of earlier versions; with "+c.r.Version+" call server/discover. "+served()), "wrong_era")
}

// toControlPlane refuses a delegated method, or relays it.
func (c *call) toControlPlane() *wire.Error {
	d := c.h.o.Delegate
	if d == nil {
		return c.refuse(wire.InvalidRequest(c.r.Method+" is served by the control plane"), "delegated")
	}
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	late := time.AfterFunc(cmp.Or(d.Patience, time.Minute), func() { cancel(errPatience) })
	resp, err := d.Transport.RoundTrip(d.request(ctx, c.r))
	late.Stop()
	switch {
	case errors.Is(context.Cause(ctx), errPatience):
		if err == nil {
			resp.Body.Close()
		}
		return c.controlPlaneFailed(wire.ReasonTimeout, errPatience)
	case err != nil:
		return c.controlPlaneFailed(wire.ReasonUnreachable, err)
	}
	defer resp.Body.Close()
	limit := cmp.Or(d.ResponseLimit, 16<<20)
	for _, name := range []string{"Www-Authenticate", "Retry-After", "Allow"} {
		if values := resp.Header[name]; len(values) > 0 {
			c.w.Header()[name] = values
		}
	}
	if media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";"); strings.EqualFold(strings.TrimSpace(media), "text/event-stream") {
		return c.relayStream(resp.Body, limit)
	}
	doc, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return c.controlPlaneFailed(wire.ReasonReset, err)
	case int64(len(doc)) > limit:
		return c.controlPlaneFailed(wire.ReasonTooLarge, errors.New("the answer is over the response limit"))
	case resp.StatusCode >= 300 && resp.StatusCode < 400 || resp.StatusCode >= 500 && resp.StatusCode != http.StatusServiceUnavailable:
		return c.controlPlaneFailed(wire.ReasonBadResponse, errors.New("HTTP status "+resp.Status))
	}
	c.w.Raw(resp.StatusCode, doc)
	return nil
}

// request is the client's, byte for byte, with the headers that the control plane looks at.
func (d *Delegate) request(ctx context.Context, r *wire.Request) *http.Request {
	u := *d.Base
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+r.HTTP.URL.Path, ""
	h := make(http.Header, 12)
	for name, values := range r.HTTP.Header {
		switch {
		case name == "Authorization", name == "Accept", name == "Content-Type", name == "User-Agent", name == "Traceparent",
			name == "Tracestate", strings.HasPrefix(name, "Mcp-"):
			h[name] = values
		}
	}
	// Not sent: it tells net/http that a request which met a connection that the peer had closed may be repeated, since no
	// delegated method does anything twice.
	h["Idempotency-Key"] = []string{}
	body := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.Raw)), nil }
	req := (&http.Request{
		Method: http.MethodPost, URL: &u, Host: u.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(r.Raw)), GetBody: body,
	}).WithContext(ctx)
	req.Body, _ = body()
	if d.KeepHost {
		req.Host = r.HTTP.Host
	}
	return req
}

// relayStream passes on events, each flushed, up to the response.
func (c *call) relayStream(body io.Reader, limit int64) *wire.Error {
	if err := c.w.Begin(); err != nil {
		return c.gone(err)
	}
	events := wire.NewEventReader(body, limit)
	for {
		doc, err := events.Next()
		if err != nil && c.r.Method == "subscriptions/listen" && errors.Is(context.Cause(c.ctx), ErrStopping) {
			c.outcome = "stopping"
			c.w.Result(endOfStream(c.r.ID))
			return nil
		}
		if err != nil {
			return c.controlPlaneFailed(wire.ReasonReset, err)
		}
		scan, err := wire.ScanMessage(doc)
		if err != nil {
			return c.controlPlaneFailed(wire.ReasonBadResponse, err)
		}
		if err := c.w.Event(doc); err != nil {
			return c.gone(err)
		}
		if scan.Kind == wire.KindResponse {
			c.w.Finish()
			return nil
		}
		c.events++
	}
}

// endOfStream is the result that ends a subscription in an orderly way.
// Source: MCP 2026-07-28, basic/patterns/subscriptions (Graceful Closure).
func endOfStream(id json.RawMessage) json.RawMessage {
	meta := wire.Object{{Name: "io.modelcontextprotocol/subscriptionId", Value: id}}
	return wire.Object{{Name: "resultType", Value: wire.Quote("complete")}, {Name: "_meta", Value: meta.Append(nil)}}.Append(nil)
}

func (c *call) controlPlaneFailed(reason string, err error) *wire.Error {
	if c.ctx.Err() != nil {
		return c.failed(err)
	}
	c.outcome, c.err = reason, err
	return wire.Internal(reason, "the control plane did not answer: "+reason)
}
