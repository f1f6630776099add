package headers

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/routes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"

func hasReference(s string) bool { return strings.Contains(s, "${") }

func expand(s string) (string, error) {
	switch s {
	case "Bearer ${env:GOOD}":
		return "Bearer s3cr3t", nil
	case "${env:TORN}":
		return "line one\r\nX-Evil: 1", nil
	}
	return "", errors.New("${env:MISSING}: not allowed")
}

func span() [8]byte { return [8]byte{0xaa, 1, 2, 3, 4, 5, 6, 7} }

func TestHeader(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	const child = "00-0af7651916cd43dd8448eb211c80319c-aa01020304050607-01"
	for name, tt := range map[string]struct {
		backend routes.Backend
		caller  http.Header
		params  http.Header
		forward bool
		want    http.Header
	}{
		"nothing configured: nothing travels": {
			caller: http.Header{"X-Team": {"a"}, "Authorization": {"Bearer " + token}, "Cookie": {"a=b"}, "User-Agent": {"x"}},
		},
		"passthrough takes all values, in order": {
			backend: routes.Backend{PassthroughHeaders: []string{"x-request-id", "X-Request-Id"}},
			caller:  http.Header{"X-Request-Id": {"1", "2"}, "X-Other": {"3"}},
			want:    http.Header{"X-Request-Id": {"1", "2"}},
		},
		"passthrough of the verified token, cookies and protected headers is not done": {
			backend: routes.Backend{PassthroughHeaders: []string{"Authorization", "Cookie", "Host", "Origin", "Mcp-Name",
				"Mcp-Param-Region", "X-Forwarded-For", "x_forwarded_host", "Proxy-Authorization", "Mcp_Session_Id"}},
			caller: http.Header{"Authorization": {"Bearer " + token}, "Cookie": {"a=b"}, "Host": {"evil"}, "Origin": {"http://evil"},
				"Mcp-Name": {"other"}, "Mcp-Param-Region": {"eu"}, "X-Forwarded-For": {"1.2.3.4"}, "X_forwarded_host": {"evil"},
				"Proxy-Authorization": {"x"}, "Mcp_session_id": {"y"}},
		},
		"the verified token does not travel under another name": {
			backend: routes.Backend{PassthroughHeaders: []string{"X-Copy"}, ForwardCaller: map[string]string{"Authorization": "X-GitHub-Token"}},
			caller: http.Header{"Authorization": {"Bearer " + token}, "X-Copy": {"it is " + token, "harmless"},
				"X-Github-Token": {"Bearer " + token}},
			want: http.Header{"X-Copy": {"harmless"}},
		},
		"the caller's own credential replaces the static one": {
			backend: routes.Backend{AddHeaders: map[string]routes.SecretRef{"Authorization": "Bearer ${env:GOOD}"},
				ForwardCaller: map[string]string{"authorization": "X-GitHub-Token"}},
			caller: http.Header{"Authorization": {"Bearer " + token}, "X-Github-Token": {"Bearer mine"}},
			want:   http.Header{"Authorization": {"Bearer mine"}},
		},
		"without the caller's own credential the static one stays": {
			backend: routes.Backend{AddHeaders: map[string]routes.SecretRef{"Authorization": "Bearer ${env:GOOD}"},
				ForwardCaller: map[string]string{"authorization": "X-GitHub-Token"}},
			caller: http.Header{"Authorization": {"Bearer " + token}},
			want:   http.Header{"Authorization": {"Bearer s3cr3t"}},
		},
		"the verified token feeds nothing": {
			backend: routes.Backend{ForwardCaller: map[string]string{"X-Upstream-Auth": "authorization", "X-C": "cookie"}},
			caller:  http.Header{"Authorization": {"Bearer " + token}, "Cookie": {"a=b"}},
		},
		"add replaces what passthrough brought, in any spelling": {
			backend: routes.Backend{PassthroughHeaders: []string{"X_Team", "X-Team"}, AddHeaders: map[string]routes.SecretRef{"x-team": "platform"}},
			caller:  http.Header{"X_team": {"evil"}, "X-Team": {"evil"}},
			want:    http.Header{"X-Team": {"platform"}},
		},
		"remove comes after add": {
			backend: routes.Backend{PassthroughHeaders: []string{"X-A"}, RemoveHeaders: []string{"x_internal", "X-A"},
				AddHeaders: map[string]routes.SecretRef{"X-Internal": "1", "X-Kept": "2"}},
			caller: http.Header{"X-A": {"1"}},
			want:   http.Header{"X-Kept": {"2"}},
		},
		"config can neither replace nor remove computed headers": {
			backend: routes.Backend{RemoveHeaders: []string{"mcp-param-region", "Mcp_Param_Region"},
				AddHeaders: map[string]routes.SecretRef{"Mcp-Param-Region": "us", "MCP-Protocol-Version": "x", "Host": "evil", "Content-Type": "x"}},
			params: http.Header{"Mcp-Param-Region": {"eu"}},
			want:   http.Header{"Mcp-Param-Region": {"eu"}},
		},
		"Mcp-Param-* headers that nobody here knows are passed on": {
			params: http.Header{"Mcp-Param-Region": {"eu"}, "Mcp-Param-User_id": {"7"}},
			caller: http.Header{"Mcp-Param-Region": {"us"}, "Mcp-Param-Later": {"a", "b"}, "Mcp-Param-User-Id": {"8"}, "Mcp-Param-Hop": {"1"},
				"Mcp_param_x": {"2"}, "Connection": {"mcp_param_hop"}},
			forward: true,
			want:    http.Header{"Mcp-Param-Region": {"eu"}, "Mcp-Param-User_id": {"7"}, "Mcp-Param-Later": {"a", "b"}},
		},
		"what Connection lists stays on its hop": {
			backend: routes.Backend{PassthroughHeaders: []string{"X-A", "X-B"}, ForwardCaller: map[string]string{"X-D": "X-C"},
				AddHeaders: map[string]routes.SecretRef{"X-Team": "platform"}},
			caller: http.Header{"Connection": {"close, x-a", "X_C ,x-team"}, "X-A": {"1"}, "X-B": {"2"}, "X-C": {"3"}},
			want:   http.Header{"X-B": {"2"}, "X-Team": {"platform"}},
		},
		"a value with control characters is dropped": {
			backend: routes.Backend{PassthroughHeaders: []string{"X-A"}, AddHeaders: map[string]routes.SecretRef{"X-Torn": "a\r\nb"}},
			caller:  http.Header{"X-A": {"1\r\nHost: evil", "2\x00", "tab\tis fine"}},
			want:    http.Header{"X-A": {"tab\tis fine"}},
		},
		"a trace is continued under a new span": {
			caller: http.Header{"Traceparent": {parent}, "Tracestate": {"a=1", "b=2"}},
			want:   http.Header{"Traceparent": {child}, "Tracestate": {"a=1,b=2"}},
		},
		"config can neither strip nor forge a trace": {
			backend: routes.Backend{PassthroughHeaders: []string{"Traceparent"}, RemoveHeaders: []string{"traceparent", "tracestate"},
				AddHeaders: map[string]routes.SecretRef{"traceparent": "00-11111111111111111111111111111111-2222222222222222-00"}},
			caller: http.Header{"Traceparent": {parent}},
			want:   http.Header{"Traceparent": {child}},
		},
		"no trace is invented, and tracestate is nothing alone": {
			caller: http.Header{"Tracestate": {"a=1"}},
		},
		"a later version is continued as version 00": {
			caller: http.Header{"Traceparent": {"cc" + parent[2:] + "-what-comes"}},
			want:   http.Header{"Traceparent": {child}},
		},
		"two traceparents are none": {caller: http.Header{"Traceparent": {parent, parent}}},
		"version ff is none":        {caller: http.Header{"Traceparent": {"ff" + parent[2:]}}},
		"a zero trace id is none":   {caller: http.Header{"Traceparent": {"00-" + strings.Repeat("0", 32) + parent[35:]}}},
		"upper case is none":        {caller: http.Header{"Traceparent": {strings.ToUpper(parent)}}},
		"unknown flags are cleared": {
			caller: http.Header{"Traceparent": {parent[:53] + "ff"}},
			want:   http.Header{"Traceparent": {child[:53] + "03"}},
		},
		"an endless tracestate is dropped, the trace is not": {
			caller: http.Header{"Traceparent": {parent}, "Tracestate": {"a=" + strings.Repeat("x", 600)}},
			want:   http.Header{"Traceparent": {child}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan, _ := Compile(&tt.backend, hasReference)
			got, err := plan.Header(Input{Caller: tt.caller, Params: tt.params, ForwardParams: tt.forward, Expand: expand, SpanID: span})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHeaderFailsWithoutItsSecret(t *testing.T) {
	for name, b := range map[string]routes.Backend{
		"a reference that can't be resolved":     {AddHeaders: map[string]routes.SecretRef{"X-Key": "${env:MISSING}"}},
		"a secret that would add a header":       {AddHeaders: map[string]routes.SecretRef{"X-Key": "${env:TORN}"}},
		"a reference from a discovered source":   {AddHeaders: map[string]routes.SecretRef{"X-Key": "Bearer ${env:GOOD}"}, Discovered: true},
		"also where the header would be removed": {AddHeaders: map[string]routes.SecretRef{"X-Key": "${env:MISSING}"}, RemoveHeaders: []string{"X-Key"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan, _ := Compile(&b, hasReference)
			_, err := plan.Header(Input{Expand: expand})
			if !errors.Is(err, ErrSecret) {
				t.Fatalf("error %v, want ErrSecret", err)
			}
			if text := err.Error(); !strings.Contains(text, "X-Key") || strings.Contains(text, "Evil") || strings.Contains(text, "s3cr3t") {
				t.Errorf("error %q must name the header and no value", text)
			}
		})
	}
}

func TestCompileReportsWhatItLeavesOut(t *testing.T) {
	_, got := Compile(&routes.Backend{
		PassthroughHeaders: []string{"Authorization", "X-Fine", "bad name"},
		AddHeaders:         map[string]routes.SecretRef{"Mcp-Method": "x"},
		ForwardCaller:      map[string]string{"X-Auth": "Authorization", "Host": "X-Host"},
		RemoveHeaders:      []string{"accept_encoding"},
	}, hasReference)
	want := []Problem{
		{"passthrough", "Authorization", "the caller's Authorization never travels"},
		{"passthrough", "bad name", "not a header name"},
		{"add", "Mcp-Method", "the header is protected"},
		{"forward_caller", "Host", "the header is protected"},
		{"forward_caller", "X-Auth", "the caller's Authorization never travels"},
		{"remove", "accept_encoding", "the header is protected"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// FuzzSmuggling: nothing that a client sends can add, drop or change a protected header, an added one or a credential.
func FuzzSmuggling(f *testing.F) {
	f.Add("X-Team", "evil", "Connection", "X-Team, authorization")
	f.Add("x_team", "a\r\nAuthorization: evil", "Mcp_Param_Region", "us")
	f.Add("Mcp-Param-Region", "us", "Mcp-Param-Region", "eu")
	f.Add("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Connection", "traceparent")
	f.Add("X-Pass", token, "X-Pass", "Bearer "+token)
	f.Add("Cookie", "a=b", "X_Forwarded_For", "1.2.3.4")
	f.Add("Host", "evil", "Transfer-Encoding", "chunked")
	plan, _ := Compile(&routes.Backend{
		PassthroughHeaders: []string{"X-Pass", "X_Pass", "X-Team", "X_Team", "Authorization", "Cookie", "Host", "Transfer-Encoding",
			"Mcp-Param-Region", "X-Forwarded-For", "X_Forwarded_For", "Connection"},
		AddHeaders:    map[string]routes.SecretRef{"X-Team": "platform", "Authorization": "Bearer ${env:GOOD}"},
		RemoveHeaders: []string{"X-Internal"},
	}, hasReference)
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		caller := http.Header{"Authorization": {"Bearer " + token}}
		for _, kv := range [][2]string{{name1, value1}, {name2, value2}} {
			if name := http.CanonicalHeaderKey(kv[0]); name != "Authorization" {
				caller[name] = append(caller[name], kv[1])
			}
		}
		got, err := plan.Header(Input{Caller: caller, Params: http.Header{"Mcp-Param-Region": {"eu"}},
			ForwardParams: true, Expand: expand, SpanID: span})
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string][]string{"X-Team": {"platform"}, "Authorization": {"Bearer s3cr3t"}, "Mcp-Param-Region": {"eu"}} {
			if diff := cmp.Diff(want, got[name]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		for name, values := range got {
			switch name {
			case "X-Team", "Authorization", "Mcp-Param-Region", "Traceparent", "Tracestate":
			case "X-Pass", "X_pass":
				for _, v := range values {
					if !validValue(v) || strings.Contains(v, token) {
						t.Errorf("%s carries %q", name, v)
					}
				}
			default:
				if !strings.HasPrefix(name, "Mcp-Param-") || routes.FoldHeader(name) == "mcp-param-region" || !validName(name) {
					t.Errorf("unexpected header %q", name)
				}
			}
		}
	})
}

func TestHeaderOfAPlainBackendAllocatesNothing(t *testing.T) {
	plan, _ := Compile(&routes.Backend{}, hasReference)
	caller := http.Header{"Authorization": {"Bearer " + token}, "X-A": {"1"}}
	if n := testing.AllocsPerRun(100, func() { _, _ = plan.Header(Input{Caller: caller, SpanID: span}) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
