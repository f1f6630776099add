package wire

import (
	"errors"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"
)

// mediaTypes makes the checks that need no body: declared size, content type, Accept.
// Source: MCP 2026-07-28, basic/transports/streamable-http (Sending Messages).
func (x *exchange) mediaTypes() bool {
	h := x.r.Header
	switch {
	case x.r.ContentLength > x.e.o.Limits.Body:
		x.tooLarge()
	case !isJSONContent(h):
		x.refuse(http.StatusUnsupportedMediaType, "content_type", "Content-Type must be application/json, without content coding")
	case !acceptsBoth(h["Accept"]):
		x.refuse(http.StatusNotAcceptable, "accept", "Accept must list application/json and text/event-stream")
	default:
		return true
	}
	return false
}

// tooLarge refuses a body without reading it; the connection closes, as nobody will read the rest.
func (x *exchange) tooLarge() {
	x.w.w.Header().Set("Connection", "close")
	x.refuse(http.StatusRequestEntityTooLarge, "too_large", "Request body too large")
}

// readBody reads the body whole, at most the limit, in bounded time. Memory follows what has arrived, not what was announced.
func (x *exchange) readBody() ([]byte, *Memory, bool) {
	limit := x.e.o.Limits.Body
	_ = x.w.rc.SetReadDeadline(time.Now().Add(x.e.o.BodyTimeout)) // not every reader has deadlines
	body, memory, err := x.e.bodies.ReadBody(http.MaxBytesReader(x.w.w, x.r.Body, limit), x.r.ContentLength, limit)
	_ = x.w.rc.SetReadDeadline(time.Time{})
	if err == nil {
		return body, memory, true
	}
	x.err = err
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		x.tooLarge()
		return nil, nil, false
	}
	x.w.w.Header().Set("Connection", "close")
	if errors.Is(err, os.ErrDeadlineExceeded) {
		x.refuse(http.StatusRequestTimeout, "body_timeout", "Request body took too long")
	} else {
		x.refuse(http.StatusBadRequest, "body", "Request body could not be read")
	}
	return nil, nil, false
}

// isJSONContent reports whether the body is declared as JSON: UTF-8, not compressed.
func isJSONContent(h http.Header) bool {
	types := h["Content-Type"]
	if len(types) != 1 {
		return false
	}
	for _, coding := range h["Content-Encoding"] {
		if !strings.EqualFold(strings.TrimSpace(coding), "identity") {
			return false
		}
	}
	if types[0] == "application/json" {
		return true
	}
	media, params, err := mime.ParseMediaType(types[0])
	if err != nil || media != "application/json" {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "us-ascii")
}

// acceptsBoth reports whether Accept lists JSON and event streams; ranges count, q=0 takes away.
func acceptsBoth(values []string) bool {
	if len(values) == 1 && (values[0] == "application/json, text/event-stream" || values[0] == "*/*") {
		return true
	}
	return accepts(values, "application", "json") && accepts(values, "text", "event-stream")
}

// accepts reports whether the most specific range that covers a media type has a quality above zero.
// Source: RFC 9110, section 12.5.1.
func accepts(values []string, kind, subtype string) bool {
	best, accepted := 0, false
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			media, params, _ := strings.Cut(part, ";")
			t, s, ok := strings.Cut(strings.ToLower(strings.TrimSpace(media)), "/")
			specific := 0
			switch {
			case !ok:
			case t == kind && s == subtype:
				specific = 3
			case t == kind && s == "*":
				specific = 2
			case t == "*" && s == "*":
				specific = 1
			}
			switch {
			case specific == 0 || specific < best:
			case specific > best:
				best, accepted = specific, quality(params)
			default:
				accepted = accepted || quality(params)
			}
		}
	}
	return accepted
}

// quality reports whether a range's parameters leave it above zero.
func quality(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		name, value, ok := strings.Cut(strings.TrimSpace(p), "=")
		if ok && strings.EqualFold(strings.TrimSpace(name), "q") {
			return strings.Trim(strings.TrimSpace(value), "0.") != ""
		}
	}
	return true
}
