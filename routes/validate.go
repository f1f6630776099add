package routes

import (
	"encoding/json"
	"errors"
	"fmt"
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
	eachSorted(f, "backends", vh.Backends, checkBackend)

	route := func(f *faults, path, name string, r ServiceRoute) {
		if name == "" {
			f.add(path, "empty name")
		}
		if _, ok := vh.Backends[r.Backend]; !ok {
			f.add(path+".backend", "no backend %q", r.Backend)
		}
		if r.Upstream == "" {
			f.add(path+".upstream", "empty")
		}
	}
	uri := func(f *faults, path, name string, r ServiceRoute) {
		route(f, path, name, r)
		if r.Upstream != "" && r.Upstream != name {
			f.add(path+".upstream", "%q differs: URIs are never rewritten", r.Upstream)
		}
	}
	eachSorted(f, "tools", vh.Tools, route)
	eachSorted(f, "prompts", vh.Prompts, route)
	eachSorted(f, "resources", vh.Resources, uri)
	if n := len(vh.ResourceTemplates); n > MaxTemplates {
		f.add("resourceTemplates", "%d templates are over %d", n, MaxTemplates)
	}
	eachSorted(f, "resourceTemplates", vh.ResourceTemplates, func(f *faults, path, name string, r ServiceRoute) {
		uri(f, path, name, r)
		if _, err := parseTemplate(name); err != nil {
			f.add(path, "%v", err)
		}
	})
	eachSorted(f, "resourcePrefixes", vh.ResourcePrefixes, func(f *faults, path, name string, r ServiceRoute) {
		uri(f, path, name, r)
		if err := checkScheme(name); err != nil {
			f.add(path, "%v", err)
		}
	})
	vh.Tasks.check(f)
	checkPlugins(f, vh.Plugins)
	checkObject(f, "capabilities", vh.Capabilities)
	checkObject(f, "serverInfo", vh.ServerInfo)
	return errors.Join(f.list...)
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

func checkBackend(f *faults, path string, id BackendID, b Backend) {
	if !ValidID(string(id)) {
		f.add(path, "not a valid id")
	}
	if b.URL != "" || b.StdioLease == "" { // where a stdio backend runs, its lease says
		checkURL(f, path+".url", b.URL)
	}
	if _, err := time.Parse(time.DateOnly, b.Protocol); err != nil {
		f.add(path+".protocol", "%q is not a protocol version (a date)", b.Protocol)
	}
	switch b.Handshake {
	case "", HandshakeRequired, HandshakeNone:
	default:
		f.add(path+".handshake", "%q is neither %q nor %q", b.Handshake, HandshakeRequired, HandshakeNone)
	}
	for i, name := range b.PassthroughHeaders {
		checkHeader(f, fmt.Sprintf("%s.passthroughHeaders[%d]", path, i), name)
	}
	for i, name := range b.RemoveHeaders {
		checkHeader(f, fmt.Sprintf("%s.removeHeaders[%d]", path, i), name)
	}
	eachSorted(f, path+".addHeaders", b.AddHeaders, func(f *faults, path, name string, v SecretRef) {
		checkHeader(f, path, name)
		if strings.ContainsAny(string(v), "\r\n\x00") {
			f.add(path, "a value has no line break or NUL") // and is not shown: it may hold a secret by mistake
		}
	})
	eachSorted(f, path+".forwardCaller", b.ForwardCaller, func(f *faults, path, name, from string) {
		checkHeader(f, path, name)
		checkHeader(f, path, from)
	})
	checkGlobs(f, path+".resourceAllow", b.ResourceAllow)
	checkGlobs(f, path+".resourceDeny", b.ResourceDeny)
	eachSorted(f, path+".toolSchemas", b.ToolSchemas, func(f *faults, path, _ string, schema json.RawMessage) {
		if len(schema) == 0 {
			f.add(path, "empty")
		}
		checkObject(f, path, schema)
	})
	checkDuration(f, path+".timeouts.connect", b.Timeouts.Connect)
	checkDuration(f, path+".timeouts.response", b.Timeouts.Response)
	checkDuration(f, path+".timeouts.idle", b.Timeouts.Idle)
	checkDuration(f, path+".timeouts.total", b.Timeouts.Total)
	if (b.TLS.CertFile == "") != (b.TLS.KeyFile == "") {
		f.add(path+".tls", "certFile and keyFile go together")
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

// faults collects what is wrong.
type faults struct{ list []error }

func (f *faults) add(path, format string, args ...any) {
	f.list = append(f.list, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
}

// eachSorted checks every entry of m under the path path["key"], and reports the faults in the order of the keys. Only
// faulty keys are sorted: a document without faults costs one walk.
func eachSorted[K ~string, V any](f *faults, path string, m map[K]V, check func(f *faults, path string, key K, v V)) {
	faulty := map[K][]error{}
	for k, v := range m {
		var one faults
		check(&one, fmt.Sprintf("%s[%q]", path, string(k)), k, v)
		if len(one.list) > 0 {
			faulty[k] = one.list
		}
	}
	keys := make([]K, 0, len(faulty))
	for k := range faulty {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for i, k := range keys {
		if i == maxFaults {
			f.add(path, "%d more entries have faults", len(keys)-i)
			return
		}
		f.list = append(f.list, faulty[k]...)
	}
}
