package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// outcome is what a caller learns of an exchange, whichever way it was made.
type outcome struct {
	Notes  []string // method and params
	Result string   // normalised
	Error  string   // code, message, data
	Failed bool     // no JSON-RPC answer
}

func normal(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return "invalid: " + string(raw)
	}
	out, _ := json.Marshal(v)
	return string(out)
}

func byRelay(t *testing.T, url string) outcome {
	call := simpleCall(url)
	call.RPCID = json.RawMessage("7")
	meta, _ := call.Params.Get("_meta")
	call.Params = call.Params.With("_meta", json.RawMessage(strings.Replace(string(meta), "{", `{"progressToken":"tok",`, 1)))
	msgs, _, err := collect(t, newClient(t, Options{}), call)
	o := outcome{Failed: err != nil}
	for _, m := range msgs {
		switch {
		case !m.Final:
			var n struct{ Params json.RawMessage }
			_ = json.Unmarshal(m.Doc, &n)
			o.Notes = append(o.Notes, m.Method+" "+normal(n.Params))
		case m.Error != nil:
			var e jsonrpc.Error
			_ = json.Unmarshal(m.Error, &e)
			o.Error = fmt.Sprintf("%d %s %s", e.Code, e.Message, normal(e.Data))
		default:
			o.Result = normal(m.Result)
		}
	}
	return o
}

// bySDK makes the same exchange with the SDK's client transport.
func bySDK(t *testing.T, url string) outcome {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tr := &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client, MaxRetries: -1, DisableStandaloneSSE: true}
	conn, err := tr.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call := simpleCall(url)
	meta, _ := call.Params.Get("_meta")
	params, _ := call.Params.With("_meta", json.RawMessage(strings.Replace(string(meta), "{", `{"progressToken":"tok",`, 1))).MarshalJSON()
	id, _ := jsonrpc.MakeID(float64(7))
	rpcError := func(err error) (string, bool) {
		e, ok := errors.AsType[*jsonrpc.Error](err)
		if !ok || e.Code == -32005 { // "rejected by transport": the SDK's own, for statuses like 500
			return "", false
		}
		return fmt.Sprintf("%d %s %s", e.Code, e.Message, normal(e.Data)), true
	}
	var o outcome
	if err := conn.Write(ctx, &jsonrpc.Request{ID: id, Method: "tools/call", Params: params}); err != nil {
		var ok bool
		o.Error, ok = rpcError(err)
		o.Failed = !ok
		return o
	}
	for {
		msg, err := conn.Read(ctx)
		if err != nil {
			o.Failed = true
			return o
		}
		switch m := msg.(type) {
		case *jsonrpc.Request:
			if m.IsCall() {
				continue
			}
			o.Notes = append(o.Notes, m.Method+" "+normal(m.Params))
		case *jsonrpc.Response:
			if m.Error != nil {
				var ok bool
				o.Error, ok = rpcError(m.Error)
				o.Failed = !ok
			} else {
				o.Result = normal(m.Result)
			}
			return o
		}
	}
}

// The relay and the SDK's client transport must tell a caller the same of the same exchange. Where they may not, the row says why.
func TestRelayAgainstTheSDK(t *testing.T) {
	if testing.Short() {
		t.Skip("drives several hundred exchanges")
	}
	docs := map[string]string{
		"result":              `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"hi"}]}}`,
		"empty result":        `{"jsonrpc":"2.0","id":7,"result":{}}`,
		"spaces":              `  { "jsonrpc" : "2.0" , "id" : 7 , "result" : { "a" : [ 1 , 2 ] } }  `,
		"order":               `{"result":{"b":1,"a":2},"id":7,"jsonrpc":"2.0"}`,
		"unknown members":     `{"jsonrpc":"2.0","id":7,"result":{"x":1},"more":{"id":8}}`,
		"unicode":             `{"jsonrpc":"2.0","id":7,"result":{"t":"ü\u00fc\ud83d\ude00 \\ \" \/"}}`,
		"numbers":             `{"jsonrpc":"2.0","id":7,"result":{"n":[0,-1,1.5,1e10,9007199254740993]}}`,
		"deep":                `{"jsonrpc":"2.0","id":7,"result":{"d":` + strings.Repeat("[", 50) + strings.Repeat("]", 50) + `}}`,
		"task":                `{"jsonrpc":"2.0","id":7,"result":{"resultType":"task","task":{"taskId":"t"}}}`,
		"input required":      `{"jsonrpc":"2.0","id":7,"result":{"resultType":"input_required","inputRequests":{}}}`,
		"isError":             `{"jsonrpc":"2.0","id":7,"result":{"isError":true,"content":[]}}`,
		"meta":                `{"jsonrpc":"2.0","id":7,"result":{"_meta":{"a/b":null}}}`,
		"large":               `{"jsonrpc":"2.0","id":7,"result":{"t":"` + strings.Repeat("0123456789", 20000) + `"}}`,
		"error":               `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no"}}`,
		"error with data":     `{"jsonrpc":"2.0","id":7,"error":{"code":-32021,"message":"no","data":{"requiredCapabilities":{"x":{}}}}}`,
		"error, null data":    `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"","data":null}}`,
		"id 7.0":              `{"jsonrpc":"2.0","id":7.0,"result":{}}`,
		"torn":                `{"jsonrpc":"2.0","id":7,"result":{"con`,
		"not JSON":            `hello`,
		"empty":               ``,
		"wrong version":       `{"jsonrpc":"1.0","id":7,"result":{}}`,
		"no version":          `{"id":7,"result":{}}`,
		"no id":               `{"jsonrpc":"2.0","result":{}}`,
		"array":               `[{"jsonrpc":"2.0","id":7,"result":{}}]`,
		"trailing":            `{"jsonrpc":"2.0","id":7,"result":{}} x`,
		"neither":             `{"jsonrpc":"2.0","id":7}`,
		"result and error":    `{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"m"}}`,
		"two results":         `{"jsonrpc":"2.0","id":7,"result":{"a":1},"result":{"a":2}}`,
		"result is no object": `{"jsonrpc":"2.0","id":7,"result":[1]}`,
		"error is no object":  `{"jsonrpc":"2.0","id":7,"error":"m"}`,
		"case-folded":         `{"jsonrpc":"2.0","id":7,"Result":{"a":1},"result":{"a":2}}`,
	}
	note := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":1}}`
	log := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"x":[1]}}}`
	event := func(data string) string { return "data: " + data + "\n\n" }
	head := "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n"
	framings := map[string]func(doc string) string{
		"json":          func(d string) string { return httpAnswer("200 OK", "application/json", d) },
		"json, charset": func(d string) string { return httpAnswer("200 OK", "application/json; charset=utf-8", d) },
		"json, no length": func(d string) string {
			return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + d
		},
		"400":                    func(d string) string { return httpAnswer("400 Bad Request", "application/json", d) },
		"404":                    func(d string) string { return httpAnswer("404 Not Found", "application/json", d) },
		"500":                    func(d string) string { return httpAnswer("500 Oops", "application/json", d) },
		"stream":                 func(d string) string { return head + event(d) },
		"stream, CRLF":           func(d string) string { return head + strings.ReplaceAll(event(d), "\n", "\r\n") },
		"stream, fields":         func(d string) string { return head + ": hello\n\nevent: message\ndata:" + d + "\nx-unknown: 1\n\n" },
		"stream, notes":          func(d string) string { return head + event(note) + ": ping\n\n" + event(log) + event(note) + event(d) },
		"stream, end":            func(d string) string { return head + "data: " + d },
		"stream, foreign events": func(d string) string { return head + "event: other\ndata: {\"x\":1}\n\n" + event(d) },
		"stream, more after it":  func(d string) string { return head + event(d) + event(log) },
	}
	// The relay is stricter on purpose: decoders disagree on these, and a client's may not be ours.
	stricter := map[string]bool{
		"neither": true, "trailing": true, "result and error": true, "two results": true, "result is no object": true, "error is no object": true,
	}
	n := 0
	for docName, doc := range docs {
		for framing, frame := range framings {
			n++
			t.Run(docName+"/"+framing, func(t *testing.T) {
				t.Parallel()
				answer := frame(doc)
				relayed, sdk := byRelay(t, answering(t, answer).url), bySDK(t, answering(t, answer).url)
				if stricter[docName] && relayed.Failed {
					return
				}
				if sdk.Failed && relayed.Failed {
					return // the SDK drops what it had read when a later message breaks the stream
				}
				if diff := cmp.Diff(sdk, relayed); diff != "" {
					t.Errorf("(-SDK +relay):\n%s", diff)
				}
			})
		}
	}
	if n < 200 {
		t.Errorf("%d exchanges, want 200 at least", n)
	}
}
