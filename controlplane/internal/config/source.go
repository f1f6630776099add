package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/secret"
)

// Source is one entry of sources: where backends come from that the file does not name. Exactly one of the kinds is set.
type Source struct {
	Name       string
	HTTP       *HTTPSource
	Kubernetes *KubernetesSource
	// AllowPrivate lets its backends have loopback and private addresses.
	AllowPrivate bool
}

// The kinds of sources.
const (
	KindHTTP       = "http"
	KindKubernetes = "kubernetes"
)

// Kind names the kind that is set.
func (s *Source) Kind() string {
	if s.Kubernetes != nil {
		return KindKubernetes
	}
	return KindHTTP
}

// HTTPSource is a JSON document that is polled.
type HTTPSource struct {
	URL string
	// Headers are sent with each request; values may hold references.
	Headers  map[string]string
	Interval time.Duration // between two requests
	Timeout  time.Duration // of one request
	TLS      routes.TLS
}

// KubernetesSource is Services of a cluster.
type KubernetesSource struct {
	Kubeconfig string // path; empty: what a pod is given
	Namespace  string // empty: all
	Selector   string // of labels; empty: all Services that are annotated
}

// Bounds of sources.
const (
	defaultPoll        = 30 * time.Second
	defaultPollTimeout = 10 * time.Second
	minPoll            = 100 * time.Millisecond
	maxPoll            = 24 * time.Hour
	maxPollTimeout     = time.Minute
	maxSources         = 64
)

func (c *checker) sources(in ordered[sourceBlock]) (out []Source) {
	if len(in) > maxSources {
		c.fault("sources", "%d are more than %d", len(in), maxSources)
		return nil
	}
	for _, e := range in {
		out = append(out, c.source(e))
	}
	return out
}

func (c *checker) source(e entry[sourceBlock]) Source {
	path, b := "sources."+e.Key, &e.Value
	out := Source{Name: e.Key, AllowPrivate: b.AllowPrivate}
	if !routes.ValidID(e.Key) {
		c.fault(path, "%q can't name a source: %s", e.Key, idGrammar)
	}
	switch {
	case b.HTTP != nil && b.Kubernetes != nil:
		c.fault(path, "http and kubernetes exclude each other")
	case b.HTTP != nil:
		out.HTTP = c.httpSource(path+".http", b.HTTP)
	case b.Kubernetes != nil:
		out.Kubernetes = c.kubernetesSource(path+".kubernetes", b.Kubernetes)
		if !b.AllowPrivate {
			c.warn(CodeUnused, path, "Services have private addresses, which are refused: without allow_private none of them can be called")
		}
	default:
		c.fault(path, "http or kubernetes is required")
	}
	return out
}

func (c *checker) httpSource(path string, b *httpSourceBlock) *HTTPSource {
	out := &HTTPSource{
		URL: b.URL, Headers: b.Headers, TLS: b.TLS,
		Interval: cmp.Or(b.Interval, defaultPoll), Timeout: cmp.Or(b.Timeout, defaultPollTimeout),
	}
	if b.URL == "" {
		c.fault(path+".url", "is required")
	} else {
		c.clientTLS(path+".tls", b.TLS, c.backendURL(path+".url", b.URL))
	}
	for _, name := range sortedKeys(b.Headers) {
		c.sourceHeader(path+".headers."+name, name, b.Headers[name])
	}
	if out.Interval < minPoll || out.Interval > maxPoll {
		c.fault(path+".interval", "%v is not between %v and %v", out.Interval, minPoll, maxPoll)
	}
	if out.Timeout < 0 || out.Timeout > maxPollTimeout {
		c.fault(path+".timeout", "%v is not above 0 and up to %v", out.Timeout, maxPollTimeout)
	}
	return out
}

// sourceHeader checks a header of requests to a source. Those that HTTP itself computes, and the condition, are not to be set.
func (c *checker) sourceHeader(path, name, value string) {
	switch {
	case !c.headerName(path, name):
		return
	case slices.ContainsFunc([]string{"Host", "Content-Length", "Accept", "Accept-Encoding", "If-None-Match", "Connection", "Transfer-Encoding"},
		func(own string) bool { return strings.EqualFold(own, name) }):
		c.fault(path, "is Weir's own to set")
	}
	if strings.EqualFold(name, "Authorization") {
		c.literal(path, value)
	}
	c.headerValue(path, value)
}

func (c *checker) kubernetesSource(path string, b *kubernetesSourceBlock) *KubernetesSource {
	for _, f := range []struct{ field, value string }{{"kubeconfig", b.Kubeconfig}, {"namespace", b.Namespace}, {"selector", b.Selector}} {
		if secret.HasReference(f.value) {
			c.fault(path+"."+f.field, "references are not expanded here")
		}
	}
	if b.Namespace != "" && (!routes.ValidID(b.Namespace) || strings.ContainsAny(b.Namespace, "._")) {
		c.fault(path+".namespace", "%q can't name a namespace", b.Namespace)
	}
	return &KubernetesSource{Kubeconfig: b.Kubeconfig, Namespace: b.Namespace, Selector: b.Selector}
}

// What may stand in the prefix of an entry that takes all of a source.
const (
	PrefixName      = "{name}"   // the backend's id
	PrefixSuggested = "{prefix}" // what the source suggests for the backend; where it suggests nothing, its id and "__"
)

// ExpandPrefix is the prefix of one backend of a source; an error says why it can't be one. It depends on nothing but this backend.
func ExpandPrefix(template string, b *Backend) (string, error) {
	suggested := cmp.Or(b.Route.SourcePrefix, string(b.ID)+"__")
	prefix := strings.NewReplacer(PrefixName, string(b.ID), PrefixSuggested, suggested).Replace(template)
	if err := validPrefix(prefix); err != nil {
		return "", fmt.Errorf("prefix %w", err)
	}
	return prefix, nil
}

// ValidPrefix reports why s can't be the prefix of names.
func ValidPrefix(s string) error { return validPrefix(s) }

// allOfSource checks an entry that takes all of a source, and returns what it matches.
func (c *checker) allOfSource(at string, b *hostBackendBlock, sources []Source) routes.Glob {
	switch {
	case b.Source == "":
		c.fault(at+".match", "is for an entry with source")
	case b.Name != "":
		c.fault(at, "name and source exclude each other")
	case !slices.ContainsFunc(sources, func(s Source) bool { return s.Name == b.Source }):
		c.fault(at+".source", "no source %q is defined", b.Source)
	}
	if err := validPrefix(strings.NewReplacer(PrefixName, "", PrefixSuggested, "").Replace(b.Prefix)); err != nil {
		c.fault(at+".prefix", "%w", err)
	}
	for _, f := range []struct {
		field string
		set   bool
	}{
		{"tools.alias", len(b.Tools.Alias) > 0}, {"prompts.alias", len(b.Prompts.Alias) > 0},
		{"resources.prefixes", len(b.Resources.Prefixes) > 0},
	} {
		if f.set {
			c.fault(at+"."+f.field, "is for an entry with name: backends of a source can't share it")
		}
	}
	glob, err := routes.ParseGlob(cmp.Or(b.Match, "*"))
	if err != nil {
		c.fault(at+".match", "%w", err)
	}
	return glob
}
