// Package secret resolves references to secrets: ${env:NAME} and ${file:/path}. Documents and config hold references; only
// the plane that needs a value resolves it, from what its own config allows.
package secret

// Policy says what references may read. The zero Policy allows nothing.
type Policy struct {
	Env  []string `yaml:"env"`  // globs on variable names
	Dirs []string `yaml:"dirs"` // absolute directories; symlinks must stay inside
	// All lifts both lists: for the operator's own config file, never for a published document.
	All bool `yaml:"-"`
}

// Resolver expands references under a policy. Safe for concurrent use. Files are re-read when they change.
type Resolver struct{ p Policy }

// NewResolver checks the policy.
func NewResolver(p Policy) (*Resolver, error) { panic("stub") }

// Expand replaces every reference in s. Errors name the reference, never a value. A value is at most 8 KiB; one trailing
// newline of a file is cut.
func (r *Resolver) Expand(s string) (string, error) { panic("stub") }

// HasReference reports whether s contains a reference.
func HasReference(s string) bool { panic("stub") }
