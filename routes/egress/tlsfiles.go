package egress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// identity is who Weir is, and whom it trusts, on TLS connections to one backend. Files are looked at on every dial and re-read
// when they changed. Safe for concurrent use.
type identity struct {
	files routes.TLS

	mu    sync.Mutex // guards what follows
	base  *tls.Config
	stamp [3]stamp
}

// stamp tells two states of a file apart.
type stamp struct {
	size int64
	time time.Time
}

func newIdentity(files routes.TLS) *identity { return &identity{files: files} }

// config returns the configuration for a connection to addr.
func (id *identity) config(addr string) (*tls.Config, error) {
	base, err := id.load()
	if err != nil {
		return nil, err
	}
	cfg := base.Clone()
	if cfg.ServerName = id.files.ServerName; cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		cfg.ServerName = host
	}
	return cfg, nil
}

func (id *identity) load() (*tls.Config, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	var now [3]stamp
	for i, path := range []string{id.files.CAFile, id.files.CertFile, id.files.KeyFile} {
		if path == "" {
			continue
		}
		fi, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		now[i] = stamp{fi.Size(), fi.ModTime()}
	}
	if id.base != nil && now == id.stamp {
		return id.base, nil
	}
	base, err := readTLS(id.files)
	if err != nil {
		return nil, err // not stored: the next dial reads again
	}
	id.base, id.stamp = base, now
	return base, nil
}

func readTLS(files routes.TLS) (*tls.Config, error) {
	cfg := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		ClientSessionCache: tls.NewLRUClientSessionCache(32),
	}
	if files.CAFile != "" {
		pem, err := os.ReadFile(files.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls: %s holds no certificate", files.CAFile)
		}
	}
	switch {
	case files.CertFile != "" && files.KeyFile != "":
		cert, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	case files.CertFile != "" || files.KeyFile != "":
		return nil, errors.New("tls: cert_file and key_file go together")
	}
	return cfg, nil
}
