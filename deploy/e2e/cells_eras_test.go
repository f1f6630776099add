package e2e

import (
	std "cmp"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// inEachCell runs a test once per pair of eras, each backend era with a gateway of its own. handle answers the calls.
func inEachCell(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, m message), test func(t *testing.T, c client, b *scripted)) {
	inEachCellWith(t, "", handle, func(t *testing.T, _ *gateway, c client, b *scripted) { test(t, c, b) })
}

// inEachCellWith is inEachCell with a dataplane block, for tests that look at the process too.
func inEachCellWith(t *testing.T, dataplane string, handle func(w http.ResponseWriter, r *http.Request, m message),
	test func(t *testing.T, g *gateway, c client, b *scripted)) {
	for backendEra, backendVersion := range eras {
		t.Run(backendEra+" backend", func(t *testing.T) {
			b := newScripted(t, backendVersion, handle)
			g := startGateway(t, b.yaml("b", ""), dataplane)
			for clientEra, version := range eras {
				t.Run(clientEra+" client", func(t *testing.T) { test(t, g, g.client(t, "alice", version), b) })
			}
		})
	}
}

// The requests of every kind in their four cells: what arrives, byte for byte.
func TestRequestsInEachCell(t *testing.T) {
	t.Parallel()
	methods := map[string]struct{ sent, arrives string }{
		"tools/call": {
			`{"name":"b__run","arguments":{"n":9007199254740993,"f":1.0,"z":"\u0041"},"x":[1e2],"_meta":{"progressToken":7,"com.example/y":{"a":1}}}`,
			`{"name":"run","arguments":{"n":9007199254740993,"f":1.0,"z":"\u0041"},"x":[1e2],"_meta":{%s"progressToken":7,"com.example/y":{"a":1}%s}}`,
		},
		"prompts/get": {
			`{"name":"b__ask","arguments":{"who":"ü"},"_meta":{"progressToken":"t"}}`,
			`{"name":"ask","arguments":{"who":"ü"},"_meta":{%s"progressToken":"t"%s}}`,
		},
		"resources/read": {`{"uri":"test:item/7%20a","_meta":{"k":null}}`, `{"uri":"test:item/7%%20a","_meta":{%s"k":null%s}}`},
	}
	const asked = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"e2e","version":"1"},"io.modelcontextprotocol/clientCapabilities":{},`
	inEachCell(t, func(w http.ResponseWriter, _ *http.Request, m message) {
		writeResult(w, m, `{"content":[],"messages":[],"contents":[]}`)
	},
		func(t *testing.T, c client, b *scripted) {
			for method, params := range methods {
				c.must(t, method, params.sent)
				calls := b.ofMethod(method)
				call := calls[len(calls)-1]
				var want string
				switch {
				case b.version == legacyVersion:
					want = fmt.Sprintf(params.arrives, "", "")
				case c.modern():
					want = fmt.Sprintf(params.arrives, asked, "")
				default:
					want = fmt.Sprintf(params.arrives, "", `,"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
						`"io.modelcontextprotocol/clientInfo":CLIENT,"io.modelcontextprotocol/clientCapabilities":{}`)
					info := between(string(call.Params), `clientInfo":`, `,"io.modelcontextprotocol/clientCap`)
					if !strings.HasPrefix(info, `{"name":"`) {
						t.Errorf("%s: clientInfo is %s", method, info)
					}
					want = strings.Replace(want, "CLIENT", info, 1)
				}
				if diff := cmp.Diff(want, string(call.Params)); diff != "" {
					t.Errorf("%s: params upstream (-want +got):\n%s", method, diff)
				}
				if v := call.header.Get("Mcp-Protocol-Version"); v != b.version {
					t.Errorf("%s: version %q, want the backend's own", method, v)
				}
				mirrored := "[] []"
				if b.version == modernVersion {
					name := map[string]string{"tools/call": "run", "prompts/get": "ask", "resources/read": "test:item/7%20a"}[method]
					mirrored = fmt.Sprint([]string{method}, []string{name})
				}
				if got := fmt.Sprint(call.header["Mcp-Method"], call.header["Mcp-Name"]); got != mirrored {
					t.Errorf("%s: Mcp-Method and Mcp-Name are %s, want %s", method, got, mirrored)
				}
			}
			if n := len(b.ofMethod("initialize")) - 1; (b.version == legacyVersion) != (n > 0) { // one was discovery's
				t.Errorf("%d handshakes", n)
			}
		})
}

func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

func TestResultsInEachCell(t *testing.T) {
	t.Parallel()
	results := map[string]struct{ params, result, completed string }{
		"tools/call": {`{"name":"b__run","arguments":{}}`,
			`{"content":[{"type":"text","text":"\u0041"}],"structuredContent":{"n":9007199254740993},"isError":true,"x":1e400}`, `,"resultType":"complete"`},
		"prompts/get":    {`{"name":"b__ask"}`, `{"messages":[],"description":"d"}`, `,"resultType":"complete"`},
		"resources/read": {`{"uri":"test:doc"}`, `{"contents":[{"uri":"test:doc","text":"x"}]}`, `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`},
	}
	inEachCell(t, func(w http.ResponseWriter, _ *http.Request, m message) {
		result := results[m.Method].result
		if _, modern := m.headerOf("Mcp-Method"); modern {
			result = `{"resultType":"complete",` + result[1:len(result)-1] + `,"ttlMs":5000,"cacheScope":"public"}`
		}
		if m.Method == "tools/call" { // in both forms of an answer
			stream(w)
			write(w, event(resultOf(m, result)))
			return
		}
		writeResult(w, m, result)
	}, func(t *testing.T, c client, b *scripted) {
		for method, tt := range results {
			want := tt.result
			switch {
			case b.version == modernVersion:
				want = `{"resultType":"complete",` + want[1:len(want)-1] + `,"ttlMs":5000,"cacheScope":"public"}`
			case c.modern():
				want = want[:len(want)-1] + tt.completed + "}"
			}
			for _, id := range []string{`1`, `"1"`, `9007199254740993`, `"ü"`} {
				a, err := c.call(id, method, tt.params)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, string(a.rpc.Result)); diff != "" || string(a.rpc.ID) != id || a.status != http.StatusOK {
					t.Errorf("%s with id %s: status %d, id %s, result (-want +got):\n%s", method, id, a.status, a.rpc.ID, diff)
				}
			}
		}
	})
}

func (m message) headerOf(name string) (string, bool) {
	v, ok := m.header[name]
	return strings.Join(v, ","), ok
}

// backendError is an error of a backend and what becomes of it; zero fields: nothing.
type backendError struct {
	status, code int
	data         string
	modernCode   int // what a modern client gets instead
	modernStatus int // of HTTP, instead of 200
}

func TestErrorsInEachCell(t *testing.T) {
	t.Parallel()
	errors := map[string]backendError{
		"no such resource":           {status: 200, code: -32002, data: `{"uri":"test:doc"}`, modernCode: -32602},
		"elicit by URL first":        {status: 200, code: -32042, data: `{"elicitations":[1.0]}`, modernCode: -32603},
		"a capability is missing":    {status: 400, code: -32021, data: `{"requiredCapabilities":{"elicitation":{"form":{}}}}`, modernStatus: 400},
		"invalid params":             {status: 400, code: -32602, data: `"why"`, modernStatus: 400},
		"unknown method":             {status: 404, code: -32601, data: `null`, modernStatus: 404},
		"its own code":               {status: 200, code: -32000, data: `{"n":9007199254740993}`},
		"its own failure":            {status: 200, code: 7, data: `[1,2.50]`},
		"internal with its own data": {status: 200, code: -32603, data: `{"reason":"mine"}`},
	}
	var current sync.Map // of each backend: what it answers
	inEachCell(t, func(w http.ResponseWriter, r *http.Request, m message) {
		v, _ := current.Load(r.Host)
		e := v.(backendError)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(e.status)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"the backend's own \u0041","data":%s}}`, m.ID, e.code, e.data)
	}, func(t *testing.T, c client, b *scripted) {
		for name, e := range errors {
			current.Store(strings.TrimSuffix(strings.TrimPrefix(b.url, "http://"), "/mcp"), e)
			want, status := &rpcError{Code: e.code, Message: "the backend's own A", Data: []byte(e.data)}, http.StatusOK
			if c.modern() {
				want.Code, status = std.Or(e.modernCode, e.code), std.Or(e.modernStatus, status)
			}
			for method, params := range map[string]string{
				"tools/call": `{"name":"b__run","arguments":{}}`, "resources/read": `{"uri":"test:doc"}`, "prompts/get": `{"name":"b__ask"}`,
			} {
				a, err := c.call("1", method, params)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, a.rpc.Error); diff != "" || a.status != status {
					t.Errorf("%s, %s: status %d, want %d; error (-want +got):\n%s", name, method, a.status, status, diff)
				}
			}
		}
	})
}

// A multi round-trip request: the backend asks by its result, the client answers by asking again. Between modern peers nothing
// of it is touched; a legacy client is told why it can't have this.
func TestMultiRoundTripRequestsInEachCell(t *testing.T) {
	t.Parallel()
	const ask = `{"resultType":"input_required","inputRequests":{"login":{"method":"elicitation/create","params":{"mode":"form","message":"who?",` +
		`"requestedSchema":{"type":"object","properties":{"n":{"type":"number","minimum":1.0}}}}}},"requestState":"opaque\u0041==","x":1e2}`
	const answer = `"inputResponses":{"login":{"action":"accept","content":{"n":9007199254740993}}},"requestState":"opaque\u0041=="`
	handle := func(w http.ResponseWriter, _ *http.Request, m message) {
		if strings.Contains(string(m.Params), answer) {
			writeResult(w, m, `{"resultType":"complete","content":[],"messages":[],"contents":[],"ttlMs":1,"cacheScope":"private"}`)
			return
		}
		writeResult(w, m, ask)
	}
	b := newScripted(t, modernVersion, handle)
	g := startGateway(t, b.yaml("b", ""), "")
	for method, params := range map[string]string{
		"tools/call": `{"name":"b__run","arguments":{}%s}`, "resources/read": `{"uri":"test:doc"%s}`, "prompts/get": `{"name":"b__ask"%s}`,
	} {
		modern, legacy := g.client(t, "alice", modernVersion), g.client(t, "alice", legacyVersion)
		if diff := cmp.Diff(ask, string(modern.must(t, method, fmt.Sprintf(params, "")))); diff != "" {
			t.Errorf("%s: the question (-want +got):\n%s", method, diff)
		}
		if got := string(modern.must(t, method, fmt.Sprintf(params, ","+answer))); !strings.Contains(got, `"resultType":"complete"`) {
			t.Errorf("%s: after the answer: %s", method, got)
		}
		a, err := legacy.call("1", method, fmt.Sprintf(params, ""))
		if err != nil {
			t.Fatal(err)
		}
		if a.status != http.StatusOK || a.rpc.Error == nil || a.rpc.Error.Code != -32603 || reasonOf(a.rpc.Error) != "needs_modern_client" ||
			!strings.Contains(a.rpc.Error.Message, "2026-07-28") || strings.Contains(a.body, "opaque") {
			t.Errorf("%s: a legacy client got %d %s", method, a.status, a.body)
		}
	}
}

// A legacy backend asks in the middle of a call: its ping is answered, everything else is refused, and the call goes on.
func TestALegacyBackendAsksMidCall(t *testing.T) {
	t.Parallel()
	asked := []string{"ping", "sampling/createMessage", "elicitation/create", "roots/list", "x/unknown"}
	answers := make(chan message, 16)
	var calls atomic.Int64
	b := newScripted(t, legacyVersion, nil)
	b.handle = func(w http.ResponseWriter, r *http.Request, m message) {
		if m.Method != "tools/call" {
			http.Error(w, "not now", http.StatusBadRequest)
			return
		}
		call := calls.Add(1)
		stream(w)
		for i, method := range asked {
			id := fmt.Sprintf(`"ask-%d-%d"`, call, i)
			write(w, event(`{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":{}}`))
			b.awaitAnswer(r, id, answers)
			write(w, event(progress(`"p"`, i+1)))
		}
		write(w, event(resultOf(m, `{"content":[{"type":"text","text":"done"}]}`)))
	}
	g := startGateway(t, b.yaml("b", ""), "")
	for era, version := range eras {
		a, err := g.client(t, "alice", version).call("1", "tools/call", `{"name":"b__run","arguments":{},"_meta":{"progressToken":"p"}}`)
		if err != nil || a.rpc.Result == nil {
			t.Fatalf("%s client: %+v, %v", era, a, err)
		}
		if len(a.events) != len(asked)+1 || strings.Contains(a.body, "ask-") {
			t.Errorf("%s client: %d events, want %d progress events and the result: %s", era, len(a.events), len(asked), a.body)
		}
		for _, method := range asked {
			m := soon(t, "the answer to "+method, answers)
			switch {
			case method == "ping" && string(m.Result) != "{}":
				t.Errorf("ping got %s", m.body)
			case method != "ping" && (m.Error == nil || m.Error.Code != -32601):
				t.Errorf("%s got %s, want -32601", method, m.body)
			case m.header.Get("Mcp-Session-Id") != sessionID:
				t.Errorf("the answer to %s came outside the session", method)
			}
		}
	}
	if n := len(answers); n != 0 {
		t.Errorf("%d answers too many", n)
	}
}

// awaitAnswer waits until the backend was sent the answer to the request of an id, and passes it on.
func (b *scripted) awaitAnswer(r *http.Request, id string, to chan<- message) {
	for seen := 0; ; {
		b.mu.Lock()
		for ; seen < len(b.messages); seen++ {
			if m := b.messages[seen]; m.Method == "" && string(m.ID) == id {
				b.mu.Unlock()
				to <- m
				return
			}
		}
		next := b.wake()
		b.mu.Unlock()
		select {
		case <-next:
		case <-r.Context().Done():
			return
		}
	}
}

// The mistakes of a cell must not depend on how many calls run at once.
func TestCellsAtOnce(t *testing.T) {
	t.Parallel()
	handle := func(w http.ResponseWriter, _ *http.Request, m message) { writeResult(w, m, done(m.argument("n"))) }
	newer, older := newScripted(t, modernVersion, handle), newScripted(t, legacyVersion, handle)
	g := startGateway(t, newer.yaml("newer", "")+older.yaml("older", ""), "")
	var wg sync.WaitGroup
	for i, version := range []string{modernVersion, legacyVersion, modernVersion, legacyVersion} {
		c := g.client(t, fmt.Sprint("caller-", i), version)
		wg.Go(func() {
			for n := range 25 {
				for _, name := range []string{"newer", "older"} {
					want := fmt.Sprint(i, "-", n)
					a, err := c.call(fmt.Sprint(n), "tools/call", fmt.Sprintf(`{"name":"%s__run","arguments":{"n":%q}}`, name, want))
					if err != nil || !strings.Contains(string(a.rpc.Result), `"text":"`+want+`"`) || string(a.rpc.ID) != fmt.Sprint(n) {
						t.Errorf("%s, %s: %+v, %v", version, name, a, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}
