package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-mcp/weir/routes"
)

const (
	// idleTimeout closes a pooled connection before the usual peer does: Node closes after 5 s, and a request that meets a
	// closing connection is lost. A peer that announces another time (Keep-Alive: timeout=N) is believed, less a second.
	idleTimeout = 4 * time.Second
	// maxIdleTimeout bounds what a peer may announce.
	maxIdleTimeout = 90 * time.Second
	// maxIdlePerHost is how many idle connections a backend's pool keeps. They live for idleTimeout only.
	maxIdlePerHost = 512
	// maxResponseHeader bounds the headers of an answer, in bytes.
	maxResponseHeader = 256 << 10
	// poolLife is how long a pool that nobody uses stays known.
	poolLife = 10 * time.Minute
)

// poolKey tells connections apart that must not be shared. A static credential is no part of it: it travels in a header of each
// request, and no challenge is ever answered, so that it can't stick to a connection.
type poolKey struct {
	id      routes.BackendID
	url     string
	tls     routes.TLS
	connect time.Duration
	guard   Guard
}

// pools holds one pool per key. Look-ups take no lock.
type pools struct {
	breaker *BreakerOptions
	byKey   atomic.Pointer[map[poolKey]*pool] // never changed, only replaced
	mu      sync.Mutex                        // serializes replacement
}

func (ps *pools) get(id routes.BackendID, b *routes.Backend) (*pool, error) {
	key := poolKey{id, b.URL, b.TLS, b.Timeouts.Connect, Guard{PublicOnly: b.Discovered && !b.AllowPrivate}}
	now := time.Now().Unix()
	if m := ps.byKey.Load(); m != nil {
		if p := (*m)[key]; p != nil {
			p.touch(now)
			return p, nil
		}
	}
	return ps.add(key, now)
}

func (ps *pools) add(key poolKey, now int64) (*pool, error) {
	u, err := parseURL(key.url)
	if err != nil {
		return nil, err
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	next := make(map[poolKey]*pool)
	if m := ps.byKey.Load(); m != nil {
		if p := (*m)[key]; p != nil {
			return p, nil
		}
		for k, p := range *m {
			if now-p.used.Load() > int64(poolLife/time.Second) {
				p.closeIdle()
				continue
			}
			next[k] = p
		}
	}
	p := newPool(key, u)
	p.used.Store(now)
	if ps.breaker != nil {
		p.breaker = newBreaker(key.id, *ps.breaker)
	}
	next[key] = p
	ps.byKey.Store(&next)
	return p, nil
}

func (ps *pools) closeIdle() {
	if m := ps.byKey.Load(); m != nil {
		for _, p := range *m {
			p.closeIdle()
		}
	}
}

// pool is the connections of one backend.
type pool struct {
	url   *url.URL // read-only
	key   poolKey
	ident *identity
	used  atomic.Int64 // Unix seconds, coarse

	breaker *breaker // nil: none

	current atomic.Pointer[http.Transport]
	// fresh dials for every request: for the second try of a request of which nothing was written.
	fresh *http.Transport

	keepAlive atomic.Pointer[string] // the latest header that was looked at
	mu        sync.Mutex             // guards what follows
	announced time.Duration
}

func newPool(key poolKey, u *url.URL) *pool {
	p := &pool{url: u, key: key, ident: newIdentity(key.tls)}
	p.current.Store(newTransport(key.guard, p.ident, key.connect))
	p.fresh = newTransport(key.guard, p.ident, key.connect)
	p.fresh.DisableKeepAlives = true
	return p
}

func (p *pool) touch(now int64) {
	if now-p.used.Load() > 30 {
		p.used.Store(now)
	}
}

func (p *pool) closeIdle() {
	p.current.Load().CloseIdleConnections()
	p.fresh.CloseIdleConnections()
}

// newTransport builds the one kind of http.Transport that Weir calls backends with.
func newTransport(g Guard, ident *identity, connect time.Duration) *http.Transport {
	connect = cmp.Or(connect, defaultConnect)
	dialer := GuardedDialer(g, connect)
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &meteredConn{Conn: conn}, nil
	}
	return &http.Transport{
		Proxy:       nil, // never from the environment
		DialContext: dial,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, connect) // dial and handshake together
			defer cancel()
			cfg, err := ident.config(addr)
			if err != nil {
				return nil, err
			}
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			tc := tls.Client(conn, cfg)
			if err := tc.HandshakeContext(ctx); err != nil {
				conn.Close()
				return nil, err
			}
			return tc, nil
		},
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
}

// roundTrip sends x's request and returns the answer's headers. A request that met a pooled connection which failed before a
// byte of it was written is sent once more, on a fresh connection.
func (p *pool) roundTrip(x *exchange, r request) (*http.Response, error) {
	x.arm(phaseResponse, x.limits.response)
	resp, err := p.current.Load().RoundTrip(x.try(p, r))
	if err != nil && x.mayRetry() {
		x.forgetConn()
		resp, err = p.fresh.RoundTrip(x.try(p, r))
	}
	if err != nil {
		return nil, x.failed(err)
	}
	x.disarm()
	x.setStatus(resp.StatusCode)
	if h := resp.Header["Keep-Alive"]; len(h) > 0 {
		p.learn(h[0])
	}
	if resp.Header.Get("Content-Encoding") != "" && !strings.EqualFold(resp.Header.Get("Content-Encoding"), "identity") {
		resp.Body.Close()
		return nil, x.failed(errCompressed)
	}
	resp.Body = &answerBody{ReadCloser: resp.Body, x: x}
	return resp, nil
}

// learn takes the peer's Keep-Alive time for the pool, less a second. As a Transport's own must not change while it is used, the
// Transport is replaced; only a first or a shorter time does that.
func (p *pool) learn(keepAlive string) {
	if last := p.keepAlive.Load(); last != nil && *last == keepAlive {
		return
	}
	p.keepAlive.Store(&keepAlive)
	n, ok := keepAliveSeconds(keepAlive)
	if !ok {
		return
	}
	d := min(max(time.Duration(n-1)*time.Second, 500*time.Millisecond), maxIdleTimeout)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.announced != 0 && d >= p.announced {
		return
	}
	p.announced = d
	old := p.current.Load()
	if old.IdleConnTimeout == d {
		return
	}
	next := newTransport(p.key.guard, p.ident, p.key.connect)
	next.IdleConnTimeout = d
	p.current.Store(next)
	old.CloseIdleConnections()
}

// keepAliveSeconds reads the timeout parameter of a Keep-Alive header.
func keepAliveSeconds(v string) (int64, bool) {
	for part := range strings.SplitSeq(v, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if ok && strings.EqualFold(strings.TrimSpace(name), "timeout") {
			n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
			return int64(n), err == nil
		}
	}
	return 0, false
}
