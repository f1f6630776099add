package dataplane

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-mcp/weir/routes"
)

func (p *plane) revoke(r routes.Revocation) {
	p.t.Helper()
	if err := p.writer.Revoke(p.t.Context(), []routes.Revocation{r}); err != nil {
		p.t.Fatal(err)
	}
}

// aliceIsOut revokes every token that these tests mint.
func aliceIsOut() routes.Revocation {
	soon := time.Now().UTC().Add(time.Hour)
	return routes.Revocation{Issuer: "https://idp.test", Subject: "alice", IssuedBefore: soon, Until: soon}
}

func TestARevokedTokenIsRefusedAndItsStreamEnds(t *testing.T) {
	p := start(t, "")
	slow, running, _ := gated(t)
	p.publish(1, "slow", slow)
	eventually(t, "the host is there", func() bool { status, _, _ := p.outcome("acme", "nope"); return status == 400 })
	resp, err := p.call(t.Context(), "acme", "slow")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-running
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	p.revoke(aliceIsOut())
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(rest), `"reason":"unauthorized"`) {
		t.Errorf("the stream ended with %q, %v", rest, err)
	}
	// The token that was remembered.
	eventually(t, "it is refused", func() bool { status, _, _ := p.outcome("acme", "nope"); return status == 401 })
	// Redis forgets; the dataplane does not.
	p.redis.FlushAll()
	if status, _, _ := p.outcome("acme", "nope"); status != 401 {
		t.Errorf("status %d after Redis lost its data", status)
	}
	if status, body := p.ready(); status != 200 || body["revocations"] != 1.0 {
		t.Errorf("readyz: %d %v", status, body)
	}
}

func TestRevocationsThatCantBeConfirmedFailClosed(t *testing.T) {
	p := start(t, "fail_closed_after: 100ms\n")
	p.publish(1, "one", echo(t))
	eventually(t, "calls are answered", func() bool { status, _, _ := p.outcome("acme", "one"); return status == 200 })
	p.redis.SetError("LOADING away")
	eventually(t, "tokens are refused", func() bool {
		status, body, h := p.outcome("acme", "one")
		return status == 503 && strings.Contains(body, "revoked") && h.Get("Retry-After") != "" && h.Get("WWW-Authenticate") == ""
	})
	if status, body := p.ready(); status != 200 || body["revocationsAgeSeconds"] == nil {
		t.Errorf("readyz: %d %v, want 200 with the age", status, body)
	}
	p.redis.SetError("")
	eventually(t, "calls are answered again", func() bool { status, _, _ := p.outcome("acme", "one"); return status == 200 })
}

// A dataplane that has not read what was revoked answers nobody.
func TestNobodyIsAnsweredBeforeRevocationsAreRead(t *testing.T) {
	p := start(t, "")
	p.publish(1, "one", echo(t))
	p.revoke(aliceIsOut())
	eventually(t, "the revocation is in force", func() bool { status, _, _ := p.outcome("acme", "one"); return status == 401 })
	again, err := New(&p.server.cfg, Options{NoListeners: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- again.Run(ctx) }()
	resp, err := (&http.Client{Transport: handlerTransport{again.Handler()}}).Do(p.request(t.Context(), "acme", "one"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the first request after a start: %d, want 401", resp.StatusCode)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
