package egress

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// lentCall is a call with about n bytes of arguments, which lie in memory that b lent.
func lentCall(t *testing.T, b *wire.Buffers, url string, n int) Call {
	t.Helper()
	arguments := `{"text":"` + strings.Repeat("x", n) + `"}`
	raw, memory, err := b.ReadBody(strings.NewReader(arguments), int64(len(arguments)), int64(len(arguments)))
	if err != nil {
		t.Fatal(err)
	}
	call := simpleCall(url)
	call.Params = call.Params.With("arguments", raw)
	call.Memory = memory
	return call
}

// lendsAgain reports whether b lends the memory of raw to another; raw is not looked at.
func lendsAgain(b *wire.Buffers, raw []byte) bool {
	n := len(raw)
	other, m, err := b.ReadBody(strings.NewReader(strings.Repeat("y", n)), int64(n), int64(n))
	if m != nil {
		defer m.Release()
	}
	return err == nil && &other[0] == &raw[0]
}

func TestLargeRequestsArriveWhole(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ tls, http2 bool }{"plain": {}, "TLS": {tls: true}, "HTTP/2": {tls: true, http2: true}} {
		for _, version := range []string{"2026-07-28", "2025-11-25"} {
			t.Run(name+", "+version, func(t *testing.T) {
				t.Parallel()
				got := make(chan string, 8)
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					var m struct{ Method string }
					if err != nil || json.Unmarshal(body, &m) != nil || m.Method != "tools/call" || int64(len(body)) != r.ContentLength {
						t.Errorf("%d bytes of %d, %v", len(body), r.ContentLength, err)
					}
					got <- string(body)
					w.Header().Set("Content-Type", "application/json")
					io.WriteString(w, strings.Replace(okDoc, "7", string(member(body, "id")), 1))
				}))
				call := lentCall(t, new(wire.Buffers), "", 1<<20)
				want := string(call.Params[1].Value)
				if call.Backend.Protocol = version; version == "2025-11-25" {
					call.Backend.Handshake = routes.HandshakeNone
				}
				if tt.tls {
					srv.EnableHTTP2 = tt.http2
					srv.StartTLS()
					path := filepath.Join(t.TempDir(), "ca.pem")
					write(t, path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
					call.Backend.TLS = routes.TLS{CAFile: path, ServerName: "example.com"}
				} else {
					srv.Start()
				}
				t.Cleanup(srv.Close)
				call.Backend.URL = srv.URL
				var writes int64
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
					if c, ok := info.Conn.(*meteredConn); ok {
						writes = -c.writes.Load()
						t.Cleanup(func() {
							if writes += c.writes.Load(); writes > 3 {
								t.Errorf("%d writes", writes)
							}
						})
					}
				}})
				a, err := newClient(t, Options{}).Do(ctx, call)
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				if m, err := a.Next(); err != nil || !m.Final {
					t.Fatal(err)
				}
				if body := <-got; string(member([]byte(member([]byte(body), "params")), "arguments")) != want {
					t.Errorf("%d bytes of params arrived", len(body))
				}
			})
		}
	}
}

// A backend may answer before it has read the request, which is then still being sent: its memory must not serve another call yet.
func TestMemoryIsHeldWhileARequestIsSent(t *testing.T) {
	t.Parallel()
	for name, whole := range map[string]bool{"the backend reads on": true, "the backend leaves": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const size = 8 << 20 // more than a socket takes whose other end does not read
			release, read := make(chan struct{}), make(chan error, 1)
			b := serve(t, func(b *rawBackend, conn net.Conn, _ int) {
				r := bufio.NewReader(conn)
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
				<-release
				if !whole {
					read <- nil
					return
				}
				var buf bytes.Buffer
				io.Copy(&buf, req.Body) // until the client leaves
				if strings.Trim(buf.String()[buf.Len()/2:], `x"}`) != "" {
					read <- errors.New("another call's bytes were sent")
					return
				}
				read <- nil
			})
			var buffers wire.Buffers
			call := lentCall(t, &buffers, b.url, size)
			raw := call.Params[1].Value
			a, err := newClient(t, Options{}).Do(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			call.Memory.Release() // the request is over, but for who sends it
			if lendsAgain(&buffers, raw) {
				t.Error("memory that is being sent was lent")
			}
			close(release)
			a.Close()
			if err := <-read; err != nil {
				t.Error(err)
			}
			for deadline := time.Now().Add(30 * time.Second); !lendsAgain(&buffers, raw); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the transport does not let go of the memory")
				}
			}
		})
	}
}

// net/http closes a body whenever it likes: while it is read, while it is written, more than once.
func TestOutgoingIsClosedAtAnyTime(t *testing.T) {
	t.Parallel()
	var buffers wire.Buffers
	for range 50 {
		call := lentCall(t, &buffers, "", 1<<20)
		o := newOutgoing([][]byte{[]byte("head"), call.Params[1].Value}, call.Memory)
		call.Memory.Release()
		here, there := net.Pipe()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = o.writeTo(here); here.Close() })
		wg.Go(func() { o.Close(); o.Close() })
		wg.Go(func() {
			got, _ := io.ReadAll(there)
			if strings.Trim(string(got), `head{"tx:}`) != "" {
				t.Errorf("%d bytes, among them foreign ones", len(got))
			}
		})
		wg.Wait()
		if n, err := o.Read(make([]byte, 10)); n != 0 || err == nil {
			t.Errorf("%d bytes were read after the end: %v", n, err)
		}
		if n, err := o.writeTo(here); n != 0 || err == nil {
			t.Errorf("%d bytes were written after the end: %v", n, err)
		}
	}
	if _, err := (&meteredConn{}).ReadFrom(io.LimitReader(newOutgoing(nil, nil), 0)); err != nil {
		t.Errorf("nothing to send: %v", err)
	}
}

// Answers of different callers never share memory while one of them looks at it.
func TestAnswersInMemoryThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			Params struct{ Arguments json.RawMessage }
		}
		_ = json.Unmarshal(body, &m)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":7,"result":`+string(m.Params.Arguments)+`}`)
	}))
	t.Cleanup(srv.Close)
	c := newClient(t, Options{})
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 10 {
				want := `{"text":"` + strings.Repeat(string(rune('a'+worker)), 100_000+i*100_000) + `"}`
				call := simpleCall(srv.URL)
				call.Params = call.Params.With("arguments", json.RawMessage(want))
				ctx, cancel := context.WithCancel(t.Context())
				a, err := c.Do(ctx, call)
				if err != nil {
					t.Error(err)
					cancel()
					return
				}
				m, err := a.Next()
				if err != nil || string(m.Result) != want || cap(m.Result) > cap(m.Doc) {
					t.Errorf("%d bytes, want %d: %v", len(m.Result), len(want), err)
				}
				if i%3 != 0 { // who forgets it loses nothing
					a.Free()
				}
				a.Close()
				a.Free()
				cancel()
			}
		})
	}
	wg.Wait()
}
