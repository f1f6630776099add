package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/secret"
)

// checker turns a decoded file into a Config and collects what is wrong with it.
type checker struct {
	expand   func(string) (string, error) // the value of a text with references
	lineAt   func(path string) int
	errs     []error
	warnings []Warning
}

// fault records an error of the file, at the path of a field.
func (c *checker) fault(path, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: "+format, append([]any{path}, args...)...))
}

// add records errors that start with their path; joined ones are taken apart later.
func (c *checker) add(err error) {
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

func (c *checker) warn(code, path, format string, args ...any) {
	c.warnings = append(c.warnings, Warning{Path: path, Text: fmt.Sprintf(format, args...), Line: c.lineAt(path), Code: code})
}

func (c *checker) config(f *file) *Config {
	cfg := &Config{
		Redis:          f.Redis,
		Listen:         c.address("listen", f.Listen),
		AdminListen:    c.address("admin_listen", f.AdminListen),
		OpsListen:      c.address("ops_listen", f.OpsListen),
		TLS:            f.TLS,
		PublicURL:      c.publicURL("public_url", f.PublicURL),
		AllowedOrigins: f.AllowedOrigins,
		AllowedHosts:   f.AllowedHosts,
		Auth:           f.Auth,
		ConfigVersion:  f.ConfigVersion,
		Discovery:      Discovery(f.Discovery),
		Listing:        Listing(f.Listing),
		LogLevel:       f.LogLevel,
	}
	c.distinct(cfg)
	c.redis(&cfg.Redis)
	c.add(cfg.TLS.Validate("tls"))
	cfg.Admin = c.token("admin.token", f.Admin)
	cfg.Internal = c.token("internal.token", f.Internal)
	for i, o := range f.AllowedOrigins {
		c.origin(fmt.Sprintf("allowed_origins[%d]", i), o)
	}
	for i, h := range f.AllowedHosts {
		c.host(fmt.Sprintf("allowed_hosts[%d]", i), h)
	}
	c.auth(cfg)
	if f.ConfigVersion < 0 {
		c.fault("config_version", "%d is negative", f.ConfigVersion)
	}
	c.discovery(cfg.Discovery)
	if n := cfg.Listing.PageSize; n < 1 || n > maxPageSize {
		c.fault("listing.page_size", "%d is not between 1 and %d", n, maxPageSize)
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, f.LogLevel) {
		c.fault("log_level", "%q is none of debug, info, warn, error", f.LogLevel)
	}
	cfg.Sources = c.sources(f.Sources)
	for _, e := range f.Backends {
		cfg.Backends = append(cfg.Backends, c.backend(e))
	}
	for _, e := range f.VirtualHosts {
		cfg.VirtualHosts = append(cfg.VirtualHosts, c.virtualHost(e, cfg))
	}
	c.unused(cfg)
	for i := range f.Plugins {
		cfg.Plugins = append(cfg.Plugins, c.plugin(fmt.Sprintf("plugins[%d]", i), &f.Plugins[i], f.Plugins[:i]))
	}
	return cfg
}

// redis expands what may be secret and has the store check the rest.
func (c *checker) redis(r *redisstore.Config) {
	ok := true
	for _, s := range []struct {
		path  string
		value *string
	}{{"redis.url", &r.URL}, {"redis.username", &r.Username}, {"redis.password", &r.Password},
		{"redis.sentinel_username", &r.SentinelUsername}, {"redis.sentinel_password", &r.SentinelPassword}} {
		if strings.HasSuffix(s.path, "password") {
			c.literal(s.path, *s.value)
		}
		ok = c.own(s.path, s.value) && ok
	}
	if ok { // else the fault is known, and a reference is no URL
		c.add(r.Validate("redis"))
	}
}

// minToken is the shortest bearer token of the admin and internal APIs, in bytes.
const minToken = 32

func (c *checker) token(path string, b tokenBlock) Token {
	if b.Token == "" {
		return Token{}
	}
	c.literal(path, b.Token)
	if !c.own(path, &b.Token) {
		return Token{}
	}
	if len(b.Token) < minToken {
		c.fault(path, "has %d bytes; at least %d are required", len(b.Token), minToken)
	}
	if !printable(b.Token) {
		c.fault(path, "has characters that no bearer token may have")
	}
	return Token{Value: b.Token}
}

func (c *checker) auth(cfg *Config) {
	a := &cfg.Auth
	for i := range a.Issuers {
		is, path := &a.Issuers[i], fmt.Sprintf("auth.issuers[%d]", i)
		if is.HMACSecret != "" {
			cfg.remember(is)
			c.literal(path+".hmac_secret", is.HMACSecret)
			if !c.own(path+".hmac_secret", &is.HMACSecret) {
				is.HMACSecret = strings.Repeat("?", access.MinHMACSecret) // its absence is reported; Validate sees to the rest
			}
		}
		if slices.Contains(is.Audiences, access.AudienceResource) && cfg.PublicURL == "" {
			c.resource(path+".audiences", cfg.Listen)
		}
	}
	c.add(a.Validate("auth"))
	for _, w := range a.Warnings("auth") {
		path, text, _ := strings.Cut(w, ": ")
		c.warn(CodeAuth, path, "%s", text)
	}
}

// own expands one of the plane's own secrets in place.
func (c *checker) own(path string, s *string) bool {
	if !secret.HasReference(*s) {
		return true
	}
	v, err := c.expand(*s)
	if err != nil {
		c.fault(path, "%w", err)
		return false
	}
	if v == "" {
		c.fault(path, "the reference leads to an empty value")
		return false
	}
	*s = v
	return true
}

// literal warns of a secret that stands in the file itself.
func (c *checker) literal(path, s string) {
	if s != "" && !secret.HasReference(s) {
		c.warn(CodeLiteralSecret, path, "the secret itself stands in the file; ${env:NAME} or ${file:/path} would keep it out")
	}
}

// globs compiles a list; an empty one that is written out is more likely a mistake than either of its two meanings.
func (c *checker) globs(path string, in []string, allow bool) []routes.Glob {
	if allow && in != nil && len(in) == 0 {
		c.fault(path, `is empty; leave it out to allow all, or deny ["*"] to allow none`)
	}
	out := make([]routes.Glob, 0, len(in))
	for i, s := range in {
		g, err := routes.ParseGlob(s)
		if err != nil {
			c.fault(fmt.Sprintf("%s[%d]", path, i), "%w", err)
			continue
		}
		out = append(out, g)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// unused warns of backends and sources that no host uses.
func (c *checker) unused(cfg *Config) {
	used, usedSources := map[routes.BackendID]bool{}, map[string]bool{}
	for _, h := range cfg.VirtualHosts {
		for _, b := range h.Backends {
			used[b.Name] = true
			usedSources[b.Source] = true
		}
	}
	for _, s := range cfg.Sources {
		if !usedSources[s.Name] && !namesUndefined(cfg) {
			c.warn(CodeUnused, "sources."+s.Name, "no virtual host uses this source")
		}
	}
	for _, b := range cfg.Backends {
		if !used[b.ID] {
			c.warn(CodeUnused, "backends."+string(b.ID), "no virtual host uses this backend")
		}
	}
}

// namesUndefined reports whether some host names a backend that a source is to deliver.
func namesUndefined(cfg *Config) bool {
	return slices.ContainsFunc(cfg.VirtualHosts, func(h VirtualHost) bool {
		return slices.ContainsFunc(h.Backends, func(b HostBackend) bool { return b.Source == "" && !defines(cfg.Backends, b.Name) })
	})
}

func defines(backends []Backend, id routes.BackendID) bool {
	return slices.ContainsFunc(backends, func(b Backend) bool { return b.ID == id })
}

// printable reports whether s has visible ASCII characters only.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
