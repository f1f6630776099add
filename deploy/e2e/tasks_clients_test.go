package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

// followTasks has the official client of tasks call tools that answer with tasks: of the MCP project's own server, which is legacy, and
// of the demo backend, which is modern; every is a Weir before the former.
func (n npmTools) followTasks(t *testing.T, every *standalone) {
	t.Helper()
	demo := start(t, "weir-demo", "--listen", "127.0.0.1:0")
	jobs := startStandalone(t, "--backend", "jobs="+demo.ready["jobs"])
	for name, tt := range map[string]struct {
		weir                       *standalone
		tool, arguments, mode, era string
		want                       string
	}{
		"a task of the reference server": {every, "every__simulate-research-query", `{"topic":"weirs"}`, "legacy", "legacy", "Research Report: weirs"},
		"a task that works":              {jobs, "jobs__work", `{"seconds":1}`, "auto", "modern", "worked for 1 s"},
		"a task that asks":               {jobs, "jobs__introduce", `{}`, "auto", "modern", "Hello, Zoë!"},
	} {
		var got struct{ Era, Text string }
		out := n.run(t, n.node, "tasks.mjs", tt.weir.url(), tt.weir.token, tt.tool, tt.arguments, tt.mode)
		if err := json.Unmarshal(out, &got); err != nil || got.Era != tt.era || !strings.Contains(got.Text, tt.want) {
			t.Errorf("%s: %s, %v; want %q from a %s client", name, out, err, tt.want, tt.era)
		}
	}
}
