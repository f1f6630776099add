package compile

import (
	"encoding/json"
	"testing"
)

func TestTasksAreDeclaredInTheWayOfTheVersion(t *testing.T) {
	const extension, old = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, `{"tasks":{"list":{},"requests":{"tools":{"call":{}}}}}`
	for name, tt := range map[string]struct {
		protocol, caps string
		want           bool
	}{
		"a modern backend with the extension":               {"2026-07-28", extension, true},
		"a later one":                                       {"2027-03-01", extension, true},
		"a modern backend with the old capability":          {"2026-07-28", old, false},
		"a backend of 2025-11-25 with the capability":       {"2025-11-25", old, true},
		"a backend of 2025-11-25 with the extension":        {"2025-11-25", extension, false},
		"one that lists tasks, and makes none of tools":     {"2025-11-25", `{"tasks":{"list":{},"cancel":{}}}`, false},
		"one whose capability is broken":                    {"2025-11-25", `{"tasks":{"requests":[]}}`, false},
		"an older backend, whatever it says":                {"2025-06-18", old, false},
		"a backend that declares nothing":                   {"2026-07-28", `{}`, false},
		"a backend whose declaration is not even an object": {"2026-07-28", `[]`, false},
	} {
		if got := backendCapabilities(tt.protocol, json.RawMessage(tt.caps)).Tasks; got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
