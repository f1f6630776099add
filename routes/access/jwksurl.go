package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// jwksClient makes the client that fetches JWK sets out of the one that the plane passed: bounded in time, and it never
// follows a redirect to another host or away from https, which would let somebody else say what the keys are.
func jwksClient(passed *http.Client) *http.Client {
	if passed == nil {
		passed = &http.Client{}
	}
	c := *passed
	if c.Transport == nil {
		c.Transport = &http.Transport{
			Proxy:                  nil, // none from the environment
			DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSHandshakeTimeout:    5 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			DisableKeepAlives:      true, // one request in five minutes
			DisableCompression:     true, // a bound on bytes then is one on what we hold
			ForceAttemptHTTP2:      true,
		}
	}
	c.Jar = nil
	c.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		first := via[0].URL
		switch {
		case len(via) > 3:
			return errors.New("more than 3 redirects")
		case !strings.EqualFold(r.URL.Host, first.Host), r.URL.Scheme != first.Scheme, r.URL.User != nil:
			return errors.New("redirect to another host or scheme refused")
		}
		return nil
	}
	return &c
}

// fetchJWKS reads one JWK set, at most maxKeyDocument bytes.
func fetchJWKS(ctx context.Context, c *http.Client, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	w, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer w.Body.Close()
	if w.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, w.Status)
	}
	doc, err := readBounded(w.Body)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", url, err)
	}
	return doc, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}
