package config

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// address checks HOST:PORT; an empty HOST is every interface.
func (c *checker) address(path, addr string) string {
	if _, port, err := net.SplitHostPort(addr); err != nil {
		c.fault(path, "%q is not HOST:PORT", addr)
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		c.fault(path, "%q is not a port; want 0 to 65535, where 0 takes a free one", port)
	}
	return addr
}

// distinct finds listeners that can't both be opened.
func (c *checker) distinct(cfg *Config) {
	seen := map[string]string{}
	for _, l := range []struct{ path, addr string }{{"listen", cfg.Listen}, {"admin_listen", cfg.AdminListen}, {"ops_listen", cfg.OpsListen}} {
		if strings.HasSuffix(l.addr, ":0") {
			continue
		}
		if first, dup := seen[l.addr]; dup {
			c.fault(l.path, "%s is the address of %s already", l.addr, first)
			continue
		}
		seen[l.addr] = l.path
	}
}

// absoluteURL is ParseURL for a field of the file; nil: its fault is recorded.
func (c *checker) absoluteURL(path, s string) *url.URL {
	u, err := ParseURL(s)
	if err != nil {
		c.fault(path, "%w", err)
		return nil
	}
	return u
}

// ParseURL parses an http or https URL without userinfo and fragment. Errors never show it: it may hold a password.
func ParseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || strings.ContainsAny(s, " \t\r\n"):
		return nil, errors.New("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("is not an http or https URL")
	case u.Hostname() == "":
		return nil, errors.New("has no host")
	case u.User != nil:
		return nil, errors.New("must not contain a user name or password")
	case strings.Contains(s, "#"):
		return nil, errors.New("must not contain a fragment")
	case !validPort(u):
		return nil, errors.New("has a port that is none")
	}
	return u, nil
}

func validPort(u *url.URL) bool {
	if strings.HasSuffix(u.Host, ":") {
		return false
	}
	if u.Port() == "" {
		return true
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && n > 0
}

func (c *checker) publicURL(path, s string) string {
	if s == "" {
		return ""
	}
	u := c.absoluteURL(path, s)
	if u == nil {
		return ""
	}
	if u.RawQuery != "" || u.ForceQuery {
		c.fault(path, "must not contain a query")
	}
	return strings.TrimRight(s, "/")
}

// origin checks the serialization of RFC 6454 § 6.2: scheme, host and, unless it is the default, port.
func (c *checker) origin(path, s string) {
	u, err := url.Parse(s)
	switch {
	case s == "*" || strings.Contains(s, "*"):
		c.fault(path, "origins are exact; there are no wildcards")
	case s == "null":
		c.fault(path, "null is the origin of anybody's sandboxed frame; it can't be allowed")
	case err != nil, u.Scheme == "", u.Hostname() == "", u.User != nil, s != u.Scheme+"://"+u.Host, !validPort(u):
		c.fault(path, "%q is not an origin such as https://app.example or http://localhost:3000", s)
	}
}

// host checks an entry of allowed_hosts: a name or address, with or without a port.
func (c *checker) host(path, s string) {
	u, err := url.Parse("http://" + s)
	if err != nil || s == "" || u.Host != s || u.Hostname() == "" || !validPort(u) || strings.ContainsAny(s, "*@ ") {
		c.fault(path, "%q is not a host such as mcp.example.com, or one with a port; there are no wildcards", s)
	}
}

// Bounds of discovery.
const (
	minInterval = 100 * time.Millisecond
	maxTimeout  = 10 * time.Minute
	maxParallel = 1024
)

// maxPageSize bounds a page of a list, which has a bound in bytes too.
const maxPageSize = 10_000

func (c *checker) discovery(d Discovery) {
	if d.Interval < minInterval {
		c.fault("discovery.interval", "%v is under %v", d.Interval, minInterval)
	}
	if d.Timeout <= 0 || d.Timeout > maxTimeout {
		c.fault("discovery.timeout", "%v is not above 0 and up to %v", d.Timeout, maxTimeout)
	}
	if d.Parallel < 1 || d.Parallel > maxParallel {
		c.fault("discovery.parallel", "%d is not between 1 and %d", d.Parallel, maxParallel)
	}
}

// loopback reports whether a URL's host is this machine by name or address.
func loopback(u *url.URL) bool {
	host := u.Hostname()
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
