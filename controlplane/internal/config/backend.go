package config

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/secret"
)

const idGrammar = "want 1 to 63 of a-z, 0-9, '.', '_' and '-', a letter or digit first and last"

// The values of pin.
const (
	PinOff   = "off"
	PinWarn  = "warn"
	PinBlock = "block"
)

func (c *checker) backend(e entry[backendBlock]) Backend {
	path, b := "backends."+e.Key, &e.Value
	out := Backend{ID: routes.BackendID(e.Key), Pin: PinOff}
	if !routes.ValidID(e.Key) {
		c.fault(path, "%q can't name a backend: %s", e.Key, idGrammar)
	}
	switch b.Pin {
	case "", PinOff:
	case PinWarn, PinBlock:
		out.Pin = b.Pin
	default:
		c.fault(path+".pin", "%q is none of off, warn, block", b.Pin)
	}
	switch {
	case b.URL == "" && b.Stdio == nil:
		c.fault(path, "url or stdio is required")
	case b.URL != "" && b.Stdio != nil:
		c.fault(path, "url and stdio exclude each other")
	case b.Stdio != nil:
		out.Stdio = c.stdio(path, b)
		return out
	}
	u := c.backendURL(path+".url", b.URL)
	out.Route = routes.Backend{URL: b.URL, Timeouts: c.timeouts(path+".timeouts", b.Timeouts), TLS: b.TLS}
	c.headers(path+".headers", &b.Headers, &out.Route)
	c.clientTLS(path+".tls", b.TLS, u)
	if secretTravels := len(b.Headers.Credentials)+len(out.Route.ForwardCaller) > 0; u != nil && u.Scheme == "http" && !loopback(u) && secretTravels {
		c.warn(CodePlainCredential, path+".url", "is http: the backend's credentials travel in the clear")
	}
	return out
}

func (c *checker) backendURL(path, s string) *url.URL {
	if s == "" {
		return nil
	}
	if secret.HasReference(s) {
		c.fault(path, "references are not expanded in URLs, which are published; use headers.credentials")
		return nil
	}
	return c.absoluteURL(path, s)
}

func (c *checker) timeouts(path string, t timeoutsBlock) routes.Timeouts {
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"connect", t.Connect}, {"response", t.Response}, {"idle", t.Idle}, {"total", t.Total}} {
		if d.value < 0 {
			c.fault(path+"."+d.field, "%v is negative; leave it out for the default", d.value)
		}
	}
	return routes.Timeouts(t)
}

// clientTLS checks the tls block of a backend. The files lie on every plane's own disk; only what can't be right is an error.
func (c *checker) clientTLS(path string, t routes.TLS, u *url.URL) {
	if t == (routes.TLS{}) {
		return
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		c.fault(path, "cert_file and key_file go together")
	}
	if u != nil && u.Scheme == "http" {
		c.warn(CodeUnused, path, "has no effect: the url is http")
	}
	for _, f := range []struct{ field, name string }{{"ca_file", t.CAFile}, {"cert_file", t.CertFile}, {"key_file", t.KeyFile}} {
		if f.name == "" {
			continue
		}
		if _, err := os.Stat(f.name); err != nil {
			c.warn(CodeUnused, path+"."+f.field, "can't be read here: discovery will fail (%v)", err)
		}
	}
}

func (c *checker) stdio(path string, b *backendBlock) *Stdio {
	s := b.Stdio
	if s.Command == "" {
		c.fault(path+".stdio.command", "is required")
	}
	for i, a := range append([]string{s.Command}, s.Args...) {
		if strings.ContainsRune(a, 0) {
			c.fault(path+".stdio", "word %d of the command line has a zero byte", i)
		}
	}
	for _, name := range sortedKeys(s.Env) {
		at := path + ".stdio.env." + name
		if !validEnvName(name) {
			c.fault(at, "%q can't name an environment variable", name)
		}
		if secret.HasReference(s.Env[name]) {
			if _, err := c.expand(s.Env[name]); err != nil {
				c.fault(at, "%w", err)
			}
		}
	}
	for _, f := range []struct {
		field string
		set   bool
	}{
		{"headers", !b.Headers.empty()}, {"timeouts", b.Timeouts != timeoutsBlock{}}, {"tls", b.TLS != routes.TLS{}},
	} {
		if f.set {
			c.fault(path+"."+f.field, "is not for a stdio backend")
		}
	}
	c.warn(CodeStdioUnsupported, path+".stdio", "this build runs no stdio backends; nothing of it is published")
	return &Stdio{Command: s.Command, Args: s.Args, Env: s.Env}
}

func validEnvName(s string) bool {
	for i := range len(s) {
		ch := s[i]
		letter := 'a' <= ch && ch <= 'z' || 'A' <= ch && ch <= 'Z' || ch == '_'
		if !letter && (i == 0 || ch < '0' || ch > '9') {
			return false
		}
	}
	return s != ""
}

// maxPrefix bounds a prefix, in bytes: a longer one would leave too little of a name that is cut at 64 characters.
const maxPrefix = 40

func validPrefix(s string) error {
	if len(s) > maxPrefix {
		return fmt.Errorf("has %d bytes; at most %d are allowed", len(s), maxPrefix)
	}
	for _, r := range s {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./", r) {
			return fmt.Errorf("%q has a character other than letters, digits and _ - . /", s)
		}
	}
	return nil
}
