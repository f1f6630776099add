package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/weir-mcp/weir/routes"
)

// Kind is a kind of items.
type Kind uint8

// The kinds, in the order in which Lists returns them.
const (
	Tools Kind = iota
	Prompts
	Resources
	ResourceTemplates
	kinds
)

// String returns the name of the result's member that holds the items.
func (k Kind) String() string {
	return [...]string{"tools", "prompts", "resources", "resourceTemplates"}[k]
}

// key is the member of an item that routes to it.
func (k Kind) key() string { return [...]string{"name", "name", "uri", "uriTemplate"}[k] }

// maxName bounds what an item is called by, in bytes; URIs may have as many.
const maxName = 2 << 10

// maxReason bounds what a reason quotes of an item, in bytes.
const maxReason = 256

// Check looks at an item beyond what this package knows: it returns why the item must not be published (empty: it may), and
// whether it has x-mcp-header annotations. It is given the item's bytes and, of a tool, its input schema.
type Check func(raw, inputSchema json.RawMessage) (reject string, annotated bool)

// Items makes items of what a backend listed, in its order. Those that can't be published have a reason in Reject. Of two with
// one name the first counts. check may be nil.
func Items(k Kind, raws []json.RawMessage, check Check) []Item {
	out := make([]Item, 0, len(raws))
	seen := make(map[string]bool, len(raws))
	for _, raw := range raws {
		it := item(k, raw, check)
		if it.Reject == "" {
			if seen[it.Name] {
				it.Reject = "listed before: the first of this name counts"
			}
			seen[it.Name] = true
		}
		out = append(out, it)
	}
	return out
}

func item(k Kind, raw json.RawMessage, check Check) Item {
	it := Item{Digest: routes.Digest(raw), Raw: bytes.Clone(raw)}
	var members map[string]json.RawMessage // exact names: a struct's would match in any case
	if json.Unmarshal(raw, &members) != nil || members == nil {
		it.Reject = "not an object"
		return it
	}
	if json.Unmarshal(members[k.key()], &it.Name) != nil || it.Name == "" {
		it.Name, it.Reject = "", fmt.Sprintf("%s is missing or not a string", k.key())
		return it
	}
	if len(it.Name) > maxName {
		it.Name, it.Reject = cut(it.Name, 64), fmt.Sprintf("%s has %d bytes; at most %d are served", k.key(), len(it.Name), maxName)
		return it
	}
	// Decoders disagree on what two keys of one name mean; and one such item must not keep a whole host from being published.
	if err := routes.CheckRaw(raw); err != nil {
		it.Reject = "not strict JSON: " + cut(err.Error(), min(len(err.Error()), maxReason))
		return it
	}
	schema := members["inputSchema"]
	if k == Tools && !isObject(schema) {
		it.Reject = "inputSchema is missing or not an object"
		return it
	}
	if check != nil {
		it.Reject, it.Annotated = check(it.Raw, schema)
	}
	return it
}

func isObject(raw json.RawMessage) bool {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	return len(raw) > 0 && raw[0] == '{'
}

// cut shortens s to at most n bytes, without cutting a character in two.
func cut(s string, n int) string {
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
