package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeIdP answers for a JWK set inside a synctest bubble, where no real connection may be.
type fakeIdP struct {
	mu      sync.Mutex
	doc     []byte
	status  int           // 0: 200
	delay   time.Duration // before the answer
	fault   error
	fetches int
}

func (f *fakeIdP) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.fetches++
	w := &http.Response{StatusCode: f.status, Status: fmt.Sprint(f.status), Body: io.NopCloser(bytes.NewReader(f.doc)), Request: r}
	fault, delay := f.fault, f.delay
	f.mu.Unlock()
	if w.StatusCode == 0 {
		w.StatusCode = http.StatusOK
	}
	select {
	case <-time.After(delay):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if fault != nil {
		return nil, fault
	}
	return w, nil
}

func (f *fakeIdP) set(change func()) { f.mu.Lock(); defer f.mu.Unlock(); change() }
func (f *fakeIdP) count() int        { f.mu.Lock(); defer f.mu.Unlock(); return f.fetches }

// faults collects what OnError is told.
type faults struct {
	mu   sync.Mutex
	list []string
}

func (f *faults) add(issuer string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, issuer+": "+err.Error())
}

func (f *faults) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.list
	f.list = nil
	return l
}

type urlFixture struct {
	*Verifier
	idp    *fakeIdP
	faults faults
	stop   func() // ends Run and waits for it
}

// inBubble runs f with an issuer whose keys come from a fake IdP; run starts Run.
func inBubble(t *testing.T, doc []byte, run bool, f func(t *testing.T, x *urlFixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := &urlFixture{idp: &fakeIdP{doc: doc}, stop: func() {}}
		x.Verifier = newVerifier(t, Options{
			Config: Config{Issuers: []Issuer{{
				Issuer: testIssuer, Audiences: []string{testAudience}, Algorithms: []string{"ES256"}, JWKSURL: "https://idp.example/jwks",
			}}},
			Client:  &http.Client{Transport: x.idp},
			OnError: x.faults.add,
		})
		if run {
			x.stop = runUntilStopped(t, x.Verifier)
			synctest.Wait()
		}
		f(t, x)
		x.stop()
	})
}

func runUntilStopped(t *testing.T, v *Verifier) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- v.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func kidToken(t *testing.T, k KeyPair, kid string) string {
	t.Helper()
	return goodToken(t, func(o *MintOptions) { o.Key, o.KeyID, o.TTL = k.Private, kid, 24*time.Hour })
}

// want checks one Verify: nil, ErrUnauthorized or ErrNoKeys.
func (x *urlFixture) want(t *testing.T, what, token string, want error) {
	t.Helper()
	_, err := x.Verify(t.Context(), token, "")
	if !errors.Is(err, want) || (want == nil) != (err == nil) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func (x *urlFixture) wantFetches(t *testing.T, what string, want int) {
	t.Helper()
	if got := x.idp.count(); got != want {
		t.Errorf("%s: %d fetches, want %d", what, got, want)
	}
}

func TestKeysAreRefreshedInTheBackground(t *testing.T) {
	a, b := keyPair(t, "ES256"), other(t, "ES256")
	inBubble(t, jwks(t, map[string]KeyPair{"a": a}), true, func(t *testing.T, x *urlFixture) {
		x.wantFetches(t, "at the start", 1)
		old, fresh := kidToken(t, a, "a"), kidToken(t, b, "b")
		x.want(t, "old key", old, nil)
		x.idp.set(func() { x.idp.doc = jwks(t, map[string]KeyPair{"b": b}) })
		time.Sleep(urlInterval - time.Second)
		x.wantFetches(t, "before the interval is over", 1)
		time.Sleep(2 * time.Second)
		x.wantFetches(t, "after it", 2)
		x.want(t, "new key", fresh, nil)
		x.want(t, "withdrawn key, of a token that was remembered", old, ErrUnauthorized)
	})
}

// A token that was verified a moment ago must not outlive its key.
func TestRememberedTokenFallsWithItsKey(t *testing.T) {
	a, b := keyPair(t, "ES256"), other(t, "ES256")
	inBubble(t, jwks(t, map[string]KeyPair{"a": a}), true, func(t *testing.T, x *urlFixture) {
		time.Sleep(urlInterval - time.Second)
		old := kidToken(t, a, "a")
		x.want(t, "old key", old, nil)
		x.idp.set(func() { x.idp.doc = jwks(t, map[string]KeyPair{"b": b}) })
		time.Sleep(2 * time.Second)
		x.want(t, "withdrawn key, one second after it proved the token", old, ErrUnauthorized)
	})
}

func TestUnknownKeyRefreshes(t *testing.T) {
	a, b := keyPair(t, "ES256"), other(t, "ES256")
	inBubble(t, jwks(t, map[string]KeyPair{"a": a}), true, func(t *testing.T, x *urlFixture) {
		time.Sleep(urlGap)
		x.idp.set(func() { x.idp.doc = jwks(t, map[string]KeyPair{"a": a, "b": b}) })
		x.want(t, "a key that was added", kidToken(t, b, "b"), nil)
		x.want(t, "the first key", kidToken(t, a, "a"), nil)
		x.wantFetches(t, "the unknown key", 2)
		for i := range 100 {
			x.want(t, "nobody's key", kidToken(t, b, fmt.Sprint("nobody", i)), ErrUnauthorized)
		}
		x.wantFetches(t, "a hundred unknown keys within 10 s", 2)
		time.Sleep(urlGap)
		x.want(t, "nobody's key", kidToken(t, b, "nobody"), ErrUnauthorized)
		x.wantFetches(t, "one after 10 s", 3)
		x.want(t, "a known kid and a wrong signature", kidToken(t, a, "b"), ErrUnauthorized)
		time.Sleep(urlGap)
		x.want(t, "a known kid and a wrong signature", kidToken(t, a, "b"), ErrUnauthorized)
		x.wantFetches(t, "a wrong signature", 3)
	})
}

// An IdP that gives its keys no ids rotates all the same.
func TestKeyWithoutIDRefreshes(t *testing.T) {
	a, b := keyPair(t, "ES256"), other(t, "ES256")
	inBubble(t, jwks(t, map[string]KeyPair{"": a}), true, func(t *testing.T, x *urlFixture) {
		time.Sleep(urlGap)
		x.want(t, "no kid", kidToken(t, a, ""), nil)
		x.want(t, "a kid that no key has", kidToken(t, a, "k"), nil)
		x.wantFetches(t, "good tokens", 1)
		x.idp.set(func() { x.idp.doc = jwks(t, map[string]KeyPair{"": b}) })
		x.want(t, "no kid, after the key changed", kidToken(t, b, ""), nil)
		x.wantFetches(t, "the new key", 2)
	})
}

func TestOneFetchForAll(t *testing.T) {
	a, b := keyPair(t, "ES256"), other(t, "ES256")
	inBubble(t, jwks(t, map[string]KeyPair{"a": a}), true, func(t *testing.T, x *urlFixture) {
		time.Sleep(urlGap)
		x.idp.set(func() { x.idp.doc, x.idp.delay = jwks(t, map[string]KeyPair{"b": b}), time.Second })
		token := kidToken(t, b, "b")
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { x.want(t, "a key that was added", token, nil) })
		}
		wg.Wait()
		x.wantFetches(t, "fifty at once", 2)
	})
}

func TestNoRequestWaitsOverTwoSeconds(t *testing.T) {
	a := keyPair(t, "ES256")
	inBubble(t, jwks(t, map[string]KeyPair{"a": a}), false, func(t *testing.T, x *urlFixture) {
		x.idp.set(func() { x.idp.delay = 5 * time.Second })
		start := time.Now()
		x.want(t, "keys that take 5 s", kidToken(t, a, "a"), ErrNoKeys)
		if d := time.Since(start); d != maxWait {
			t.Errorf("waited %v, want %v", d, maxWait)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		if _, err := x.Verify(ctx, kidToken(t, a, "a"), ""); !errors.Is(err, ErrNoKeys) || time.Since(start) != time.Second {
			t.Errorf("a caller who leaves after 1 s: %v after %v", err, time.Since(start))
		}
		time.Sleep(5 * time.Second)
		x.want(t, "once they are there", kidToken(t, a, "a"), nil)
		x.wantFetches(t, "in all", 1)
	})
}

func TestFetchIsGivenUpAfterTenSeconds(t *testing.T) {
	a := keyPair(t, "ES256")
	inBubble(t, jwks(t, map[string]KeyPair{"a": a}), false, func(t *testing.T, x *urlFixture) {
		x.idp.set(func() { x.idp.delay = time.Hour })
		x.want(t, "keys that never come", kidToken(t, a, "a"), ErrNoKeys)
		time.Sleep(fetchTimeout)
		x.idp.set(func() { x.idp.delay = 0 })
		x.want(t, "the next try", kidToken(t, a, "a"), nil)
		if l := x.faults.take(); len(l) != 1 || !strings.Contains(l[0], "deadline exceeded") {
			t.Errorf("faults: %q", l)
		}
	})
}

func TestKeysAreLoadedOnFirstNeed(t *testing.T) {
	a := keyPair(t, "ES256")
	inBubble(t, jwks(t, map[string]KeyPair{"a": a}), false, func(t *testing.T, x *urlFixture) {
		x.wantFetches(t, "New", 0)
		x.want(t, "without Run", kidToken(t, a, "a"), nil)
		x.wantFetches(t, "the first token", 1)
	})
}

func TestBadSetKeepsTheLastGoodOne(t *testing.T) {
	a := keyPair(t, "ES256")
	for name, spoil := range map[string]func(*fakeIdP){
		"empty":         func(f *fakeIdP) { f.doc = []byte(`{"keys":[]}`) },
		"no body":       func(f *fakeIdP) { f.doc = nil },
		"over 1 MiB":    func(f *fakeIdP) { f.doc = append(bytes.Repeat([]byte(" "), maxKeyDocument), f.doc...) },
		"an error page": func(f *fakeIdP) { f.doc = []byte("<html>") },
		"status 500":    func(f *fakeIdP) { f.status = http.StatusInternalServerError },
		"status 204":    func(f *fakeIdP) { f.status = http.StatusNoContent },
		"no connection": func(f *fakeIdP) { f.fault = errors.New("connection refused") },
		"no usable key": func(f *fakeIdP) { f.doc = []byte(`{"keys":[{"kty":"oct","k":"AAAA"}]}`) },
	} {
		t.Run(name, func(t *testing.T) {
			good := jwks(t, map[string]KeyPair{"a": a})
			inBubble(t, good, true, func(t *testing.T, x *urlFixture) {
				token := kidToken(t, a, "a")
				x.want(t, "before", token, nil)
				x.idp.set(func() { spoil(x.idp) })
				time.Sleep(urlInterval)
				synctest.Wait()
				if l := x.faults.take(); len(l) != 1 || !strings.HasPrefix(l[0], testIssuer+": ") {
					t.Errorf("faults: %q, want one", l)
				}
				x.want(t, "after", token, nil)
				time.Sleep(urlRetry)
				synctest.Wait()
				x.wantFetches(t, "the retry", 3)
				x.idp.set(func() { x.idp.doc, x.idp.status, x.idp.fault = good, 0, nil })
				time.Sleep(urlRetry)
				synctest.Wait()
				x.faults.take()
				time.Sleep(urlInterval - time.Second)
				x.wantFetches(t, "good again, so back to the interval", 4)
			})
		})
	}
}

func TestNoKeysYet(t *testing.T) {
	a := keyPair(t, "ES256")
	inBubble(t, []byte(`{"keys":[]}`), true, func(t *testing.T, x *urlFixture) {
		x.want(t, "before any key", kidToken(t, a, "a"), ErrNoKeys)
		x.want(t, "a token that no key could save", goodToken(t, func(o *MintOptions) { o.Audience = []string{"other"} }), ErrUnauthorized)
		x.wantFetches(t, "at once", 1)
		x.idp.set(func() { x.idp.doc = jwks(t, map[string]KeyPair{"a": a}) })
		time.Sleep(urlRetry)
		synctest.Wait()
		x.want(t, "once they are there", kidToken(t, a, "a"), nil)
	})
}

func TestNothingRunsAfterRun(t *testing.T) {
	a, b := keyPair(t, "ES256"), other(t, "ES256")
	inBubble(t, jwks(t, map[string]KeyPair{"a": a}), true, func(t *testing.T, x *urlFixture) {
		time.Sleep(urlGap)
		x.idp.set(func() { x.idp.delay = time.Hour })
		token := kidToken(t, b, "b")
		var wg sync.WaitGroup
		wg.Go(func() { x.want(t, "a waiter when Run ends", token, ErrUnauthorized) })
		synctest.Wait()
		start := time.Now()
		x.stop() // cancels the fetch and waits for it
		wg.Wait()
		if d := time.Since(start); d != 0 {
			t.Errorf("stopping took %v", d)
		}
		time.Sleep(urlGap)
		x.want(t, "a known key afterwards", kidToken(t, a, "a"), nil)
		x.want(t, "an unknown key afterwards", kidToken(t, b, "b"), ErrUnauthorized)
		x.wantFetches(t, "in all", 2)
		if l := x.faults.take(); len(l) != 0 {
			t.Errorf("faults: %q, want none: it was we who stopped it", l)
		}
	})
}

func TestKeyFilesAreReadAgain(t *testing.T) {
	a, b := keyPair(t, "ES256"), other(t, "ES256")
	for name, tt := range map[string]struct {
		source   func(*Issuer, string)
		old, new []byte
	}{
		"public_key_file": {func(is *Issuer, path string) { is.PublicKeyFile = path }, publicPEM(t, a), publicPEM(t, b)},
		"jwks_file": {func(is *Issuer, path string) { is.JWKSFile = path },
			jwks(t, map[string]KeyPair{"a": a}), jwks(t, map[string]KeyPair{"b": b})},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, "key", tt.old)
			synctest.Test(t, func(t *testing.T) {
				is := Issuer{Issuer: testIssuer, Audiences: []string{testAudience}, Algorithms: []string{"ES256"}}
				tt.source(&is, path)
				x := &urlFixture{}
				x.Verifier = newVerifier(t, Options{Config: Config{Issuers: []Issuer{is}}, OnError: x.faults.add})
				defer runUntilStopped(t, x.Verifier)()
				old, fresh := kidToken(t, a, "a"), kidToken(t, b, "b")
				x.want(t, "old key", old, nil)
				x.want(t, "key to come", fresh, ErrUnauthorized)

				write(t, path, []byte("half of a fi"))
				time.Sleep(3 * fileInterval)
				synctest.Wait()
				x.want(t, "old key while the file is torn", old, nil)
				if l := x.faults.take(); len(l) != 1 {
					t.Errorf("faults: %q, want the same one told once", l)
				}
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * fileInterval)
				synctest.Wait()
				x.want(t, "old key while the file is gone", old, nil)
				if l := x.faults.take(); len(l) != 1 || !strings.Contains(l[0], "no such file") {
					t.Errorf("faults: %q, want one", l)
				}
				write(t, path, tt.new)
				time.Sleep(fileInterval)
				synctest.Wait()
				x.want(t, "new key", fresh, nil)
				x.want(t, "withdrawn key, of a token that was remembered", old, ErrUnauthorized)
			})
		})
	}
}

func write(t *testing.T, path string, doc []byte) {
	t.Helper()
	if err := os.WriteFile(path, doc, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSecretIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, fresh := keyPair(t, "HS256"), other(t, "HS256")
		var mu sync.Mutex
		secret, fault := string(old.Private.([]byte)), error(nil)
		x := &urlFixture{}
		x.Verifier = newVerifier(t, Options{
			Config: Config{Issuers: []Issuer{{
				Issuer: testIssuer, Audiences: []string{testAudience}, Algorithms: []string{"HS256"}, HMACSecret: secret,
			}}},
			Secret: func(issuer string) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				if issuer != testIssuer {
					t.Errorf("asked for the secret of %q", issuer)
				}
				return secret, fault
			},
			OnError: x.faults.add,
		})
		defer runUntilStopped(t, x.Verifier)()
		mint := func(k KeyPair) string {
			return goodToken(t, func(o *MintOptions) { o.Algorithm, o.Key = "HS256", k.Private })
		}
		set := func(s string, err error) {
			mu.Lock()
			secret, fault = s, err
			mu.Unlock()
			time.Sleep(fileInterval)
			synctest.Wait()
		}
		x.want(t, "old secret", mint(old), nil)
		set("", errors.New("vault is sealed"))
		x.want(t, "old secret while there is none", mint(old), nil)
		set("short", nil)
		x.want(t, "old secret while the new one is too short", mint(old), nil)
		set(string(fresh.Private.([]byte)), nil)
		x.want(t, "new secret", mint(fresh), nil)
		x.want(t, "old secret", mint(old), ErrUnauthorized)
		l := x.faults.take()
		if len(l) != 2 || !strings.Contains(l[0], "sealed") || !strings.Contains(l[1], "has 5 bytes") {
			t.Errorf("faults: %q", l)
		}
	})
}
