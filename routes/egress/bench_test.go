package egress

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-mcp/weir/routes"
)

// cannedServer answers every POST with one prepared answer and allocates next to nothing, so that what a benchmark counts is ours.
func cannedServer(tb testing.TB, contentType string, body string) string {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { ln.Close() })
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: " + contentType + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r := bufio.NewReader(conn)
				for {
					length := 0
					for {
						line, err := r.ReadSlice('\n')
						if err != nil {
							return
						}
						if len(line) == 2 {
							break
						}
						if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
							length, _ = strconv.Atoi(textproto.TrimString(string(v)))
						}
					}
					if _, err := r.Discard(length); err != nil {
						return
					}
					if _, err := conn.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String() + "/mcp"
}

func cannedResult(size int) string {
	return `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", size) + `"}],"resultType":"complete"}}`
}

func BenchmarkRelay(b *testing.B) {
	for name, tt := range map[string]struct {
		contentType, body string
	}{
		"json 64B":   {"application/json", cannedResult(64)},
		"json 4KiB":  {"application/json", cannedResult(4 << 10)},
		"json 1MiB":  {"application/json", cannedResult(1 << 20)},
		"stream 64B": {"text/event-stream", "data: " + cannedResult(64) + "\n\n"},
	} {
		b.Run(name, func(b *testing.B) {
			url := cannedServer(b, tt.contentType, tt.body)
			c, err := New(Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			call := callTool(url, "2026-07-28", "echo", `{"text":"hello"}`, "")
			call.RPCID = json.RawMessage("7")
			call.Header = http.Header{"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
			b.SetBytes(int64(len(tt.body)))
			b.ReportAllocs()
			for b.Loop() {
				a, err := c.Do(b.Context(), call)
				if err != nil {
					b.Fatal(err)
				}
				m, err := a.Next()
				if err != nil || !m.Final {
					b.Fatal(m, err)
				}
				a.Close()
			}
		})
		b.Run(name+", bare transport", func(b *testing.B) {
			url := cannedServer(b, tt.contentType, tt.body)
			tr := newTransport(Guard{}, newIdentity(routes.TLS{}), 0)
			defer tr.CloseIdleConnections()
			body := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}`)
			u, err := parseURL(url)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(tt.body)))
			b.ReportAllocs()
			for b.Loop() {
				req := (&http.Request{
					Method: http.MethodPost, URL: u, Host: u.Host,
					Header: http.Header{
						"Content-Type": valueJSON, "Accept": valueAccept, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"echo"},
						"Mcp-Protocol-Version": {"2026-07-28"}, "User-Agent": {"weir/0"},
						"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
					},
					Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
				}).WithContext(b.Context())
				resp, err := tr.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					b.Fatal(err)
				}
				resp.Body.Close()
			}
		})
	}
}

// BenchmarkLegacy counts the backend's work too: a net/http server in the same process. Compare it with "modern" of the same server.
func BenchmarkLegacy(b *testing.B) {
	s := &legacyServer{call: func(w http.ResponseWriter, _ *http.Request, id string) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[]}}`)
	}}
	srv := httptest.NewServer(s)
	defer srv.Close()
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		b.Run(version, func(b *testing.B) {
			c, err := New(Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			call := callTool(srv.URL, version, "echo", `{"text":"hello"}`, "")
			call.RPCID = json.RawMessage("7")
			b.ReportAllocs()
			for b.Loop() {
				a, err := c.Do(b.Context(), call)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := a.Next(); err != nil {
					b.Fatal(err)
				}
				a.Close()
			}
		})
	}
}

func BenchmarkPoolLookup(b *testing.B) {
	var ps pools
	be := &routes.Backend{URL: "https://backend.example.com/mcp", TLS: routes.TLS{CAFile: "/etc/weir/ca.pem"}}
	for i := range 1000 {
		if _, err := ps.get(routes.BackendID("backend-"+strconv.Itoa(i)), be); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ps.get("backend-500", be); err != nil {
			b.Fatal(err)
		}
	}
}
