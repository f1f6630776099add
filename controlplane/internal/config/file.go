package config

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weir-mcp/weir/deploy/process"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/redisstore"
)

// file is the file as written. docs/config.md is checked against its tags by a test.
type file struct {
	Redis          redisstore.Config     `yaml:"redis"`
	Listen         string                `yaml:"listen"`
	AdminListen    string                `yaml:"admin_listen"`
	OpsListen      string                `yaml:"ops_listen"`
	TLS            process.ListenTLS     `yaml:"tls"`
	Admin          tokenBlock            `yaml:"admin"`
	Internal       tokenBlock            `yaml:"internal"`
	PublicURL      string                `yaml:"public_url"`
	AllowedOrigins []string              `yaml:"allowed_origins"`
	AllowedHosts   []string              `yaml:"allowed_hosts"`
	Auth           access.Config         `yaml:"auth"`
	ConfigVersion  int64                 `yaml:"config_version"`
	Discovery      discoveryBlock        `yaml:"discovery"`
	Listing        listingBlock          `yaml:"listing"`
	Sources        ordered[sourceBlock]  `yaml:"sources"`
	Backends       ordered[backendBlock] `yaml:"backends"`
	VirtualHosts   ordered[hostBlock]    `yaml:"virtual_hosts"`
	Plugins        []pluginBlock         `yaml:"plugins"`
	LogLevel       string                `yaml:"log_level"`
}

// Defaults of the file.
const (
	defaultListen      = "127.0.0.1:8081"
	defaultAdminListen = "127.0.0.1:8082"
	defaultOpsListen   = "127.0.0.1:9081"
	defaultInterval    = time.Minute
	defaultTimeout     = 10 * time.Second
	defaultParallel    = 16
	defaultPageSize    = 1000
	defaultKeyPrefix   = "weir:"
)

func defaults() file {
	return file{
		Redis:  redisstore.Config{KeyPrefix: defaultKeyPrefix},
		Listen: defaultListen, AdminListen: defaultAdminListen,
		OpsListen: defaultOpsListen,
		Discovery: discoveryBlock{Interval: defaultInterval, Timeout: defaultTimeout, Parallel: defaultParallel},
		Listing:   listingBlock{PageSize: defaultPageSize},
		LogLevel:  "info",
	}
}

type tokenBlock struct {
	Token string `yaml:"token"`
}

type discoveryBlock struct {
	Interval time.Duration `yaml:"interval"`
	Timeout  time.Duration `yaml:"timeout"`
	Parallel int           `yaml:"parallel"`
}

type sourceBlock struct {
	HTTP         *httpSourceBlock       `yaml:"http"`
	Kubernetes   *kubernetesSourceBlock `yaml:"kubernetes"`
	AllowPrivate bool                   `yaml:"allow_private"`
}

type httpSourceBlock struct {
	URL      string            `yaml:"url"`
	Headers  map[string]string `yaml:"headers"`
	Interval time.Duration     `yaml:"interval"`
	Timeout  time.Duration     `yaml:"timeout"`
	TLS      routes.TLS        `yaml:"tls"`
}

type kubernetesSourceBlock struct {
	Kubeconfig string `yaml:"kubeconfig"`
	Namespace  string `yaml:"namespace"`
	Selector   string `yaml:"selector"`
}

type listingBlock struct {
	PageSize int `yaml:"page_size"`
}

type backendBlock struct {
	URL      string        `yaml:"url"`
	Headers  headersBlock  `yaml:"headers"`
	Timeouts timeoutsBlock `yaml:"timeouts"`
	TLS      routes.TLS    `yaml:"tls"`
	Pin      string        `yaml:"pin"`
	Stdio    *stdioBlock   `yaml:"stdio"`
}

type headersBlock struct {
	Passthrough   []string          `yaml:"passthrough"`
	Add           map[string]string `yaml:"add"`
	Remove        []string          `yaml:"remove"`
	Credentials   map[string]string `yaml:"credentials"`
	ForwardCaller map[string]string `yaml:"forward_caller"`
}

type timeoutsBlock struct {
	Connect  time.Duration `yaml:"connect"`
	Response time.Duration `yaml:"response"`
	Idle     time.Duration `yaml:"idle"`
	Total    time.Duration `yaml:"total"`
}

type stdioBlock struct {
	Command string            `yaml:"command"`
	Args    []string          `yaml:"args"`
	Env     map[string]string `yaml:"env"`
}

type hostBlock struct {
	Backends []hostBackendBlock `yaml:"backends"`
	Tasks    tasksBlock         `yaml:"tasks"`
}

type hostBackendBlock struct {
	Name      string         `yaml:"name"`
	Source    string         `yaml:"source"`
	Match     string         `yaml:"match"`
	Prefix    string         `yaml:"prefix"`
	Tools     filterBlock    `yaml:"tools"`
	Prompts   filterBlock    `yaml:"prompts"`
	Resources resourcesBlock `yaml:"resources"`
}

type filterBlock struct {
	Allow []string          `yaml:"allow"`
	Deny  []string          `yaml:"deny"`
	Alias map[string]string `yaml:"alias"`
}

type resourcesBlock struct {
	Allow    []string `yaml:"allow"`
	Deny     []string `yaml:"deny"`
	Prefixes []string `yaml:"prefixes"`
}

type tasksBlock struct {
	Unrecorded string `yaml:"unrecorded"`
	NotFound   int    `yaml:"not_found"`
}

type pluginBlock struct {
	Name     string        `yaml:"name"`
	Kind     string        `yaml:"kind"`
	Hooks    []string      `yaml:"hooks"`
	Mode     string        `yaml:"mode"`
	Priority int           `yaml:"priority"`
	Timeout  time.Duration `yaml:"timeout"`
	OnError  string        `yaml:"on_error"`
	When     whenBlock     `yaml:"when"`
	Settings yaml.Node     `yaml:"settings"`
}

type whenBlock struct {
	Hosts []string `yaml:"hosts"`
	Tools []string `yaml:"tools"`
}

// ordered is a mapping that keeps the order of the file.
type ordered[T any] []entry[T]

type entry[T any] struct {
	Key   string
	Value T
}

// UnmarshalYAML decodes a mapping. Its duplicates were reported and taken out by process.DecodeYAML.
func (o *ordered[T]) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: want a mapping", n.Line)}}
	}
	var problems []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		e := entry[T]{Key: n.Content[i].Value}
		if n.Content[i].Kind != yaml.ScalarNode {
			problems = append(problems, fmt.Sprintf("line %d: want a name", n.Content[i].Line))
			continue
		}
		for _, p := range process.Problems(process.DecodeNode(n.Content[i+1], e.Key, &e.Value)) {
			problems = append(problems, p.Error())
		}
		*o = append(*o, e)
	}
	if problems != nil {
		return &yaml.TypeError{Errors: problems}
	}
	return nil
}
