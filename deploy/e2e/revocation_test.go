package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// claimsOf decodes a token's payload.
func claimsOf(t *testing.T, token string) (claims struct {
	JTI string  `json:"jti"`
	Exp float64 `json:"exp"`
}) {
	t.Helper()
	doc, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(doc, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// revoke posts a revocation at one control plane. body is the JSON after issuer.
func revoke(control *process, body string) error {
	req, err := http.NewRequest(http.MethodPost, "http://"+control.ready["admin"]+"/api/v1/revocations",
		strings.NewReader(`{"issuer":"https://idp.test",`+body+`}`))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := httpClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("revocation: %d %s", resp.StatusCode, answer)
	}
	return err
}

func mustRevoke(t *testing.T, control *process, body string) time.Time {
	t.Helper()
	began := time.Now()
	if err := revoke(control, body); err != nil {
		t.Fatal(err)
	}
	return began
}

// planes are all that check tokens: both dataplanes, and the control plane itself.
func (p *pair) planes(token string) map[string]func() (int, error) {
	ask := func(proc *process, method, params string) func() (int, error) {
		return func() (int, error) {
			a, err := client{url: proc.url(), token: token, version: "2026-07-28"}.call("1", method, params)
			if err != nil {
				return 0, err
			}
			return a.status, nil
		}
	}
	return map[string]func() (int, error){
		"dataplane 0":   ask(p.data[0], "tools/call", `{"name":"whoami","arguments":{}}`),
		"dataplane 1":   ask(p.data[1], "tools/call", `{"name":"whoami","arguments":{}}`),
		"control plane": ask(p.control, "tools/list", `{}`),
	}
}

// accepted and refused wait until every plane says so.
func (p *pair) accepted(t *testing.T, token string) {
	t.Helper()
	p.allSay(t, token, http.StatusOK, nil)
}

func (p *pair) refused(t *testing.T, token string, since *time.Time) {
	t.Helper()
	p.allSay(t, token, http.StatusUnauthorized, since)
}

func (p *pair) allSay(t *testing.T, token string, want int, since *time.Time) {
	t.Helper()
	for name, ask := range p.planes(token) {
		eventually(t, fmt.Sprintf("%s answers %d", name, want), func() error {
			status, err := ask()
			if err == nil && status != want {
				err = fmt.Errorf("status %d", status)
			}
			return err
		})
		if since != nil {
			t.Logf("%s: in force %v after it was asked for", name, time.Since(*since).Round(time.Millisecond))
		}
	}
}

// staysRefused asks every plane once.
func (p *pair) staysRefused(t *testing.T, when, token string) {
	t.Helper()
	for name, ask := range p.planes(token) {
		if status, err := ask(); err != nil || status != http.StatusUnauthorized {
			t.Errorf("%s, %s: status %d, %v; want 401", when, name, status, err)
		}
	}
}

func newRevocationPair(t *testing.T) *pair {
	t.Helper()
	b := newModernBackend(t, "alpha")
	return newPair(t, fmt.Sprintf("  alpha: {url: %q}\n", b.url), "  acme:\n    backends: [{name: alpha}]\n")
}

func TestARevokedTokenStaysRefused(t *testing.T) {
	p := newRevocationPair(t)
	bad, good := p.token(t, "acme"), p.token(t, "acme")
	p.accepted(t, bad)
	p.accepted(t, good)
	began := mustRevoke(t, p.control, fmt.Sprintf(`"jti":%q,"until":%q`, claimsOf(t, bad).JTI, inAnHour()))
	p.refused(t, bad, &began)
	p.accepted(t, good)

	// A subject's tokens of before a moment. iat has whole seconds: what is minted from the next one on is good.
	began = mustRevoke(t, p.control, fmt.Sprintf(`"subject":"alice","until":%q`, inAnHour()))
	p.refused(t, good, &began)
	p.accepted(t, p.token(t, "acme", "--subject", "bob"))
	var fresh string
	eventually(t, "a later token is good", func() error {
		fresh = p.token(t, "acme")
		status, err := p.planes(fresh)["dataplane 0"]()
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}
		return err
	})
	p.accepted(t, fresh)

	// Redis away, then back without its data: the planes keep what they know, and the control plane writes it again.
	p.redis.Kill()
	for name, ask := range p.planes(bad) {
		if status, err := ask(); err != nil || status != http.StatusUnauthorized {
			t.Errorf("while Redis is away, %s: status %d, %v; want 401", name, status, err)
		}
	}
	p.redis.Wipe()
	p.redis.Restart()
	p.staysRefused(t, "after Redis came back empty", bad)
	p.staysRefused(t, "after Redis came back empty", good)
	eventually(t, "the control plane writes them again", func() error {
		if n := p.redis.Do("HLEN", "weir:{routes}:revocations"); n != "2" {
			return fmt.Errorf("%s stand", n)
		}
		return nil
	})

	// A dataplane that starts now never accepts it, from its first answer on.
	p.data[0].kill()
	p.data[0] = start(t, "weir-dataplane", "--config", p.dataCfg)
	eventually(t, "the new dataplane answers", func() error {
		status, err := p.planes(bad)["dataplane 0"]()
		switch {
		case err != nil:
			return err
		case status == http.StatusOK:
			t.Fatal("the new dataplane took the revoked token")
		case status != http.StatusUnauthorized:
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
	p.accepted(t, fresh)
	p.staysRefused(t, "at the end", bad)
	p.staysRefused(t, "at the end", good)
}

func TestARevocationEndsWhenItSays(t *testing.T) {
	p := newRevocationPair(t)
	token := p.token(t, "acme")
	p.accepted(t, token)
	until := time.Now().Add(5 * time.Second)
	mustRevoke(t, p.control, fmt.Sprintf(`"jti":%q,"until":%q`, claimsOf(t, token).JTI, until.UTC().Format(time.RFC3339Nano)))
	p.refused(t, token, nil)
	p.accepted(t, token)
	if time.Now().Before(until) {
		t.Errorf("accepted %v before the end", time.Until(until))
	}
}

// The moment in which one revokes is the one in which other things fail, too.
func TestATokenIsRevokedWhileNobodyLeads(t *testing.T) {
	p := newRevocationPair(t)
	follower := start(t, "weir-controlplane", "--config", p.controlCfg)
	token := p.token(t, "acme")
	p.accepted(t, token)
	p.control.kill() // its lease goes on for up to ten seconds
	began := mustRevoke(t, follower, fmt.Sprintf(`"jti":%q,"until":%q`, claimsOf(t, token).JTI, inAnHour()))
	p.control = follower
	p.refused(t, token, &began)
}

func TestAMistakenRevocationNamesTheField(t *testing.T) {
	p := newRevocationPair(t)
	for body, want := range map[string]string{
		`"until":"2090-01-01T00:00:00Z"`:                         "jti: this or subject is required",
		`"jti":"x","until":"soon"`:                               "until: is not a time as RFC 3339 writes it",
		`"jti":"x","until":"2020-01-01T00:00:00Z"`:               "until: has passed",
		`"jti":"x","untill":"2090-01-01T00:00:00Z"`:              "untill: no such field",
		`"jti":"x","subject":"y","until":"2090-01-01T00:00:00Z"`: "subject: can't stand beside jti",
	} {
		if err := revoke(p.control, body); err == nil || !strings.Contains(err.Error(), "400") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want 400 with %q", body, err, want)
		}
	}
}

func inAnHour() string { return time.Now().Add(time.Hour).UTC().Format(time.RFC3339) }
