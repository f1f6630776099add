package compile

import (
	"cmp"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/weir-mcp/weir/routes"
)

// Bounds of a host's instructions, in bytes: they end up in a model's context.
const (
	maxInstructions        = 32 << 10
	maxBackendInstructions = 8 << 10
)

// capabilities is the union of what the members offer, of what Weir serves: the kinds, with listChanged, since what is published is
// announced, whatever the backends announce; subscribe, completions, logging and tasks where a member has them (ServerCapabilities of
// the schema, 2026-07-28; SEP-2663). Legacy clients are shown less, and tasks in their own way.
func capabilities(members []member, doc *routes.VirtualHost) json.RawMessage {
	type list struct {
		ListChanged bool `json:"listChanged"`
		Subscribe   bool `json:"subscribe,omitempty"`
	}
	var out struct {
		Completions *struct{}           `json:"completions,omitempty"`
		Extensions  map[string]struct{} `json:"extensions,omitempty"`
		Logging     *struct{}           `json:"logging,omitempty"`
		Prompts     *list               `json:"prompts,omitempty"`
		Resources   *list               `json:"resources,omitempty"`
		Tools       *list               `json:"tools,omitempty"`
	}
	declared := func(name string) bool {
		for i := range members {
			if members[i].cat == nil {
				continue
			}
			if _, ok := objectOf(members[i].cat.Capabilities)[name]; ok {
				return true
			}
		}
		return false
	}
	if len(doc.Tools) > 0 || declared("tools") {
		out.Tools = &list{ListChanged: true}
	}
	if len(doc.Prompts) > 0 || declared("prompts") {
		out.Prompts = &list{ListChanged: true}
	}
	if len(doc.Resources)+len(doc.ResourceTemplates)+len(doc.ResourcePrefixes) > 0 || declared("resources") {
		out.Resources = &list{ListChanged: true}
	}
	for i := range members {
		if members[i].route.Capabilities.Completions {
			out.Completions = &struct{}{}
		}
		if members[i].route.Capabilities.Logging {
			out.Logging = &struct{}{}
		}
		if members[i].route.Capabilities.Tasks && members[i].route.Protocol > routes.LegacyTasksVersion {
			out.Extensions = map[string]struct{}{tasksExtension: {}}
		}
		if members[i].route.Capabilities.Subscribe && out.Resources != nil {
			out.Resources.Subscribe = true
		}
	}
	return mustJSON(out)
}

// serverInfo is how a host introduces itself (Implementation of the schema, 2026-07-28).
func serverInfo(host routes.HostID, version string) json.RawMessage {
	return mustJSON(struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}{"weir/" + string(host), cmp.Or(version, "dev")})
}

// instructions joins what the backends say of themselves, in the order of the host's list, each text once, bounded.
func (c *hostCompiler) instructions(members []member) string {
	var parts []string
	said := make(map[string]bool)
	room := maxInstructions
	for i := range members {
		cat := members[i].cat
		if cat == nil {
			continue
		}
		text := strings.TrimSpace(cat.Instructions)
		if text == "" || said[text] {
			continue
		}
		said[text] = true
		kept := cut(text, min(room, maxBackendInstructions))
		if len(kept) < len(text) {
			c.problem(CodeInstructionsCut, members[i].use.Name, "", "the backend's instructions are too long and were cut")
		}
		if kept != "" {
			parts = append(parts, kept)
			room = max(0, room-len(kept)-len(separator))
		}
	}
	return strings.Join(parts, separator)
}

const separator = "\n\n"

// cut shortens s to at most n bytes, at the end of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// mustJSON encodes a struct of strings and structs, which can't fail.
func mustJSON(v any) json.RawMessage {
	doc, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return doc
}
