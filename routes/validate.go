package routes

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxFaults bounds what Validate reports of one map, so that a broken document of a million routes has a readable error.
const maxFaults = 50

// Validate reports every fault of a document, joined, each with the path of its field, such as
//
//	tools["x"].backend: no backend "b"
//
// in an order that depends on the document only. It checks what a dataplane relies on: ids, that each route leads to a backend
// of the document, that URLs, versions, timeouts, globs and templates are usable. It does not check Incarnation, Epoch and
// Revision, which the publisher fills in, nor what belongs to other packages: secret references and plugin settings.
func (vh *VirtualHost) Validate() error {
	f := new(faults)
	if vh.Schema != SchemaVersion {
		f.add("schema", "%d is not %d", vh.Schema, SchemaVersion)
	}
	if !ValidID(string(vh.ID)) {
		f.add("id", "%q is not a valid id", vh.ID)
	}
	vh.checkOrder(f)
	checkEach(f, "backends", vh.Backends, checkBackend)
	checkEach(f, "tools", vh.Tools, vh.checkRoute)
	checkEach(f, "prompts", vh.Prompts, vh.checkRoute)
	checkEach(f, "resources", vh.Resources, vh.checkURIRoute)
	if n := len(vh.ResourceTemplates); n > MaxTemplates {
		f.add("resourceTemplates", "%d templates are over %d", n, MaxTemplates)
	}
	checkEach(f, "resourceTemplates", vh.ResourceTemplates, func(f *faults, source string, r ServiceRoute) {
		vh.checkURIRoute(f, source, r)
		if _, err := parseTemplate(source); err != nil {
			f.add("", "%v", err)
		}
	})
	checkEach(f, "resourcePrefixes", vh.ResourcePrefixes, func(f *faults, prefix string, r ServiceRoute) {
		vh.checkURIRoute(f, prefix, r)
		if err := checkScheme(prefix); err != nil {
			f.add("", "%v", err)
		}
	})
	vh.Tasks.check(f)
	checkPlugins(f, vh.Plugins)
	checkObject(f, "capabilities", vh.Capabilities)
	checkObject(f, "serverInfo", vh.ServerInfo)
	return f.join()
}

func (vh *VirtualHost) checkRoute(f *faults, name string, r ServiceRoute) {
	if name == "" {
		f.add("", "empty name")
	}
	if _, ok := vh.Backends[r.Backend]; !ok {
		f.add(".backend", "no backend %q", r.Backend)
	}
	if r.Upstream == "" {
		f.add(".upstream", "empty")
	}
}

func (vh *VirtualHost) checkURIRoute(f *faults, uri string, r ServiceRoute) {
	vh.checkRoute(f, uri, r)
	if r.Upstream != "" && r.Upstream != uri {
		f.add(".upstream", "%q differs: URIs are never rewritten", r.Upstream)
	}
}

func (vh *VirtualHost) checkOrder(f *faults) {
	seen := make(map[BackendID]bool, len(vh.Order))
	for i, id := range vh.Order {
		path := fmt.Sprintf("order[%d]", i)
		if _, ok := vh.Backends[id]; !ok {
			f.add(path, "no backend %q", id)
		}
		if seen[id] {
			f.add(path, "%q stands twice", id)
		}
		seen[id] = true
	}
}

func checkBackend(f *faults, id BackendID, b Backend) {
	if !ValidID(string(id)) {
		f.add("", "not a valid id")
	}
	if b.URL != "" || b.StdioLease == "" { // where a stdio backend runs, its lease says
		checkURL(f, ".url", b.URL)
	}
	if _, err := time.Parse(time.DateOnly, b.Protocol); err != nil {
		f.add(".protocol", "%q is not a protocol version (a date)", b.Protocol)
	}
	switch b.Handshake {
	case "", HandshakeRequired, HandshakeNone:
	default:
		f.add(".handshake", "%q is neither %q nor %q", b.Handshake, HandshakeRequired, HandshakeNone)
	}
	for i, name := range b.PassthroughHeaders {
		checkHeader(f, fmt.Sprintf(".passthroughHeaders[%d]", i), name)
	}
	for i, name := range b.RemoveHeaders {
		checkHeader(f, fmt.Sprintf(".removeHeaders[%d]", i), name)
	}
	checkEach(f, ".addHeaders", b.AddHeaders, func(f *faults, name string, v SecretRef) {
		checkHeader(f, "", name)
		if strings.ContainsAny(string(v), "\r\n\x00") {
			f.add("", "a value has no line break or NUL") // and is not shown: it may hold a secret by mistake
		}
	})
	checkEach(f, ".forwardCaller", b.ForwardCaller, func(f *faults, name, from string) {
		checkHeader(f, "", name)
		checkHeader(f, "", from)
	})
	checkGlobs(f, ".resourceAllow", b.ResourceAllow)
	checkGlobs(f, ".resourceDeny", b.ResourceDeny)
	checkEach(f, ".toolSchemas", b.ToolSchemas, func(f *faults, _ string, schema json.RawMessage) {
		if len(schema) == 0 {
			f.add("", "empty")
		}
		checkObject(f, "", schema)
	})
	checkDuration(f, ".timeouts.connect", b.Timeouts.Connect)
	checkDuration(f, ".timeouts.response", b.Timeouts.Response)
	checkDuration(f, ".timeouts.idle", b.Timeouts.Idle)
	checkDuration(f, ".timeouts.total", b.Timeouts.Total)
	if (b.TLS.CertFile == "") != (b.TLS.KeyFile == "") {
		f.add(".tls", "certFile and keyFile go together")
	}
}

func checkURL(f *faults, path, s string) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		f.add(path, "not a URL") // the error would show the text, userinfo and all
	case u.Scheme != "http" && u.Scheme != "https":
		f.add(path, "scheme %q is neither http nor https", u.Scheme)
	case u.Hostname() == "":
		f.add(path, "no host")
	case u.User != nil:
		f.add(path, "has userinfo; credentials go into headers, as references")
	case u.Fragment != "":
		f.add(path, "has a fragment")
	}
}

// checkHeader demands a token of RFC 9110 § 5.6.2.
func checkHeader(f *faults, path, name string) {
	valid := name != ""
	for i := range len(name) {
		c := name[i]
		valid = valid && (alphanumeric(c) || 'A' <= c && c <= 'Z' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0)
	}
	if !valid {
		f.add(path, "%q is not a header name", name)
	}
}

func checkGlobs(f *faults, path string, globs []string) {
	for i, s := range globs {
		if err := checkGlob(s); err != nil {
			f.add(fmt.Sprintf("%s[%d]", path, i), "%v", err)
		}
	}
}

func checkDuration(f *faults, path string, d time.Duration) {
	if d < 0 {
		f.add(path, "%v is negative", d)
	}
}

// checkObject demands that raw, if there is any, is a JSON object. Its inside was checked when it was decoded.
func checkObject(f *faults, path string, raw json.RawMessage) {
	if len(raw) > 0 && !(strings.HasPrefix(strings.TrimLeft(string(raw), " \t\r\n"), "{") && json.Valid(raw)) {
		f.add(path, "not a JSON object")
	}
}

func (p TaskPolicy) check(f *faults) {
	switch p.Unrecorded {
	case "", "claim", "probe", "deny":
	default:
		f.add("tasks.unrecorded", "%q is none of claim, probe and deny", p.Unrecorded)
	}
	switch p.NotFound {
	case 0, -32602, -32002:
	default:
		f.add("tasks.notFound", "%d is neither -32602 nor -32002", p.NotFound)
	}
}

func checkPlugins(f *faults, plugins []PluginRef) {
	seen := make(map[string]bool, len(plugins))
	for i, p := range plugins {
		path := fmt.Sprintf("plugins[%d]", i)
		if p.Name == "" {
			f.add(path+".name", "empty")
		}
		if seen[p.Name] {
			f.add(path+".name", "%q stands twice", p.Name)
		}
		seen[p.Name] = true
		if p.Kind == "" {
			f.add(path+".kind", "empty")
		}
		checkDuration(f, path+".timeout", p.Timeout)
		checkGlobs(f, path+".when.hosts", p.When.Hosts)
		checkGlobs(f, path+".when.tools", p.When.Tools)
	}
}

// faults collects what is wrong with one value, by the path of the field below it.
type faults struct{ list []fault }

type fault struct{ path, text string }

func (f *faults) add(path, format string, args ...any) {
	f.list = append(f.list, fault{path, fmt.Sprintf(format, args...)})
}

func (f *faults) join() error {
	errs := make([]error, len(f.list))
	for i, one := range f.list {
		errs[i] = fmt.Errorf("%s: %s", one.path, one.text)
	}
	return errors.Join(errs...)
}

// checkEach checks every entry of m, puts path["key"] before the paths of its faults and reports them in the order of the
// keys. A map without faults costs one walk: paths are made and keys are sorted only for what is wrong.
func checkEach[K ~string, V any](f *faults, path string, m map[K]V, check func(f *faults, key K, v V)) {
	faulty := map[K][]fault{}
	var one faults
	for k, v := range m {
		check(&one, k, v)
		if len(one.list) > 0 {
			faulty[k], one.list = one.list, nil
		}
	}
	for i, k := range slices.Sorted(maps.Keys(faulty)) {
		if i == maxFaults {
			f.add(path, "%d more entries have faults", len(faulty)-i)
			return
		}
		for _, x := range faulty[k] {
			f.add(fmt.Sprintf("%s[%q]%s", path, string(k), x.path), "%s", x.text)
		}
	}
}
