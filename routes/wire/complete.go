package wire

import (
	"github.com/weir-mcp/weir/routes"
)

// Reference is what a completion/complete asks about.
type Reference struct {
	// Kind is KindPrompt for ref/prompt, KindResourceTemplate for ref/resource.
	Kind routes.Kind
	// Name is the prompt's name; or a template's text, or a URI: the request does not say which.
	Name string
}

// referenceNames are the members of ref that a backend reads; none may turn up in another case.
var referenceNames = []string{"type", "name", "uri"} // read-only

// ReferenceOf reads and checks the params of a completion/complete. The error is a -32602; or a -32600 for a member of ref that is
// named like a known one in another case: the backend might take it for the one that was checked.
// Source: MCP 2026-07-28 and 2025-11-25, server/utilities/completion (CompleteRequest).
func ReferenceOf(params Object) (Reference, *Error) {
	raw, _ := params.Get("ref")
	if !isObject(raw) {
		return Reference{}, invalidParams("ref must be an object")
	}
	ref := objectOf(raw)
	for _, m := range ref {
		if known := folded(m.Name, referenceNames); known != "" {
			return Reference{}, invalidRequest("a member of ref is named like " + known + " in another case")
		}
	}
	r, field := Reference{Kind: routes.KindPrompt}, "name"
	switch kind, _ := ref.Text("type"); kind {
	case "ref/prompt":
	case "ref/resource":
		r.Kind, field = routes.KindResourceTemplate, "uri"
	default:
		return Reference{}, invalidParams("ref.type must be ref/prompt or ref/resource")
	}
	var ok bool
	if r.Name, ok = ref.Text(field); !ok {
		return Reference{}, invalidParams("ref." + field + " must be a string")
	}
	raw, _ = params.Get("argument")
	if !isObject(raw) {
		return Reference{}, invalidParams("argument must be an object")
	}
	for _, field := range []string{"name", "value"} {
		if _, ok := objectOf(raw).Text(field); !ok {
			return Reference{}, invalidParams("argument." + field + " must be a string")
		}
	}
	return r, nil
}

// withReference puts the upstream name into the ref of a completion/complete, where it names a prompt.
func withReference(params Object, upstream string) Object {
	raw, _ := params.Get("ref")
	if !isObject(raw) {
		return params
	}
	ref := objectOf(raw)
	kind, _ := ref.Text("type")
	if name, ok := ref.Text("name"); !ok || kind != "ref/prompt" || name == upstream {
		return params
	}
	return params.With("ref", ref.With("name", Quote(upstream)).Append(nil))
}

// objectOf splits an object that was checked before.
func objectOf(raw []byte) Object {
	w := trust(raw)
	w.space()
	return w.object()
}
