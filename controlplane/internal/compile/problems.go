package compile

import (
	"fmt"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
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
	CodeURIRefused        = "uri_refused"
	CodeTemplateRefused   = "template_refused"
	CodeTooManyTemplates  = "too_many_templates"
	CodeInstructionsCut   = "instructions_cut"
	CodeBackendDown       = "backend_down"
	CodeConfigWarning     = "config_warning"
	CodeConfigNotReloaded = "config_not_reloaded"
	CodeDocumentInvalid   = "document_invalid"
	CodeNotPublished      = "not_published"
)

// backendProblems are the faults of a backend as such: they are reported once, however many hosts use it.
func backendProblems(b *config.Backend, cat *catalog.Catalog) []Problem {
	var out []Problem
	add := func(code, subject, text string) {
		out = append(out, Problem{Code: code, Backend: b.ID, Subject: subject, Text: text})
	}
	if cat == nil {
		return nil
	}
	for _, k := range []kind{kindTool, kindPrompt, kindResource, kindTemplate} {
		list := anyList(cat, k)
		if list.Stale {
			add(CodeListStale, string(k), fmt.Sprintf("the list of %ss could not be read; the last good one is served: %s", k, list.Reason))
		}
		seen := make(map[string]bool, len(list.Items))
		for i := range list.Items {
			item := &list.Items[i]
			switch {
			case item.Reject != "":
				add(CodeItemRejected, item.Name, fmt.Sprintf("the %s is not published: %s", k, item.Reject))
			case seen[item.Name]:
				add(CodeItemDuplicate, item.Name, fmt.Sprintf("the backend lists this %s more than once; the first one is published", k))
			default:
				seen[item.Name] = true
			}
		}
	}
	return out
}
