package demo

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/deploy/taskserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryServerAnswersUntilItIsClosed(t *testing.T) {
	s, err := Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range s.Backends {
		req, err := http.NewRequest(http.MethodPost, b.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{`+
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			"Mcp-Method": {"server/discover"}, "Mcp-Protocol-Version": {"2026-07-28"}}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if want := map[string]int{"modern": 200, "legacy": 400, "jobs": 200}[b.Name]; resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d", b.Name, resp.StatusCode, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Wait(ctx); err != nil {
		t.Errorf("Wait: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestWorkRefusesNonsense(t *testing.T) {
	for name, arguments := range map[string]string{
		"too long": `{"seconds":601}`, "negative": `{"seconds":-1}`, "no number": `{"seconds":"2"}`, "a fraction": `{"seconds":1.5}`,
	} {
		if _, err := work(t.Context(), &taskserver.Job{Arguments: json.RawMessage(arguments)}); err == nil || !strings.Contains(err.Error(), "seconds") {
			t.Errorf("%s: %v, want an error about seconds", name, err)
		}
	}
}
