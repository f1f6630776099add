package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// futureTool is a tool as a later specification might define it.
const futureTool = `{"name":"weather","title":"Wetter","x-future":{"a":[1,2.50,9007199254740993,1e3]},"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema",` +
	`"type":"object","$defs":{"place":{"type":"string","x-unknown":null}},"properties":{"where":{"$ref":"#/$defs/place"}}},` +
	`"outputSchema":{"type":"object","properties":{"t":{"type":"number"}}},"_meta":{"com.example/x":{"deep":[{}]}},"icons":[{"src":"data:,"}]}`

// futureResult is a result with content types and members that nobody knows today.
const futureResult = `{"resultType":"complete","content":[{"type":"hologram","frames":[1,2.0,1e400],"é":"\u00e9"},{"type":"text","text":"a\u0000b","annotations":{"priority":0.10}}],` +
	`"structuredContent":{"big":9007199254740993,"exp":1E+2,"nested":{"$defs":{}}},"_meta":{"com.example/trace":"x"},"futureMember":{"k":null}}`

func TestNothingIsLostOnTheWay(t *testing.T) {
	t.Parallel()
	raw := newRawBackend(t, map[string]string{
		"server/discover": discoverResult("raw", "tools"),
		"tools/list":      `{"resultType":"complete","tools":[` + futureTool + `],"ttlMs":1000,"cacheScope":"private"}`,
		"tools/call":      futureResult,
	})
	s := startStandalone(t, "--backend", "raw="+raw.url)
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		c := s.client(version)
		var list struct{ Tools []json.RawMessage }
		if err := json.Unmarshal(c.must(t, "tools/list", "{}"), &list); err != nil || len(list.Tools) != 1 {
			t.Fatalf("%s: tools/list: %v, %v", version, list, err)
		}
		want := strings.Replace(futureTool, `"name":"weather"`, `"name":"raw__weather"`, 1)
		if diff := cmp.Diff(want, string(list.Tools[0])); diff != "" {
			t.Errorf("%s: the tool's definition (-want +got):\n%s", version, diff)
		}
		for _, id := range []string{`1`, `"1"`, `9007199254740993`, `"ü\u0000"`, `-0`, `1.50`, `1e3`, `""`} {
			a, err := c.call(id, "tools/call", `{"name":"raw__weather","arguments":{"where":"x","n":9007199254740993,"f":1.0,"u":{"k":null}},"futureParam":[1e2],"_meta":{"com.example/y":"z","progressToken":7}}`)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(a.rpc.ID); got != id {
				t.Errorf("%s: id %s came back as %s", version, id, got)
			}
			if diff := cmp.Diff(futureResult, string(a.rpc.Result)); diff != "" {
				t.Errorf("%s: the result (-want +got):\n%s", version, diff)
			}
		}
		sent := raw.last(t, "tools/call")
		for _, part := range []string{`"arguments":{"where":"x","n":9007199254740993,"f":1.0,"u":{"k":null}}`, `"futureParam":[1e2]`, `"com.example/y":"z"`, `"progressToken":7`, `"name":"weather"`} {
			if !strings.Contains(sent.body, part) {
				t.Errorf("%s: the backend did not get %s: %s", version, part, sent.body)
			}
		}
		if got := sent.header.Get("Mcp-Name"); got != "weather" {
			t.Errorf("%s: Mcp-Name upstream = %q", version, got)
		}
		for name := range sent.header {
			if name == "Authorization" || name == "Cookie" {
				t.Errorf("%s: the backend got the caller's %s", version, name)
			}
		}
	}
}

// Lists keep the backend's order; nothing of one page or backend is lost.
func TestListsAreWhole(t *testing.T) {
	t.Parallel()
	var tools, want []string
	for i := range 250 {
		tools = append(tools, fmt.Sprintf(`{"name":"t%03d","inputSchema":{"type":"object"}}`, i))
		want = append(want, fmt.Sprintf("m__t%03d", i))
	}
	many := newRawBackend(t, map[string]string{
		"server/discover": discoverResult("many", "tools"),
		"tools/list":      `{"resultType":"complete","tools":[` + strings.Join(tools, ",") + `],"ttlMs":1000,"cacheScope":"private"}`,
	})
	s := startStandalone(t, "--backend", "m="+many.url)
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		got, err := s.client(version).tools()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d tools, %v; want %d in the backend's order", version, len(got), err, len(want))
		}
	}
}
