package process

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// start serves h until the test ends, and returns its address, a function that stops it and one that cuts what runs.
func start(t *testing.T, h http.Handler, lt ListenTLS) (addr string, stop func(), cut func(), done <-chan error) {
	t.Helper()
	ln, err := Listen("127.0.0.1:0", lt)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	drain, cut := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, NewServer(h, nil), ln, drain) }()
	t.Cleanup(func() { stop(); cut() })
	return ln.Addr().String(), stop, cut, ended
}

func TestServeFinishesWhatRuns(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	addr, stop, _, done := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		_, _ = io.WriteString(w, "finished")
	}), ListenTLS{})
	body := make(chan string, 1)
	go func() {
		resp, err := http.Get("http://" + addr)
		if err != nil {
			body <- err.Error()
			return
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		body <- string(b)
	}()
	<-entered
	stop()
	for { // new connections stop
		c, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		_ = c.Close()
	}
	close(release)
	if got := <-body; got != "finished" {
		t.Errorf("the running request got %q", got)
	}
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestServeCutsAfterTheDrain(t *testing.T) {
	entered, gone := make(chan struct{}), make(chan struct{})
	addr, stop, cut, done := start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(gone)
	}), ListenTLS{})
	failed := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + addr)
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
	}()
	<-entered
	stop()
	cut()
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := <-failed; err == nil {
		t.Error("the cut request got an answer")
	}
	<-gone
}

func TestServeReportsADeadListener(t *testing.T) {
	ln, err := Listen("127.0.0.1:0", ListenTLS{})
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	if err := Serve(t.Context(), NewServer(http.NotFoundHandler(), nil), ln, t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve = %v, want one that wraps net.ErrClosed", err)
	}
}

func TestServerLetsOurHeaderLimitDecide(t *testing.T) {
	addr, _, _, _ := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}), ListenTLS{})
	req, err := http.NewRequest(http.MethodGet, "http://"+addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Mcp-Name", strings.Repeat("x", 128<<10))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusTeapot {
		t.Errorf("128 KiB of headers: %s, want the handler's own answer", resp.Status)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestServerLogsAtDebug(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	NewServer(nil, zap.New(core)).ErrorLog.Print("http: bad client")
	all := logs.AllUntimed()
	if len(all) != 1 || all[0].Level != zap.DebugLevel || all[0].Message != "http: bad client" {
		t.Errorf("logged %v", all)
	}
}

func TestIsLoopback(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:1": true, "127.8.8.8:1": true, "[::1]:1": true, "0.0.0.0:1": false, "[::]:1": false, "192.0.2.1:1": false} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := IsLoopback(a); got != want {
			t.Errorf("IsLoopback(%s) = %v", addr, got)
		}
	}
}

func TestOpsHandler(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_test_total", Help: "Test."})
	reg.MustRegister(c)
	c.Inc()
	var ready error
	h := OpsHandler(reg, func() (map[string]any, error) { return map[string]any{"hosts": 3}, ready })
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	if code, body := get("/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("/healthz: %d %q", code, body)
	}
	check := func(wantCode int, want map[string]any) {
		t.Helper()
		code, body := get("/readyz")
		var got map[string]any
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); code != wantCode || diff != "" {
			t.Errorf("/readyz: %d, want %d (-want +got):\n%s", code, wantCode, diff)
		}
	}
	check(200, map[string]any{"ready": true, "hosts": 3.0})
	ready = errors.New("redis not reached yet")
	check(503, map[string]any{"ready": false, "hosts": 3.0, "reason": "redis not reached yet"})
	if code, body := get("/metrics"); code != 200 || !strings.Contains(body, "weir_test_total 1") {
		t.Errorf("/metrics: %d %q", code, body)
	}
	if code, _ := get("/"); code != 404 {
		t.Errorf("/: %d, want 404", code)
	}
}

// writeCert writes a fresh self-signed certificate with the given serial number.
func writeCert(t *testing.T, lt ListenTLS, serial int64) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "weir"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, data := range map[string][]byte{lt.CertFile: certPEM, lt.KeyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return pool
}

func TestListenTLSReloads(t *testing.T) {
	dir := t.TempDir()
	lt := ListenTLS{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	writeCert(t, lt, 1)
	var reports []string
	cfg, err := lt.ConfigReporting(func(err error) {
		if err != nil {
			reports = append(reports, "refused")
		} else {
			reports = append(reports, "loaded")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	serial := func() int64 {
		t.Helper()
		got, err := cfg.GetConfigForClient(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(got.Certificates[0].Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.SerialNumber.Int64()
	}
	touch := func(name string) { // a newer modification time, whatever the clock's grain
		t.Helper()
		later := time.Now().Add(time.Hour)
		if err := os.Chtimes(name, later, later); err != nil {
			t.Fatal(err)
		}
	}
	await := func(want int64, wantReports ...string) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); len(reports) < len(wantReports); {
			if serial(); time.Now().After(deadline) {
				t.Fatal("the files' change was not noticed")
			}
		}
		if got := serial(); got != want {
			t.Errorf("certificate %d is served, want %d", got, want)
		}
		if diff := cmp.Diff(wantReports, reports); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	}
	await(1)
	if err := os.WriteFile(lt.KeyFile, []byte("half a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	await(1, "refused")
	writeCert(t, lt, 2)
	touch(lt.CertFile)
	await(2, "refused", "loaded")
}

func TestListenTLSServes(t *testing.T) {
	dir := t.TempDir()
	lt := ListenTLS{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	pool := writeCert(t, lt, 1)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	get := func(addr string, cfg *tls.Config) (string, error) {
		tr := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
		defer tr.CloseIdleConnections()
		resp, err := (&http.Client{Transport: tr}).Get("https://" + addr)
		if err != nil {
			return "", err
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	addr, _, _, _ := start(t, h, lt)
	if got, err := get(addr, &tls.Config{RootCAs: pool}); err != nil || got != "HTTP/2.0" {
		t.Errorf("got %q, %v", got, err)
	}
	lt.ClientCAFile = lt.CertFile
	addr, _, _, _ = start(t, h, lt)
	if _, err := get(addr, &tls.Config{RootCAs: pool}); err == nil {
		t.Error("a client without a certificate was served")
	}
	cert, err := tls.LoadX509KeyPair(lt.CertFile, lt.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := get(addr, &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}); err != nil || got != "HTTP/2.0" {
		t.Errorf("with its certificate: %q, %v", got, err)
	}
}

func TestListenTLSValidate(t *testing.T) {
	dir := t.TempDir()
	good := ListenTLS{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	writeCert(t, good, 1)
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		in   ListenTLS
		want string
	}{
		"nothing":                {ListenTLS{}, ""},
		"a pair":                 {good, ""},
		"no key":                 {ListenTLS{CertFile: good.CertFile}, "tls.key_file: missing"},
		"a client CA alone":      {ListenTLS{ClientCAFile: good.CertFile}, "tls.cert_file: missing"},
		"no such file":           {ListenTLS{CertFile: filepath.Join(dir, "no"), KeyFile: good.KeyFile}, "no such file"},
		"a CA file without a CA": {ListenTLS{CertFile: good.CertFile, KeyFile: good.KeyFile, ClientCAFile: empty}, "tls.client_ca_file: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.in.Validate("tls")
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Validate = %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := NewLogger("loud"); err == nil {
		t.Error("an unknown log level was taken")
	}
	if _, err := Listen("", ListenTLS{}); err == nil {
		t.Error("an empty address was taken")
	}
}
