package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weir-mcp/weir/routes"
)

// The hooks, modes and on_error values of a plugin.
var (
	pluginHooks   = []string{"tool_pre", "tool_post", "prompt_pre", "prompt_post", "resource_pre", "resource_post"}
	pluginModes   = []string{"enforce", "observe", pluginDisabled}
	pluginOnError = []string{"deny", "ignore"}
)

const (
	pluginDisabled   = "disabled"
	maxPluginTimeout = time.Minute
)

// plugin checks one entry of plugins. A plugin that this build would not run is an error unless it is disabled: calls that
// the operator believes to be filtered must not pass unfiltered.
func (c *checker) plugin(path string, p *pluginBlock, before []pluginBlock) routes.PluginRef {
	out := routes.PluginRef{
		Name: p.Name, Kind: p.Kind, Hooks: p.Hooks, Mode: p.Mode, Priority: p.Priority, Timeout: p.Timeout, OnError: p.OnError,
		When: routes.PluginCondition{Hosts: p.When.Hosts, Tools: p.When.Tools},
	}
	switch {
	case p.Name == "":
		c.fault(path+".name", "is required")
	case slices.ContainsFunc(before, func(b pluginBlock) bool { return b.Name == p.Name }):
		c.fault(path+".name", "%q is the name of another plugin already", p.Name)
	}
	if p.Kind == "" {
		c.fault(path+".kind", "is required")
	}
	if out.Mode == "" {
		out.Mode = pluginModes[0]
	}
	if out.OnError == "" {
		out.OnError = pluginOnError[0]
	}
	c.oneOf(path+".mode", out.Mode, pluginModes)
	c.oneOf(path+".on_error", out.OnError, pluginOnError)
	for i, h := range p.Hooks {
		c.oneOf(indexed(path+".hooks", i), h, pluginHooks)
	}
	if p.Timeout < 0 || p.Timeout > maxPluginTimeout {
		c.fault(path+".timeout", "%v is not between 0 and %v", p.Timeout, maxPluginTimeout)
	}
	c.globs(path+".when.hosts", p.When.Hosts, false)
	c.globs(path+".when.tools", p.When.Tools, false)
	if !p.Settings.IsZero() {
		values := maxSettingsValues
		v, err := jsonValue(&p.Settings, &values, 0)
		if err == nil {
			out.Settings, err = json.Marshal(v)
		}
		if err != nil {
			c.fault(path+".settings", "%w", err)
		}
	}
	if out.Mode != pluginDisabled {
		c.fault(path, "plugins are not supported yet, so nothing would run %q; take it out or set mode: disabled", p.Kind)
	}
	return out
}

func (c *checker) oneOf(path, value string, allowed []string) {
	if !slices.Contains(allowed, value) {
		c.fault(path, "%q is none of %v", value, allowed)
	}
}

// Bounds of settings; they end the walk of anchors that multiply or contain themselves too.
const (
	maxSettingsDepth  = 64
	maxSettingsValues = 100_000
)

// jsonValue is the JSON value of a YAML node. What JSON does not have stays the text that stands in the file: a date, a
// name that is no string. values counts down.
func jsonValue(n *yaml.Node, values *int, depth int) (any, error) {
	if depth > maxSettingsDepth {
		return nil, fmt.Errorf("nested over %d levels", maxSettingsDepth)
	}
	if *values--; *values < 0 {
		return nil, fmt.Errorf("over %d values", maxSettingsValues)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return jsonValue(n.Alias, values, depth+1)
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, e := range n.Content {
			v, err := jsonValue(e, values, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Kind != yaml.ScalarNode || n.Content[i].Tag == "!!merge" {
				return nil, fmt.Errorf("line %d: want a name", n.Content[i].Line)
			}
			v, err := jsonValue(n.Content[i+1], values, depth+1)
			if err != nil {
				return nil, err
			}
			out[n.Content[i].Value] = v
		}
		return out, nil
	}
	switch n.ShortTag() {
	case "!!null", "!!bool", "!!int", "!!float":
		var v any
		err := n.Decode(&v)
		return v, err
	}
	return n.Value, nil
}
