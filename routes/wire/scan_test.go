package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestScanMessage(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	tests := map[string]struct {
		doc  string
		want Scan
	}{
		"a result": {
			` {"jsonrpc":"2.0","id":1e3,"result":{"content":[{"type":"text","text":"x"}], "isError":false}} `,
			Scan{Kind: KindResponse, ID: raw("1e3"), Result: raw(`{"content":[{"type":"text","text":"x"}], "isError":false}`)},
		},
		"a task, modern": {
			`{"jsonrpc":"2.0","id":"a","result":{"resultType":"task","taskId":"t","ttlMs":1}}`,
			Scan{
				Kind: KindResponse, ID: raw(`"a"`), Result: raw(`{"resultType":"task","taskId":"t","ttlMs":1}`),
				ResultScan: ResultScan{ResultType: "task"},
			},
		},
		"a task, legacy, and one advertised in _meta": {
			`{"id":1,"result":{"task":{"taskId":"t"},"_meta":{"task":{"taskId":"u"}}},"jsonrpc":"2.0"}`,
			Scan{
				Kind: KindResponse, ID: raw("1"), Result: raw(`{"task":{"taskId":"t"},"_meta":{"task":{"taskId":"u"}}}`),
				ResultScan: ResultScan{Task: raw(`{"taskId":"t"}`), Meta: raw(`{"task":{"taskId":"u"}}`)},
			},
		},
		"resultType further down is not the result's": {
			`{"jsonrpc":"2.0","id":1,"result":{"a":{"resultType":"task"}}}`,
			Scan{Kind: KindResponse, ID: raw("1"), Result: raw(`{"a":{"resultType":"task"}}`)},
		},
		"a resultType that is no string": {
			`{"jsonrpc":"2.0","id":1,"result":{"resultType":5}}`,
			Scan{Kind: KindResponse, ID: raw("1"), Result: raw(`{"resultType":5}`)},
		},
		"an error": {
			`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}`,
			Scan{Kind: KindResponse, ID: raw("1"), Error: raw(`{"code":-1,"message":"m"}`)},
		},
		"an error about nobody's request": {
			`{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m"}}`,
			Scan{Kind: KindResponse, Error: raw(`{"code":-1,"message":"m"}`)},
		},
		"progress": {
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":9007199254740993}}`,
			Scan{
				Kind: KindNotification, Method: "notifications/progress", ProgressToken: raw("9007199254740993"),
				Params: raw(`{"progress":1,"progressToken":9007199254740993}`),
			},
		},
		"a request": {
			`{"jsonrpc":"2.0","id":0,"method":"ping"}`,
			Scan{Kind: KindRequest, ID: raw("0"), Method: "ping"},
		},
		"escaped names": {
			`{"jsonrpc":"2.0","id":1,"r\u0065sult":{"result\u0054ype":"task"}}`,
			Scan{Kind: KindResponse, ID: raw("1"), Result: raw(`{"result\u0054ype":"task"}`), ResultScan: ResultScan{ResultType: "task"}},
		},
		"duplicates and lone surrogates further down are not ours": {
			`{"jsonrpc":"2.0","id":1,"result":{"a":{"b":1,"b":"\ud800"}}}`,
			Scan{Kind: KindResponse, ID: raw("1"), Result: raw(`{"a":{"b":1,"b":"\ud800"}}`)},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ScanMessage([]byte(tt.doc))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(ResultScan{})); diff != "" {
				t.Errorf("scan (-want +got):\n%s", diff)
			}
		})
	}
	for name, doc := range map[string]string{
		"nothing":               "",
		"no JSON":               "<html>",
		"cut off":               `{"jsonrpc":"2.0","id":1,"result":{"a":1}`,
		"cut off in a string":   `{"jsonrpc":"2.0","id":1,"result":{"a":"`,
		"trailing data":         `{"jsonrpc":"2.0","id":1,"result":{}}{}`,
		"broken further down":   `{"jsonrpc":"2.0","id":1,"result":{"a":[1,]}}`,
		"an array":              `[{"jsonrpc":"2.0","id":1,"result":{}}]`,
		"no version":            `{"id":1,"result":{}}`,
		"version 1":             `{"jsonrpc":"1.0","id":1,"result":{}}`,
		"a result without id":   `{"jsonrpc":"2.0","result":{}}`,
		"a result with id null": `{"jsonrpc":"2.0","id":null,"result":{}}`,
		"a result as an array":  `{"jsonrpc":"2.0","id":1,"result":[]}`,
		"a result null":         `{"jsonrpc":"2.0","id":1,"result":null}`,
		"an error as a string":  `{"jsonrpc":"2.0","id":1,"error":"bad"}`,
		"both":                  `{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`,
		"a method and a result": `{"jsonrpc":"2.0","id":1,"method":"m","result":{}}`,
		"neither":               `{"jsonrpc":"2.0","id":1}`,
		"a method as a number":  `{"jsonrpc":"2.0","method":1}`,
		"two ids":               `{"jsonrpc":"2.0","id":1,"id":2,"result":{}}`,
		"two results":           `{"jsonrpc":"2.0","id":1,"result":{},"result":{}}`,
		"two result types":      `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","resultType":"task"}}`,
		"two tasks":             `{"jsonrpc":"2.0","id":1,"result":{"task":{},"task":{}}}`,
		"two tokens":            `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progressToken":2}}`,
	} {
		if got, err := ScanMessage([]byte(doc)); !errors.Is(err, ErrNotMessage) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestScanResult(t *testing.T) {
	got, err := ScanResult([]byte(` {"resultType":"input_required","_meta":{}} `))
	if err != nil || got.ResultType != "input_required" || string(got.Meta) != "{}" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "[]", "5", `{"task":1,"task":2}`, `{"a":}`, "{}{}"} {
		if got, err := ScanResult([]byte(bad)); !errors.Is(err, ErrNotMessage) {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}

// Whatever the bytes are: no panic, and what is found are pieces of valid JSON.
func FuzzScanMessage(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","task":{},"_meta":{},"content":[]}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"x"}}`,
		`{"jsonrpc":"2.0","id":null,"error":{}}`, `{"a":"\ud800"}`, "[", `{"":`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		s, err := ScanMessage(doc)
		if err != nil {
			return
		}
		for _, raw := range []json.RawMessage{s.ID, s.Params, s.ProgressToken, s.Result, s.Error, s.Task, s.Meta} {
			if raw != nil && !json.Valid(raw) {
				t.Fatalf("%q of %q is no JSON", raw, doc)
			}
		}
		var std struct {
			ID, Result, Error json.RawMessage
			Method            string
		}
		if json.Unmarshal(doc, &std) == nil && !strings.Contains(string(doc), `\`) && isASCII(string(doc)) && !folds(doc) {
			if std.Method != s.Method || string(std.Result) != string(s.Result) {
				t.Fatalf("the standard library sees %+v in %q, we %+v", std, doc, s)
			}
		}
	})
}

// folds reports whether a name of doc is a known one in another case, where the standard library sees another message.
func folds(doc []byte) bool {
	var o map[string]json.RawMessage
	_ = json.Unmarshal(doc, &o)
	for name := range o {
		if folded(name, knownNames(inEnvelope)) != "" {
			return true
		}
	}
	return false
}

// What DecodeMessage takes, the standard library reads the same way: no way round policy.
func FuzzDecodeMessage(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":[1,{"y":"\""}]},"_meta":{"progressToken":1}}}`,
		`{"jsonrpc":"2.0","\u0069d":"x","method":"m","params":{}}`, `{"jsonrpc":"2.0","id":1,"ID":2,"method":"m"}`,
		`[{}]`, "\xef\xbb\xbf{}", `{"jsonrpc":"2.0","method":"m","params":{"n\u0061me":"a","name":"b"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := DecodeMessage(body)
		if err != nil {
			return
		}
		slow := decoder{walker: trust(body), m: &Message{Raw: body}}
		slow.space()
		slow.envelope()
		if diff := cmp.Diff(slow.m, m, cmpopts.EquateEmpty()); diff != "" || slow.err != nil {
			t.Fatalf("%q is found in two ways (-trusting +checking): %v\n%s", body, slow.err, diff)
		}
		var std struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      json.RawMessage
				URI       json.RawMessage
				Arguments json.RawMessage
				TaskID    json.RawMessage
				Meta      map[string]json.RawMessage `json:"_meta"`
			}
		}
		if err := json.Unmarshal(body, &std); err != nil {
			t.Fatalf("took %q, which the standard library refuses: %v", body, err)
		}
		name, _ := m.Params.Get("name")
		uri, _ := m.Params.Get("uri")
		task, _ := m.Params.Get("taskId")
		type view struct{ ID, Method, Name, URI, Task, Arguments, Token string }
		ours := view{string(m.ID), m.Method, string(name), string(uri), string(task), string(m.Arguments()), string(m.ProgressToken())}
		theirs := view{
			string(std.ID), std.Method, string(std.Params.Name), string(std.Params.URI), string(std.Params.TaskID),
			string(std.Params.Arguments), string(std.Params.Meta[MetaProgressToken]),
		}
		if diff := cmp.Diff(theirs, ours); diff != "" {
			t.Fatalf("%q is read in two ways (-std +ours):\n%s", body, diff)
		}
		again, err := DecodeMessage(m.Encode())
		if err != nil {
			t.Fatalf("what was encoded from %q is refused: %v", body, err)
		}
		again.Raw = m.Raw
		if diff := cmp.Diff(m, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%q changes when encoded (-was +is):\n%s", body, diff)
		}
	})
}
