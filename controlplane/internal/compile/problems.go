package compile

import (
	"fmt"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
)

// Problem is a mistake that the plane survives. Code is stable: docs/problems.md explains each one.
type Problem struct {
	Code    string           `json:"code"`
	Host    routes.HostID    `json:"host,omitempty"`
	Backend routes.BackendID `json:"backend,omitempty"`
	Subject string           `json:"subject,omitempty"` // the name, URI or template in question
	Text    string           `json:"text"`
}

// The codes of problems: those of the compiler, then those that other parts of the plane report in the same form.
const (
	CodeBackendUndefined  = "backend_undefined"
	CodeBackendUnheard    = "backend_unheard"
	CodeStdioUnsupported  = "stdio_unsupported"
	CodeListStale         = "list_stale"
	CodeItemRejected      = "item_rejected"
	CodeItemDuplicate     = "item_duplicate"
	CodeNameTaken         = "name_taken"
	CodeURITaken          = "uri_taken"
	CodeAliasUnused       = "alias_unused"
	CodeTemplateRefused   = "template_refused"
	CodeTooManyTemplates  = "too_many_templates"
	CodeInstructionsCut   = "instructions_cut"
	CodeMoreProblems      = "more_problems"
	CodeBackendDown       = "backend_down"
	CodeBackendChanged    = "backend_changed"
	CodeToolChanged       = "tool_changed"
	CodeToolWithheld      = "tool_withheld"
	CodeHostHeld          = "host_held"
	CodeConfigNotReloaded = "config_not_reloaded"
	CodeRestartNeeded     = "restart_needed"
	CodeDocumentInvalid   = "document_invalid"
	CodeNotPublished      = "not_published"
	CodeRedisEvicts       = "redis_evicts"
	CodeSourceStale       = "source_stale"
	CodeSourceRefused     = "source_refused"
)

// maxProblems bounds the problems of one backend, and of one host: a backend may list any number of bad items.
const maxProblems = 1000

// appendProblem keeps the first 1,000 problems, and says that there are more.
func appendProblem(list []Problem, p Problem) []Problem {
	switch {
	case len(list) < maxProblems:
		return append(list, p)
	case len(list) == maxProblems:
		return append(list, Problem{Code: CodeMoreProblems, Host: p.Host, Backend: p.Backend, Text: "there are more problems than are shown"})
	}
	return list
}

// backendProblems are the faults of what a backend lists; none while it was never heard of.
func backendProblems(id routes.BackendID, cat *catalog.Catalog) []Problem {
	if cat == nil {
		return nil
	}
	var out []Problem
	add := func(code, subject, format string, args ...any) {
		out = appendProblem(out, Problem{Code: code, Backend: id, Subject: subject, Text: fmt.Sprintf(format, args...)})
	}
	for _, k := range []kind{kindTool, kindPrompt, kindResource, kindTemplate} {
		list := anyList(cat, k)
		if list.Stale {
			add(CodeListStale, string(k), "the list of %ss could not be read, so that the last good one is served: %s", k, list.Reason)
		}
		seen := make(map[string]bool, len(list.Items))
		for i := range list.Items {
			item := &list.Items[i]
			switch {
			case item.Reject != "":
				add(CodeItemRejected, item.Name, "the %s is not published: %s", k, item.Reject)
			case seen[item.Name]:
				add(CodeItemDuplicate, item.Name, "the backend lists this %s more than once; the first one is published", k)
			default:
				seen[item.Name] = true
			}
		}
	}
	return out
}
