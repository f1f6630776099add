package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What the slow tools do: progress, again and again, and then the result.
const (
	progressEvents = 5
	progressEvery  = 200 * time.Millisecond
)

// ledger counts what ran, by the id that a call has in its arguments.
type ledger struct {
	mu   sync.Mutex
	runs map[string]int
}

func (l *ledger) note(n string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil {
		l.runs = map[string]int{}
	}
	l.runs[n]++
}

func (l *ledger) ran(n string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[n]
}

// callArgs is what every call of these tests carries.
type callArgs struct {
	N string `json:"n"`
}

// workBackend is a modern server made by hand: echo answers at once, slow streams progress for a second, hold streams one event
// and answers when it is released, and silent does so without the event.
type workBackend struct {
	url     string
	ledger  *ledger
	held    chan struct{} // one for each hold that runs
	release chan struct{} // closed: hold answers
	left    chan struct{} // one for each hold whose caller went away
}

func newWorkBackend(t *testing.T, l *ledger) *workBackend {
	t.Helper()
	b := &workBackend{ledger: l, held: make(chan struct{}, 10), release: make(chan struct{}), left: make(chan struct{}, 10)}
	hs := httptest.NewServer(b)
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	b.url = hs.URL
	return b
}

func (b *workBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name      string
			Arguments callArgs
			Meta      struct{ ProgressToken json.RawMessage } `json:"_meta"`
		}
	}
	if json.NewDecoder(r.Body).Decode(&req) != nil {
		http.Error(w, "not JSON", http.StatusBadRequest)
		return
	}
	result := func(result string) string {
		return `{"jsonrpc":"2.0","id":` + string(req.ID) + `,"result":` + result + `}`
	}
	document := func(doc string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, doc)
	}
	event := func(doc string) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: "+doc+"\n\n")
		_ = http.NewResponseController(w).Flush()
	}
	progress := func(i int) {
		event(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`,
			req.Params.Meta.ProgressToken, i))
	}
	done := result(`{"resultType":"complete","content":[{"type":"text","text":"` + req.Params.Arguments.N + `"}]}`)
	switch req.Method {
	case "server/discover":
		document(result(discoverResult("work", "tools")))
		return
	case "tools/list":
		document(result(`{"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[` +
			`{"name":"echo","inputSchema":{"type":"object"}},{"name":"slow","inputSchema":{"type":"object"}},` +
			`{"name":"hold","inputSchema":{"type":"object"}},{"name":"silent","inputSchema":{"type":"object"}}]}`))
		return
	case "tools/call":
		b.ledger.note(req.Params.Arguments.N)
	default:
		w.WriteHeader(http.StatusNotFound)
		document(`{"jsonrpc":"2.0","id":` + string(req.ID) + `,"error":{"code":-32601,"message":"no such method"}}`)
		return
	}
	switch req.Params.Name {
	case "slow":
		for i := range progressEvents {
			progress(i + 1)
			select {
			case <-time.After(progressEvery):
			case <-r.Context().Done():
				return
			}
		}
		event(done)
	case "hold", "silent":
		if req.Params.Name == "hold" {
			progress(1)
		}
		b.held <- struct{}{}
		select {
		case <-b.release:
			event(done)
		case <-r.Context().Done():
			b.left <- struct{}{}
		}
	default:
		document(done)
	}
}

// newLegacyWorkBackend is a legacy server, built on the SDK, with the tools echo and slow.
func newLegacyWorkBackend(t *testing.T, l *ledger) *sdkBackend {
	t.Helper()
	b := newLegacyBackend(t, "work")
	tool := func(name string, work func(context.Context, *mcp.CallToolRequest) error) {
		b.srv.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var args callArgs
				if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
					return nil, err
				}
				l.note(args.N)
				if err := work(ctx, r); err != nil {
					return nil, err
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: args.N}}}, nil
			})
	}
	tool("echo", func(context.Context, *mcp.CallToolRequest) error { return nil })
	tool("slow", func(ctx context.Context, r *mcp.CallToolRequest) error {
		for i := range progressEvents {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: r.Params.GetProgressToken(), Progress: float64(i + 1),
			}); err != nil {
				return err
			}
			select {
			case <-time.After(progressEvery):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return b
}
