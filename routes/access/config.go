package access

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// Defaults and bounds of the auth block.
const (
	DefaultVirtualHostClaim = "virtual_host"
	DefaultLeeway           = 30 * time.Second
	MaxLeeway               = 5 * time.Minute

	// MinHMACSecret is the shortest shared secret, in bytes: the output size of HS256 (RFC 7518 § 3.2).
	MinHMACSecret = 32

	// AudienceResource in Issuer.Audiences stands for the canonical URI of the endpoint called (RFC 8707 § 2).
	AudienceResource = "resource"
)

// Config is the auth block of both planes' config files.
type Config struct {
	// VirtualHostClaim is the top-level claim that names the virtual hosts: a string, or a list of at most 64 strings. Empty means
	// virtual_host.
	VirtualHostClaim string `yaml:"virtual_host_claim"`
	// TenantClaim is a top-level string claim that is part of the principal. Empty means none: issuer and subject alone.
	TenantClaim string `yaml:"tenant_claim"`
	// Issuers are those whose tokens are accepted; at least one.
	Issuers []Issuer `yaml:"issuers"`
}

// Issuer is who may sign tokens, and how. Exactly one of PublicKeyFile, JWKSURL, JWKSFile and HMACSecret is set.
type Issuer struct {
	// Issuer must equal a token's iss, byte for byte.
	Issuer string `yaml:"issuer"`
	// Audiences lists what a token's aud must contain one of; at least one. "resource" is AudienceResource.
	Audiences []string `yaml:"audiences"`
	// Algorithms is the allowlist for a token's alg: RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA, or
	// HS256, HS384, HS512; at least one. HS never stands beside the others.
	Algorithms []string `yaml:"algorithms"`
	// PublicKeyFile holds one public key: PEM (PKIX, PKCS #1 or a certificate, whose dates are not looked at) or a JWK. Re-read on
	// change.
	PublicKeyFile string `yaml:"public_key_file"`
	// JWKSURL serves a JWK set (RFC 7517 § 5). Refreshed every 5 min, and when a token names an unknown key.
	JWKSURL string `yaml:"jwks_url"`
	// JWKSFile holds a JWK set. Re-read on change.
	JWKSFile string `yaml:"jwks_file"`
	// HMACSecret is the secret itself here: the config loader has expanded the reference that the file holds.
	HMACSecret string `yaml:"hmac_secret"`
	// Leeway is how far the issuer's clock may be off, for exp, nbf and iat. Zero means 30s; negative or over 5m is an error.
	Leeway time.Duration `yaml:"leeway"`
	// RequireScopes: a token without any mcp: scope may do nothing, instead of everything.
	RequireScopes bool `yaml:"require_scopes"`
	// VirtualHosts are globs on the hosts that this issuer's tokens may name. Absent means all.
	VirtualHosts []string `yaml:"virtual_hosts"`
}

// Validate reports every fault, joined, each starting with the field's path below prefix ("auth"). It reads no file and
// never shows a secret.
func (c *Config) Validate(prefix string) error {
	var errs []error
	if len(c.Issuers) == 0 {
		errs = append(errs, fmt.Errorf("%s.issuers: at least one issuer is required", prefix))
	}
	first := make(map[string]int, len(c.Issuers))
	for i := range c.Issuers {
		is, path := &c.Issuers[i], fmt.Sprintf("%s.issuers[%d]", prefix, i)
		errs = append(errs, is.validate(path)...)
		if j, dup := first[is.Issuer]; dup && is.Issuer != "" {
			errs = append(errs, fmt.Errorf("%s.issuer: %q is issuers[%d] already; a token must lead to one issuer", path, is.Issuer, j))
			continue
		}
		first[is.Issuer] = i
	}
	return errors.Join(errs...)
}

func (is *Issuer) validate(path string) (errs []error) {
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s: "+format, append([]any{path, field}, args...)...))
	}
	if is.Issuer == "" {
		fault("issuer", "is required")
	}
	if len(is.Audiences) == 0 {
		fault("audiences", `is required; "resource" stands for the URI of the endpoint called`)
	}
	for i, a := range is.Audiences {
		if a == "" {
			fault(fmt.Sprintf("audiences[%d]", i), "is empty")
		}
	}
	hmac := is.validateAlgorithms(fault)
	is.validateKeySource(fault, hmac)
	switch {
	case is.Leeway < 0:
		fault("leeway", "%v is negative", is.Leeway)
	case is.Leeway > MaxLeeway:
		fault("leeway", "%v is over %v", is.Leeway, MaxLeeway)
	}
	if is.VirtualHosts != nil && len(is.VirtualHosts) == 0 {
		fault("virtual_hosts", `is empty, so no token of this issuer could be used; leave it out for all hosts`)
	}
	for i, g := range is.VirtualHosts {
		if _, err := routes.ParseGlob(g); err != nil {
			fault(fmt.Sprintf("virtual_hosts[%d]", i), "%w", err)
		}
	}
	return errs
}

// validateAlgorithms reports whether the issuer's algorithms are the HMAC ones.
func (is *Issuer) validateAlgorithms(fault func(field, format string, args ...any)) (hmac bool) {
	if len(is.Algorithms) == 0 {
		fault("algorithms", "is required")
	}
	asymmetric := false
	for i, name := range is.Algorithms {
		field := fmt.Sprintf("algorithms[%d]", i)
		alg, ok := algorithmOf(name)
		switch {
		case strings.EqualFold(name, "none"):
			fault(field, `"none" is never accepted`)
		case !ok:
			fault(field, "%q is not one of %s", name, strings.Join(Algorithms(), ", "))
		case slices.Contains(is.Algorithms[:i], name):
			fault(field, "%q stands here twice", name)
		case alg.family == familyHMAC:
			hmac = true
		default:
			asymmetric = true
		}
	}
	if hmac && asymmetric {
		// Whoever knows the public key could sign with it as if it were the secret.
		fault("algorithms", "HS algorithms cannot stand beside others for one issuer")
	}
	return hmac
}

func (is *Issuer) validateKeySource(fault func(field, format string, args ...any), hmac bool) {
	var set []string
	for _, s := range []struct{ field, value string }{
		{"public_key_file", is.PublicKeyFile}, {"jwks_url", is.JWKSURL}, {"jwks_file", is.JWKSFile}, {"hmac_secret", is.HMACSecret},
	} {
		if s.value != "" {
			set = append(set, s.field)
		}
	}
	switch {
	case len(set) == 0:
		fault("public_key_file", "or jwks_url, jwks_file, hmac_secret: one is required")
		return
	case len(set) > 1:
		fault(set[1], "is set beside %s; one source of keys only", set[0])
	case hmac && is.HMACSecret == "":
		fault("hmac_secret", "is required for HS algorithms, instead of %s", set[0])
	case !hmac && is.HMACSecret != "" && len(is.Algorithms) > 0:
		fault("hmac_secret", "is for HS algorithms only, and algorithms has none")
	}
	if is.HMACSecret != "" && len(is.HMACSecret) < MinHMACSecret {
		fault("hmac_secret", "has %d bytes; at least %d are required", len(is.HMACSecret), MinHMACSecret)
	}
	if is.JWKSURL != "" {
		if err := checkJWKSURL(is.JWKSURL); err != nil {
			fault("jwks_url", "%w", err)
		}
	}
}

func checkJWKSURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil: // its text would repeat the URL, with a password in it maybe
		return errors.New("is not a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return errors.New("is not an http or https URL")
	case u.Host == "":
		return errors.New("has no host")
	case u.User != nil:
		return errors.New("must not contain a user name or password")
	case u.Fragment != "":
		return errors.New("must not contain a fragment")
	}
	return nil
}

// Warnings tells what a Config that Validate accepts is unlikely to mean, each line starting with the field's path below
// prefix.
func (c *Config) Warnings(prefix string) (warnings []string) {
	for i := range c.Issuers {
		u, err := url.Parse(c.Issuers[i].JWKSURL)
		if err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
			warnings = append(warnings, fmt.Sprintf(
				"%s.issuers[%d].jwks_url: is http: whoever stands on the way can put in keys of his own and sign any token", prefix, i))
		}
	}
	return warnings
}
