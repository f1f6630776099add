package process

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// kept is one connection that a client keeps alive, by hand, so that nothing is retried.
type kept struct {
	t    *testing.T
	conn net.Conn
	tr   *http.Transport
}

func keep(t *testing.T, addr string) *kept {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	k := &kept{t: t, conn: conn}
	var used atomic.Bool
	k.tr = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		if used.Swap(true) {
			return nil, errors.New("the connection was not kept")
		}
		return conn, nil
	}}
	t.Cleanup(func() { k.tr.CloseIdleConnections(); conn.Close() })
	return k
}

func (k *kept) post() (closes bool, err error) {
	req, err := http.NewRequest(http.MethodPost, "http://"+k.conn.RemoteAddr().String(), strings.NewReader("x"))
	if err != nil {
		return false, err
	}
	resp, err := k.tr.RoundTrip(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Close, err
}

func TestServeLingersOnConnectionsThatAreKept(t *testing.T) {
	for name, tt := range map[string]struct {
		linger time.Duration
		served bool // a request on a kept connection after the listener has closed
	}{
		"as long as it was told": {time.Hour, true},
		"not without being told": {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := Listen("127.0.0.1:0", ListenTLS{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			drain, cut := context.WithCancel(context.Background())
			defer cut()
			var draining atomic.Bool
			done := make(chan error, 1)
			go func() {
				done <- ServeLingering(ctx, NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if draining.Load() {
						w.Header().Set("Connection", "close")
					}
				}), nil), ln, drain, tt.linger)
			}()
			k := keep(t, ln.Addr().String())
			if closes, err := k.post(); err != nil || closes {
				t.Fatalf("the first request: closes is %v, %v", closes, err)
			}
			draining.Store(true)
			stop()
			for { // new connections stop
				c, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					break
				}
				c.Close()
			}
			if tt.served {
				if closes, err := k.post(); err != nil || !closes {
					t.Errorf("a request on a kept connection: closes is %v, %v", closes, err)
				}
				cut() // the connections that the loop above made are idle for less than the hour
			} else if err := <-done; err != nil {
				t.Fatalf("Serve: %v", err)
			} else if _, err := k.post(); err == nil {
				t.Error("a request was served by a server that had stopped")
			} else {
				done <- nil
			}
			if err := <-done; err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
	}
}

func TestServeEndsWhenKeptConnectionsAreIdleLongEnough(t *testing.T) {
	ln, err := Listen("127.0.0.1:0", ListenTLS{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() {
		done <- ServeLingering(ctx, NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil), ln, nil, 50*time.Millisecond)
	}()
	k := keep(t, ln.Addr().String())
	if _, err := k.post(); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-done; err != nil { // hangs if it does not end
		t.Errorf("Serve: %v", err)
	}
	if n, err := k.conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("the connection is still open: %d bytes", n)
	}
}

// Whoever got a connection gets an answer: a listener that closes resets nobody.
func TestServeAnswersEveryConnectionThatWasOpened(t *testing.T) {
	dir := t.TempDir()
	secure := ListenTLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	trust := &tls.Config{RootCAs: writeCert(t, secure, 1)}
	for name, tt := range map[string]struct {
		listen ListenTLS
		dial   func(addr string) (net.Conn, error)
	}{
		"plain":            {ListenTLS{}, func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) }},
		"plain, once more": {ListenTLS{}, func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) }},
		"TLS":              {secure, func(addr string) (net.Conn, error) { return tls.Dial("tcp", addr, trust) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ln, err := Listen("127.0.0.1:0", tt.listen)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			done := make(chan error, 1)
			go func() {
				done <- Serve(ctx, NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Connection", "close")
				}), nil), ln, nil)
			}()
			var answered atomic.Int64
			var callers sync.WaitGroup
			for range 8 {
				callers.Go(func() {
					for {
						conn, err := tt.dial(ln.Addr().String())
						if err != nil {
							if !errors.Is(err, syscall.ECONNREFUSED) {
								t.Errorf("dial: %v", err)
							}
							return
						}
						_, werr := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
						answer, rerr := io.ReadAll(conn)
						conn.Close()
						if werr != nil || rerr != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
							t.Errorf("after %d answers: %q, %v, %v", answered.Load(), answer, werr, rerr)
							return
						}
						if answered.Add(1) == 100 {
							stop()
						}
					}
				})
			}
			callers.Wait()
			stop() // they may all have failed
			if err := <-done; err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
	}
}
