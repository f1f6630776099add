// Package secret resolves references to secrets: ${env:NAME} and ${file:/path}. Documents and config hold references; only
// the plane that needs a value resolves it, from what its own config allows.
//
// Every "${" begins a reference; there is no escape, and a reference inside a value is not expanded again.
package secret

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-mcp/weir/routes"
)

// MaxValue bounds a value, and what a text with references expands to, in bytes.
const MaxValue = 8 << 10

// Errors that Expand wraps; callers branch with errors.Is. A missing file is fs.ErrNotExist.
var (
	ErrMalformed  = errors.New("malformed reference")
	ErrNotAllowed = errors.New("not allowed by this plane's config (secrets)")
	ErrUnset      = errors.New("environment variable is not set")
)

// Policy says what references may read. The zero Policy allows nothing.
type Policy struct {
	Env  []string `yaml:"env"`  // globs on variable names
	Dirs []string `yaml:"dirs"` // absolute directories; symlinks must stay inside
	// All lifts both lists: for the operator's own config file, never for a published document.
	All bool `yaml:"-"`
}

// Resolver expands references under a policy. Safe for concurrent use. Variables are read at each use, files when they
// change. Printed, it shows no value.
type Resolver struct {
	all   bool
	env   []routes.Glob
	dirs  []string
	files fileCache
}

// NewResolver checks the policy: every fault, joined, with the field it is about. Directories need not exist yet.
func NewResolver(p Policy) (*Resolver, error) {
	r := &Resolver{all: p.All, files: newFileCache()}
	var errs []error
	for i, s := range p.Env {
		g, err := routes.ParseGlob(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("env[%d]: %w", i, err))
		}
		r.env = append(r.env, g)
	}
	for i, d := range p.Dirs {
		if !filepath.IsAbs(d) {
			errs = append(errs, fmt.Errorf("dirs[%d]: %q is not absolute", i, d))
		}
		r.dirs = append(r.dirs, filepath.Clean(d))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

// String tells the policy; GoString too, so that no verb of fmt reaches what is cached.
func (r *Resolver) String() string {
	return fmt.Sprintf("secret.Resolver(all %t, env %v, dirs %q)", r.all, r.env, r.dirs)
}

// GoString is String.
func (r *Resolver) GoString() string { return r.String() }

// Expand replaces every reference in s. Errors name the reference, never a value. A value is at most 8 KiB and has no CR,
// LF or NUL, since it becomes a header; of a file one trailing newline is cut. A text without references comes back as it is.
func (r *Resolver) Expand(s string) (string, error) {
	if !HasReference(s) {
		return s, nil
	}
	var b strings.Builder
	err := walk(s, func(literal string) { b.WriteString(literal) }, func(ref reference) error {
		v, err := r.resolve(ref)
		if err == nil {
			err = checkValue(v)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", ref, err)
		}
		b.WriteString(v)
		if b.Len() > MaxValue {
			return fmt.Errorf("%s: the whole text is over %d bytes", ref, MaxValue)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if b.Len() > MaxValue {
		return "", fmt.Errorf("a text with references is over %d bytes", MaxValue)
	}
	return b.String(), nil
}

// HasReference reports whether s contains a reference, a malformed one included.
func HasReference(s string) bool { return strings.Contains(s, "${") }

// Check reports the first malformed reference of s; it resolves nothing.
func Check(s string) error {
	return walk(s, func(string) {}, func(reference) error { return nil })
}

func (r *Resolver) resolve(ref reference) (string, error) {
	if ref.scheme == schemeFile {
		return r.files.read(ref.name, r.openFile)
	}
	if !r.allowsEnv(ref.name) {
		return "", ErrNotAllowed
	}
	v, ok := os.LookupEnv(ref.name)
	if !ok {
		return "", ErrUnset
	}
	return v, nil
}

func (r *Resolver) allowsEnv(name string) bool {
	for _, g := range r.env {
		if g.Match(name) {
			return true
		}
	}
	return r.all
}

func checkValue(v string) error {
	if len(v) > MaxValue {
		return errTooLong
	}
	if strings.ContainsAny(v, "\r\n\x00") {
		return errors.New("value has a line break or NUL")
	}
	return nil
}

var errTooLong = fmt.Errorf("value is over %d bytes", MaxValue)
