package routes

// Kind is what a downstream name names.
type Kind uint8

// The kinds of routes.
const (
	KindTool Kind = iota
	KindPrompt
	KindResource
	KindResourceTemplate // only in lists; Lookup(KindResource) tries templates itself
)

// Target is where a look-up leads. Host and Backend are shared and read-only.
type Target struct {
	ID       BackendID
	Backend  *Backend
	Upstream string
}

// Index is the immutable look-up table of one document.
type Index struct{ host *VirtualHost }

// NewIndex validates vh and builds its table. vh must not be changed afterwards.
func NewIndex(vh *VirtualHost) (*Index, error) { panic("stub") }

// Host returns the document the index was built from; read-only.
func (ix *Index) Host() *VirtualHost { return ix.host }

// Lookup finds where a downstream name leads: exact match first, then (resources) templates and prefixes.
func (ix *Index) Lookup(kind Kind, name string) (Target, bool) { panic("stub") }

// ValidID reports whether s may name a host or backend.
func ValidID(s string) bool { panic("stub") }

// Glob is a compiled glob.
type Glob struct{ s string }

// ParseGlob compiles s; an error when it is over 256 bytes or empty.
func ParseGlob(s string) (Glob, error) { panic("stub") }

// Match reports whether name matches the whole glob, in linear time.
func (g Glob) Match(name string) bool { panic("stub") }

// String returns the glob as written.
func (g Glob) String() string { return g.s }

// EncodeHost encodes a document, same value same bytes. DecodeHost refuses an unknown schema with *SchemaError.
func EncodeHost(vh *VirtualHost) ([]byte, error)  { panic("stub") }
func DecodeHost(doc []byte) (*VirtualHost, error) { panic("stub") }
func EncodeList(l *HostList) ([]byte, error)      { panic("stub") }
func DecodeList(doc []byte) (*HostList, error)    { panic("stub") }

// Digest is 32 hex digits over the parts, length-prefixed.
func Digest(parts ...[]byte) string { panic("stub") }

// Validate reports every fault of a document, joined, each with the path of its field.
func (vh *VirtualHost) Validate() error { panic("stub") }

// Version returns the document's place in the order.
func (vh *VirtualHost) Version() Version { return Version{vh.Incarnation, vh.Epoch, vh.Revision} }
