package access

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// movableClock is a clock for Options.Now.
type movableClock struct{ now atomic.Pointer[time.Time] }

func newClock() *movableClock {
	c := &movableClock{}
	now := time.Now()
	c.now.Store(&now)
	return c
}

func (c *movableClock) Now() time.Time { return *c.now.Load() }
func (c *movableClock) add(d time.Duration) {
	now := c.Now().Add(d)
	c.now.Store(&now)
}

func (v *Verifier) remembers(token string) bool {
	hash := tokenHash(sha256.Sum256([]byte(token)))
	e := v.cache.get(&hash)
	return e != nil && e.fresh(v.now())
}

func TestTokenIsRememberedAMinute(t *testing.T) {
	clock := newClock()
	v := newVerifier(t, Options{Config: Config{Issuers: []Issuer{es256Issuer(t)}}, Now: clock.Now})
	token := goodToken(t, nil)
	first := mustVerify(t, v, token)
	if again := mustVerify(t, v, token); again != first {
		t.Error("verified anew within the minute")
	}
	clock.add(cacheTTL - time.Nanosecond)
	if again := mustVerify(t, v, token); again != first {
		t.Error("verified anew within the minute")
	}
	clock.add(time.Nanosecond)
	if again := mustVerify(t, v, token); again == first {
		t.Error("still remembered after a minute")
	}
}

func TestTokenIsNotRememberedPastItsExp(t *testing.T) {
	clock := newClock()
	v := newVerifier(t, Options{Config: Config{Issuers: []Issuer{es256Issuer(t)}}, Now: clock.Now})
	token := goodToken(t, func(o *MintOptions) { o.TTL = 10 * time.Second })
	mustVerify(t, v, token)
	if !v.remembers(token) {
		t.Fatal("not remembered")
	}
	clock.add(11 * time.Second)
	if v.remembers(token) {
		t.Error("remembered past its exp")
	}
	mustVerify(t, v, token) // the leeway lets it pass
	if v.remembers(token) {
		t.Error("remembered again past its exp")
	}
	clock.add(30 * time.Second)
	if _, err := v.Verify(t.Context(), token, ""); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("after exp and leeway: %v, want ErrUnauthorized", err)
	}
}

func mustVerify(t testing.TB, v *Verifier, token string) *Identity {
	t.Helper()
	id, err := v.Verify(t.Context(), token, testEndpoint)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestRevokedIsAskedEachTime(t *testing.T) {
	var revoked atomic.Bool
	var asked atomic.Int32
	v := newVerifier(t, Options{Config: Config{Issuers: []Issuer{es256Issuer(t)}}, Revoked: func(id *Identity) bool {
		asked.Add(1)
		if id.Subject != "ann" || id.TokenID == "" {
			t.Errorf("asked about %+v", id)
		}
		return revoked.Load()
	}})
	token := goodToken(t, nil)
	mustVerify(t, v, token)
	mustVerify(t, v, token)
	revoked.Store(true)
	if _, err := v.Verify(t.Context(), token, ""); !errors.Is(err, ErrUnauthorized) || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("a remembered token that was revoked: %v", err)
	}
	if _, err := v.Verify(t.Context(), goodToken(t, nil), ""); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("a new token that was revoked: %v", err)
	}
	revoked.Store(false)
	mustVerify(t, v, token)
	if n := asked.Load(); n != 5 {
		t.Errorf("asked %d times, want 5", n)
	}
}

// A token for one endpoint must not be good at another because it is remembered.
func TestRememberedTokenIsForItsEndpoint(t *testing.T) {
	is := es256Issuer(t)
	is.Audiences = []string{AudienceResource}
	v := newVerifier(t, Options{Config: Config{Issuers: []Issuer{is}}})
	const second = "https://mcp.example.com/servers/acme/mcp"
	token := goodToken(t, func(o *MintOptions) { o.Audience = []string{testEndpoint, second} })
	one := goodToken(t, func(o *MintOptions) { o.Audience = []string{testEndpoint} })
	for range 2 {
		for resource, good := range map[string]bool{testEndpoint: true, second: true, "https://mcp.example.com/MCP": false, "": false} {
			if _, err := v.Verify(t.Context(), token, resource); (err == nil) != good {
				t.Errorf("both, at %q: %v", resource, err)
			}
		}
		mustVerify(t, v, one)
		if _, err := v.Verify(t.Context(), one, second); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("one, at the second: %v, want ErrUnauthorized", err)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	keys := &keySet{}
	is := &issuer{keys: &keyStore{}}
	is.keys.cur.Store(keys)
	now := time.Now()
	entry := func(set uint64, n int, until time.Time) *verified {
		e := &verified{id: &Identity{Expires: now.Add(time.Hour)}, issuer: is, keys: keys, until: until}
		binary.LittleEndian.PutUint64(e.hash[:], set)
		e.hash[31] = byte(n)
		return e
	}
	c := new(cache)
	var in []*verified
	for i := range cacheWays {
		e := entry(7, i, now.Add(time.Duration(i+1)*time.Second))
		in = append(in, e)
		c.put(e, now)
	}
	for i, e := range in {
		if c.get(&e.hash) != e {
			t.Errorf("entry %d is lost though there was room", i)
		}
	}
	again := entry(7, 3, now.Add(30*time.Second))
	c.put(again, now)
	if c.get(&again.hash) != again || c.get(&in[0].hash) != in[0] || c.get(&in[7].hash) != in[7] {
		t.Error("the same token again must replace itself only")
	}
	c.put(entry(7, 100, now.Add(time.Minute)), now)
	if c.get(&in[0].hash) != nil {
		t.Error("the one that ends soonest should have made room")
	}
	if later := now.Add(2500 * time.Millisecond); true {
		c.put(entry(7, 101, later.Add(time.Minute)), later)
		if c.get(&in[1].hash) != nil || c.get(&in[2].hash) != in[2] {
			t.Error("the one that has ended should have made room")
		}
	}
	if c.get(&entry(7+cacheSets, 5, now).hash) != nil {
		t.Error("another token of the same set was found")
	}
}

func TestCachedVerifyDoesNotAllocate(t *testing.T) {
	v := newVerifier(t, Options{
		Config: Config{Issuers: []Issuer{es256Issuer(t)}}, Revoked: func(*Identity) bool { return false },
	})
	token := goodToken(t, func(o *MintOptions) { o.Extra = map[string]any{"pad": strings.Repeat("x", 600)} })
	mustVerify(t, v, token)
	ctx := t.Context()
	n := testing.AllocsPerRun(100, func() {
		if _, err := v.Verify(ctx, token, testEndpoint); err != nil {
			t.Error(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// TestConcurrentVerify has readers, writers, a rotation and the race detector meet.
func TestConcurrentVerify(t *testing.T) {
	a, b := keyPair(t, "ES256"), other(t, "ES256")
	path := writeFile(t, "jwks", jwks(t, map[string]KeyPair{"a": a, "b": b}))
	is := es256Issuer(t)
	is.PublicKeyFile, is.JWKSFile = "", path
	v := newVerifier(t, Options{Config: Config{Issuers: []Issuer{is}}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- v.Run(ctx) }()
	var tokens []string
	want := map[string]string{}
	for i := range 20 {
		subject := fmt.Sprint("user", i)
		k := a
		kid := "a"
		if i%2 == 1 {
			k, kid = b, "b"
		}
		token := goodToken(t, func(o *MintOptions) { o.Key, o.KeyID, o.Subject = k.Private, kid, subject })
		tokens = append(tokens, token)
		want[token] = subject
	}
	bad := tokens[0][:len(tokens[0])-10] + "AAAAAAAAAA"
	store := v.issuers[testIssuer].keys
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				token := tokens[i%len(tokens)]
				id, err := v.Verify(ctx, token, "")
				if err != nil || id.Subject != want[token] {
					t.Errorf("Verify = %+v, %v; want %s", id, err, want[token])
					return
				}
				if _, err := v.Verify(ctx, bad, ""); !errors.Is(err, ErrUnauthorized) {
					t.Errorf("a bad token: %v", err)
					return
				}
			}
		})
	}
	for range 20 { // new sets with the same keys: what is remembered falls, what is asked holds
		set, err := parseKeySet(jwks(t, map[string]KeyPair{"a": a, "b": b}), []string{"ES256"})
		if err != nil {
			t.Fatal(err)
		}
		store.cur.Store(set)
	}
	wg.Wait()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, size := range []int{0, 600} {
		v := newVerifier(b, Options{
			Config: Config{Issuers: []Issuer{es256Issuer(b)}}, Revoked: func(*Identity) bool { return false },
		})
		token := goodToken(b, func(o *MintOptions) { o.Extra = map[string]any{"pad": strings.Repeat("x", size)} })
		ctx := b.Context()
		b.Run(fmt.Sprintf("remembered/%dB", len(token)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(ctx, token, testEndpoint); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("remembered-parallel/%dB", len(token)), func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := v.Verify(ctx, token, testEndpoint); err != nil {
						b.Error(err)
					}
				}
			})
		})
		b.Run(fmt.Sprintf("hash-alone/%dB", len(token)), func(b *testing.B) {
			raw := []byte(token)
			for b.Loop() {
				sha256.Sum256(raw)
			}
		})
	}
	for _, algorithm := range []string{"ES256", "RS256", "EdDSA", "HS256"} {
		is := Issuer{Issuer: testIssuer, Audiences: []string{testAudience}, Algorithms: []string{algorithm}}
		k := keyPair(b, algorithm)
		if secret, ok := k.Private.([]byte); ok {
			is.HMACSecret = string(secret)
		} else {
			is.PublicKeyFile = writeFile(b, "key", publicPEM(b, k))
		}
		v := newVerifier(b, Options{Config: Config{Issuers: []Issuer{is}}})
		token := goodToken(b, func(o *MintOptions) { o.Algorithm = algorithm })
		b.Run("new/"+algorithm, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.verify(b.Context(), token, testEndpoint, time.Now()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
