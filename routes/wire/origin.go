package wire

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// gate decides about Origin and Host, against DNS rebinding.
// Source: MCP 2026-07-28, basic/transports/streamable-http (Security & Endpoint).
type gate struct {
	origins map[string]bool // serialized, without default ports
	hosts   map[string]bool // host:port, or host for any port
	// anyOrigin and anyHost do not exist on purpose: an empty list of origins refuses all, an empty list of hosts checks none.
	checkHosts                    bool
	loopbackOrigins, loopbackHost bool
}

func newGate(origins, hosts []string, public *publicURL, loopback bool) (*gate, error) {
	g := &gate{
		origins: map[string]bool{}, hosts: map[string]bool{},
		checkHosts:      loopback || len(hosts) > 0,
		loopbackOrigins: loopback && len(origins) == 0, loopbackHost: loopback && len(hosts) == 0,
	}
	for _, s := range origins {
		o, ok := parseOrigin(s)
		if !ok {
			return nil, fmt.Errorf("allowed origin %q is not an origin such as https://app.example", s)
		}
		g.origins[o.String()] = true
	}
	for _, s := range hosts {
		name, port, ok := splitHost(s)
		if !ok {
			return nil, fmt.Errorf("allowed host %q is not a host or host:port", s)
		}
		g.hosts[joinHost(name, port)] = true
	}
	if public != nil {
		g.origins[public.origin.String()] = true
		g.hosts[public.origin.name] = true
	}
	return g, nil
}

// origin is a serialized origin, taken apart; an opaque one has the scheme "null" alone.
type origin struct{ scheme, name, port string }

func (o origin) String() string {
	if o.name == "" {
		return o.scheme
	}
	return o.scheme + "://" + joinHost(o.name, o.port)
}

// parseOrigin reads a serialized origin: scheme, host and port only. Default ports are dropped.
func parseOrigin(s string) (origin, bool) {
	if s == "null" {
		return origin{scheme: s}, true
	}
	scheme, host, ok := strings.Cut(s, "://")
	if !ok || host == "" || strings.ContainsAny(host, "/?#@\\ ") {
		return origin{}, false
	}
	scheme = strings.ToLower(scheme)
	name, port, ok := splitHost(host)
	if port == defaultPort(scheme) {
		port = ""
	}
	return origin{scheme, name, port}, ok
}

func defaultPort(scheme string) string {
	switch scheme {
	case "https":
		return "443"
	case "http":
		return "80"
	}
	return ""
}

// splitHost splits host[:port], in lower case and without brackets or a final dot.
func splitHost(s string) (name, port string, ok bool) {
	name = strings.ToLower(s)
	if strings.HasPrefix(name, "[") {
		end := strings.IndexByte(name, ']')
		if end < 0 {
			return "", "", false
		}
		rest := name[end+1:]
		name = name[1:end]
		if rest == "" {
			return name, "", name != ""
		}
		if rest[0] != ':' {
			return "", "", false
		}
		port = rest[1:]
	} else if i := strings.LastIndexByte(name, ':'); i >= 0 && strings.IndexByte(name, ':') == i {
		name, port = name[:i], name[i+1:]
	} else if i >= 0 {
		_, err := netip.ParseAddr(name) // an IPv6 address without brackets
		return name, "", err == nil
	} else {
		name = strings.TrimSuffix(name, ".")
		return name, "", name != "" && validHost(name)
	}
	name = strings.TrimSuffix(name, ".")
	return name, port, name != "" && digits(port) && len(port) <= 5 && validHost(name)
}

// validHost reports whether a name has only characters that a host may have; it goes into URLs and headers.
func validHost(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == ':' {
			continue
		}
		return false
	}
	return true
}

func joinHost(name, port string) string {
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if port == "" {
		return name
	}
	return name + ":" + port
}

func isLoopback(name string) bool {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}

// allowsHost reports whether a Host header may pass.
func (g *gate) allowsHost(host string) bool {
	if !g.checkHosts {
		return true
	}
	name, port, ok := splitHost(host)
	if !ok {
		return false
	}
	if g.hosts[joinHost(name, "")] || port != "" && g.hosts[joinHost(name, port)] {
		return true
	}
	if port == "" && (g.hosts[joinHost(name, "443")] || g.hosts[joinHost(name, "80")]) {
		return true
	}
	return g.loopbackHost && isLoopback(name)
}

// allowsOrigin reports whether an Origin header may pass.
func (g *gate) allowsOrigin(value string) bool {
	o, ok := parseOrigin(value)
	if !ok {
		return false
	}
	return g.origins[o.String()] || g.loopbackOrigins && o.name != "" && isLoopback(o.name)
}

// admitOrigin judges the Origin header and lets an allowed page see whatever is answered, refusals too.
func (x *exchange) admitOrigin() {
	h := x.w.w.Header()
	h.Add("Vary", "Origin")
	origins := x.r.Header["Origin"]
	if len(origins) == 0 {
		return
	}
	if len(origins) > 1 || !x.e.gate.allowsOrigin(origins[0]) {
		x.foreign = true
		return
	}
	h.Set("Access-Control-Allow-Origin", origins[0])
	h.Set("Access-Control-Expose-Headers", "WWW-Authenticate, Retry-After")
}

// throughGate refuses a Host and an Origin that are not allowed.
func (x *exchange) throughGate() bool {
	switch {
	case !x.e.gate.allowsHost(x.r.Host):
		x.refuse(http.StatusForbidden, "host", "Host not allowed")
	case x.foreign:
		x.refuse(http.StatusForbidden, "origin", "Origin not allowed")
	default:
		return true
	}
	return false
}

// preflight answers OPTIONS.
func (x *exchange) preflight() {
	h := x.w.w.Header()
	allow := []string{http.MethodPost, http.MethodDelete}
	if x.path.kind == pathMetadata {
		allow = []string{http.MethodGet}
	}
	h.Set("Allow", strings.Join(allow, ", "))
	if len(x.r.Header["Origin"]) > 0 {
		h.Set("Access-Control-Allow-Methods", strings.Join(allow, ", "))
		h.Set("Access-Control-Allow-Headers", allowedHeaders(x.r.Header["Access-Control-Request-Headers"]))
		h.Set("Access-Control-Max-Age", "600")
	}
	x.w.status = http.StatusNoContent
	x.w.w.WriteHeader(http.StatusNoContent)
}

// allowedHeaders lists what a page may send: the fixed names, and every Mcp-* name that it asked for.
func allowedHeaders(asked []string) string {
	list := []string{"Authorization", "Content-Type", "Accept", "MCP-Protocol-Version", headerMethod, headerName, headerSession}
	const most = 64
	for _, v := range asked {
		for name := range strings.SplitSeq(v, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if strings.HasPrefix(name, "Mcp-") && isToken(name) && len(name) <= 128 && len(list) < most &&
				!slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return strings.Join(list, ", ")
}

// publicURL is where clients reach the endpoint.
type publicURL struct {
	base   string // scheme, host and path, without a final slash
	path   string // of base; empty or with a leading slash
	origin origin
}

// parsePublicURL reads an absolute http or https URL; nil for an empty one.
func parsePublicURL(s string) (*publicURL, error) {
	if s == "" {
		return nil, nil
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, err
	}
	o, ok := parseOrigin(u.Scheme + "://" + u.Host)
	switch {
	case !ok || u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%q is no absolute http or https URL", s)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("%q must have no userinfo, query or fragment", u.Redacted())
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	return &publicURL{base: o.String() + path, path: path, origin: o}, nil
}
