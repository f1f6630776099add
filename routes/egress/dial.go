package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// ErrRefusedAddress is wrapped by the error of a dial to an address that may not be dialled.
var ErrRefusedAddress = errors.New("address refused")

// Guard says which addresses may be dialled, after DNS. Link-local, unspecified, multicast and cloud metadata addresses never
// may.
type Guard struct {
	// PublicOnly refuses loopback, private and other addresses that are not globally reachable as well: for what a discovery
	// source named and the operator's own config did not.
	PublicOnly bool
}

// GuardedDialer returns a dialer that checks every address at the moment it is dialled, so that DNS can't change it between
// check and use. timeout bounds one dial; zero means 5s.
func GuardedDialer(g Guard, timeout time.Duration) *net.Dialer {
	if timeout == 0 {
		timeout = defaultConnect
	}
	return &net.Dialer{
		Timeout: timeout,
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil || (network != "tcp4" && network != "tcp6") {
				return fmt.Errorf("%w: %s %s", ErrRefusedAddress, network, address)
			}
			return g.Check(ap.Addr())
		},
	}
}

// ClientOptions of HTTPClient.
type ClientOptions struct {
	Guard   Guard
	TLS     routes.TLS
	Connect time.Duration // dial and TLS; zero means 5s
	Timeout time.Duration // the whole request, body included; zero means 10s
}

// HTTPClient returns a client for what is fetched beside calls (JWKS, webhooks): guarded dialer, no proxy, no redirects (the
// 3xx answer is returned), certificates re-read on change.
func HTTPClient(o ClientOptions) *http.Client {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	return &http.Client{
		Transport:     newTransport(o.Guard, newIdentity(o.TLS), o.Connect),
		CheckRedirect: noRedirect,
		Timeout:       o.Timeout,
	}
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Check returns an error that wraps ErrRefusedAddress when addr may not be dialled.
func (g Guard) Check(addr netip.Addr) error {
	addr = addr.WithZone("")
	if why := g.refusal(addr.Unmap()); why != "" {
		return fmt.Errorf("%w: %s is %s", ErrRefusedAddress, addr, why)
	}
	// A translator may carry an IPv4 address inside an IPv6 one to where the IPv4 address leads.
	if inner, ok := embedded(addr); ok {
		if why := g.refusal(inner); why != "" {
			return fmt.Errorf("%w: %s leads to %s, which is %s", ErrRefusedAddress, addr, inner, why)
		}
	}
	return nil
}

func (g Guard) refusal(addr netip.Addr) string {
	switch {
	case !addr.IsValid():
		return "not an address"
	case addr.IsUnspecified() || in(addr, "0.0.0.0/8"):
		return "unspecified"
	case addr.IsLinkLocalUnicast():
		return "link-local"
	case addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "multicast or broadcast"
	case isMetadata(addr):
		return "a cloud metadata service"
	case !g.PublicOnly:
		return ""
	case addr.IsLoopback():
		return "loopback"
	case addr.IsPrivate() || in(addr, "100.64.0.0/10", "fec0::/10"):
		return "private"
	case in(addr, "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"100::/64", "2001:db8::/32"):
		return "not globally reachable"
	}
	return ""
}

// isMetadata knows the metadata services that are not link-local: AWS over IPv6, Google over IPv6, Alibaba, Oracle, Azure's
// wire server.
func isMetadata(addr netip.Addr) bool {
	return in(addr, "fd00:ec2::254/128", "fd20:ce::254/128", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32")
}

func in(addr netip.Addr, prefixes ...string) bool {
	for _, p := range prefixes {
		if netip.MustParsePrefix(p).Contains(addr) {
			return true
		}
	}
	return false
}

// embedded returns the IPv4 address inside a NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056) or IPv4-compatible address.
func embedded(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() || addr.Is4In6() {
		return netip.Addr{}, false
	}
	b := addr.As16()
	switch {
	case in(addr, "64:ff9b::/96", "64:ff9b:1::/48", "::/96") && !addr.IsLoopback():
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case in(addr, "2002::/16"):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}

// parseURL checks a backend's URL: http or https, a host, no userinfo.
func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("backend URL does not parse") // url.Error would show a password
	}
	switch {
	case u.User != nil:
		return nil, errors.New("backend URL has userinfo")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("backend URL is neither http nor https")
	case u.Hostname() == "":
		return nil, errors.New("backend URL has no host")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// meteredConn counts writes, so that an exchange can tell whether a byte of it may have left.
type meteredConn struct {
	net.Conn
	writes atomic.Int64
}

// Write counts before it writes: whoever looks while it runs must assume that bytes left. A write that moved nothing into the
// kernel is taken back.
func (c *meteredConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	n, err := c.Conn.Write(b)
	if n == 0 && err != nil {
		c.writes.Add(-1)
	}
	return n, err
}
