package process

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// restat is how often at most a handshake looks whether the files changed.
const restat = time.Second

// ListenTLS is the tls block of a listener. The zero value means plain HTTP.
type ListenTLS struct {
	CertFile     string `yaml:"cert_file"`
	KeyFile      string `yaml:"key_file"`
	ClientCAFile string `yaml:"client_ca_file"` // set: client certificates are required
}

// Validate reports faults, each starting with prefix ("tls"): what is missing, and files that can't be loaded.
func (t ListenTLS) Validate(prefix string) error {
	var errs []error
	switch {
	case t == ListenTLS{}:
		return nil
	case t.CertFile == "":
		errs = append(errs, fmt.Errorf("%s.cert_file: missing", prefix))
	case t.KeyFile == "":
		errs = append(errs, fmt.Errorf("%s.key_file: missing", prefix))
	default:
		if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", prefix, err))
		}
	}
	if t.ClientCAFile != "" {
		if _, err := loadPool(t.ClientCAFile); err != nil {
			errs = append(errs, fmt.Errorf("%s.client_ca_file: %w", prefix, err))
		}
	}
	return errors.Join(errs...)
}

// Config returns nil for the zero value. Certificates are re-read when their files change; while the new files are bad
// the old ones stay in use.
func (t ListenTLS) Config() (*tls.Config, error) { return t.ConfigReporting(nil) }

// ConfigReporting is Config that tells report about each change of the files: nil once they were loaded, else why they
// were not. report may be nil; it is called during a handshake and should not block.
func (t ListenTLS) ConfigReporting(report func(error)) (*tls.Config, error) {
	if t == (ListenTLS{}) {
		return nil, nil
	}
	if err := t.Validate("tls"); err != nil {
		return nil, err
	}
	r := &reloader{files: t, report: report, stamp: t.stamp()}
	cfg, err := t.load()
	if err != nil {
		return nil, err
	}
	r.cur.Store(cfg)
	r.checked.Store(time.Now().UnixNano())
	outer := cfg.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.get(), nil }
	return outer, nil
}

func (t ListenTLS) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{cert},
		NextProtos:   []string{"h2", "http/1.1"},
	}
	if t.ClientCAFile != "" {
		if cfg.ClientCAs, err = loadPool(t.ClientCAFile); err != nil {
			return nil, err
		}
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return cfg, nil
}

func loadPool(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in it", file)
	}
	return pool, nil
}

// stamp tells versions of the files apart. A file that can't be read has a stamp too.
func (t ListenTLS) stamp() (s [3]fileStamp) {
	for i, name := range []string{t.CertFile, t.KeyFile, t.ClientCAFile} {
		if name == "" {
			continue
		}
		if fi, err := os.Stat(name); err == nil {
			s[i] = fileStamp{size: fi.Size(), mod: fi.ModTime().UnixNano(), there: true}
		}
	}
	return s
}

type fileStamp struct {
	size, mod int64
	there     bool
}

// reloader holds the current config of a listener. Safe for concurrent use.
type reloader struct {
	files   ListenTLS
	report  func(error)
	cur     atomic.Pointer[tls.Config] // never nil; read-only after Store
	checked atomic.Int64               // unix nanoseconds of the last look at the files

	mu    sync.Mutex // guards stamp
	stamp [3]fileStamp
}

// get returns the config for one handshake. One handshake a second looks at the files; the others never wait for it.
func (r *reloader) get() *tls.Config {
	if now := time.Now().UnixNano(); now-r.checked.Load() >= int64(restat) && r.mu.TryLock() {
		r.checked.Store(now)
		r.reload()
		r.mu.Unlock()
	}
	return r.cur.Load()
}

func (r *reloader) reload() {
	stamp := r.files.stamp()
	if stamp == r.stamp {
		return
	}
	r.stamp = stamp // also when loading fails: the next change tries again, not the next handshake
	cfg, err := r.files.load()
	if err == nil {
		r.cur.Store(cfg)
	}
	if r.report != nil {
		if err != nil {
			err = fmt.Errorf("new certificate refused, the old one stays: %w", err)
		}
		r.report(err)
	}
}
