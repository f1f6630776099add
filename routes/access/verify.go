package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/weir-mcp/weir/routes"
)

// Errors of Verify; it returns no other ones.
var (
	// ErrUnauthorized: the token is not good (401). It is wrapped with the reason, which is for the log: it may quote the token's
	// iss or kid, cut short, but no other part of it.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrNoKeys: no key of the token's issuer was ever loaded, so nothing can be said about the token yet (503).
	ErrNoKeys = errors.New("no keys known yet")
	// ErrUnconfirmed: whether a token was revoked can't be said now (503): the fault is ours, and the token may be as good as ever.
	ErrUnconfirmed = errors.New("revocations are not known")
)

// Options of a Verifier.
type Options struct {
	Config Config
	// Client fetches JWK sets, with its own dialer and TLS settings; redirects to other hosts are refused whatever it says. Nil
	// means a client that uses no proxy.
	Client *http.Client
	// Secret returns an HMAC issuer's secret anew, so that a rotated one needs no restart. It is asked by New and every 5 s by Run.
	// Nil: the one in Config stays.
	Secret func(issuer string) (string, error)
	// Now is the clock that tokens are judged by. Nil means time.Now.
	Now func() time.Time
	// Revoked is asked on every Verify, for remembered tokens too, so it must be fast. Nil: nothing is revoked.
	Revoked func(*Identity) bool
	// Confirm is asked before Revoked; an error means that its answer can't be relied on. Nil: it always can.
	Confirm func(context.Context) error
	// OnError is told of each refresh of keys that went wrong; the last good keys stay. A fault of a file is told once, not at
	// each look. It must not block, and may be called for several issuers at once. Nil: dropped.
	OnError func(issuer string, err error)
}

// Verifier checks tokens. Safe for concurrent use. Its config does not change: another config is another Verifier.
type Verifier struct {
	hostClaim   string
	tenantClaim string
	issuers     map[string]*issuer
	now         func() time.Time
	revoked     func(*Identity) bool
	confirm     func(context.Context) error
	cache       *cache
}

// issuer is one entry of the config, compiled.
type issuer struct {
	name          string
	algorithms    []string
	audiences     []string // without "resource"
	resource      bool     // "resource" is among the audiences
	leeway        time.Duration
	requireScopes bool
	hosts         []routes.Glob // empty: all
	keys          *keyStore
}

// New checks the config and loads key files; it starts nothing. HTTP key sets are loaded by Run, or on first need.
func New(o Options) (*Verifier, error) {
	if err := o.Config.Validate("auth"); err != nil {
		return nil, err
	}
	v := &Verifier{
		hostClaim:   o.Config.VirtualHostClaim,
		tenantClaim: o.Config.TenantClaim,
		issuers:     make(map[string]*issuer, len(o.Config.Issuers)),
		now:         o.Now,
		revoked:     o.Revoked,
		confirm:     o.Confirm,
		cache:       new(cache),
	}
	if v.hostClaim == "" {
		v.hostClaim = DefaultVirtualHostClaim
	}
	if v.now == nil {
		v.now = time.Now
	}
	client := jwksClient(o.Client)
	var errs []error
	for i := range o.Config.Issuers {
		is, err := newIssuer(&o.Config.Issuers[i], &o, client)
		if err != nil {
			errs = append(errs, fmt.Errorf("auth.issuers[%d].%w", i, err))
			continue
		}
		v.issuers[is.name] = is
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return v, nil
}

func newIssuer(c *Issuer, o *Options, client *http.Client) (*issuer, error) {
	is := &issuer{
		name:          c.Issuer,
		algorithms:    slices.Clone(c.Algorithms),
		leeway:        c.Leeway,
		requireScopes: c.RequireScopes,
		keys:          newKeyStore(*c, o, client),
	}
	if is.leeway == 0 {
		is.leeway = DefaultLeeway
	}
	for _, a := range c.Audiences {
		if a == AudienceResource {
			is.resource = true
		} else {
			is.audiences = append(is.audiences, a)
		}
	}
	for _, s := range c.VirtualHosts {
		g, err := routes.ParseGlob(s)
		if err != nil {
			return nil, fmt.Errorf("virtual_hosts: %w", err) // Validate has seen it before
		}
		is.hosts = append(is.hosts, g)
	}
	if is.keys.onDemand {
		return is, nil
	}
	if err := is.keys.fetch(context.Background()); err != nil {
		return nil, fmt.Errorf("%s: %w", is.keys.field, err)
	}
	return is, nil
}

func newKeyStore(c Issuer, o *Options, client *http.Client) *keyStore {
	s := &keyStore{algorithms: slices.Clone(c.Algorithms), interval: fileInterval, retry: fileInterval, report: func(error) {}}
	if o.OnError != nil {
		s.report = func(err error) { o.OnError(c.Issuer, err) }
	}
	switch {
	case c.JWKSURL != "":
		s.field, s.onDemand, s.interval, s.retry = "jwks_url", true, urlInterval, urlRetry
		s.parse = parseKeySet
		s.load = func(ctx context.Context) ([]byte, error) { return fetchJWKS(ctx, client, c.JWKSURL) }
	case c.JWKSFile != "":
		s.field, s.parse = "jwks_file", parseKeySet
		s.load = func(context.Context) ([]byte, error) { return readFile(c.JWKSFile) }
	case c.PublicKeyFile != "":
		s.field, s.parse = "public_key_file", parsePublicKey
		s.load = func(context.Context) ([]byte, error) { return readFile(c.PublicKeyFile) }
	default:
		s.field, s.parse = "hmac_secret", parseSecret
		if o.Secret == nil {
			s.interval = 0
			s.load = func(context.Context) ([]byte, error) { return []byte(c.HMACSecret), nil }
			break
		}
		s.load = func(context.Context) ([]byte, error) {
			secret, err := o.Secret(c.Issuer)
			return []byte(secret), err
		}
	}
	return s
}

// Run keeps the keys fresh until ctx ends; then it returns nil, and no fetch runs any more. Call it once. Tokens are still verified
// afterwards, with the keys known by then.
func (v *Verifier) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, is := range v.issuers {
		if is.keys.interval > 0 {
			wg.Go(func() { is.keys.run(ctx) })
		}
	}
	<-ctx.Done()
	wg.Wait()
	return nil
}

// Verify checks one bearer token, without the word Bearer. resource is the canonical URI of the endpoint called, for issuers
// whose audiences have "resource"; empty matches nothing. It waits for keys at most 2 s. Errors are ErrUnauthorized,
// ErrNoKeys and ErrUnconfirmed. A remembered token costs its hash and no allocation.
func (v *Verifier) Verify(ctx context.Context, token, resource string) (*Identity, error) {
	switch {
	case token == "":
		return nil, refuse("no token")
	case len(token) > MaxToken:
		return nil, refuse("token is over %d bytes", MaxToken)
	}
	// Not []byte(token): a copy of each token would be the only allocation here. Sum256 only reads.
	hash := tokenHash(sha256.Sum256(unsafe.Slice(unsafe.StringData(token), len(token))))
	now := v.now()
	e := v.cache.get(&hash)
	if e == nil || !e.fresh(now) {
		var err error
		if e, err = v.verify(ctx, token, resource, now); err != nil {
			return nil, err
		}
		e.hash = hash
		if now.Before(e.id.Expires) { // else it lives on leeway, and is judged anew each time
			v.cache.put(e, now)
		}
	} else if e.resources != nil && !namesResource(e.resources, resource) {
		return nil, refuse("aud is not for this endpoint")
	}
	if err := v.checkRevoked(ctx, e.id); err != nil {
		return nil, err
	}
	return e.id, nil
}

func (v *Verifier) checkRevoked(ctx context.Context, id *Identity) error {
	if v.confirm != nil {
		if err := v.confirm(ctx); err != nil {
			return fmt.Errorf("%w: %w", ErrUnconfirmed, err)
		}
	}
	if v.revoked != nil && v.revoked(id) {
		return refuse("revoked")
	}
	return nil
}

// Recheck reports whether what Verify returned still holds, for answers that go on: the token may have been revoked since. With
// expiry it may have expired, too. It costs little, and its errors are those of Verify.
func (v *Verifier) Recheck(ctx context.Context, id *Identity, expiry bool) error {
	if is := v.issuers[id.Issuer]; expiry && is != nil && !v.now().Before(id.Expires.Add(is.leeway)) {
		return refuse("expired")
	}
	return v.checkRevoked(ctx, id)
}

// verify does the whole work. The claims come before the signature, since they cost less and what they say is used only if
// the signature holds.
func (v *Verifier) verify(ctx context.Context, s, resource string, now time.Time) (*verified, error) {
	t, err := parseToken(s)
	if err != nil {
		return nil, refuse("%v", err)
	}
	name, err := t.claims.text("iss")
	if err != nil {
		return nil, refuse("%v", err)
	}
	if name == "" {
		return nil, refuse("no iss")
	}
	is := v.issuers[name]
	if is == nil {
		return nil, refuse("unknown issuer %s", quote(name))
	}
	alg, ok := algorithmOf(t.algorithm)
	if !ok || !slices.Contains(is.algorithms, t.algorithm) {
		return nil, refuse("algorithm is not allowed for issuer %s", quote(name))
	}
	e, err := v.judge(is, t.claims, resource, now)
	if err != nil {
		return nil, refuse("%v (issuer %s)", err, quote(name))
	}
	if e.keys, err = is.prove(ctx, t, alg); err != nil {
		return nil, err
	}
	e.issuer, e.until = is, now.Add(cacheTTL)
	return e, nil
}

// prove checks the signature and returns the keys that it was checked with. If no key fits, they are refreshed once.
func (is *issuer) prove(ctx context.Context, t *token, alg algorithm) (*keySet, error) {
	set := is.keys.cur.Load()
	proven, known := set.proves(t, alg)
	if !proven && !known {
		is.keys.await(ctx)
		if fresh := is.keys.cur.Load(); fresh != set {
			set = fresh
			proven, known = set.proves(t, alg)
		}
	}
	switch {
	case set == nil:
		return nil, fmt.Errorf("%w (issuer %s)", ErrNoKeys, quote(is.name))
	case proven:
		return set, nil
	case !known && t.kid != "":
		return nil, refuse("unknown key %s (issuer %s)", quote(t.kid), quote(is.name))
	}
	return nil, refuse("signature does not match (issuer %s)", quote(is.name))
}

// proves reports whether one of the keys made the signature, and whether the set knows the token's kid.
func (s *keySet) proves(t *token, alg algorithm) (proven, known bool) {
	if s == nil {
		return false, false
	}
	var some [4]any
	keys, known := s.candidates(some[:0], t.algorithm, alg, t.kid)
	for _, key := range keys {
		if alg.method.Verify(t.signed, t.signature, key) == nil {
			return true, known
		}
	}
	return false, known
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnauthorized}, args...)...)
}

// quote makes what a stranger wrote fit for a log: in quotes, escaped, at most 100 bytes of it.
func quote(s string) string {
	if len(s) > 100 {
		return fmt.Sprintf("%q…", s[:100])
	}
	return fmt.Sprintf("%q", s)
}
