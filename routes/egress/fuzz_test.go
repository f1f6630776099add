package egress

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// reasons are those that a document of any kind may end in.
var reasons = []string{ReasonBadResponse, ReasonTooLarge, ReasonReset}

func FuzzAnswer(f *testing.F) {
	for _, body := range []string{
		okDoc, "data: " + okDoc + "\n\n", `{"jsonrpc":"2.0","id":7.0,"error":{"code":1,"message":"m"}}`, `{"jsonrpc":"2.0","error":{}}`, "[]", "",
		"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"a\"}}\r\rdata: " + okDoc,
		`{"jsonrpc":"2.0","id":7,"result":{"x":"` + strings.Repeat("x", 3000) + `"}}`, `{"id":7,"id":8,"jsonrpc":"2.0","result":{}}`,
	} {
		f.Add([]byte(body), false, uint8(0))
		f.Add([]byte(body), true, uint8(0))
		f.Add([]byte(body), false, uint8(1))
	}
	f.Fuzz(func(t *testing.T, body []byte, stream bool, status uint8) {
		const limit = 2 << 10
		c := &Client{opts: Options{ResponseLimit: limit}}
		x := newExchange(t.Context(), limits{defaultResponse, defaultIdle, defaultTotal})
		defer x.finish()
		x.got = true
		resp := &http.Response{
			StatusCode: [...]int{200, 400, 404}[status%3], Header: http.Header{"Content-Type": {mediaJSON}},
			Body: io.NopCloser(bytes.NewReader(body)), ContentLength: -1,
		}
		if stream {
			resp.Header.Set("Content-Type", mediaStream)
		}
		client := json.RawMessage(`7`)
		r := &relayed{c: c, x: x, resp: resp, id: client, client: client, token: json.RawMessage(`"a"`)}
		streaming, err := r.check()
		if err != nil {
			return
		}
		if streaming {
			r.events = wire.NewEventReader(resp.Body, limit)
		}
		for {
			m, err := r.next()
			if err != nil {
				if fl, ok := errors.AsType[*Failure](err); !ok || !slices.Contains(reasons, fl.Reason) || !fl.Sent {
					t.Fatalf("error %v", err)
				}
				return
			}
			text := []byte(docOf(m))
			if len(text) > 2*limit || !json.Valid(text) {
				t.Fatalf("message %q", text)
			}
			var doc struct {
				JSONRPC *string `json:"jsonrpc"`
				ID      json.RawMessage
			}
			if err := json.Unmarshal(text, &doc); err != nil || doc.JSONRPC == nil {
				t.Fatalf("message %q: %v", text, err)
			}
			if !m.Final {
				if m.Method == "" || m.Result != nil || m.Error != nil {
					t.Fatalf("notification %+v", m)
				}
				continue
			}
			if (m.Result == nil) == (m.Error == nil) || !bytes.Contains(text, m.Result) || !bytes.Contains(text, m.Error) {
				t.Fatalf("response %+v", m)
			}
			s, err := wire.ScanMessage(text)
			if err != nil || string(s.ID) != "7" {
				t.Fatalf("response %q: id %q, %v", text, s.ID, err)
			}
			return
		}
	})
}

// Nothing in a call's headers adds, drops or changes a protected header.
func FuzzHeaders(f *testing.F) {
	f.Add("Host", "evil", "X-A", "1")
	f.Add("content_length", "0", "Connection", "content-type, x-a")
	f.Add("MCP-Session_ID", "s", "mcp-param-x", "v")
	f.Add("X_Forwarded-For", "1", "Idempotency-Key", "k")
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2 string) {
		c := &Client{userAgent: []string{"weir/0"}}
		call := simpleCall("http://127.0.0.1/")
		want := c.header(&call)
		call.Header = http.Header{n1: {v1}}
		call.Header[n2] = append(call.Header[n2], v2)
		got := c.header(&call)
		for name, values := range got {
			canonical := strings.ReplaceAll(strings.ToLower(name), "_", "-")
			if routes.ProtectedHeader(canonical) && !strings.HasPrefix(canonical, "mcp-param-") && !slices.Equal(values, want[name]) {
				t.Errorf("%q: %q, want %q", name, values, want[name])
			}
		}
		for name, values := range want {
			if name != "User-Agent" && !slices.Equal(got[name], values) {
				t.Errorf("%q: %q, want %q", name, got[name], values)
			}
		}
	})
}

func FuzzSameJSON(f *testing.F) {
	for _, s := range []string{"1", "1.0", "10e-1", "-0", "0", `"a"`, `"\u0061"`, "9007199254740993", "9007199254740992", "1e400", "0.0001", "null", "true"} {
		f.Add(s, "1")
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if !json.Valid([]byte(a)) || !json.Valid([]byte(b)) || strings.TrimSpace(a) != a || strings.TrimSpace(b) != b {
			return
		}
		same := sameJSON([]byte(a), []byte(b))
		if same != sameJSON([]byte(b), []byte(a)) {
			t.Fatalf("%s and %s: not symmetric", a, b)
		}
		number := func(s string) *big.Rat {
			if i := strings.IndexAny(s, "eE"); i >= 0 && len(s)-i > 4 {
				return nil // big.Rat would compute for ever
			}
			r, ok := new(big.Rat).SetString(s)
			if !ok {
				return nil
			}
			return r
		}
		if x, y := number(a), number(b); x != nil && y != nil && a[0] != '"' && b[0] != '"' && same != (x.Cmp(y) == 0) {
			t.Errorf("%s and %s: %t", a, b, same)
		}
	})
}
