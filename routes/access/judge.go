package access

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/weir-mcp/weir/routes"
)

const (
	// MaxHosts is how many virtual hosts a token may name.
	MaxHosts = 64

	maxAudiences = 64
)

// judge reads what the claims say: whether the token is for us and for now, and who it is. Nothing of it holds before the
// signature does.
func (v *Verifier) judge(is *issuer, c claims, resource string, now time.Time) (*verified, error) {
	e, id := &verified{}, &Identity{Issuer: is.name}
	e.id = id
	if err := is.judgeTimes(id, c, now); err != nil {
		return nil, err
	}
	var err error
	if e.resources, err = is.judgeAudience(c, resource); err != nil {
		return nil, err
	}
	if id.Subject, err = c.text("sub"); err != nil {
		return nil, err
	}
	if id.Subject == "" {
		return nil, errors.New("no sub")
	}
	if id.TokenID, err = c.text("jti"); err != nil {
		return nil, err
	}
	if v.tenantClaim != "" {
		if id.Tenant, err = c.text(v.tenantClaim); err != nil {
			return nil, err
		}
	}
	id.Principal = PrincipalOf(id.Issuer, id.Subject, id.Tenant)
	var names []string
	if names, id.HostClaim, err = c.texts(v.hostClaim, MaxHosts); err != nil {
		return nil, err
	}
	id.Hosts = is.allowedHosts(names)
	scope, err := c.text("scope")
	if err != nil {
		return nil, err
	}
	if id.Scopes, err = ParseScopes(scope, is.requireScopes); err != nil {
		return nil, err
	}
	return e, nil
}

func (is *issuer) judgeTimes(id *Identity, c claims, now time.Time) error {
	exp, ok, err := c.time("exp")
	switch {
	case err != nil:
		return err
	case !ok:
		return errors.New("no exp")
	case !now.Before(exp.Add(is.leeway)):
		return errors.New("expired")
	}
	id.Expires = exp
	nbf, ok, err := c.time("nbf")
	switch {
	case err != nil:
		return err
	case ok && now.Add(is.leeway).Before(nbf):
		return errors.New("not valid yet (nbf)")
	}
	iat, ok, err := c.time("iat")
	switch {
	case err != nil:
		return err
	case ok && now.Add(is.leeway).Before(iat):
		return errors.New("issued in the future (iat)")
	case ok:
		id.IssuedAt = iat
	}
	return nil
}

// judgeAudience returns nil when the token names one of the configured audiences, and the token's own ones when it is good for this
// endpoint's URI only.
func (is *issuer) judgeAudience(c claims, resource string) (resources []string, err error) {
	aud, ok, err := c.texts("aud", maxAudiences)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, errors.New("no aud")
	case slices.ContainsFunc(aud, func(a string) bool { return slices.Contains(is.audiences, a) }):
		return nil, nil
	case is.resource && namesResource(aud, resource):
		return aud, nil
	}
	return nil, errors.New("aud is not for us")
}

// namesResource reports whether one of the audiences is the endpoint's canonical URI. Scheme and host are compared without
// case, as the specification asks (2026-07-28, basic/authorization, Canonical Server URI); the rest is exact.
func namesResource(audiences []string, resource string) bool {
	if resource == "" {
		return false
	}
	border := authorityEnd(resource)
	return slices.ContainsFunc(audiences, func(a string) bool {
		return len(a) == len(resource) && a[border:] == resource[border:] && strings.EqualFold(a[:border], resource[:border])
	})
}

// authorityEnd returns where the path of an absolute URI begins.
func authorityEnd(uri string) int {
	_, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return 0
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		return len(uri) - len(rest) + i
	}
	return len(uri)
}

// allowedHosts drops what is malformed, what the issuer may not name and what was named before. What is dropped is not found at
// the endpoint, like a host that never was.
func (is *issuer) allowedHosts(names []string) []routes.HostID {
	hosts := make([]routes.HostID, 0, len(names))
	for _, name := range names {
		allowed := len(is.hosts) == 0 || slices.ContainsFunc(is.hosts, func(g routes.Glob) bool { return g.Match(name) })
		if id := routes.HostID(name); routes.ValidID(name) && allowed && !slices.Contains(hosts, id) {
			hosts = append(hosts, id)
		}
	}
	return hosts
}
