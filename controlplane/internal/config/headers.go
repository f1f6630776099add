package config

import (
	"net/http"
	"slices"
	"strings"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/secret"
)

func (b *headersBlock) empty() bool {
	return len(b.Passthrough)+len(b.Add)+len(b.Remove)+len(b.Credentials)+len(b.ForwardCaller) == 0
}

// headers checks a headers block and puts into r what may be published of it. A header that Weir never sends as the file
// asks is a warning and left out; the dataplane would leave it out as well.
func (c *checker) headers(path string, b *headersBlock, r *routes.Backend) {
	setBy := map[string]string{} // folded name → the path that sets it
	set := func(at, name string) bool {
		if !c.headerName(at, name) {
			return false
		}
		if first, dup := setBy[routes.FoldHeader(name)]; dup {
			c.fault(at, "%s sets this header already", first)
			return false
		}
		setBy[routes.FoldHeader(name)] = at
		return !c.protected(at, name)
	}
	put := func(name, value string) {
		if r.AddHeaders == nil {
			r.AddHeaders = map[string]routes.SecretRef{}
		}
		r.AddHeaders[http.CanonicalHeaderKey(name)] = routes.SecretRef(value)
	}
	for _, name := range sortedKeys(b.Add) {
		at := path + ".add." + name
		if set(at, name) && c.headerValue(at, b.Add[name]) && c.notCredential(at, name, b.Add[name]) {
			put(name, b.Add[name])
		}
	}
	for _, name := range sortedKeys(b.Credentials) {
		at := path + ".credentials." + name
		if !set(at, name) {
			continue
		}
		if !secret.HasReference(b.Credentials[name]) {
			c.fault(at, "must be a reference such as ${env:NAME} or ${file:/path}: what stands here is published, and Redis holds no credential")
			continue
		}
		if c.headerValue(at, b.Credentials[name]) {
			put(name, b.Credentials[name])
		}
	}
	setBy = map[string]string{} // a caller that brings a credential of its own replaces a static one
	for _, name := range sortedKeys(b.ForwardCaller) {
		at, from := path+".forward_caller."+name, b.ForwardCaller[name]
		if set(at, name) && c.headerName(at, from) && !c.callersOwn(at, from) && !c.protected(at, from) {
			if r.ForwardCaller == nil {
				r.ForwardCaller = map[string]string{}
			}
			r.ForwardCaller[http.CanonicalHeaderKey(name)] = http.CanonicalHeaderKey(from)
		}
	}
	r.PassthroughHeaders = c.headerList(path+".passthrough", b.Passthrough, true)
	r.RemoveHeaders = c.headerList(path+".remove", b.Remove, false)
}

func (c *checker) headerList(path string, names []string, fromCaller bool) (out []string) {
	for i, name := range names {
		at := indexed(path, i)
		if !c.headerName(at, name) || fromCaller && c.callersOwn(at, name) || c.protected(at, name) {
			continue
		}
		if name = http.CanonicalHeaderKey(name); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// headerName checks RFC 9110 § 5.1: a token.
func (c *checker) headerName(path, name string) bool {
	for i := range len(name) {
		ch := name[i]
		alphanumeric := 'a' <= ch && ch <= 'z' || 'A' <= ch && ch <= 'Z' || '0' <= ch && ch <= '9'
		if !alphanumeric && strings.IndexByte("!#$%&'*+-.^_`|~", ch) < 0 {
			c.fault(path, "%q is not a header name", name)
			return false
		}
	}
	if name == "" {
		c.fault(path, "is not a header name: it is empty")
	}
	return name != ""
}

// headerValue checks a value, and that what its references lead to is there and can be a header's value (RFC 9110 § 5.5).
// Messages never show it.
func (c *checker) headerValue(path, value string) bool {
	if secret.HasReference(value) {
		expanded, err := c.expand(value)
		if err != nil {
			c.fault(path, "%w", err)
			return false
		}
		value = expanded
	}
	for i := range len(value) {
		if ch := value[i]; ch < ' ' && ch != '\t' || ch == 0x7f {
			c.fault(path, "the value has a character that no header may carry")
			return false
		}
	}
	return true
}

// notCredential refuses a credential that stands in the file: it would be published.
func (c *checker) notCredential(path, name, value string) bool {
	switch routes.FoldHeader(name) {
	case "authorization", "x-api-key":
		if !secret.HasReference(value) {
			c.fault(path, "a credential goes to headers.credentials, as a reference: what stands here is published, and Redis holds no credential")
			return false
		}
	}
	return true
}

// callersOwn warns of a header of the caller's that is for Weir alone.
func (c *checker) callersOwn(path, name string) bool {
	switch routes.FoldHeader(name) {
	case "authorization":
		c.warn(CodeProtectedHeader, path, "the verified token never travels; nothing is sent. "+
			"Let callers bring a backend's credential in another header, and name that in forward_caller")
	case "cookie", "cookie2":
		c.warn(CodeProtectedHeader, path, "the caller's %s never travels; nothing is sent", http.CanonicalHeaderKey(name))
	default:
		return false
	}
	return true
}

// protected warns of a header that config can neither send, replace nor remove: DESIGN § 7 "Headers to a backend".
func (c *checker) protected(path, name string) bool {
	if !routes.ProtectedHeader(name) && !routes.TraceHeader(name) {
		return false
	}
	c.warn(CodeProtectedHeader, path, "%s is protected: config can neither set, pass nor remove it", http.CanonicalHeaderKey(name))
	return true
}
