package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

const (
	adminToken    = "e2e-admin-token-0123456789-0123456789"
	internalToken = "e2e-internal-token-0123456789-0123456789"
	redisPassword = "e2e-redis-password"
)

// pair is the smallest real installation: one control plane, two dataplanes, a real Redis.
type pair struct {
	redis      *routestest.RedisServer
	control    *process
	data       [2]*process
	controlCfg string // paths of the config files
	dataCfg    string
	keyFile    string
}

// newPair starts everything. backends and hosts are the YAML of these two keys, indented by two.
func newPair(t *testing.T, backends, hosts string) *pair {
	t.Helper()
	p := &pair{redis: routestest.StartRedis(t, routestest.RedisOptions{AppendOnly: true, Args: slices.Concat(
		redisUser("control", redisstore.RoleControlPlane), redisUser("data", redisstore.RoleDataplane),
	)})}
	var publicKey string
	p.keyFile, publicKey = keyPair(t)
	auth := fmt.Sprintf(`auth:
  issuers:
    - {issuer: "https://idp.test", audiences: [weir], algorithms: [ES256], public_key_file: %q}
`, publicKey)
	p.controlCfg = file(t, "controlplane.yaml", fmt.Sprintf(`redis: %q
listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
ops_listen: 127.0.0.1:0
admin: {token: "${env:WEIR_ADMIN_TOKEN}"}
internal: {token: "${env:WEIR_INTERNAL_TOKEN}"}
discovery: {interval: 1s, timeout: 5s}
%sbackends:
%svirtual_hosts:
%s`, p.redisURL("control"), auth, backends, hosts))
	p.control = start(t, "weir-controlplane", "--config", p.controlCfg)
	p.dataCfg = file(t, "dataplane.yaml", fmt.Sprintf(`redis: %q
listen: 127.0.0.1:0
ops_listen: 127.0.0.1:0
control_plane: {url: "http://%s", admin_url: "http://%s", token: "${env:WEIR_INTERNAL_TOKEN}"}
delegated_methods: forward
drain: {delay: 0s, deadline: 5s}
%s`, p.redisURL("data"), p.control.ready["listen"], p.control.ready["admin"], auth))
	for i := range p.data {
		p.data[i] = start(t, "weir-dataplane", "--config", p.dataCfg)
	}
	return p
}

// redisUser is a user of a role, as options of redis-server: the planes get no more rights than docs/redis.md gives them.
func redisUser(name string, role redisstore.Role) []string {
	return append([]string{"--user", name, "on", ">" + redisPassword}, strings.Fields(redisstore.ACLRules(role, "weir:"))...)
}

// redisURL is where a user finds the Redis.
func (p *pair) redisURL(user string) string {
	return strings.Replace(p.redis.URL(), "redis://", "redis://"+user+":"+redisPassword+"@", 1)
}

// keyPair writes a fresh ES256 pair and returns the paths of the private and the public half.
func keyPair(t *testing.T) (private, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	priv, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "idp.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: priv}))),
		file(t, "idp.pub", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub})))
}

// token mints one for a host, with the command that operators use.
func (p *pair) token(t *testing.T, host string, more ...string) string {
	t.Helper()
	args := append([]string{"token", "mint", "--key-file", p.keyFile, "--alg", "ES256", "--issuer", "https://idp.test",
		"--audience", "weir", "--subject", "alice", "--virtual-host", host}, more...)
	out, err := exec.Command(filepath.Join(bin, "weir-controlplane"), args...).Output()
	if err != nil {
		t.Fatalf("token mint: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func (p *pair) client(t *testing.T, dataplane int, host, version string) client {
	t.Helper()
	return client{url: p.data[dataplane].url(), token: p.token(t, host), version: version}
}

// restartControl starts the control plane again on the addresses that it had, so that the dataplanes find it.
func (p *pair) restartControl(t *testing.T) {
	t.Helper()
	doc, err := os.ReadFile(p.controlCfg)
	if err != nil {
		t.Fatal(err)
	}
	again := strings.Replace(string(doc), "\nlisten: 127.0.0.1:0\n", "\nlisten: "+p.control.ready["listen"]+"\n", 1)
	again = strings.Replace(again, "\nadmin_listen: 127.0.0.1:0\n", "\nadmin_listen: "+p.control.ready["admin"]+"\n", 1)
	if err := os.WriteFile(p.controlCfg, []byte(again), 0o600); err != nil {
		t.Fatal(err)
	}
	p.control = start(t, "weir-controlplane", "--config", p.controlCfg)
}

// admin asks the admin API and decodes the answer.
func (p *pair) admin(method, path string, into any) error {
	req, err := http.NewRequest(method, "http://"+p.control.ready["admin"]+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := httpClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: status %d: %s", method, path, resp.StatusCode, body)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}

// refresh has a backend discovered now.
func (p *pair) refresh(t *testing.T, backend string) {
	t.Helper()
	if err := p.admin(http.MethodPost, "/api/v1/backends/"+backend+"/refresh", nil); err != nil {
		t.Fatal(err)
	}
}

// serves checks that a tool answers want, on one dataplane.
func serves(c client, tool, want string) error {
	a, err := c.call("1", "tools/call", `{"name":"`+tool+`","arguments":{}}`)
	if err != nil {
		return err
	}
	if a.rpc.Result == nil || !strings.Contains(string(a.rpc.Result), `"text":"`+want+`"`) {
		return fmt.Errorf("%s on %s: status %d: %s", tool, c.url, a.status, a.body)
	}
	return nil
}

// misses checks that a tool is unknown, on one dataplane.
func misses(c client, tool string) error {
	a, err := c.call("1", "tools/call", `{"name":"`+tool+`","arguments":{}}`)
	if err != nil {
		return err
	}
	if a.rpc.Error == nil || a.rpc.Error.Code != -32602 {
		return fmt.Errorf("%s on %s: status %d: %s, want -32602", tool, c.url, a.status, a.body)
	}
	return nil
}

// threeBackends is the installation of most tests: two modern backends and a legacy one, two tenants.
type threeBackends struct {
	*pair
	alpha, beta, gamma *sdkBackend
}

func newThreeBackends(t *testing.T) *threeBackends {
	t.Helper()
	p := &threeBackends{alpha: newModernBackend(t, "alpha"), beta: newModernBackend(t, "beta"), gamma: newLegacyBackend(t, "gamma")}
	p.pair = newPair(t, fmt.Sprintf("  alpha: {url: %q}\n  beta: {url: %q}\n  gamma: {url: %q}\n", p.alpha.url, p.beta.url, p.gamma.url),
		`  acme:
    backends: [{name: alpha, prefix: a__}, {name: gamma, prefix: g__}]
  globex:
    backends: [{name: beta, prefix: b__}, {name: gamma}]
`)
	return p
}
