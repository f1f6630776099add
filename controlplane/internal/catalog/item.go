package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"
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
	if it.Reject = badName(k, it.Name); it.Reject != "" {
		return it
	}
	// Decoders disagree on what two keys of one name mean; and one such item must not keep a whole host from being published.
	if err := routes.CheckRaw(raw); err != nil {
		it.Reject = "not strict JSON: " + cut(err.Error(), min(len(err.Error()), maxReason))
		return it
	}
	if it.Reject = folded(members); it.Reject != "" {
		return it
	}
	schema := members["inputSchema"]
	if k == Tools {
		if it.Reject = badSchema(schema); it.Reject != "" {
			return it
		}
	}
	if check != nil {
		it.Reject, it.Annotated = check(it.Raw, schema)
	}
	return it
}

// badName says why nothing can be called so; empty: it can.
func badName(k Kind, name string) string {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return k.key() + " has a control character"
	}
	if k == Resources && !scheme.MatchString(name) {
		return "uri has no scheme, so that it is no URI (RFC 3986, section 3)"
	}
	return ""
}

var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// known are the members of items of all kinds (MCP 2026-07-28, schema).
var known = [...]string{"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta", "execution", "arguments",
	"uri", "uriTemplate", "mimeType", "size"}

// folded finds a member that some readers would take for one of the known ones, in the place of that or beside it: Go's own decoder
// does not look at case.
func folded(members map[string]json.RawMessage) string {
	for _, k := range known {
		for m := range members {
			if m != k && strings.EqualFold(m, k) {
				return fmt.Sprintf("its member %q is %q but for case, and readers disagree on what that means", cut(m, min(len(m), 64)), k)
			}
		}
	}
	return ""
}

// badSchema says why a tool's input schema is none; empty: it is one. One without a type is taken: it takes objects too.
func badSchema(raw json.RawMessage) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		return "inputSchema is missing or not an object"
	}
	var typ string
	if said, ok := members["type"]; ok && (json.Unmarshal(said, &typ) != nil || typ != "object") {
		return `inputSchema has another type than "object"`
	}
	return ""
}

// cut shortens s to at most n bytes, without cutting a character in two.
func cut(s string, n int) string {
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
