package wire

import (
	"slices"
	"strings"
)

// difference is a known one between the endpoint and the SDK's handler (v1.8.0), with what each answers. Ids are left out of
// the answers when the names say which exchanges are meant.
type difference struct {
	why    string
	ours   string
	theirs string
	names  []string // the exchanges; nil: all whose names begin with prefix
	prefix string
}

func (d difference) covers(name, ours, theirs string) bool {
	if d.names != nil && !slices.Contains(d.names, name) || !strings.HasPrefix(name, d.prefix) {
		return false
	}
	return withoutID(ours) == d.ours && withoutID(theirs) == d.theirs
}

func withoutID(answer string) string {
	before, _, _ := strings.Cut(answer, " id ")
	return before
}

func knownDifferences() []difference {
	return []difference{
		{
			why:  "a refusal of the parser is a JSON-RPC error, not plain text",
			ours: "400 -32700", theirs: "400",
			prefix: "body: ",
		},
		{
			why:  "the same, for what is JSON and no message",
			ours: "400 -32600", theirs: "400",
			prefix: "body: ",
		},
		{
			why:  "Accept without both types is 406 (DESIGN § 7), not 400",
			ours: "406", theirs: "400",
			prefix: "accept: ",
		},
		{
			why:  "q=0 takes a type away (RFC 9110, section 12.4.2)",
			ours: "406", theirs: "200 result",
			names: []string{"accept: application/json;q=0, text/event-stream"},
		},
		{
			why:  "known names in another case are refused in params",
			ours: "400 -32600", theirs: "200 -32602",
			names: []string{"body: Name beside name in params"},
		},
		{
			why:  "a _meta that is no object speaks of the call: -32602, for a legacy client with 200",
			ours: "200 -32602", theirs: "400",
			names: []string{"body: _meta as a string", "body: _meta null"},
		},
		{
			why:  "responses of a client are refused: no stream of ours asks anything, and 2026-07-28 forbids them",
			ours: "400 -32600", theirs: "202",
			names: []string{"body: a response", "body: an error response", "body: no method"},
		},
		{
			why:  "the task methods have an Mcp-Name (SEP-2663); the SDK does not know them",
			ours: "400 -32020", theirs: "404 -32601",
			names: []string{"header: a task's cancel with another name", "header: a task's update without a name"},
		},
		{
			why:  `an empty Mcp-Name is the name "" and not a missing one`,
			ours: "400 -32602", theirs: "400 -32020",
			names: []string{"header: an empty name"},
		},
		{
			why:  "Mcp-Name is decoded before it is compared (a MUST that the SDK lacks)",
			ours: "200 result", theirs: "400 -32020",
			names: []string{"header: the name in Base64"},
		},
		{
			why:  "the same: an unencoded sentinel is decoded, and then it differs",
			ours: "400 -32020", theirs: "400 -32602",
			names: []string{"header: an unencoded sentinel"},
		},
		{
			why:  "bytes beyond ASCII are invalid characters in a header",
			ours: "400 -32020", theirs: "400 -32602",
			names: []string{"header: raw UTF-8"},
		},
		{
			why:  "every repeat of a header must match",
			ours: "400 -32020", theirs: "200 result",
			names: []string{"header: different repeats", "header: different repeats of the method", "param: different repeats", "version: different repeats", "version: different repeats of legacy versions"},
		},
		{
			why:  "ids keep their text; the SDK reads numbers into int64 and float64",
			ours: "200 result", theirs: "200 result",
			prefix: "id: ",
		},
		{
			why:  "the same, modern",
			ours: "200 result", theirs: "200 result",
			prefix: "modern id: ",
		},
		{
			why:  "a method that legacy does not have is -32601 with 200, not plain text",
			ours: "200 -32601", theirs: "400",
			names: []string{"legacy: Tools/List", "legacy: nonsense"},
		},
		{
			why:  "every notification is 202",
			ours: "202", theirs: "400",
			names: []string{"legacy: notifications/nonsense", "modern: notifications/nonsense"},
		},
		{
			why:  "an unknown resource is -32002 to a legacy client, as its revision says",
			ours: "200 -32002", theirs: "200 -32602",
			names: []string{"legacy: resources/read"},
		},
		{
			why:  "arguments in another case along x-mcp-header paths are refused",
			ours: "400 -32600", theirs: "200 result",
			names: []string{"param: REGION alone", "param: Region beside region", "param: a folded name inside", "param: a folded name on the way"},
		},
		{
			why:  "integers are compared exactly, not as doubles",
			ours: "400 -32020", theirs: "200 result",
			names: []string{"param: a fraction beyond a double's eye"},
		},
		{
			why:  "an empty header is there: an empty string needs it (SEP-2243), an absent argument must not have it",
			ours: "200 result", theirs: "400 -32020",
			names: []string{"param: an empty string"},
		},
		{
			why:  "the same, the other way",
			ours: "400 -32020", theirs: "200 result",
			names: []string{"param: absent with an empty header"},
		},
		{
			why:  "bytes beyond ASCII in a parameter's header",
			ours: "400 -32020", theirs: "200 result",
			names: []string{"param: bytes beyond ASCII"},
		},
		{
			why:  "2024-11-05 had another transport and is not served",
			ours: "400 -32022", theirs: "200 result",
			names: []string{"version: a legacy header that is not served"},
		},
		{
			why:  "a notification needs no headers: 2026-07-28 defines none for them",
			ours: "202", theirs: "400 -32020",
			names: []string{"version: a notification with a version in _meta alone"},
		},
		{
			why:  "a version that is not served is refused for notifications too",
			ours: "400 -32022", theirs: "202",
			names: []string{"version: a notification with an unknown header"},
		},
		{
			why:  "a version in _meta that is null makes the request modern, and malformed",
			ours: "400 -32602", theirs: "200 result",
			names: []string{"version: a version that is null"},
		},
		{
			why:  "a version that nobody serves is -32022 also when it is older than 2026-07-28",
			ours: "400 -32022", theirs: "400",
			names: []string{"version: both equal and unknown"},
		},
	}
}
