package wire

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestHeaderValues(t *testing.T) {
	for plain, encoded := range map[string]string{
		"us-west1":                           "us-west1",
		"":                                   "",
		"us west 1":                          "us west 1",
		"file:///path/to/file%20name.txt":    "file:///path/to/file%20name.txt",
		"Hello, 世界":                          "=?base64?SGVsbG8sIOS4lueVjA==?=",
		" padded ":                           "=?base64?IHBhZGRlZCA=?=",
		" us-west1":                          "=?base64?IHVzLXdlc3Qx?=",
		"us-west1 ":                          "=?base64?dXMtd2VzdDEg?=",
		"line1\nline2":                       "=?base64?bGluZTEKbGluZTI=?=",
		"line1\r\nline2":                     "=?base64?bGluZTENCmxpbmUy?=",
		"\tindented":                         "=?base64?CWluZGVudGVk?=",
		"=?base64?literal?=":                 "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		"\x7f":                               "=?base64?fw==?=",
		"=?BASE64?SGVsbG8=?=":                "=?BASE64?SGVsbG8=?=",
		"=?base64?SGVsbG8=":                  "=?base64?SGVsbG8=",
		"SGVsbG8=":                           "SGVsbG8=",
		"x=?base64?SGVsbG8=?=":               "x=?base64?SGVsbG8=?=",
		"=?base64?=":                         "=?base64?PT9iYXNlNjQ/PQ==?=", // prefix and suffix overlap: encoded to be safe
		"日本語":                                "=?base64?5pel5pys6Kqe?=",
		"a\x00b":                             "=?base64?YQBi?=",
		strings.Repeat("=?base64?", 3) + "!": strings.Repeat("=?base64?", 3) + "!",
	} {
		if got := EncodeHeaderValue(plain); got != encoded {
			t.Errorf("encoded %q as %q, want %q", plain, got, encoded)
		}
		if got, err := DecodeHeaderValue(encoded); err != nil || got != plain {
			t.Errorf("decoded %q as %q (%v), want %q", encoded, got, err, plain)
		}
	}
	for in, want := range map[string]string{
		" foo\t": "foo", "=?base64??=": "", "  =?base64?SGVsbG8=?= ": "Hello", "=?base64?=": "=?base64?=", "a\tb": "a\tb",
	} {
		if got, err := DecodeHeaderValue(in); err != nil || got != want {
			t.Errorf("decoded %q as %q (%v), want %q", in, got, err, want)
		}
	}
	for name, in := range map[string]string{
		"no padding":           "=?base64?SGVsbG8?=",
		"too much padding":     "=?base64?SGVsbG8==?=",
		"padding alone":        "=?base64?=?=",
		"bad alphabet":         "=?base64?SGVs!!!bG8=?=",
		"the URL alphabet":     "=?base64?_-8=?=",
		"bits left over":       "=?base64?SGVsbG9=?=",
		"no UTF-8 inside":      "=?base64?/w==?=",
		"a space inside":       "=?base64?SGVs bG8=?=",
		"a sentinel within":    "=?base64?=?base64?SGVsbG8=?=?=",
		"a byte beyond ASCII":  "caf\xc3\xa9",
		"a control character":  "a\x01b",
		"a line break":         "a\r\nMcp-Name: b",
		"a delete character":   "a\x7fb",
		"a NUL":                "\x00",
		"a lone carriage retu": "a\rb",
	} {
		if got, err := DecodeHeaderValue(in); err == nil {
			t.Errorf("%s: decoded %q as %q", name, in, got)
		}
	}
}

func FuzzHeaderValue(f *testing.F) {
	for _, s := range []string{"", "a", " a", "=?base64?", "=?base64?QQ==?=", "é", "\xff", "a\nb", "=?base64?="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		encoded := EncodeHeaderValue(s)
		for i := range len(encoded) {
			if encoded[i] < 0x20 || encoded[i] > 0x7e {
				t.Fatalf("%q is no header value", encoded)
			}
		}
		got, err := DecodeHeaderValue(encoded)
		if !strings.ContainsRune(s, '\ufffd') && strings.ToValidUTF8(s, "") == s && (err != nil || got != s) {
			t.Fatalf("%q came back as %q (%v) from %q", s, got, err, encoded)
		}
		if got, err := DecodeHeaderValue(s); err == nil && strings.ContainsAny(s, "\x00\r\n") && strings.Trim(s, " \t\r\n") == s {
			t.Fatalf("took %q as %q", s, got)
		}
	})
}

// mirroredRequest is a modern request and the headers that mirror it.
type mirroredRequest struct {
	method, params string // of the body
	header         http.Header
	ok             bool
}

func mirroredRequests() map[string]mirroredRequest {
	return map[string]mirroredRequest{
		"a list needs the method alone": {"tools/list", `{}`, http.Header{"Mcp-Method": {"tools/list"}}, true},
		"a call":                        {"tools/call", `{"name":"foo"}`, http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"foo"}}, true},
		"a resource":                    {"resources/read", `{"uri":"file:///a%20b"}`, http.Header{"Mcp-Method": {"resources/read"}, "Mcp-Name": {"file:///a%20b"}}, true},
		"a prompt":                      {"prompts/get", `{"name":"foo"}`, http.Header{"Mcp-Method": {"prompts/get"}, "Mcp-Name": {"foo"}}, true},
		"a task":                        {"tasks/get", `{"taskId":"t"}`, http.Header{"Mcp-Method": {"tasks/get"}, "Mcp-Name": {"t"}}, true},
		"a task's result, a method of earlier versions": {"tasks/result", `{"taskId":"t"}`, http.Header{"Mcp-Method": {"tasks/result"}}, true},
		"a task's update without a name":                {"tasks/update", `{"taskId":"t"}`, http.Header{"Mcp-Method": {"tasks/update"}}, false},
		"a task's cancel with another name":             {"tasks/cancel", `{"taskId":"t"}`, http.Header{"Mcp-Method": {"tasks/cancel"}, "Mcp-Name": {"u"}}, false},
		"surrounding spaces":                            {"tools/call", `{"name":"foo"}`, http.Header{"Mcp-Method": {" tools/call"}, "Mcp-Name": {"  foo "}}, true},
		"equal repeats":                                 {"tools/call", `{"name":"foo"}`, http.Header{"Mcp-Method": {"tools/call", "tools/call"}, "Mcp-Name": {"foo", "=?base64?Zm9v?="}}, true},
		"different repeats":                             {"tools/call", `{"name":"foo"}`, http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"foo", "bar"}}, false},
		"different repeats of the method":               {"tools/call", `{"name":"foo"}`, http.Header{"Mcp-Method": {"tools/call", "tools/list"}, "Mcp-Name": {"foo"}}, false},
		"no method":                                     {"tools/call", `{"name":"foo"}`, http.Header{"Mcp-Name": {"foo"}}, false},
		"another method":                                {"tools/call", `{"name":"foo"}`, http.Header{"Mcp-Method": {"prompts/get"}, "Mcp-Name": {"foo"}}, false},
		"the method in capitals":                        {"tools/list", `{}`, http.Header{"Mcp-Method": {"TOOLS/LIST"}}, false},
		"the method in Base64":                          {"tools/list", `{}`, http.Header{"Mcp-Method": {"=?base64?dG9vbHMvbGlzdA==?="}}, false},
		"no name":                                       {"tools/call", `{"name":"foo"}`, http.Header{"Mcp-Method": {"tools/call"}}, false},
		"another name":                                  {"tools/call", `{"name":"foo"}`, http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"bar"}}, false},
		"the name in capitals":                          {"tools/call", `{"name":"foo"}`, http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"FOO"}}, false},
		"the name in Base64":                            {"tools/call", `{"name":"日本語"}`, http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"=?base64?5pel5pys6Kqe?="}}, true},
		"the name in bad Base64":                        {"tools/call", `{"name":"Hello"}`, http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"=?base64?SGVsbG8?="}}, false},
		"raw UTF-8":                                     {"tools/call", `{"name":"é"}`, http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"é"}}, false},
		"a name that looks like the sentinel":           {"tools/call", `{"name":"=?BASE64?Zm9v?="}`, http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"=?BASE64?Zm9v?="}}, true},
		"an unencoded sentinel":                         {"tools/call", `{"name":"=?base64?Zm9v?="}`, http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"=?base64?Zm9v?="}}, false},
		"an empty name":                                 {"tools/call", `{"name":""}`, http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {""}}, true},
		"a name where none belongs":                     {"tools/list", `{}`, http.Header{"Mcp-Method": {"tools/list"}, "Mcp-Name": {"foo"}}, true},
	}
}

func TestCheckStandardHeaders(t *testing.T) {
	for name, tt := range mirroredRequests() {
		t.Run(name, func(t *testing.T) {
			params, perr := ParseObject([]byte(tt.params))
			if perr != nil {
				t.Fatal(perr)
			}
			m := &Message{ID: json.RawMessage("1"), Method: tt.method, Params: params}
			body, nerr := nameOf(m)
			if nerr != nil {
				t.Fatal(nerr)
			}
			err := checkStandardHeaders(tt.header, m, body)
			if (err == nil) != tt.ok {
				t.Fatalf("got %v, want ok %v", err, tt.ok)
			}
			if err != nil && (err.Code != CodeHeaderMismatch || err.HTTPStatus(Modern) != 400) {
				t.Errorf("code %d, status %d", err.Code, err.HTTPStatus(Modern))
			}
		})
	}
}

func TestNameOf(t *testing.T) {
	for doc, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a\u0062"}}`:         "ab",
		`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p","uri":"u"}}`:    "p",
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"name":"p","uri":"u"}}`: "u",
		`{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"t"}}`:           "t",
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"name":"p"}}`:               "",
	} {
		m, err := DecodeMessage([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := nameOf(m); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", doc, got, err, want)
		}
	}
	for _, doc := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"name":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":null}}`,
	} {
		m, err := DecodeMessage([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := nameOf(m); err == nil || err.Code != CodeInvalidParams {
			t.Errorf("%s: %q, %v, want -32602", doc, got, err)
		}
	}
}

func TestBudget(t *testing.T) {
	many := func(n int, key string) http.Header {
		h := http.Header{}
		for range n {
			h[key] = append(h[key], "x")
		}
		return h
	}
	wide := http.Header{}
	for _, k := range []string{"A", "B", "C", "D", "E", "F", "G", "H"} {
		wide["Mcp-Param-"+k] = []string{strings.Repeat("x", 8180)}
	}
	over := wide.Clone()
	over["Mcp-Param-I"] = []string{strings.Repeat("x", 100)}
	for name, tt := range map[string]struct {
		h  http.Header
		ok bool
	}{
		"none":                                {http.Header{"Content-Type": {"application/json"}}, true},
		"32 of them":                          {many(32, "Mcp-Param-X"), true},
		"33 of them":                          {many(33, "Mcp-Param-X"), false},
		"33 repeats of the name":              {many(33, "Mcp-Name"), false},
		"33 repeats of the version":           {many(33, "Mcp-Protocol-Version"), false},
		"33 repeats of the session":           {many(33, "Mcp-Session-Id"), false},
		"33 of another kind":                  {many(33, "Mcp-Other"), true},
		"8192 bytes":                          {http.Header{"Mcp-Name": {strings.Repeat("x", 8192)}}, true},
		"8193 bytes":                          {http.Header{"Mcp-Name": {strings.Repeat("x", 8193)}}, false},
		"8193 bytes elsewhere":                {http.Header{"X-Name": {strings.Repeat("x", 8193)}}, true},
		"just below 64 KiB in all":            {wide, true},
		"names and values over 64 KiB in all": {over, false},
	} {
		if got := (Limits{}).withDefaults().withinBudget(tt.h); got != tt.ok {
			t.Errorf("%s: within the budget %v, want %v", name, got, tt.ok)
		}
	}
}
