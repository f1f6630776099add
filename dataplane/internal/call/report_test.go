package call

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func zapOutcome(outcome string) zapcore.Field { return zap.String("outcome", outcome) }

// One line for each call, and nothing in it that is the caller's.
func TestOneLineForEachCall(t *testing.T) {
	g := newGateway(t, host(result(t, `{"resultType":"complete","content":[]}`), modern), nil)
	for i, r := range []request{
		{method: "tools/call", params: `{"name":"b__echo","arguments":{"password":"hunter2"}}`},
		{method: "tools/call", params: `{"name":"nope-nope"}`},
		{method: "evil/method"},
	} {
		g.ask(t, r)
		eventually(t, "its line", func() bool { return g.log.FilterMessage("call").Len() == i+1 }) // written after the answer
	}
	entries := g.log.FilterMessage("call").All()
	first := entries[0].ContextMap()
	for field, want := range map[string]any{
		"host": "acme", "principal": "alice", "backend": "b", "name": "echo", "method": "tools/call", "era": "modern", "outcome": "ok",
	} {
		if first[field] != want {
			t.Errorf("%s = %v, want %v", field, first[field], want)
		}
	}
	if got := entries[1].ContextMap(); got["outcome"] != "unknown_name" || got["code"] != int64(-32602) {
		t.Errorf("an unknown tool: %v", got)
	}
	for _, e := range g.log.All() {
		for k, v := range e.ContextMap() {
			if s, ok := v.(string); ok && (strings.Contains(s, "hunter2") || strings.Contains(s, "nope-nope") || strings.Contains(s, "evil")) {
				t.Errorf("the log says %s=%q", k, s)
			}
		}
	}
}

// A client can't make a metric grow.
func TestLabelsComeFromOurTables(t *testing.T) {
	g := newGateway(t, host(result(t, `{"resultType":"complete","content":[]}`), modern), nil)
	for _, method := range []string{"a/b", "c/d", "e/f"} {
		g.ask(t, request{method: method})
	}
	for _, tool := range []string{"b__echo", "x", "y", "z"} {
		g.ask(t, request{method: "tools/call", params: `{"name":"` + tool + `"}`})
	}
	eventually(t, "seven lines", func() bool { return g.log.FilterMessage("call").Len() == 7 })
	want := `
# HELP weir_calls_total Requests that were dispatched, by backend (empty: none was chosen), method and outcome.
# TYPE weir_calls_total counter
weir_calls_total{backend="",method="other",outcome="unknown_method"} 3
weir_calls_total{backend="",method="tools/call",outcome="unknown_name"} 3
weir_calls_total{backend="b",method="tools/call",outcome="ok"} 1
`
	if err := testutil.GatherAndCompare(g.reg, strings.NewReader(want), "weir_calls_total"); err != nil {
		t.Error(err)
	}
}
