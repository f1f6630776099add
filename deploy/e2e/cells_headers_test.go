package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

const headersConfig = `, headers: {
      passthrough: [X-Request-Id, X-Tags, X-Dropped, X-Team, Authorization, Cookie, X-Forwarded-For],
      add: {X-Team: platform, X-Dropped-Too: "1", Mcp-Method: forged, Mcp-Future: forged, Traceparent: "00-11111111111111111111111111111111-1111111111111111-01"},
      remove: [X-Dropped, X_Dropped_Too, Content-Type, Traceparent],
      credentials: {Authorization: "Bearer ${file:%s}", X-From-Env: "${env:WEIR_ADMIN_TOKEN}", Cookie: "c=${env:WEIR_ADMIN_TOKEN}"},
      forward_caller: {X-Backend-Token: X-My-Token, X-Stolen: Authorization}}`

// headersGateway is a gateway before one scripted backend with everything that config can say about headers.
func headersGateway(t *testing.T, version string) (*gateway, *scripted) {
	t.Helper()
	b := newScripted(t, version, func(w http.ResponseWriter, r *http.Request, m message) {
		h := w.Header()
		h.Set("Set-Cookie", "backend=1")
		h.Set("Location", "https://backend.example/elsewhere")
		h.Set("WWW-Authenticate", `Bearer realm="backend"`)
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Mcp-Session-Id", sessionID)
		h.Set("X-Backend", "secret-name")
		h.Set("Retry-After", "77")
		writeResult(w, m, done("ok"))
	})
	dir := t.TempDir()
	secret := filepath.Join(dir, "token")
	if err := os.WriteFile(secret, []byte("backend-credential\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, b.yaml("b", fmt.Sprintf(headersConfig, secret)),
		fmt.Sprintf("  secrets: {env: [\"WEIR_ADMIN_*\"], dirs: [%q]}\n", dir))
	return g, b
}

// sendRaw makes a tools/call with more headers, written byte by byte as given: net/http would tidy them up.
func sendRaw(t *testing.T, c client, params string, more ...string) (status int, header http.Header) {
	t.Helper()
	conn := dial(t, c)
	sendOn(t, conn, c, params, more...)
	resp := readResponse(t, conn)
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header
}

func TestHeadersThatABackendSees(t *testing.T) {
	t.Parallel()
	for era, version := range eras {
		t.Run(era, func(t *testing.T) {
			g, b := headersGateway(t, version)
			c := g.client(t, "alice", modernVersion)
			status, _ := sendRaw(t, c, `{"name":"b__run","arguments":{}}`,
				"X-Request-Id: r1", "x-request-id: r2", "X-Tags: a, b", "X-Dropped: x", "X-Team: caller", "X-Internal: not-asked-for",
				"Cookie: caller=1", "X-Forwarded-For: 6.6.6.6", "Forwarded: for=6.6.6.6", "X-Real-Ip: 6.6.6.6", "X-My-Token: mine",
				"Origin: "+strings.TrimSuffix(c.url, "/mcp"), "Mcp-Session-Id: stolen", "Last-Event-ID: 7", "Accept-Encoding: br",
				"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate: a=1,b=2", "baggage: k=v",
				"User-Agent: caller/1")
			if status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
			call := b.ofMethod("tools/call")[0]
			parent := call.header.Get("Traceparent")
			if p := strings.Split(parent, "-"); len(p) != 4 || p[1] != "0af7651916cd43dd8448eb211c80319c" || p[2] == "b7ad6b7169203331" || p[3] != "01" {
				t.Errorf("traceparent %q, want the caller's trace and a new span", parent)
			}
			want := http.Header{
				"X-Request-Id": {"r1", "r2"}, "X-Tags": {"a, b"}, "X-Team": {"platform"}, "X-Backend-Token": {"mine"},
				"Authorization": {"Bearer backend-credential"}, "X-From-Env": {adminToken}, "Traceparent": {parent}, "Tracestate": {"a=1,b=2"},
				"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
				"Content-Length": {fmt.Sprint(len(call.body))}, "Mcp-Protocol-Version": {version}, "User-Agent": call.header["User-Agent"],
			}
			if era == "modern" {
				want["Mcp-Method"], want["Mcp-Name"] = []string{"tools/call"}, []string{"run"}
			} else {
				want["Mcp-Session-Id"] = []string{sessionID}
			}
			if diff := cmp.Diff(want, call.header); diff != "" {
				t.Errorf("headers of the call (-want +got):\n%s", diff)
			}
			if ua := call.header.Get("User-Agent"); !strings.HasPrefix(ua, "weir/") {
				t.Errorf("User-Agent %q, want Weir's own", ua)
			}
			seen := b.seen.text()
			for what, secret := range map[string]string{
				"the gateway's token": c.token, "its signature": c.token[strings.LastIndexByte(c.token, '.'):], "the caller's cookie": "caller=1",
				"a forwarded address": "6.6.6.6", "the public host": strings.TrimSuffix(strings.TrimPrefix(c.url, "http://"), "/mcp"),
				"a forged method": "forged", "baggage": "baggage", "a stolen session": "stolen",
			} {
				if strings.Contains(seen, secret) {
					t.Errorf("the backend was sent %s", what)
				}
			}
			for _, m := range b.all(func(m message) bool { return m.httpMethod == http.MethodPost }) {
				if got := m.header.Get("Authorization"); got != "Bearer backend-credential" {
					t.Errorf("%s: Authorization %q", m.Method, got)
				}
			}
		})
	}
}

// What a caller writes into its own request must not turn into a header that the backend believes to be Weir's.
func TestNothingIsSmuggledToABackend(t *testing.T) {
	t.Parallel()
	g, b := headersGateway(t, modernVersion)
	c := g.client(t, "alice", modernVersion)
	for name, tt := range map[string]struct {
		lines  []string
		status int         // 0: 200
		want   http.Header // what must stand upstream; nil values: absent
	}{
		"underscores for hyphens": {
			lines: []string{"X_Team: evil", "Mcp_Method: evil", "X_Request_Id: evil", "Mcp_Session_Id: evil", "X_Forwarded_For: evil"},
			want:  http.Header{"X-Team": {"platform"}, "Mcp-Method": {"tools/call"}, "X-Request-Id": nil},
		},
		"Connection takes a passed header away from itself": {
			lines: []string{"Connection: X-Request-Id", "X-Request-Id: evil"}, want: http.Header{"X-Request-Id": nil, "Connection": nil},
		},
		"Connection names what Weir computes": {
			lines: []string{"Connection: close, Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Authorization, X-Team, Content-Type, X_Team"},
			want: http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"run"}, "Mcp-Protocol-Version": {modernVersion},
				"Authorization": {"Bearer backend-credential"}, "X-Team": {"platform"}, "Content-Type": {"application/json"}},
		},
		"a header twice, in two cases": {
			lines: []string{"X-REQUEST-ID: a", "x-request-id: b"}, want: http.Header{"X-Request-Id": {"a", "b"}},
		},
		"a space before the colon": {lines: []string{"X-Request-Id : evil"}, status: http.StatusBadRequest},
		"a line folded":            {lines: []string{"X-Request-Id: a", " Mcp-Method: evil"}, want: http.Header{"Mcp-Method": {"tools/call"}}},
		"a bare CR in a value":     {lines: []string{"X-Request-Id: a\rMcp-Method: evil"}, status: http.StatusBadRequest},
		"a NUL in a value":         {lines: []string{"X-Request-Id: a\x00b"}, status: http.StatusBadRequest},
		"two lengths":              {lines: []string{"Content-Length: 1"}, status: http.StatusBadRequest},
		"the token in a header that is passed on": {
			lines: []string{"X-Request-Id: " + c.token, "X-Tags: Bearer " + c.token, "X-My-Token: " + c.token},
			want:  http.Header{"X-Request-Id": nil, "X-Tags": nil, "X-Backend-Token": nil},
		},
		"a second traceparent": {
			lines: []string{"Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "traceparent: 00-22222222222222222222222222222222-b7ad6b7169203331-01"},
			want:  http.Header{"Traceparent": nil},
		},
		"a broken traceparent": {lines: []string{"traceparent: 00-zz-b7ad6b7169203331-01"}, want: http.Header{"Traceparent": nil, "Tracestate": nil}},
		"an unknown Mcp header": {
			lines: []string{"Mcp-Future: evil"}, want: http.Header{"Mcp-Future": nil},
		},
	} {
		before := len(b.ofMethod("tools/call"))
		status, _ := sendRaw(t, c, `{"name":"b__run","arguments":{}}`, tt.lines...)
		calls := b.ofMethod("tools/call")[before:]
		if tt.status != 0 {
			if status != tt.status || len(calls) != 0 {
				t.Errorf("%s: status %d and %d calls, want %d and none", name, status, len(calls), tt.status)
			}
			continue
		}
		if status != http.StatusOK || len(calls) != 1 {
			t.Errorf("%s: status %d and %d calls", name, status, len(calls))
			continue
		}
		for header, want := range tt.want {
			if diff := cmp.Diff([]string(want), calls[0].header[header]); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, header, diff)
			}
		}
		for header, values := range calls[0].header {
			if v := strings.Join(values, " "); strings.Contains(v, "evil") && name != "a line folded" || strings.Contains(header, "_") {
				t.Errorf("%s: the backend got %s: %s", name, header, v)
			}
		}
	}
	if strings.Contains(b.seen.text(), c.token) {
		t.Error("the backend was sent the gateway's token")
	}
}

func TestNothingOfABackendsHeadersReachesAClient(t *testing.T) {
	t.Parallel()
	for era, version := range eras {
		t.Run(era, func(t *testing.T) {
			g, _ := headersGateway(t, version)
			for _, v := range []string{modernVersion, legacyVersion} {
				a, err := g.client(t, "alice", v).call("1", "tools/call", `{"name":"b__run","arguments":{}}`)
				if err != nil || a.rpc.Result == nil {
					t.Fatalf("%+v, %v", a, err)
				}
				want := http.Header{"Content-Type": {"application/json"}, "Content-Length": {fmt.Sprint(len(a.body))}, "Date": a.header["Date"], "Vary": {"Origin"}}
				if diff := cmp.Diff(want, a.header); diff != "" {
					t.Errorf("client %s: headers (-want +got):\n%s", v, diff)
				}
			}
		})
	}
}

// A file that names protected headers is served, and the operator is told.
func TestProtectedNamesInConfigAreToldOf(t *testing.T) {
	t.Parallel()
	g, _ := headersGateway(t, modernVersion)
	for _, want := range []string{
		"backends.b.headers.passthrough[4]", "backends.b.headers.passthrough[5]", "backends.b.headers.passthrough[6]",
		"backends.b.headers.add.Mcp-Method", "backends.b.headers.add.Mcp-Future", "backends.b.headers.add.Traceparent", "backends.b.headers.credentials.Cookie",
		"backends.b.headers.remove[2]", "backends.b.headers.remove[3]",
		"backends.b.headers.forward_caller.X-Stolen",
	} {
		if !strings.Contains(g.log(), "warning: "+want) {
			t.Errorf("no warning of %s in:\n%s", want, tail(g.log(), 30))
		}
	}
}

// A published reference reads only what the dataplane's own config allows; a call without its credential is not made.
func TestSecretsAreReadOnlyWhereAllowed(t *testing.T) {
	t.Parallel()
	b := newScripted(t, modernVersion, func(w http.ResponseWriter, r *http.Request, m message) { writeResult(w, m, done("ok")) })
	dir, other := t.TempDir(), t.TempDir()
	for _, path := range []string{filepath.Join(dir, "good"), filepath.Join(dir, "gone"), filepath.Join(other, "secret")} {
		if err := os.WriteFile(path, []byte("first-value\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(other, "secret"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	entry := func(name, ref string) string {
		return b.yaml(name, `, headers: {credentials: {Authorization: "`+ref+`"}}`)
	}
	g := startGateway(t, entry("good", "${file:"+dir+"/good}")+entry("gone", "${file:"+dir+"/gone}")+entry("outside", "${file:"+other+"/secret}")+
		entry("link", "${file:"+dir+"/link}")+entry("env", "${env:PATH}"),
		fmt.Sprintf("  secrets: {env: [\"WEIR_ADMIN_*\"], dirs: [%q]}\n", dir))
	c := g.client(t, "alice", modernVersion)
	if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gone", "outside", "link", "env"} {
		a, err := c.call("1", "tools/call", `{"name":"`+name+`__run","arguments":{}}`)
		if err != nil {
			t.Fatal(err)
		}
		if reasonOf(a.rpc.Error) != "auth_failed" || strings.Contains(a.body, dir) || strings.Contains(a.body, "first-value") {
			t.Errorf("%s: %s, want auth_failed and nothing of the secret", name, a.body)
		}
	}
	if n := len(b.ofMethod("tools/call")); n != 0 {
		t.Errorf("%d calls were made without their credential", n)
	}
	c.must(t, "tools/call", `{"name":"good__run","arguments":{}}`)
	if err := os.WriteFile(filepath.Join(dir, "good"), []byte("second-value\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.must(t, "tools/call", `{"name":"good__run","arguments":{}}`)
	var got []string
	for _, m := range b.ofMethod("tools/call") {
		got = append(got, m.header.Get("Authorization"))
	}
	if diff := cmp.Diff([]string{"first-value", "second-value"}, got); diff != "" {
		t.Errorf("credentials (-want +got):\n%s", diff)
	}
	if strings.Contains(g.log(), "first-value") || strings.Contains(g.log(), "second-value") {
		t.Error("the log shows a secret")
	}
}

// An installation of two planes: the same mistakes are problems in the admin API and warnings of the check, and Redis never
// sees a credential.
func TestHeadersOfAnInstallation(t *testing.T) {
	t.Parallel()
	b := newScripted(t, modernVersion, func(w http.ResponseWriter, _ *http.Request, m message) { writeResult(w, m, done("ok")) })
	secret := file(t, "token", "backend-credential\n")
	p := newPair(t, b.yaml("b", fmt.Sprintf(headersConfig, secret)), "  acme:\n    backends: [{name: b, prefix: b__}]\n")

	var problems struct {
		Problems []struct{ Code, Backend, Detail string }
	}
	if err := p.admin(http.MethodGet, "/api/v1/problems", &problems); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, problem := range problems.Problems {
		if problem.Code == "protected_header" {
			told++
		}
	}
	check := launch(t, "weir-controlplane", "config", "check", "--config", p.controlCfg)
	if code := check.wait(t); code != 0 {
		t.Errorf("config check: exit status %d, want 0: the plane runs", code)
	}
	warned := strings.Count(check.log()+check.out(), "backends.b.headers.")
	if told != 10 || warned != told {
		t.Errorf("%d problems and %d warnings of protected headers, want 10: %+v\n%s%s", told, warned, problems, check.log(), check.out())
	}

	// This dataplane's config allows no secrets: no call without its credential.
	a, err := p.client(t, 0, "acme", modernVersion).call("1", "tools/call", `{"name":"b__run","arguments":{}}`)
	if err != nil || reasonOf(a.rpc.Error) != "auth_failed" || len(b.ofMethod("tools/call")) != 0 {
		t.Errorf("without an allowlist: %+v, %v", a, err)
	}

	db := redis.NewClient(&redis.Options{Addr: p.redis.Addr()})
	defer db.Close()
	if err := db.ConfigSet(t.Context(), "rdbcompression", "no").Err(); err != nil { // so that a dump shows what it holds
		t.Fatal(err)
	}
	found := false
	for keys := db.Scan(t.Context(), 0, "*", 1000).Iterator(); keys.Next(t.Context()); {
		dump, err := db.Dump(t.Context(), keys.Val()).Result()
		if err != nil && err != redis.Nil {
			t.Fatal(err)
		}
		found = found || strings.Contains(dump, "${file:"+secret+"}")
		for _, credential := range []string{"backend-credential", adminToken} {
			if strings.Contains(dump, credential) {
				t.Errorf("the key %s holds a credential", keys.Val())
			}
		}
	}
	if !found {
		t.Error("no key holds the reference: the look into Redis saw nothing")
	}
}
