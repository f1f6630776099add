package controlplane

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
)

const internalToken = "internal-token-0123456789-01234567"

// locate asks as a dataplane does, for a client's token.
func (p *plane) locate(token string) (status int, answer string) {
	p.t.Helper()
	body, err := routes.EncodeLocateRequest(&routes.LocateRequest{Token: token, Host: "acme", TaskID: "t1", Era: routes.LocateModern})
	if err != nil {
		p.t.Fatal(err)
	}
	status, doc := p.post("/internal/v1/tasks/locate", internalToken, body)
	return status, string(doc)
}

func (p *plane) post(path, bearer string, body []byte) (int, []byte) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, "http://"+p.addr["admin"]+path, bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+bearer)
	return do(p.t, r)
}

func (p *plane) mint(subject, host string) string {
	p.t.Helper()
	token, err := access.Mint(access.MintOptions{
		Algorithm: "ES256", Key: p.key, Issuer: "https://idp.test", Subject: subject, Audience: []string{"weir"}, Hosts: []string{host},
		TTL: time.Minute,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return token
}

func withInternalToken(config string) string {
	return strings.Replace(config, "\ndiscovery:", "\ninternal: {token: "+internalToken+"}\ndiscovery:", 1)
}

// A dataplane's word opens nothing: the client's token does, as this plane judges it now.
func TestLocateTrustsTheClientsTokenAlone(t *testing.T) {
	p, config := newPlane(t)
	p.write(withInternalToken(config))
	p.start()
	const miss = `{"outcome":"miss","cause":"unknown"}`
	if status, answer := p.locate(p.mint("alice", "acme")); status != 200 || answer != miss {
		t.Errorf("alice: %d %s, want 200 %s", status, answer, miss)
	}
	if status, answer := p.locate(p.mint("alice", "globex")); status != 404 {
		t.Errorf("another host's token: %d %s, want 404", status, answer)
	}
	if status, answer := p.locate(""); status != 401 || !strings.Contains(answer, "token_refused") {
		t.Errorf("no token: %d %s, want 401", status, answer)
	}

	revocation, err := json.Marshal(map[string]string{"issuer": "https://idp.test", "subject": "alice",
		"issued_before": time.Now().Add(time.Minute).Format(time.RFC3339), "until": time.Now().Add(time.Hour).Format(time.RFC3339)})
	if err != nil {
		t.Fatal(err)
	}
	if status, answer := p.post("/api/v1/revocations", adminToken, revocation); status != 201 {
		t.Fatalf("revoke: %d %s", status, answer)
	}
	alice := p.mint("alice", "acme")
	soon(t, "the revocation is in force", func() error {
		if status, answer := p.locate(alice); status != 401 {
			return fmt.Errorf("%d %s", status, answer)
		}
		return nil
	})
	if status, answer := p.locate(p.mint("bob", "acme")); status != 200 || !strings.Contains(answer, `"miss"`) {
		t.Errorf("bob: %d %s", status, answer)
	}
}

// After a reload it is the new config's verifier that judges.
func TestLocateByTheVerifierInForce(t *testing.T) {
	p, config := newPlane(t)
	config = withInternalToken(config)
	p.write(config)
	p.start()
	before := p.mint("alice", "acme")
	if status, answer := p.locate(before); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "other.pub")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(config, "public_key_file: ")
	old, _, _ := strings.Cut(rest, "}")
	p.write(strings.Replace(config, old, fmt.Sprintf("%q", file), 1))
	p.reloadFile(t.Context())
	if status, answer := p.locate(before); status != 401 {
		t.Errorf("a token of the key before: %d %s, want 401", status, answer)
	}
	p.key = key
	if status, answer := p.locate(p.mint("alice", "acme")); status != 200 {
		t.Errorf("a token of the key in force: %d %s, want 200", status, answer)
	}
}

// Without the internal token in its config the plane locates for nobody.
func TestLocateIsClosedWithoutAToken(t *testing.T) {
	p, _ := newPlane(t)
	p.start()
	if status, answer := p.locate(p.mint("alice", "acme")); status != 403 {
		t.Errorf("%d %s, want 403", status, answer)
	}
}

// The operator's view of what a real store holds.
func TestTasksOfAHostAreShown(t *testing.T) {
	p, _ := newPlane(t)
	p.start()
	err := p.owners.RecordTask(t.Context(), "acme", "t1", routes.TaskOwner{Principal: "somebody", Backend: "a", Source: routes.TaskMinted,
		Tool: "a__echo", Created: time.Now(), Life: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	status, body := get(t, "http://"+p.addr["admin"]+"/api/v1/tasks?host=acme")
	if status != 200 || !bytes.Contains(body, []byte(routes.TaskDigest("t1"))) || bytes.Contains(body, []byte(`"t1"`)) {
		t.Errorf("%d %s", status, body)
	}
}

// Where there is no auth, everybody is one and the same.
func TestLocateWithoutAuth(t *testing.T) {
	p, config := newPlane(t)
	p.write(withInternalToken(config))
	cfg, _, err := LoadConfig(t.Context(), p.file)
	if err != nil {
		t.Fatal(err)
	}
	cfg.NoAuth = true
	s, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.redis.Close(); err != nil {
			t.Error(err)
		}
	})
	id, err := callers{s}.Verify(t.Context(), "", "")
	if err != nil || !id.MayUse("acme") || id.Principal != access.Anonymous("acme").Principal {
		t.Errorf("%+v, %v", id, err)
	}
	if id.MayUse("globex") {
		t.Error("anonymous may use another host")
	}
}
