package egress

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

// A legacy backend learns the level in the session of the call, and whatever it says to that, the call is made once.
func TestTheLevelIsSetBeforeTheCall(t *testing.T) {
	session := []string{"initialize", "notifications/initialized", "logging/setLevel", "tools/call", "DELETE"}
	again := []string{"initialize", "notifications/initialized", "logging/setLevel", "DELETE", "initialize", "notifications/initialized", "tools/call", "DELETE"}
	gone := []string{"initialize", "notifications/initialized", "logging/setLevel", "initialize", "notifications/initialized", "tools/call", "DELETE"}
	for name, tt := range map[string]struct {
		level     string
		handshake routes.Handshake
		refuse    int    // status of setLevel
		answer    string // to setLevel
		want      []string
	}{
		"taken":                    {level: "info", answer: `"result":{}`, want: session},
		"refused":                  {level: "info", answer: `"error":{"code":-32601,"message":"no"}`, want: session},
		"refused with 400":         {level: "info", refuse: http.StatusBadRequest, want: again},
		"refused with 404":         {level: "info", refuse: http.StatusNotFound, want: gone},
		"refused with 500":         {level: "info", refuse: http.StatusInternalServerError, want: again},
		"answered with nonsense":   {level: "info", answer: `"result":7`, want: again},
		"no level":                 {want: []string{"initialize", "notifications/initialized", "tools/call", "DELETE"}},
		"no handshake, no session": {level: "info", handshake: routes.HandshakeNone, want: []string{"tools/call"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &legacyServer{refuse: map[string]int{"logging/setLevel": tt.refuse}}
			s.call = func(w http.ResponseWriter, r *http.Request, id string) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, id)
			}
			s.level = tt.answer
			b := newBackend(t, s)
			c := newClient(t, Options{})
			call := legacyCall(b.URL)
			call.LogLevel, call.Backend.Handshake = tt.level, tt.handshake
			a, err := c.Do(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			if m, err := a.Next(); err != nil || docOf(m) != `{"jsonrpc":"2.0","id":"client","result":{"content":[]}}` {
				t.Errorf("%s, %v", docOf(m), err)
			}
			a.Close()
			c.Close()
			got, want := b.methods(), slices.Clone(tt.want)
			slices.Sort(got) // a session ends in the background
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}
