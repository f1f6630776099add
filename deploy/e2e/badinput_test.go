package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func TestBadBodiesGetClearErrors(t *testing.T) {
	t.Parallel()
	s := startStandalone(t)
	c := s.client("2026-07-28")
	good := c.body("1", "tools/call", `{"name":"modern__echo","arguments":{"message":"x"}}`)
	header := c.headers("tools/call", `{"name":"modern__echo"}`)
	for name, tt := range map[string]struct {
		body   string
		change func(http.Header)
		status int
		codes  []int // any of these; none: no JSON-RPC error is asked for
	}{
		"torn JSON":                   {good[:len(good)-5], nil, 400, []int{-32700}},
		"nothing":                     {"", nil, 400, []int{-32700}},
		"a bare string":               {`"hello"`, nil, 400, []int{-32600, -32700}},
		"a batch":                     {"[" + good + "]", nil, 400, []int{-32600}},
		"two documents":               {good + good, nil, 400, []int{-32700}},
		"a duplicate key":             {strings.Replace(good, `"method"`, `"id":2,"method"`, 1), nil, 400, []int{-32700, -32600}},
		"a duplicate key, deep":       {strings.Replace(good, `"message":"x"`, `"message":"x","message":"y"`, 1), nil, 400, []int{-32700, -32600}},
		"a case-folded method":        {strings.Replace(good, `"method"`, `"Method":"tools/list","method"`, 1), nil, 400, []int{-32700, -32600}},
		"a case-folded name":          {strings.Replace(good, `"name":"modern`, `"NAME":"x","name":"modern`, 1), nil, 400, []int{-32700, -32600}},
		"invalid UTF-8":               {strings.Replace(good, `"x"`, "\"\xff\"", 1), nil, 400, []int{-32700}},
		"10,000 nested arrays":        {strings.Replace(good, `"x"`, strings.Repeat("[", 10000)+strings.Repeat("]", 10000), 1), nil, 400, []int{-32700, -32600}},
		"a number for a method":       {strings.Replace(good, `"tools/call"`, `7`, 1), nil, 400, []int{-32600}},
		"params as an array":          {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}`, nil, 400, []int{-32600, -32602}},
		"an id that is null":          {strings.Replace(good, `"id":1`, `"id":null`, 1), nil, 400, []int{-32600}},
		"an id that is an object":     {strings.Replace(good, `"id":1`, `"id":{}`, 1), nil, 400, []int{-32600}},
		"JSON-RPC 1.0":                {strings.Replace(good, `"2.0"`, `"1.0"`, 1), nil, 400, []int{-32600}},
		"a response":                  {`{"jsonrpc":"2.0","id":1,"result":{}}`, nil, 400, []int{-32600}},
		"a name that is a number":     {strings.Replace(good, `"name":"modern__echo"`, `"name":7`, 1), nil, 400, []int{-32602, -32020}},
		"an unknown tool":             {strings.Replace(good, `modern__echo`, `nope`, 1), func(h http.Header) { h.Set("Mcp-Name", "nope") }, 400, []int{-32602}},
		"Mcp-Name unlike the body":    {good, func(h http.Header) { h.Set("Mcp-Name", "legacy__echo") }, 400, []int{-32020}},
		"no Mcp-Method":               {good, func(h http.Header) { h.Del("Mcp-Method") }, 400, []int{-32020}},
		"a version unlike _meta's":    {good, func(h http.Header) { h.Set("Mcp-Protocol-Version", "2025-11-25") }, 400, []int{-32020}},
		"a version that nobody knows": {strings.ReplaceAll(good, "2026-07-28", "2031-01-01"), func(h http.Header) { h.Set("Mcp-Protocol-Version", "2031-01-01") }, 400, []int{-32022}},
		"a form":                      {"a=b", func(h http.Header) { h.Set("Content-Type", "application/x-www-form-urlencoded") }, 415, nil},
		"Accept without events":       {good, func(h http.Header) { h.Set("Accept", "application/json") }, 406, nil},
		"33 MCP headers": {good, func(h http.Header) {
			for i := range 33 {
				h.Set("Mcp-Param-"+strconv.Itoa(i), "x")
			}
		}, 431, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := maps.Clone(header)
			if tt.change != nil {
				tt.change(h)
			}
			a, err := c.post(tt.body, h)
			if err != nil {
				t.Fatal(err)
			}
			if a.status != tt.status {
				t.Errorf("status %d, want %d: %s", a.status, tt.status, a.body)
			}
			if len(tt.codes) == 0 {
				return
			}
			found := false
			for _, code := range tt.codes {
				found = found || (a.rpc.Error != nil && a.rpc.Error.Code == code)
			}
			if !found || a.rpc.Error.Message == "" {
				t.Errorf("error %s, want a message and one of %v", a.body, tt.codes)
			}
		})
	}
	if got := text(t, c.must(t, "tools/call", `{"name":"modern__echo","arguments":{"message":"still here"}}`)); got != "still here" {
		t.Errorf("after all that: %q", got)
	}
}

// A body of 100 MB is refused without being kept: the process's memory stays where it was.
func TestAHugeBodyIsRefusedCheaply(t *testing.T) {
	t.Parallel()
	s := startStandalone(t)
	c := s.client("2026-07-28")
	before := residentKiB(t, s.cmd.Process.Pid)
	for _, chunked := range []bool{false, true} {
		var body io.Reader = io.LimitReader(zeros{}, 100<<20)
		req, err := http.NewRequest(http.MethodPost, c.url, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = c.headers("tools/call", `{"name":"modern__echo"}`)
		if !chunked {
			req.ContentLength = 100 << 20
		}
		resp, err := httpClient.Do(req)
		if err != nil { // the server may hang up before all of it was written
			t.Logf("chunked=%v: %v", chunked, err)
			continue
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("chunked=%v: status %d, want 413", chunked, resp.StatusCode)
		}
	}
	if grown := residentKiB(t, s.cmd.Process.Pid) - before; grown > 64<<10 && !raceEnabled {
		t.Errorf("the process grew by %d KiB", grown)
	}
	if got := text(t, c.must(t, "tools/call", `{"name":"modern__echo","arguments":{"message":"ok"}}`)); got != "ok" {
		t.Errorf("after it: %q", got)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// residentKiB is the resident set of a process, where /proc tells it.
func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Skipf("no /proc on this machine: memory can't be read: %v", err)
	}
	for line := range strings.Lines(string(doc)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no VmRSS in /proc")
	return 0
}

func TestEveryWrongKindOfTokenIsRefused(t *testing.T) {
	t.Parallel()
	p := newThreeBackends(t)
	pem, err := os.ReadFile(p.keyFile)
	if err != nil {
		t.Fatal(err)
	}
	key, err := jwt.ParseECPrivateKeyFromPEM(pem)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	claims := func(change func(jwt.MapClaims)) jwt.MapClaims {
		c := jwt.MapClaims{"iss": "https://idp.test", "aud": "weir", "sub": "alice", "virtual_host": "acme",
			"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix()}
		if change != nil {
			change(c)
		}
		return c
	}
	sign := func(m jwt.SigningMethod, key any, c jwt.MapClaims) string {
		out, err := jwt.NewWithClaims(m, c).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	es := func(change func(jwt.MapClaims)) string { return sign(jwt.SigningMethodES256, key, claims(change)) }
	good := es(nil)
	parts := strings.Split(good, ".")
	for name, tt := range map[string]struct {
		token  string
		status int
	}{
		"a good one":               {good, 200},
		"none":                     {"", 401},
		"garbage":                  {"garbage", 401},
		"unsigned":                 {sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims(nil)), 401},
		"without its signature":    {parts[0] + "." + parts[1] + ".", 401},
		"another key":              {sign(jwt.SigningMethodES256, other, claims(nil)), 401},
		"HMAC instead of ECDSA":    {sign(jwt.SigningMethodHS256, []byte("0123456789abcdef0123456789abcdef"), claims(nil)), 401},
		"expired":                  {es(func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Hour).Unix() }), 401},
		"without an end":           {es(func(c jwt.MapClaims) { delete(c, "exp") }), 401},
		"of the future":            {es(func(c jwt.MapClaims) { c["nbf"] = time.Now().Add(time.Hour).Unix() }), 401},
		"another issuer":           {es(func(c jwt.MapClaims) { c["iss"] = "https://evil.test" }), 401},
		"another audience":         {es(func(c jwt.MapClaims) { c["aud"] = "other" }), 401},
		"without a subject":        {es(func(c jwt.MapClaims) { delete(c, "sub") }), 401},
		"edited after signing":     {parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"root"}`)) + "." + parts[2], 401},
		"without a host":           {es(func(c jwt.MapClaims) { delete(c, "virtual_host") }), 404},
		"a host that is not there": {es(func(c jwt.MapClaims) { c["virtual_host"] = "nobody" }), 404},
		"a malformed host":         {es(func(c jwt.MapClaims) { c["virtual_host"] = "../acme" }), 404},
		"several hosts":            {es(func(c jwt.MapClaims) { c["virtual_host"] = []string{"acme", "globex"} }), 400},
		"a scope for other things": {es(func(c jwt.MapClaims) { c["scope"] = "mcp:prompts" }), 403},
		"a scope for other tools":  {es(func(c jwt.MapClaims) { c["scope"] = "mcp:tools:g__*" }), 403},
		"a scope that fits":        {es(func(c jwt.MapClaims) { c["scope"] = "openid mcp:tools:a__*" }), 200},
		"one of 100 KB":            {good + strings.Repeat("A", 100<<10), 401},
	} {
		t.Run(name, func(t *testing.T) {
			c := client{p.data[0].url(), tt.token, "2026-07-28"}
			a, err := c.call("1", "tools/call", `{"name":"a__whoami","arguments":{}}`)
			if err != nil {
				t.Fatal(err)
			}
			if a.status != tt.status {
				t.Errorf("status %d, want %d: %s", a.status, tt.status, a.body)
			}
			challenge := a.header.Get("WWW-Authenticate")
			if tt.status == 401 && !strings.Contains(challenge, "resource_metadata=") {
				t.Errorf("WWW-Authenticate = %q, want resource_metadata", challenge)
			}
			if tt.status == 403 && !strings.Contains(challenge, "insufficient_scope") {
				t.Errorf("WWW-Authenticate = %q, want insufficient_scope", challenge)
			}
		})
	}
	for _, proc := range []*process{p.control, p.data[0], p.data[1]} {
		if strings.Contains(proc.log(), parts[2]) {
			t.Errorf("%s logged a token", proc.name)
		}
	}
}
