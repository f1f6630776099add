package wire

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/weir-mcp/weir/routes/access"
)

// authenticate verifies the bearer token.
func (x *exchange) authenticate() bool {
	if x.e.o.Auth == nil {
		x.req.Identity = x.e.o.Anonymous
		return true
	}
	token, ok := bearer(x.r.Header)
	if !ok {
		x.unauthorized("Bearer", errors.New("no bearer token"))
		return false
	}
	id, err := x.e.o.Auth.Verify(x.r.Context(), token, x.resource())
	switch {
	case err == nil:
		x.req.Identity = id
		return true
	case errors.Is(err, access.ErrNoKeys):
		x.err = err
		setRetryAfter(x.w.w.Header(), retryNoKeys)
		x.refuse(http.StatusServiceUnavailable, "no_keys", "No keys to verify tokens with yet")
	case errors.Is(err, access.ErrUnconfirmed):
		x.err = err
		setRetryAfter(x.w.w.Header(), retryUnavailable)
		x.refuse(http.StatusServiceUnavailable, "revocations", "Whether the token was revoked is not known now")
	default:
		x.unauthorized(`Bearer error="invalid_token"`, err)
	}
	return false
}

const (
	retryNoKeys      = 2 * time.Second
	retryUnavailable = 2 * time.Second
)

func (x *exchange) unauthorized(challenge string, err error) {
	x.err = err
	x.w.w.Header().Set("WWW-Authenticate", withMetadata(challenge, x.metadataURL()))
	x.refuse(http.StatusUnauthorized, "unauthorized", "Unauthorized")
}

// bearer returns the token of the one Authorization header.
func bearer(h http.Header) (string, bool) {
	values := h["Authorization"]
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.TrimLeft(token, " ")
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}
