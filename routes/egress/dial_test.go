package egress

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-mcp/weir/routes"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	const (
		never   = iota
		private // refused for what a discovery source named
		always
	)
	for addr, want := range map[string]int{
		"169.254.169.254": never, "169.254.0.1": never, "::ffff:169.254.169.254": never, "fe80::1": never, "fe80::1%eth0": never,
		"fd00:ec2::254": never, "fd20:ce::254": never, "100.100.100.200": never, "192.0.0.192": never, "168.63.129.16": never,
		"0.0.0.0": never, "0.1.2.3": never, "::": never, "224.0.0.1": never, "ff02::1": never, "255.255.255.255": never,
		"64:ff9b::a9fe:a9fe": never, "64:ff9b:1::a9fe:a9fe": never, "2002:a9fe:a9fe::1": never, "::169.254.169.254": never, "::ffff:0.0.0.0": never,
		"127.0.0.1": private, "127.9.9.9": private, "::1": private, "::ffff:127.0.0.1": private, "10.0.0.1": private, "172.31.0.1": private,
		"192.168.1.1": private, "fc00::1": private, "fd12::1": private, "100.64.0.1": private, "fec0::1": private, "198.18.0.1": private,
		"192.0.2.1": private, "240.0.0.1": private, "2001:db8::1": private, "64:ff9b::7f00:1": private, "2002:a00:1::": private,
		"1.1.1.1": always, "2606:4700::1111": always, "64:ff9b::101:101": always, "2002:101:101::1": always,
	} {
		a := netip.MustParseAddr(addr)
		if err := (Guard{}).Check(a); (err == nil) != (want != never) || err != nil && !errors.Is(err, ErrRefusedAddress) {
			t.Errorf("%s for a backend of the config: %v", addr, err)
		}
		if err := (Guard{PublicOnly: true}).Check(a); (err == nil) != (want == always) || err != nil && !errors.Is(err, ErrRefusedAddress) {
			t.Errorf("%s for a discovered backend: %v", addr, err)
		}
	}
	if err := (Guard{}).Check(netip.Addr{}); err == nil {
		t.Error("no address at all may be dialled")
	}
}

// The check happens after DNS: a name is no way round it.
func TestDiscoveredBackendsAreNotLocal(t *testing.T) {
	t.Parallel()
	b := answering(t, httpAnswer("200 OK", "application/json", okDoc))
	for _, url := range []string{b.url, strings.Replace(b.url, "127.0.0.1", "localhost", 1)} {
		call := simpleCall(url)
		call.Backend.Discovered = true
		f := failure(t, newClient(t, Options{}), call)
		if !errors.Is(f, ErrRefusedAddress) || f.Reason != ReasonUnreachable || f.Sent {
			t.Errorf("%s: %v", url, f)
		}
	}
	if conns, _ := b.counts(); conns != 0 {
		t.Errorf("%d connections", conns)
	}
	call := simpleCall(b.url)
	call.Backend.Discovered, call.Backend.AllowPrivate = true, true
	if _, _, err := collect(t, newClient(t, Options{}), call); err != nil {
		t.Errorf("with AllowPrivate: %v", err)
	}
}

func TestHTTPClient(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/", http.StatusFound))
	defer target.Close()
	c := HTTPClient(ClientOptions{})
	defer c.CloseIdleConnections()
	resp, err := c.Get(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusFound {
		t.Errorf("the redirect was followed: %d", resp.StatusCode)
	}
	if _, err := c.Get("http://169.254.169.254/"); !errors.Is(err, ErrRefusedAddress) {
		t.Errorf("metadata: %v", err)
	}
	strict := HTTPClient(ClientOptions{Guard: Guard{PublicOnly: true}})
	if _, err := strict.Get(target.URL); !errors.Is(err, ErrRefusedAddress) {
		t.Errorf("loopback for a discovered source: %v", err)
	}
	d := GuardedDialer(Guard{}, 0)
	if _, err := d.DialContext(t.Context(), "udp", "127.0.0.1:9"); !errors.Is(err, ErrRefusedAddress) {
		t.Errorf("udp: %v", err)
	}
}

// authority makes certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	return &authority{cert, key}
}

// issue returns a certificate for a name in PEM, and its key.
func (a *authority) issue(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	kder, _ := x509.MarshalPKCS8PrivateKey(k)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kder})
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	stamp := time.Now().Add(time.Duration(len(data)) * time.Second) // another time, whatever the file system's resolution
	if err := os.Chtimes(path, stamp, stamp); err != nil {
		t.Fatal(err)
	}
}

func TestTLSIdentity(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		write(t, path, data)
		return path
	}
	cert, key := ca.issue(t, "client-1")
	serverCert, serverKey := ca.issue(t, "backend.test")
	pair, err := tls.X509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		who, proto := "nobody", r.Proto
		if len(r.TLS.PeerCertificates) > 0 {
			who = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":7,"result":{"who":"%s","proto":"%s"}}`, who, proto)
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: ca.pool()}
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)

	good := routes.TLS{
		CAFile: file("ca.pem", ca.pem()), CertFile: file("cert.pem", cert), KeyFile: file("key.pem", key), ServerName: "backend.test",
	}
	c := newClient(t, Options{})
	ask := func(files routes.TLS) (string, error) {
		call := simpleCall(srv.URL)
		call.Backend.TLS = files
		msgs, _, err := collect(t, c, call)
		if err != nil {
			return "", err
		}
		return string(msgs[0].Result), nil
	}
	if got, err := ask(good); got != `{"who":"client-1","proto":"HTTP/2.0"}` {
		t.Errorf("%s, %v", got, err)
	}
	cert, key = ca.issue(t, "client-2-with-a-longer-name")
	write(t, good.CertFile, cert)
	write(t, good.KeyFile, key)
	p, err := c.pools.get("b", &routes.Backend{URL: srv.URL, TLS: good})
	if err != nil {
		t.Fatal(err)
	}
	p.current.Store(newTransport(p.key.guard, p.ident, 0)) // new connections only
	t.Cleanup(p.closeIdle)
	if got, err := ask(good); got != `{"who":"client-2-with-a-longer-name","proto":"HTTP/2.0"}` {
		t.Errorf("after the certificate changed: %s, %v", got, err)
	}
	anonymous := routes.TLS{CAFile: good.CAFile, ServerName: "backend.test"}
	if got, err := ask(anonymous); got != `{"who":"nobody","proto":"HTTP/2.0"}` {
		t.Errorf("without a certificate: %s, %v", got, err)
	}
	for name, files := range map[string]routes.TLS{
		"system roots":         {ServerName: "backend.test"},
		"another authority":    {CAFile: file("other.pem", other.pem()), ServerName: "backend.test"},
		"another name":         {CAFile: good.CAFile},
		"no such file":         {CAFile: filepath.Join(dir, "none")},
		"no certificate in it": {CAFile: file("empty.pem", []byte("x"))},
		"a key without":        {CAFile: good.CAFile, KeyFile: good.KeyFile},
		"key of another":       {CAFile: good.CAFile, CertFile: good.CertFile, KeyFile: file("k2.pem", serverKey)},
	} {
		_, err := ask(files)
		if f, ok := errors.AsType[*Failure](err); !ok || f.Reason != ReasonUnreachable || f.Sent {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An HTTP/2 backend that says GOAWAY, or refuses the stream, has seen the headers: the call is not sent again, though net/http could.
func TestHTTP2IsNotReplayed(t *testing.T) {
	t.Parallel()
	const (
		frameHeaders   = 1
		frameRST       = 3
		frameSettings  = 4
		frameGoAway    = 7
		refusedStream  = 7
		frameHeaderLen = 9
	)
	frame := func(kind, flags byte, stream uint32, payload ...byte) []byte {
		n := len(payload)
		return append([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream)}, payload...)
	}
	for name, refusal := range map[string][]byte{
		"GOAWAY, nothing processed": frame(frameGoAway, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
		"stream refused":            frame(frameRST, 0, 1, 0, 0, 0, refusedStream),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := newAuthority(t)
			cert, key := ca.issue(t, "backend.test")
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			b := serve(t, func(b *rawBackend, raw net.Conn, _ int) {
				conn := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
				read := func(n int) []byte {
					buf := make([]byte, n)
					for i := 0; i < n; {
						m, err := conn.Read(buf[i:])
						if err != nil {
							return nil
						}
						i += m
					}
					return buf
				}
				if read(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) == nil {
					return
				}
				conn.Write(frame(frameSettings, 0, 0))
				for {
					h := read(frameHeaderLen)
					if h == nil || len(h) > 0 && read(int(h[0])<<16|int(h[1])<<8|int(h[2])) == nil {
						return
					}
					switch h[3] {
					case frameSettings:
						if h[4] == 0 {
							conn.Write(frame(frameSettings, 1, 0))
						}
					case frameHeaders:
						b.mu.Lock()
						b.calls++
						b.mu.Unlock()
						conn.Write(refusal)
					}
				}
			})
			path := filepath.Join(t.TempDir(), "ca.pem")
			write(t, path, ca.pem())
			call := simpleCall(strings.Replace(b.url, "http:", "https:", 1))
			call.Backend.TLS = routes.TLS{CAFile: path, ServerName: "backend.test"}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err = newClient(t, Options{}).Do(ctx, call)
			_, calls := b.counts()
			if f, ok := errors.AsType[*Failure](err); !ok || !f.Sent || f.Reason != ReasonReset || calls != 1 {
				t.Errorf("%v, %d calls", err, calls)
			}
		})
	}
}
