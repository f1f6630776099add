package config

import (
	"fmt"
	"maps"
	"net"
	"reflect"

	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/secret"
)

// HMACSecret returns an issuer's secret as it is now, so that a rotated one needs no reload.
func (c *Config) HMACSecret(issuer string) (string, error) {
	written, ok := c.HMACReferences[issuer]
	if !ok {
		return "", fmt.Errorf("issuer %q has no hmac_secret", issuer)
	}
	r, err := secret.NewResolver(secret.Policy{All: true})
	if err != nil {
		return "", err
	}
	return r.Expand(written)
}

// SameAuth reports whether the same tokens are accepted, with secrets from the same places.
func (c *Config) SameAuth(other *Config) bool {
	return reflect.DeepEqual(c.Auth, other.Auth) && maps.Equal(c.HMACReferences, other.HMACReferences)
}

// remember keeps an issuer's hmac_secret as the file has it, before it is expanded.
func (c *Config) remember(is *access.Issuer) {
	if c.HMACReferences == nil {
		c.HMACReferences = map[string]string{}
	}
	c.HMACReferences[is.Issuer] = is.HMACSecret
}

// resource refuses an audience that the caller could choose: without public_url its URI is built from the Host header.
func (c *checker) resource(path, listen string) {
	if host, _, err := net.SplitHostPort(listen); err == nil && host != "localhost" && !net.ParseIP(host).IsLoopback() {
		c.fault(path, `"resource" needs public_url where listen is no loopback address`)
		return
	}
	c.warn(CodeAuth, path, `"resource" without public_url: the URI is taken from what the client says of itself`)
}
