package call

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// Large messages lie in memory that is used again: nobody ever sees another caller's, whichever way a message takes. Under the race
// detector released memory is overwritten, so that a late look at it shows.
func TestLargeMessagesOfCallersNeverMix(t *testing.T) {
	for name, tt := range map[string]struct {
		backend string
		stream  bool
	}{
		"modern, JSON": {backend: modern}, "modern, stream": {backend: modern, stream: true},
		"legacy, JSON": {backend: legacy}, "legacy, stream": {backend: legacy, stream: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, func(w http.ResponseWriter, r seen) {
				var p struct{ Arguments json.RawMessage }
				_ = json.Unmarshal(r.params, &p)
				member := `"result":{"content":[],"structuredContent":` + string(p.Arguments) + `}`
				if tt.stream {
					stream(w, func(send func(string)) { send(`{"jsonrpc":"2.0","id":` + r.id + `,` + member + `}`) })
					return
				}
				answerJSON(w, 200, r.id, member)
			})
			g := newGateway(t, host(b, tt.backend), nil)
			var wg sync.WaitGroup
			for caller, version := range map[string]string{"alice": modern, "bob": legacy, "carol": modern, "dave": legacy} {
				wg.Go(func() {
					for i := range 6 {
						text := strings.Repeat(caller[:1], 60_000+i*70_000)
						answer := g.ask(t, request{
							version: version, token: caller, id: `"` + caller + `"`, method: "tools/call",
							params: `{"name":"b__echo","arguments":{"text":"` + text + `"}}`,
						})
						var result struct{ StructuredContent struct{ Text string } }
						err := json.Unmarshal(answer.rpc.Result, &result)
						if err != nil || result.StructuredContent.Text != text || string(answer.rpc.ID) != `"`+caller+`"` {
							t.Errorf("%s got %d bytes of text as %s, want %d: %v", caller, len(result.StructuredContent.Text), answer.rpc.ID, len(text), err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// A client that leaves while a large answer is written, or does not read it, leaves nothing behind that another one could see.
func TestLargeAnswersThatNobodyReads(t *testing.T) {
	text := strings.Repeat("x", 4<<20)
	b := result(t, `{"content":[],"structuredContent":{"text":"`+text+`"}}`)
	g := newGateway(t, host(b, modern), nil)
	for range 5 {
		resp, err := g.open(t.Context(), request{method: "tools/call", params: `{"name":"b__echo","arguments":{}}`})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadFull(resp.Body, make([]byte, 1000))
		resp.Body.Close()
		if got := g.must(t, request{method: "tools/call", params: `{"name":"b__echo","arguments":{}}`}); !strings.Contains(got, text) {
			t.Fatalf("%d bytes", len(got))
		}
	}
}
