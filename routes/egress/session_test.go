package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// modernServer answers server/discover by script.
func modernServer(discover func(w http.ResponseWriter, r *http.Request, n int)) http.Handler {
	n := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		discover(w, r, n)
		n++
	})
}

func rpcAnswer(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,%s}`, body)
}

func TestOpenFindsTheEra(t *testing.T) {
	t.Parallel()
	const discovered = `"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{} }`
	legacyOf := func(refusal http.HandlerFunc) http.Handler {
		s := &legacyServer{}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			if strings.Contains(string(body), "server/discover") {
				refusal(w, r)
				return
			}
			s.ServeHTTP(w, r)
		})
	}
	plain := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) }
	}
	rpc := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			rpcAnswer(w, status, body)
		}
	}
	both := []string{"server/discover", "initialize", "notifications/initialized"}
	for name, tt := range map[string]struct {
		server    http.Handler
		preferred string
		protocol  string // wanted, or
		reason    string // of a *Failure, or
		code      int    // of a *RPCError
		methods   []string
	}{
		"modern": {
			server:   modernServer(func(w http.ResponseWriter, _ *http.Request, _ int) { rpcAnswer(w, 200, discovered) }),
			protocol: "2026-07-28", methods: []string{"server/discover"},
		},
		"modern, known from last time": {
			server:    modernServer(func(w http.ResponseWriter, _ *http.Request, _ int) { rpcAnswer(w, 200, discovered) }),
			preferred: "2026-07-28", protocol: "2026-07-28", methods: []string{"server/discover"},
		},
		"became modern": {
			server:    modernServer(func(w http.ResponseWriter, _ *http.Request, _ int) { rpcAnswer(w, 200, discovered) }),
			preferred: "2025-06-18", protocol: "2026-07-28", methods: []string{"server/discover"},
		},
		"modern, of another version only": {
			server: modernServer(func(w http.ResponseWriter, _ *http.Request, _ int) {
				rpcAnswer(w, 400, `"error":{"code":-32022,"message":"m","data":{"supported":["2099-01-01"]}}`)
			}),
			code: -32022, methods: []string{"server/discover", "initialize"},
		},
		"modern, which refuses discover": {
			server: modernServer(func(w http.ResponseWriter, _ *http.Request, _ int) {
				rpcAnswer(w, 400, `"error":{"code":-32021,"message":"m"}`)
			}),
			code: -32021, methods: []string{"server/discover"},
		},
		"legacy: 400 and text":           {server: legacyOf(plain(400)), protocol: "2025-11-25", methods: both},
		"legacy: 404":                    {server: legacyOf(plain(404)), protocol: "2025-11-25", methods: both},
		"legacy: 405":                    {server: legacyOf(plain(405)), protocol: "2025-11-25", methods: both},
		"legacy: 500":                    {server: legacyOf(plain(500)), protocol: "2025-11-25", methods: both},
		"legacy: 200 method not found":   {server: legacyOf(rpc(200, `"error":{"code":-32601,"message":"m"}`)), protocol: "2025-11-25", methods: both},
		"legacy: 400 without a session":  {server: legacyOf(rpc(400, `"error":{"code":-32000,"message":"m"}`)), protocol: "2025-11-25", methods: both},
		"legacy: -32022 of older ones":   {server: legacyOf(rpc(400, `"error":{"code":-32022,"message":"m","data":{"supported":["2025-11-25"]}}`)), protocol: "2025-11-25", methods: both},
		"legacy, as it was":              {server: legacyOf(plain(400)), preferred: "2025-06-18", protocol: "2025-06-18", methods: both},
		"legacy: an empty result":        {server: legacyOf(rpc(200, `"result":{}`)), protocol: "2025-11-25", methods: both},
		"overloaded: no guess":           {server: plain(503), reason: ReasonOverloaded, methods: []string{"server/discover"}},
		"too many requests: no guess":    {server: plain(429), reason: ReasonRateLimited, methods: []string{"server/discover"}},
		"unauthorized in both eras":      {server: plain(401), reason: ReasonAuthFailed, methods: []string{"server/discover", "initialize"}},
		"nothing of the kind, but alive": {server: plain(404), reason: ReasonBadResponse, methods: []string{"server/discover", "initialize"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, tt.server)
			c := newClient(t, Options{Expand: func(s string) (string, error) { return strings.ReplaceAll(s, "${env:T}", "sesame"), nil }})
			be := &routes.Backend{URL: b.URL, AddHeaders: map[string]routes.SecretRef{"authorization": "Bearer ${env:T}", "X-No": "1"}, RemoveHeaders: []string{"x-no"}}
			s, err := c.Open(t.Context(), "b", be, tt.preferred)
			var got struct {
				protocol, reason string
				code             int
			}
			if err == nil {
				defer s.Close()
				got.protocol = s.Protocol
			} else if f, ok := errors.AsType[*Failure](err); ok {
				got.reason = f.Reason
			} else if re, ok := errors.AsType[*RPCError](err); ok {
				got.code = re.Code
			}
			if got.protocol != tt.protocol || got.reason != tt.reason && tt.code == 0 || tt.reason != "" && got.reason != tt.reason {
				t.Errorf("got %+v, %v", got, err)
			}
			if tt.code != 0 && err == nil {
				t.Errorf("no error, want code %d", tt.code)
			}
			if diff := cmp.Diff(tt.methods, b.methods()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			for _, r := range b.requests() {
				if r.Header.Get("Authorization") != "Bearer sesame" || r.Header.Get("X-No") != "" {
					t.Errorf("%s without the operator's headers: %v", r.MCP, r.Header)
				}
			}
		})
	}
}

func TestAVersionThatIsRefusedIsReplaced(t *testing.T) {
	t.Parallel()
	// A second modern version does not exist yet, so that only the choice can be tested.
	for data, want := range map[string]string{
		`{"supported":["2026-07-28"]}`:              "2026-07-28",
		`{"supported":["2099-01-01","2026-07-28"]}`: "2026-07-28",
		`{"supported":["2025-11-25"]}`:              "",
		`{"supported":[]}`:                          "",
		`{"supported":"2026-07-28"}`:                "",
		`null`:                                      "",
	} {
		if got := commonVersion(json.RawMessage(data), "2030-01-01"); got != want {
			t.Errorf("%s: %q, want %q", data, got, want)
		}
	}
	if got := commonVersion(json.RawMessage(`{"supported":["2026-07-28"]}`), "2026-07-28"); got != "" {
		t.Errorf("the refused version is tried again: %q", got)
	}
}

func TestSessionsWithRealServers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts     mcp.StreamableHTTPOptions
		protocol string
	}{
		"stateless speaks both, and is modern": {mcp.StreamableHTTPOptions{Stateless: true}, "2026-07-28"},
		"with sessions":                        {mcp.StreamableHTTPOptions{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newSDKServer()
			b := newBackend(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &tt.opts))
			c := newClient(t, Options{})
			s, err := c.Open(t.Context(), "b", &routes.Backend{URL: b.URL}, "")
			if err != nil {
				t.Fatal(err)
			}
			if tt.protocol != "" && s.Protocol != tt.protocol {
				t.Errorf("protocol %q", s.Protocol)
			}
			t.Logf("%s: %s, requests %v", name, s.Protocol, b.methods())
			result, err := s.Call(t.Context(), "tools/list", nil)
			if err != nil {
				t.Fatal(err)
			}
			var list struct{ Tools []struct{ Name string } }
			if err := json.Unmarshal(result, &list); err != nil || len(list.Tools) != 2 {
				t.Errorf("%s, %v", result, err)
			}
			_, err = s.Call(t.Context(), "prompts/get", wire.Object{{Name: "name", Value: wire.Quote("nö")}})
			if re, ok := errors.AsType[*RPCError](err); !ok || re.Code == 0 || re.Message == "" {
				t.Errorf("prompts/get: %v", err)
			}
			if _, err := s.Call(t.Context(), "tools/list", wire.Object{}); err != nil {
				t.Errorf("after an error: %v", err)
			}
			s.Close()
		})
	}
}

func TestSecretsNeedAResolver(t *testing.T) {
	t.Parallel()
	b := newBackend(t, http.NotFoundHandler())
	be := &routes.Backend{URL: b.URL, AddHeaders: map[string]routes.SecretRef{"Authorization": "Bearer ${env:T}"}}
	if _, err := newClient(t, Options{}).Open(t.Context(), "b", be, ""); !errors.Is(err, errNoSecrets) {
		t.Errorf("got %v", err)
	}
	failing := Options{Expand: func(string) (string, error) { return "", errors.New("env T is not set") }}
	if _, err := newClient(t, failing).Open(t.Context(), "b", be, ""); err == nil || !strings.Contains(err.Error(), "env T is not set") {
		t.Errorf("got %v", err)
	}
	if n := len(b.requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	if _, err := New(Options{ResponseLimit: -1}); err == nil {
		t.Error("a negative limit was taken")
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for v, want := range map[string]time.Duration{
		"": 0, "0": 0, " 12 ": 12 * time.Second, "-1": 0, "99999999999": 0, "4000": time.Hour, "x": 0,
		"Mon, 30 Nov 2026 12:00:30 GMT": 30 * time.Second, "Mon, 30 Nov 2026 11:00:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {v}}, now); got != want {
			t.Errorf("%q: %v, want %v", v, got, want)
		}
	}
}
