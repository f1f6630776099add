package redisstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

// authority issues certificates; files are where they lie.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = a.issue("ca", template, nil, nil)
	return a
}

// issue writes name.pem and name.key.
func (a *authority) issue(name string, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", keyDER)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// leaf issues a certificate for a server (with its name) or a client.
func (a *authority) leaf(name string, dnsNames ...string) {
	a.issue(name, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), DNSNames: dnsNames,
		IPAddresses: ipOf(dnsNames),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
}

func ipOf(names []string) (ips []net.IP) {
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

// startTLS starts a miniredis that wants a client certificate of the same authority.
func startTLS(t *testing.T, a *authority, server string) *miniredis.Miniredis {
	pair, err := tls.LoadX509KeyPair(a.file(server+".pem"), a.file(server+".key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	m := miniredis.NewMiniRedis()
	err = m.StartTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func TestTLSChecksBothSides(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	ours.leaf("server", "redis.internal", "127.0.0.1")
	ours.leaf("client")
	theirs.leaf("client")
	m := startTLS(t, ours, "server")
	files := func(ca, client *authority, name string) routes.TLS {
		return routes.TLS{CAFile: ca.file("ca.pem"), CertFile: client.file("client.pem"), KeyFile: client.file("client.key"), ServerName: name}
	}
	for name, tt := range map[string]struct {
		config redisstore.Config
		err    string // part of it; empty: it works
	}{
		"by the name in config":  {redisstore.Config{Addrs: []string{m.Addr()}, TLS: files(ours, ours, "redis.internal")}, ""},
		"by the address":         {redisstore.Config{URL: "rediss://" + m.Addr(), TLS: files(ours, ours, "")}, ""},
		"a foreign name":         {redisstore.Config{Addrs: []string{m.Addr()}, TLS: files(ours, ours, "other.internal")}, "not other.internal"},
		"a foreign authority":    {redisstore.Config{Addrs: []string{m.Addr()}, TLS: files(theirs, ours, "redis.internal")}, "unknown authority"},
		"a foreign client":       {redisstore.Config{Addrs: []string{m.Addr()}, TLS: files(ours, theirs, "redis.internal")}, "tls"},
		"the system's roots":     {redisstore.Config{URL: "rediss://" + m.Addr()}, "unknown authority"},
		"no TLS at all":          {redisstore.Config{Addrs: []string{m.Addr()}}, "store unavailable"},
		"a file that is missing": {redisstore.Config{Addrs: []string{m.Addr()}, TLS: routes.TLS{CAFile: "/nonexistent"}}, "redis.tls.ca_file"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader(t, open(t, tt.config)) // the bounds are not the subject
			_, err := r.Meta(t.Context())
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("Meta: %v, want %q", err, tt.err)
			}
		})
	}
}

func TestTLSFilesAreReadAtEachConnect(t *testing.T) {
	a := newAuthority(t, "ours")
	a.leaf("server", "127.0.0.1")
	m := startTLS(t, a, "server")
	files := routes.TLS{CAFile: a.file("ca.pem"), CertFile: a.file("client.pem"), KeyFile: a.file("client.key")}
	r := newBoundedReader(t, open(t, redisstore.Config{Addrs: []string{m.Addr()}, TLS: files}))
	if _, err := r.Meta(t.Context()); !errors.Is(err, routes.ErrUnavailable) {
		t.Errorf("Meta without a client certificate: %v, want ErrUnavailable", err)
	}
	a.leaf("client")
	if _, err := r.Meta(t.Context()); err != nil {
		t.Errorf("Meta once the files are there: %v", err)
	}
}

func TestAFailoverBySentinelIsFollowed(t *testing.T) {
	t.Parallel() // a sentinel looks for replicas every 10s
	first := routestest.StartRedis(t, routestest.RedisOptions{})
	host, port, _ := net.SplitHostPort(first.Addr())
	second := routestest.StartRedis(t, routestest.RedisOptions{Args: []string{"--replicaof", host, port}})
	sentinel := routestest.StartRedis(t, routestest.RedisOptions{
		Config: fmt.Sprintf("sentinel monitor weir %s %s 1\nsentinel down-after-milliseconds weir 2000\n", host, port),
		Args:   []string{"--sentinel"},
	})
	eventually(t, "the replica is in step, and the sentinel knows it", func() error {
		if info := second.Do("INFO", "replication"); !strings.Contains(info, "master_link_status:up") {
			return errors.New(info)
		}
		if info := sentinel.Do("INFO", "sentinel"); !strings.Contains(info, "slaves=1") {
			return errors.New(info)
		}
		return nil
	})

	config := redisstore.Config{Addrs: []string{sentinel.Addr()}, MasterName: "weir"}
	client := open(t, config)
	s := &stage{redis: first, w: newWriter(t, client), r: newReader(t, client),
		events: make(chan routes.Event, 1000), states: make(chan bool, 1000)}
	s.lead(t)
	s.publish(t, "a", 1)
	s.follow(t)
	eventually(t, "the replica has all", func() error {
		if got := second.Do("HGET", "weir:{routes}:fence", "sequence"); got != "1" {
			return errors.New(got)
		}
		return nil
	})
	sentinel.Do("SENTINEL", "FAILOVER", "weir")
	// Until the old master knows, it takes writes that will be lost; the leader notices, and so does the follower.
	revision, atSecond := uint64(1), newReader(t, open(t, redisstore.Config{URL: second.URL()}))
	eventually(t, "changes flow through the new master", func() error {
		revision++
		b := routes.Batch{Hosts: []routes.HostChange{routestest.Removal("b", revision)}}
		switch err := s.w.Publish(t.Context(), s.lease, b); {
		case errors.Is(err, routes.ErrFenced):
			s.lead(t)
			return err
		case err != nil:
			return err
		}
		index, _, err := atSecond.Index(t.Context()) // may fail: the sentinel ends every connection
		if err != nil || index["b"].Version.Revision != revision {
			return fmt.Errorf("the new master has %+v, %v", index["b"], err)
		}
		return nil
	})
	s.publish(t, "c", 1)
	eventually(t, "the follower hears of it", func() error {
		revision++
		s.publish(t, "c", revision)
		for len(s.events) > 0 {
			if e := <-s.events; e.Host == "c" {
				return nil
			}
		}
		return errors.New("not yet")
	})
	if h, err := s.r.Host(t.Context(), "c"); err != nil || h.Version.Revision != revision {
		t.Errorf("Host = %+v, %v; want revision %d", h.Version, err, revision)
	}
}
