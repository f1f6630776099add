// Package headers decides which headers a backend sees. It is a pure function of a backend's published config and of one
// request, in this order (DESIGN § 7): passthrough, Mcp-Param-*, add, the caller's own credentials, remove, trace context.
//
// The computed headers (Host, Content-Type, Mcp-Method and the like) are the transport's; nothing here can add, drop or
// change one of them, whatever a client sends or a config says. The verified token never travels, nor does Cookie.
package headers

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-mcp/weir/routes"
)

// ErrSecret is wrapped by Header's errors: a header whose value can't be had. The call must not be made without it.
var ErrSecret = errors.New("header value unavailable")

// Problem is a header that the config names and that is not sent as it asks.
type Problem struct {
	Field  string // passthrough, add, remove or forward_caller
	Header string
	Reason string
}

// Plan is one backend's headers, compiled once per snapshot. Immutable.
type Plan struct {
	passthrough []string // canonical
	add         []added
	forward     []forwarded
	remove      map[string]bool // folded
}

// added is one header that the config sets.
type added struct {
	name, folded string
	value        string
	reference    bool // value holds secret references
	refused      bool // and must not: the source of this config is not the operator
}

// forwarded is one upstream header that a header of the caller feeds.
type forwarded struct{ name, folded, from string }

// Compile checks what the config of one backend says about headers. References must be told apart by the caller: hasReference
// reports whether a value contains one.
func Compile(b *routes.Backend, hasReference func(string) bool) (*Plan, []Problem) {
	c := compiler{plan: &Plan{remove: map[string]bool{}}}
	for _, name := range b.PassthroughHeaders {
		if c.usable("passthrough", name, name) {
			c.plan.passthrough = append(c.plan.passthrough, http.CanonicalHeaderKey(name))
		}
	}
	slices.Sort(c.plan.passthrough)
	c.plan.passthrough = slices.Compact(c.plan.passthrough)
	for _, name := range slices.Sorted(maps.Keys(b.AddHeaders)) {
		value := string(b.AddHeaders[name])
		reference := hasReference(value)
		switch {
		case !c.usable("add", name, ""):
			continue
		case !reference && !validValue(value):
			c.problem("add", name, "the value has characters that no header may carry")
			continue
		}
		a := added{name: http.CanonicalHeaderKey(name), folded: routes.FoldHeader(name), value: value, reference: reference}
		if reference && b.Discovered {
			a.refused = true
			c.problem("add", name, "a discovered backend may not refer to secrets")
		}
		c.plan.add = append(c.plan.add, a)
	}
	for _, name := range slices.Sorted(maps.Keys(b.ForwardCaller)) {
		if from := b.ForwardCaller[name]; c.usable("forward_caller", name, from) {
			c.plan.forward = append(c.plan.forward,
				forwarded{http.CanonicalHeaderKey(name), routes.FoldHeader(name), http.CanonicalHeaderKey(from)})
		}
	}
	for _, name := range b.RemoveHeaders {
		if c.usable("remove", name, "") {
			c.plan.remove[routes.FoldHeader(name)] = true
		}
	}
	return c.plan, c.problems
}

type compiler struct {
	plan     *Plan
	problems []Problem
}

func (c *compiler) problem(field, header, reason string) {
	c.problems = append(c.problems, Problem{field, header, reason})
}

// usable reports whether the config may set the header name from the caller's header from ("": from nothing of the caller's).
func (c *compiler) usable(field, name, from string) bool {
	switch {
	case !validName(name) || from != "" && !validName(from):
		c.problem(field, name, "not a header name")
	case from != "" && secretOfCaller(from):
		c.problem(field, name, fmt.Sprintf("the caller's %s never travels", http.CanonicalHeaderKey(from)))
	case protected(name):
		c.problem(field, name, "the header is protected")
	case from != "" && protected(from):
		c.problem(field, name, fmt.Sprintf("the caller's %s is protected", http.CanonicalHeaderKey(from)))
	default:
		return true
	}
	return false
}

// Input is what one call brings.
type Input struct {
	// Caller is the client's header; read only.
	Caller http.Header
	// Params are the Mcp-Param-* headers computed from the arguments; nil: none.
	Params http.Header
	// ForwardParams passes on those of the caller that the tool's schema does not know, as the specification asks of whoever
	// does not recognise them (2026-07-28, basic/transports/streamable-http, Server Behavior for Custom Headers).
	ForwardParams bool
	// Expand resolves secret references; see secret.Resolver.
	Expand func(string) (string, error)
	// SpanID is eight random bytes, asked for only where a trace is continued.
	SpanID func() [8]byte
}

// Header returns the headers of one call; nil when there are none. Its errors wrap ErrSecret and name the header, never a
// value.
func (p *Plan) Header(in Input) (http.Header, error) {
	var out http.Header
	put := func(name string, values ...string) {
		if out == nil {
			out = make(http.Header, len(p.passthrough)+len(p.add)+len(p.forward)+len(in.Params)+2)
		}
		out[name] = append(out[name], values...)
	}
	caller := from(in.Caller)
	for _, name := range p.passthrough {
		if values := caller.values(name); len(values) > 0 {
			put(name, values...)
		}
	}
	for name, values := range in.Params {
		put(name, values...)
	}
	if in.ForwardParams {
		for name := range in.Caller {
			if strings.HasPrefix(name, paramPrefix) && !computed(in.Params, name) {
				if values := caller.values(name); len(values) > 0 && validName(name) {
					put(name, values...)
				}
			}
		}
	}
	for _, a := range p.add {
		value := a.value
		if a.reference {
			var err error
			if value, err = a.expand(in.Expand); err != nil {
				return nil, err
			}
		}
		drop(out, a.folded)
		put(a.name, value)
	}
	for _, f := range p.forward {
		if values := caller.values(f.from); len(values) > 0 {
			drop(out, f.folded)
			put(f.name, values...)
		}
	}
	if len(p.remove) > 0 {
		maps.DeleteFunc(out, func(name string, _ []string) bool { return p.remove[routes.FoldHeader(name)] })
	}
	if parent, state := caller.trace(in.SpanID); parent != "" {
		put(traceParent, parent)
		if state != "" {
			put(traceState, state)
		}
	}
	return out, nil
}

func (a added) expand(expand func(string) (string, error)) (string, error) {
	if a.refused || expand == nil {
		return "", fmt.Errorf("header %s: references are refused: %w", a.name, ErrSecret)
	}
	value, err := expand(a.value)
	if err != nil {
		return "", fmt.Errorf("header %s: %w: %w", a.name, ErrSecret, err)
	}
	if !validValue(value) {
		return "", fmt.Errorf("header %s: the secret has characters that no header may carry: %w", a.name, ErrSecret)
	}
	return value, nil
}

const paramPrefix = "Mcp-Param-"

// computed reports whether a backend might take name for one of params.
func computed(params http.Header, name string) bool {
	folded := routes.FoldHeader(name)
	for param := range params {
		if routes.FoldHeader(param) == folded {
			return true
		}
	}
	return false
}

// drop deletes every header that a backend might take for the one whose folded name is given.
func drop(h http.Header, folded string) {
	for name := range h {
		if len(name) == len(folded) && routes.FoldHeader(name) == folded {
			delete(h, name)
		}
	}
}

// callerHeader is the client's header as far as it may be looked at.
type callerHeader struct {
	header http.Header
	hop    []string // folded names that Connection lists
}

func from(h http.Header) callerHeader {
	c := callerHeader{header: h}
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" {
				c.hop = append(c.hop, routes.FoldHeader(name))
			}
		}
	}
	return c
}

// values returns what the client sent under a canonical name, as far as it may travel.
func (c callerHeader) values(name string) []string {
	values := c.header[name]
	if len(values) == 0 || len(c.hop) > 0 && slices.Contains(c.hop, routes.FoldHeader(name)) {
		return nil
	}
	if !slices.ContainsFunc(values, c.withheld) {
		return values
	}
	return slices.DeleteFunc(slices.Clone(values), c.withheld)
}

// withheld reports whether a value must not travel: no header may carry it, or it repeats the verified token.
func (c callerHeader) withheld(value string) bool {
	if !validValue(value) {
		return true
	}
	for _, line := range c.header["Authorization"] {
		_, token, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found {
			token = line
		}
		token = strings.TrimSpace(token)
		if token != "" && (value == token || len(token) >= minToken && strings.Contains(value, token)) {
			return true
		}
	}
	return false
}

// minToken is from which length on a token is looked for inside other values: no signed token is shorter, and a short word
// would be found everywhere.
const minToken = 16
