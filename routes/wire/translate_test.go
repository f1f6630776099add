package wire

import (
	"encoding/json"
	"strings"
	"testing"
)

const otherModern = "2027-02-02" // a later version, for what changes between modern ones

func TestRequestFor(t *testing.T) {
	const meta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":"t","io.modelcontextprotocol/clientInfo":{"name":"c"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/logLevel":"debug","com.example/x":[1.0],` +
		`"io.modelcontextprotocol/related-task":{"taskId":"r"},"traceparent":"00-1"}`
	const bare = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	const weir = `"io.modelcontextprotocol/clientInfo":{"name":"weir","version":"1"}`
	tests := map[string]struct {
		era                      Era
		method, params           string
		backend, upstream, wants string
	}{
		"modern to modern: as sent, but for the name": {
			Modern, "tools/call", `{"name":"gh__a","arguments":{"name":"gh__a","x":1.0},"_meta":` + meta + `,"inputResponses":{},"future":1}`,
			LatestModern, "a", `{"name":"a","arguments":{"name":"gh__a","x":1.0},"_meta":` + meta + `,"inputResponses":{},"future":1}`,
		},
		"a name that stays keeps its text": {
			Modern, "tools/call", `{"name":"\u0061","_meta":` + bare + `}`, LatestModern, "a", `{"name":"\u0061","_meta":` + bare + `}`,
		},
		"modern to a modern backend of another version": {
			Modern, "prompts/get", `{"name":"p","_meta":` + bare + `}`, otherModern, "p",
			`{"name":"p","_meta":` + strings.Replace(bare, LatestModern, otherModern, 1) + `}`,
		},
		"modern to legacy: its members of _meta go, others stay": {
			Modern, "tools/call", `{"_meta":` + meta + `,"name":"a"}`, LatestLegacy, "b",
			`{"_meta":{"progressToken":"t","com.example/x":[1.0],"io.modelcontextprotocol/related-task":{"taskId":"r"},"traceparent":"00-1"},"name":"b"}`,
		},
		"modern to legacy: an empty _meta goes": {
			Modern, "tools/call", `{"_meta":` + bare + `,"name":"a"}`, "2025-03-26", "a", `{"name":"a"}`,
		},
		"legacy to modern: the triple is added": {
			Legacy, "tools/call", `{"name":"a"}`, LatestModern, "b",
			`{"name":"b","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` + weir + `,"io.modelcontextprotocol/clientCapabilities":{}}}`,
		},
		"legacy to modern: what stands in _meta stays": {
			Legacy, "tools/call", `{"name":"a","_meta":{"progressToken":7,"x":[]}}`, LatestModern, "a",
			`{"name":"a","_meta":{"progressToken":7,"x":[],"io.modelcontextprotocol/protocolVersion":"2026-07-28",` + weir + `,"io.modelcontextprotocol/clientCapabilities":{}}}`,
		},
		"legacy to modern: capabilities that it can't honour are not declared for it": {
			Legacy, "tools/call", `{"name":"a","_meta":{"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/clientInfo":{"name":"me"}}}`, LatestModern, "a",
			`{"name":"a","_meta":{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"me"},"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`,
		},
		"legacy to modern: without params": {
			Legacy, "tools/list", ``, LatestModern, "",
			`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` + weir + `,"io.modelcontextprotocol/clientCapabilities":{}}}`,
		},
		"legacy to legacy: as sent": {
			Legacy, "tools/call", `{"name":"a","_meta":{"progressToken":7}}`, "2025-06-18", "b", `{"name":"b","_meta":{"progressToken":7}}`,
		},
		"legacy to legacy: without params": {Legacy, "ping", ``, LatestLegacy, "", ``},
		"URIs are never rewritten": {
			Legacy, "resources/read", `{"uri":"file:///a","name":"n"}`, LatestLegacy, "file:///b", `{"uri":"file:///a","name":"n"}`,
		},
		"a completion's prompt gets its upstream name, in place": {
			Modern, "completion/complete", `{"argument":{"name":"a","value":""},"ref":{"name":"gh__p","title":"T","type":"ref/prompt"},"_meta":` + bare + `}`, LatestModern, "p",
			`{"argument":{"name":"a","value":""},"ref":{"name":"p","title":"T","type":"ref/prompt"},"_meta":` + bare + `}`,
		},
		"a completion's prompt that is called the same keeps its text": {
			Legacy, "completion/complete", `{"ref":{ "type":"ref/prompt","name":"\u0070"}}`, LatestLegacy, "p", `{"ref":{ "type":"ref/prompt","name":"\u0070"}}`,
		},
		"a completion's template is not rewritten": {
			Modern, "completion/complete", `{"ref":{"type":"ref/resource","uri":"x:{a}","name":"n"},"_meta":` + bare + `}`, LatestLegacy, "other",
			`{"ref":{"type":"ref/resource","uri":"x:{a}","name":"n"}}`,
		},
		"task ids are never rewritten": {
			Modern, "tasks/get", `{"taskId":"t","_meta":` + bare + `}`, LatestModern, "u", `{"taskId":"t","_meta":` + bare + `}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body := `{"jsonrpc":"2.0","id":1,"method":"` + tt.method + `"}`
			if tt.params != "" {
				body = body[:len(body)-1] + `,"params":` + tt.params + `}`
			}
			m, err := DecodeMessage([]byte(body))
			if err != nil {
				t.Fatal(err)
			}
			before := string(m.Encode())
			got, err := RequestFor(&Request{Message: m, Era: tt.era}, tt.backend, tt.upstream)
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			if got != nil {
				text = string(got.Append(nil))
			}
			if text != tt.wants {
				t.Errorf("got  %s\nwant %s", text, tt.wants)
			}
			if after := string(m.Encode()); after != before {
				t.Errorf("the request was changed:\n%s\n%s", before, after)
			}
		})
	}
	own := &Request{Message: &Message{Method: "m"}, ClientInfo: json.RawMessage(`{"name":"mine"}`)}
	if got, _ := RequestFor(own, LatestModern, ""); !strings.Contains(string(got.Append(nil)), `"io.modelcontextprotocol/clientInfo":{"name":"mine"}`) {
		t.Errorf("configured clientInfo is not used: %s", got.Append(nil))
	}
}

func TestResultFor(t *testing.T) {
	tests := map[string]struct {
		client  Era
		backend string
		method  string
		result  string
		want    string // result, or the reason of the error after "!"
	}{
		"modern, modern: as it is":                  {Modern, LatestModern, "tools/call", `{ "resultType":"input_required" }`, `{ "resultType":"input_required" }`},
		"modern, modern: even nonsense":             {Modern, LatestModern, "tools/call", `[1]`, `[1]`},
		"legacy, legacy: as it is":                  {Legacy, LatestLegacy, "tools/call", `{"task":{"taskId":"t"}}`, `{"task":{"taskId":"t"}}`},
		"modern, legacy: resultType is added":       {Modern, LatestLegacy, "tools/call", `{"content":[ 1.0 ]}`, `{"content":[ 1.0 ],"resultType":"complete"}`},
		"modern, legacy: white space stays":         {Modern, LatestLegacy, "tools/call", " {\"content\":[],\n \"x\":1 \n}\n", " {\"content\":[],\n \"x\":1 \n,\"resultType\":\"complete\"}"},
		"modern, legacy: an empty result":           {Modern, LatestLegacy, "tools/call", `{ }`, `{ "resultType":"complete"}`},
		"modern, legacy: resultType that is set":    {Modern, LatestLegacy, "tools/call", `{"resultType":"complete"}`, `{"resultType":"complete"}`},
		"modern, legacy: a read resource":           {Modern, LatestLegacy, "resources/read", `{"contents":[]}`, `{"contents":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`},
		"modern, legacy: ttlMs that is set":         {Modern, LatestLegacy, "resources/read", `{"contents":[],"ttlMs":5}`, `{"contents":[],"ttlMs":5,"resultType":"complete","cacheScope":"private"}`},
		"modern, legacy: a list":                    {Modern, LatestLegacy, "tools/list", `{"tools":[]}`, `{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`},
		"modern, legacy: a prompt":                  {Modern, LatestLegacy, "prompts/get", `{"messages":[]}`, `{"messages":[],"resultType":"complete"}`},
		"modern, legacy: a task":                    {Modern, LatestLegacy, "tools/call", `{"task":{"taskId":"t"}}`, "!needs_legacy_client"},
		"modern, legacy: task beside content":       {Modern, LatestLegacy, "tools/call", `{"content":[],"task":{"taskId":"t"}}`, `{"content":[],"task":{"taskId":"t"},"resultType":"complete"}`},
		"modern, legacy: no object":                 {Modern, LatestLegacy, "tools/call", `null`, "!bad_response"},
		"legacy, modern: nothing is taken away":     {Legacy, LatestModern, "resources/read", `{"resultType":"complete","ttlMs":5,"contents":[]}`, `{"resultType":"complete","ttlMs":5,"contents":[]}`},
		"legacy, modern: without a resultType":      {Legacy, LatestModern, "tools/call", `{"content":[]}`, `{"content":[]}`},
		"legacy, modern: input is required":         {Legacy, LatestModern, "tools/call", `{"resultType":"input_required","inputRequests":{}}`, "!needs_modern_client"},
		"legacy, modern: a task":                    {Legacy, LatestModern, "tools/call", `{"resultType":"task","taskId":"t"}`, "!needs_modern_client"},
		"legacy, modern: a type from the future":    {Legacy, LatestModern, "tools/call", `{"resultType":"hologram"}`, "!needs_modern_client"},
		"legacy, modern: content that is an object": {Legacy, LatestModern, "tools/call", `{"content":[],"structuredContent":{"a":1.0}}`, `{"content":[],"structuredContent":{"a":1.0}}`},
		"legacy, modern: content that is an array":  {Legacy, LatestModern, "tools/call", `{"content":[ 1.0 ],"structuredContent":[1],"x":2.0}`, `{"content":[ 1.0 ],"x":2.0}`},
		"legacy, modern: content that is null":      {Legacy, LatestModern, "tools/call", `{"structuredContent":null,"content":[]}`, `{"content":[]}`},
		"legacy, modern: that word deeper down":     {Legacy, LatestModern, "tools/call", `{"content":[{"structuredContent":1}]}`, `{"content":[{"structuredContent":1}]}`},
		"modern, modern: content of any type":       {Modern, LatestModern, "tools/call", `{"content":[],"structuredContent":[1]}`, `{"content":[],"structuredContent":[1]}`},
		"legacy, modern: a completion":              {Legacy, LatestModern, "completion/complete", `{"resultType":"complete","completion":{"values":[]}}`, `{"resultType":"complete","completion":{"values":[]}}`},
		"modern, legacy: a completion":              {Modern, LatestLegacy, "completion/complete", `{"completion":{"values":[]}}`, `{"completion":{"values":[]},"resultType":"complete"}`},
		"legacy, modern: two result types":          {Legacy, LatestModern, "tools/call", `{"resultType":"complete","resultType":"task"}`, "!bad_response"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			result, err := ResultFor(tt.client, tt.backend, tt.method, json.RawMessage(tt.result))
			got := string(result)
			if err != nil {
				got = "!" + err.Reason
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestErrorFor(t *testing.T) {
	tests := map[string]struct {
		client      Era
		error, want string
	}{
		"a modern client sees no -32002":     {Modern, `{"code":-32002,"message":"m","data":{"uri":"u"}}`, `{"code":-32602,"message":"m","data":{"uri":"u"}}`},
		"a modern client sees no -32042":     {Modern, `{ "message":"m", "code" : -32042 }`, `{ "message":"m", "code" : -32603 }`},
		"written as a fraction":              {Modern, `{"code":-32002.0,"message":"m"}`, `{"code":-32602,"message":"m"}`},
		"a legacy client does":               {Legacy, `{"code":-32002,"message":"m"}`, `{"code":-32002,"message":"m"}`},
		"others stay byte for byte":          {Modern, `{"data" : [1.0], "code":-32021, "message":"\u006d", "x":1}`, `{"data" : [1.0], "code":-32021, "message":"\u006d", "x":1}`},
		"a code inside data is not the code": {Modern, `{"data":{"code":-32002},"code":1,"message":"m"}`, `{"data":{"code":-32002},"code":1,"message":"m"}`},
		"no code":                            {Modern, `{"message":"m"}`, ""},
		"a code that is a string":            {Modern, `{"code":"-32002","message":"m"}`, ""},
		"a code that is no integer":          {Legacy, `{"code":1.5,"message":"m"}`, ""},
		"two codes":                          {Modern, `{"code":1,"code":-32002,"message":"m"}`, ""},
		"no message":                         {Modern, `{"code":1}`, ""},
		"a message that is no string":        {Modern, `{"code":1,"message":null}`, ""},
		"no object":                          {Modern, `"bad"`, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ErrorFor(tt.client, json.RawMessage(tt.error))
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if (tt.want == "") != (err != nil && err.Reason == ReasonBadResponse) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// Whatever a backend answers, a modern client gets valid JSON with resultType, and nothing else changed.
func FuzzResultFor(f *testing.F) {
	f.Add(`{}`, "tools/call")
	f.Add(` {"a":{"b":"}"} } `, "resources/read")
	f.Add(`{"ttlMs":1,"cacheScope":"public","resultType":"x"}`, "tools/list")
	f.Add(`{"`, "tools/list") // no JSON
	f.Fuzz(func(t *testing.T, result, method string) {
		_, _ = ResultFor(Legacy, LatestModern, method, json.RawMessage(result)) // whatever it is, no panic
		got, err := ResultFor(Modern, LatestLegacy, method, json.RawMessage(result))
		if err != nil {
			return
		}
		var before, after map[string]json.RawMessage
		if json.Unmarshal([]byte(result), &before) != nil {
			return // lone bytes that the standard library mends
		}
		if err := json.Unmarshal(got, &after); err != nil || after["resultType"] == nil {
			t.Fatalf("%q becomes %q: %v", result, got, err)
		}
		for k, v := range before {
			if string(after[k]) != string(v) {
				t.Fatalf("%q changes %s to %s in %q", result, k, after[k], got)
			}
		}
	})
}
