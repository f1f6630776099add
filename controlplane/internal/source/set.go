package source

import (
	"fmt"
	"time"

	"github.com/weir-mcp/weir/controlplane/internal/compile"
	"github.com/weir-mcp/weir/controlplane/internal/config"
)

// Set is what is known of one source. It is read-only.
type Set struct {
	Source   string
	Backends []config.Backend // the last good ones, by id
	Refused  []Refusal        // of the last good report
	Heard    time.Time        // when it was; zero: never in this process
	Reason   string           // why the latest look failed; empty: it did not, or there was none yet
	// Settled is false while the source has not had its chance: until then nothing of what stands published is taken away.
	Settled bool
}

// Problems are the source's own; what Merge finds comes beside them.
func (s *Set) Problems(now time.Time) []compile.Problem {
	var out []compile.Problem
	switch {
	case s.Reason == "":
	case s.Heard.IsZero():
		out = append(out, compile.Problem{Code: compile.CodeSourceStale, Subject: s.Source, Text: fmt.Sprintf(
			"the source has not answered since this control plane started, what stands published of it stays (%s): %s", counted(s), s.Reason)})
	default:
		out = append(out, compile.Problem{Code: compile.CodeSourceStale, Subject: s.Source, Text: fmt.Sprintf(
			"the last good answer is %v old and stays in force (%s): %s", now.Sub(s.Heard).Round(time.Second), counted(s), s.Reason)})
	}
	const most = 100
	for i, r := range s.Refused {
		if i == most {
			out = append(out, compile.Problem{Code: compile.CodeMoreProblems, Subject: s.Source, Text: "there are more problems than are shown"})
			break
		}
		out = append(out, compile.Problem{Code: compile.CodeSourceRefused, Subject: s.Source, Text: fmt.Sprintf("%q is not taken: %s", r.Entry, r.Text)})
	}
	return out
}

func counted(s *Set) string {
	if len(s.Backends) == 1 {
		return "1 backend"
	}
	return fmt.Sprintf("%d backends", len(s.Backends))
}
