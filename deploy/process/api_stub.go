// Package process is what each of Weir's binaries does around its plane: strict config files, a logger, listeners that
// reload their certificates, the ops listener, and the order of start and stop.
package process

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// DecodeYAML decodes doc into a struct, strictly: every unknown field and wrong type at once, each with its line.
func DecodeYAML(doc []byte, into any) error { panic("stub") }

// Size is a number of bytes, written in YAML as 4MiB, 512KiB, 1GiB or a plain number.
type Size int64

// ListenTLS is the tls block of a listener. The zero value means plain HTTP.
type ListenTLS struct {
	CertFile     string `yaml:"cert_file"`
	KeyFile      string `yaml:"key_file"`
	ClientCAFile string `yaml:"client_ca_file"` // set: client certificates are required
}

// Validate reports faults, each starting with prefix ("tls").
func (t ListenTLS) Validate(prefix string) error { panic("stub") }

// Config returns nil for the zero value; certificates are re-read when their files change.
func (t ListenTLS) Config() (*tls.Config, error) { panic("stub") }

// NewLogger writes JSON lines to stderr at the given level ("info" when empty).
func NewLogger(level string) (*zap.Logger, error) { panic("stub") }

// Listen opens a TCP listener, with TLS where t is not zero.
func Listen(addr string, t ListenTLS) (net.Listener, error) { panic("stub") }

// IsLoopback reports whether addr is bound to a loopback address only.
func IsLoopback(addr net.Addr) bool { panic("stub") }

// NewServer makes an http.Server with Weir's bounds (ReadHeaderTimeout 10s, header limit, no HTTP/2 cleartext surprises).
func NewServer(h http.Handler, log *zap.Logger) *http.Server { panic("stub") }

// Serve serves until ctx ends, then shuts down gracefully: new connections stop, running requests finish until drain is done, then
// they are cut. It returns nil on an orderly end.
func Serve(ctx context.Context, srv *http.Server, ln net.Listener, drain context.Context) error {
	panic("stub")
}

// Check is one readiness condition: nil is ready; detail is shown in /readyz's JSON.
type Check func() (detail map[string]any, err error)

// OpsHandler serves /healthz, /readyz (200 or 503 with JSON) and /metrics.
func OpsHandler(reg prometheus.Gatherer, ready Check) http.Handler { panic("stub") }

// ConfigError marks a bad flag or config file: exit status 2.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// Main runs f with a context that ends at SIGTERM or SIGINT (a second one exits at once), prints an error to stderr and returns the exit
// status: 0, 1 (run time) or 2 (*ConfigError).
func Main(name string, f func(ctx context.Context) error) int { panic("stub") }
