package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/secret"
)

// Check fills in what is zero and reports every fault, joined, each with the path of its field. It may be called again.
func (c *Config) Check() error {
	c.fill() // so that what is left out is never reported
	errs := []error{
		c.Redis.Validate("redis"),
		c.TLS.Validate("tls"),
		address("listen", c.Listen),
		address("ops_listen", c.OpsListen),
		origin("public_url", c.PublicURL),
		origin("control_plane.url", c.ControlPlane.URL),
		origin("control_plane.admin_url", c.ControlPlane.AdminURL),
		notNegative("drain.delay", c.Drain.Delay),
		notNegative("drain.deadline", c.Drain.Deadline),
		notNegative("fail_closed_after", c.FailClosedAfter),
	}
	if !c.NoAuth {
		errs = append(errs, c.Auth.Validate("auth"), c.resource())
	}
	switch c.DelegatedMethods {
	case Reject:
	case Forward:
		if c.ControlPlane.URL == "" {
			errs = append(errs, errors.New("delegated_methods: forward needs control_plane.url"))
		}
	default:
		errs = append(errs, fmt.Errorf("delegated_methods: %q is neither reject nor forward", c.DelegatedMethods))
	}
	if t := c.ControlPlane.Token; t != "" && len(t) < 32 && !secret.HasReference(t) {
		errs = append(errs, fmt.Errorf("control_plane.token: %d bytes, at least 32 are needed", len(t)))
	}
	switch c.LogLevel {
	case "debug", "info", "warn", "error":
	default:
		errs = append(errs, fmt.Errorf("log_level: %q is none of debug, info, warn, error", c.LogLevel))
	}
	if _, err := secret.NewResolver(c.Secrets); err != nil {
		errs = append(errs, fmt.Errorf("secrets: %w", err))
	}
	for _, l := range []struct {
		path string
		n    int64
	}{
		{"limits.body", int64(c.Limits.Body)},
		{"limits.mcp_headers", int64(c.Limits.MCPHeaders)},
		{"limits.mcp_header_value", int64(c.Limits.MCPHeaderValue)},
		{"limits.mcp_headers_total", int64(c.Limits.MCPHeadersTotal)},
		{"limits.response", int64(c.Limits.Response)},
	} {
		if l.n < 0 {
			errs = append(errs, fmt.Errorf("%s: %d must be positive", l.path, l.n))
		}
	}
	return errors.Join(errs...)
}

// Warnings are what a config that is in order will lack when it runs, each with the path of its field. It looks for files.
func (c *Config) Warnings() []string {
	cp := &c.ControlPlane
	var all []string
	switch {
	case cp.AdminURL == "":
		all = append(all, "control_plane.admin_url is not set: on hosts whose tasks.unrecorded is claim or probe, ids of tasks that this "+
			"gateway did not record are answered with an error instead of being looked for")
	case cp.Token == "":
		all = append(all, "control_plane.token is not set: control_plane.admin_url will refuse this dataplane, and ids of tasks that this "+
			"gateway did not record are answered with an error")
	case cp.AdminURL == cp.URL:
		all = append(all, "control_plane.admin_url is control_plane.url: tasks are looked for at the control plane's admin_listen, which is another address")
	case plainAndAway(cp.AdminURL):
		all = append(all, "control_plane.admin_url is plain HTTP to another machine: the tokens of callers and control_plane.token travel on it unencrypted")
	}
	for _, f := range []struct{ field, name string }{
		{"ca_file", cp.TLS.CAFile}, {"cert_file", cp.TLS.CertFile}, {"key_file", cp.TLS.KeyFile},
	} {
		if f.name == "" {
			continue
		}
		if _, err := os.Stat(f.name); err != nil {
			all = append(all, fmt.Sprintf("control_plane.tls.%s: %v", f.field, err))
		}
	}
	return all
}

// plainAndAway reports whether what is sent to a URL can be read on a network.
func plainAndAway(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}

// fill puts defaults where a field is zero; Drain.Delay has none here, so that a file can say 0s.
func (c *Config) fill() {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:8080")
	c.OpsListen = cmp.Or(c.OpsListen, "127.0.0.1:9080")
	c.NoAuthHost = cmp.Or(c.NoAuthHost, "default")
	c.DelegatedMethods = cmp.Or(c.DelegatedMethods, Reject)
	c.Drain.Deadline = cmp.Or(c.Drain.Deadline, 30*time.Second)
	c.LogLevel = cmp.Or(c.LogLevel, "info")
	l := &c.Limits
	l.Body = cmp.Or(l.Body, 4<<20)
	l.MCPHeaders = cmp.Or(l.MCPHeaders, 32)
	l.MCPHeaderValue = cmp.Or(l.MCPHeaderValue, 8192)
	l.MCPHeadersTotal = cmp.Or(l.MCPHeadersTotal, 65536)
	l.Response = cmp.Or(l.Response, 16<<20)
	l.CallsPerPrincipal = cmp.Or(l.CallsPerPrincipal, 256)
	l.CallsPerBackend = cmp.Or(l.CallsPerBackend, 1024)
}

// expand resolves the references in the fields that hold the plane's own secrets.
func (c *Config) expand() error {
	r, err := secret.NewResolver(secret.Policy{All: true})
	if err != nil {
		return err
	}
	var errs []error
	one := func(path string, s *string) {
		if *s == "" {
			return
		}
		v, err := r.Expand(*s)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
			return
		}
		*s = v
	}
	one("redis.url", &c.Redis.URL)
	one("redis.username", &c.Redis.Username)
	one("redis.password", &c.Redis.Password)
	one("redis.sentinel_username", &c.Redis.SentinelUsername)
	one("redis.sentinel_password", &c.Redis.SentinelPassword)
	one("control_plane.token", &c.ControlPlane.Token)
	c.hmac = map[string]string{}
	for i := range c.Auth.Issuers {
		c.hmac[c.Auth.Issuers[i].Issuer] = c.Auth.Issuers[i].HMACSecret
		one(fmt.Sprintf("auth.issuers[%d].hmac_secret", i), &c.Auth.Issuers[i].HMACSecret)
	}
	return errors.Join(errs...)
}

// resource refuses an audience that the caller could choose: without public_url its URI is built from the Host header.
func (c *Config) resource() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil || c.PublicURL != "" || host == "localhost" || net.ParseIP(host).IsLoopback() {
		return nil
	}
	var errs []error
	for i := range c.Auth.Issuers {
		if slices.Contains(c.Auth.Issuers[i].Audiences, access.AudienceResource) {
			errs = append(errs, fmt.Errorf(`auth.issuers[%d].audiences: "resource" needs public_url where listen is no loopback address`, i))
		}
	}
	return errors.Join(errs...)
}

func address(path, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%s: %q is not HOST:PORT", path, addr)
	}
	return nil
}

// origin accepts an absolute http or https URL without userinfo, query or fragment; empty is fine.
func origin(path, s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return fmt.Errorf("%s: not a URL", path) // err would repeat s, and with it a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("%s: must be an absolute http or https URL", path)
	case u.User != nil:
		return fmt.Errorf("%s: must not contain a user or password", path)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%s: must not have a query or fragment", path)
	}
	return nil
}

func notNegative(path string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%s: %v must not be negative", path, d)
	}
	return nil
}
