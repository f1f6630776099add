package access

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// These tests use real connections on loopback; what depends on time is in keystore_test.go.

func TestFetchJWKS(t *testing.T) {
	good := jwks(t, map[string]KeyPair{"a": keyPair(t, "ES256")})
	var elsewhere atomic.Int32
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		elsewhere.Add(1)
		w.Write(good)
	}))
	defer foreign.Close()
	gone := httptest.NewServer(nil)
	gone.Close()

	mux := http.NewServeMux()
	mux.HandleFunc("/good", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
			t.Errorf("asked with %s %v", r.Method, r.Header)
		}
		w.Header().Set("Set-Cookie", "a=b")
		w.Write(good)
	})
	mux.HandleFunc("/huge", func(w http.ResponseWriter, _ *http.Request) {
		for range 64 {
			if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
				return // cut off: that is what we test
			}
		}
	})
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.Write([]byte("{"))
	})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, foreign.URL+"/good", http.StatusFound)
	})
	mux.HandleFunc("/other-scheme", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://"+r.Host+"/good", http.StatusFound)
	})
	mux.Handle("/moved", http.RedirectHandler("/good", http.StatusMovedPermanently))
	idp := httptest.NewServer(mux)
	defer idp.Close()

	tests := map[string]struct{ url, fault string }{
		"good":                       {idp.URL + "/good", ""},
		"moved on the same host":     {idp.URL + "/moved", ""},
		"not there":                  {idp.URL + "/nothing", "404 Not Found"},
		"64 MiB":                     {idp.URL + "/huge", "is over 1 MiB"},
		"cut off":                    {idp.URL + "/short", "unexpected EOF"},
		"no answer":                  {idp.URL + "/slow", "deadline exceeded"},
		"redirected for ever":        {idp.URL + "/loop", "more than 3 redirects"},
		"redirected to another host": {idp.URL + "/away", "redirect to another host or scheme refused"},
		"redirected to https":        {idp.URL + "/other-scheme", "redirect to another host or scheme refused"},
		"nobody listens":             {gone.URL, "connection refused"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if name == "no answer" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
			}
			doc, err := fetchJWKS(ctx, jwksClient(nil), tt.url)
			switch {
			case tt.fault == "" && (err != nil || !bytes.Equal(doc, good)):
				t.Errorf("%q, %v", doc, err)
			case tt.fault != "" && (err == nil || doc != nil || !strings.Contains(err.Error(), tt.fault)):
				t.Errorf("%q, %v; want %s", doc, err, tt.fault)
			}
		})
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("the other host was asked %d times", n)
	}
}

func TestJWKSClientUsesNoProxyFromTheEnvironment(t *testing.T) {
	for name, passed := range map[string]*http.Client{"none": nil, "without a transport": {Timeout: time.Second}} {
		c := jwksClient(passed)
		tr, ok := c.Transport.(*http.Transport)
		if !ok || tr.Proxy != nil {
			t.Errorf("%s: transport %T with a proxy", name, c.Transport)
		}
		if passed != nil && (c.Timeout != passed.Timeout || passed.CheckRedirect != nil || passed.Transport != nil) {
			t.Errorf("%s: the client that was passed: %+v, ours: %+v", name, passed, c)
		}
	}
}

// TestRotationOverHTTP is the whole way once, with a real server that rotates, dies and comes back.
func TestRotationOverHTTP(t *testing.T) {
	a, b := keyPair(t, "ES256"), other(t, "ES256")
	var doc atomic.Pointer[[]byte]
	publish := func(keys map[string]KeyPair) { d := jwks(t, keys); doc.Store(&d) }
	idp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(*doc.Load()) }))
	defer idp.Close()
	v := newVerifier(t, Options{Config: Config{Issuers: []Issuer{{
		Issuer: testIssuer, Audiences: []string{testAudience}, Algorithms: []string{"ES256"}, JWKSURL: idp.URL,
	}}}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	publish(map[string]KeyPair{"a": a})
	go func() { ended <- v.Run(ctx) }()

	old, fresh := kidToken(t, a, "a"), kidToken(t, b, "b")
	if _, err := v.Verify(ctx, old, ""); err != nil {
		t.Errorf("first key: %v", err)
	}
	if _, err := v.Verify(ctx, fresh, ""); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("key to come: %v, want ErrUnauthorized", err)
	}
	publish(map[string]KeyPair{"b": b})
	store := v.issuers[testIssuer].keys
	store.mu.Lock()
	store.started = store.started.Add(-urlGap) // as if ten seconds had passed
	store.mu.Unlock()
	if _, err := v.Verify(ctx, fresh, ""); err != nil {
		t.Errorf("new key: %v", err)
	}
	if _, err := v.Verify(ctx, old, ""); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("withdrawn key: %v, want ErrUnauthorized", err)
	}
	idp.Close()
	store.mu.Lock()
	store.started = store.started.Add(-urlGap)
	store.mu.Unlock()
	if _, err := v.Verify(ctx, kidToken(t, b, "c"), ""); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("unknown key while the server is gone: %v, want ErrUnauthorized", err)
	}
	if _, err := v.Verify(ctx, fresh, ""); err != nil {
		t.Errorf("known key while the server is gone: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "10.0.0.1": false, "localhost.example": false, "": false,
	} {
		if got := isLoopback(host); got != want {
			t.Errorf("isLoopback(%q) = %v, want %v", host, got, want)
		}
	}
}
