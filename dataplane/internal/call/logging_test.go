package call

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

// Who asks for log messages gets them from backends of either era, and a modern client that does not gets none.
func TestLogMessages(t *testing.T) {
	const asks, level = `"io.modelcontextprotocol/logLevel":"warning"`, `"io.modelcontextprotocol/logLevel":`
	for name, tt := range map[string]struct {
		client, meta, backend string
		mute                  bool   // the backend has no logging capability
		told                  string // by _meta (modern) or by logging/setLevel (legacy); empty: nothing
		got                   []string
	}{
		"modern to legacy, asked":       {modern, asks, legacy, false, "warning", []string{"error", "odd"}},
		"modern to legacy, unasked":     {modern, ``, legacy, false, "", nil},
		"modern to legacy, nonsense":    {modern, level + `"loud"`, legacy, false, "", nil},
		"modern to legacy without":      {modern, asks, legacy, true, "", []string{"error", "odd"}},
		"modern to modern, asked":       {modern, asks, modern, false, "warning", []string{"info", "error", "odd"}},
		"modern to modern, unasked":     {modern, ``, modern, false, "", []string{"info", "error", "odd"}}, // the backend's own affair
		"legacy to legacy":              {legacy, ``, legacy, false, "info", []string{"info", "error", "odd"}},
		"legacy to legacy without":      {legacy, ``, legacy, true, "", []string{"info", "error", "odd"}},
		"legacy to modern":              {legacy, ``, modern, false, "info", []string{"info", "error", "odd"}},
		"legacy to modern, with a wish": {legacy, level + `"error"`, modern, false, "error", []string{"info", "error", "odd"}},
		"legacy to modern without":      {legacy, ``, modern, true, "", []string{"info", "error", "odd"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, func(w http.ResponseWriter, r seen) {
				if r.method == "logging/setLevel" {
					answerJSON(w, 200, r.id, `"result":{}`)
					return
				}
				stream(w, func(send func(string)) {
					for _, level := range []string{"info", "error", "odd"} {
						send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + level + `","data":1}}`)
					}
					send(`{"jsonrpc":"2.0","id":` + r.id + `,"result":{"resultType":"complete","content":[]}}`)
				})
			})
			g := newGateway(t, host(b, tt.backend).Edit(func(vh *routes.VirtualHost) {
				be := vh.Backends["b"]
				be.Capabilities.Logging = !tt.mute
				vh.Backends["b"] = be
			}), nil)
			params := `{"name":"b__echo"}`
			if tt.meta != "" {
				params = `{"name":"b__echo","_meta":{` + tt.meta + `}}`
			}
			a := g.ask(t, request{version: tt.client, method: "tools/call", params: params})
			var got []string
			for _, e := range a.events {
				if _, rest, ok := strings.Cut(e, `"level":"`); ok {
					level, _, _ := strings.Cut(rest, `"`)
					got = append(got, level)
				}
			}
			if diff := cmp.Diff(tt.got, got); diff != "" {
				t.Errorf("the client got (-want +got):\n%s", diff)
			}
			told := ""
			if _, rest, ok := strings.Cut(b.last(t, "tools/call").body, level+`"`); ok {
				told, _, _ = strings.Cut(rest, `"`)
			}
			if tt.backend == legacy && tt.told != "" {
				_, rest, _ := strings.Cut(b.last(t, "logging/setLevel").body, `"level":"`)
				told, _, _ = strings.Cut(rest, `"`)
			}
			if told != tt.told {
				t.Errorf("the backend was told %q, want %q", told, tt.told)
			}
		})
	}
}
