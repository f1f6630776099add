package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-mcp/weir/routes"
)

// MaxScopes is how many scopes a token may have, of whatever meaning.
const MaxScopes = 64

const scopePrefix = "mcp:"

type scopeSet uint8

const (
	scopeTools scopeSet = 1 << iota
	scopeResources
	scopePrompts
	scopeTasks

	scopeAll = scopeTools | scopeResources | scopePrompts | scopeTasks
)

// Scopes is what a token may do within its hosts; a value, compiled once per token. The zero value allows nothing.
type Scopes struct {
	granted scopeSet
	tools   []routes.Glob // empty when granted has scopeTools
}

// AllScopes allows everything.
func AllScopes() Scopes { return Scopes{granted: scopeAll} }

// ParseScopes compiles a scope claim: names separated by spaces (RFC 6749 § 3.3), of which those that start with mcp: count.
//
//	mcp:tools  mcp:resources  mcp:prompts  mcp:tasks    all of the kind
//	mcp:tools:GLOB                                      the tools whose downstream name matches
//
// They are a union. Without any mcp: scope everything is allowed, or nothing if require is set. An mcp: scope that is unknown or whose
// glob is invalid grants nothing, but is one: the token was meant to be narrow. Resource templates count as resources. The
// error is for more than MaxScopes names.
func ParseScopes(claim string, require bool) (Scopes, error) {
	var s Scopes
	narrowed, n := require, 0
	for name := range strings.SplitSeq(claim, " ") {
		if name == "" {
			continue
		}
		if n++; n > MaxScopes {
			return Scopes{}, fmt.Errorf("more than %d scopes", MaxScopes)
		}
		rest, ok := strings.CutPrefix(name, scopePrefix)
		if !ok {
			continue
		}
		narrowed = true
		switch kind, glob, hasGlob := strings.Cut(rest, ":"); {
		case kind == "tools" && hasGlob:
			if g, err := routes.ParseGlob(glob); err == nil {
				s.tools = append(s.tools, g)
			}
		case hasGlob: // only tools are narrowed by name
		case kind == "tools":
			s.granted |= scopeTools
		case kind == "resources":
			s.granted |= scopeResources
		case kind == "prompts":
			s.granted |= scopePrompts
		case kind == "tasks":
			s.granted |= scopeTasks
		}
	}
	if !narrowed {
		return AllScopes(), nil
	}
	if s.granted&scopeTools != 0 {
		s.tools = nil
	}
	return s, nil
}

// AllowsKind reports whether a kind's list may be asked for at all (any of its names).
func (s Scopes) AllowsKind(k routes.Kind) bool {
	return s.grants(k) || k == routes.KindTool && len(s.tools) > 0
}

// Allows reports whether this downstream name may be called, or shown in a list.
func (s Scopes) Allows(k routes.Kind, name string) bool {
	return s.grants(k) || k == routes.KindTool && slices.ContainsFunc(s.tools, func(g routes.Glob) bool { return g.Match(name) })
}

// AllowsAllTools reports whether every tool may be called, whatever its name.
func (s Scopes) AllowsAllTools() bool {
	return s.grants(routes.KindTool) || slices.ContainsFunc(s.tools, func(g routes.Glob) bool { return strings.Trim(g.String(), "*") == "" })
}

// AllowsTasks reports whether task methods may be called.
func (s Scopes) AllowsTasks() bool { return s.granted&scopeTasks != 0 }

// Equal reports whether both were compiled from the same grants, in the same order.
func (s Scopes) Equal(o Scopes) bool {
	return s.granted == o.granted && slices.Equal(s.tools, o.tools)
}

func (s Scopes) grants(k routes.Kind) bool {
	switch k {
	case routes.KindTool:
		return s.granted&scopeTools != 0
	case routes.KindPrompt:
		return s.granted&scopePrompts != 0
	case routes.KindResource, routes.KindResourceTemplate:
		return s.granted&scopeResources != 0
	}
	return false
}
