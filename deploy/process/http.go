package process

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes/wire"
)

// Bounds of every server. MaxHeaderBytes is far above the limits on MCP headers, so that their refusal is Weir's own.
// There is no ReadTimeout: net/http would cancel calls that last longer. Bodies are timed by who reads them.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 256 << 10
)

// Listen opens a TCP listener, with TLS where t is not zero.
func Listen(addr string, t ListenTLS) (net.Listener, error) { return ListenReporting(addr, t, nil) }

// ListenReporting is Listen that tells report about each change of the certificate files; see ListenTLS.ConfigReporting.
func ListenReporting(addr string, t ListenTLS, report func(error)) (net.Listener, error) {
	if addr == "" {
		return nil, errors.New("listen: no address")
	}
	cfg, err := t.ConfigReporting(report)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // such sockets take no filter, which stopListening needs
	ln, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	patient := wire.PatientListener(ln)
	if cfg != nil {
		return listener{tls.NewListener(patient, cfg), ln}, nil
	}
	return listener{patient, ln}, nil
}

// listener is one that stopListening can look under.
type listener struct {
	net.Listener
	under net.Listener
}

// ReloadLogger makes a report function for ListenReporting.
func ReloadLogger(log *zap.Logger, listener string) func(error) {
	return func(err error) {
		if err != nil {
			log.Error("certificate not reloaded", zap.String("listener", listener), zap.Error(err))
			return
		}
		log.Info("certificate reloaded", zap.String("listener", listener))
	}
}

// IsLoopback reports whether addr is bound to a loopback address only.
func IsLoopback(addr net.Addr) bool {
	switch a := addr.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// NewServer makes an http.Server with Weir's bounds: 10 s for a request's headers, 256 KiB of them, 2 min between requests;
// HTTP/1.1, and HTTP/2 over TLS only. What net/http itself has to say is logged at debug. log may be nil.
func NewServer(h http.Handler, log *zap.Logger) *http.Server {
	if log == nil {
		log = zap.NewNop()
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	errorLog, err := zap.NewStdLogAt(log.WithOptions(zap.AddCallerSkip(1)), zap.DebugLevel)
	if err != nil { // only for a level that zap does not know
		errorLog = zap.NewStdLog(zap.NewNop())
	}
	return &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ConnContext:       wire.ConnContext,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
	}
}
