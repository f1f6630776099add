package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serveBackend serves h on a free port, tells the address on stdout, and ends with ctx.
func serveBackend(ctx context.Context, h http.Handler) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	fmt.Fprintln(os.Stdout, ln.Addr())
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serveProxy is the yardstick: the standard library's reverse proxy with a connection pool that fits the load, nothing else.
func serveProxy(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("proxy: want the backend's URL")
	}
	target, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: target.Scheme, Host: target.Host})
	proxy.Transport = &http.Transport{MaxIdleConns: 0, MaxIdleConnsPerHost: 1024, DisableCompression: true}
	return serveBackend(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without it net/http ends the request's body at the first flush of an answer, and the transport, which may not have seen
		// the body's end yet, then cuts the answer: seen once in some hundred answers of 4 KiB.
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1 has it
		proxy.ServeHTTP(w, r)
	}))
}

// modernBackend echoes arguments.message of a tools/call whose id is 1, with as little work as can be.
func modernBackend(stream bool) http.Handler {
	const before, after = `"message":"`, `"}`
	media, prefix, suffix := "application/json", "", ""
	if stream {
		media, prefix, suffix = "text/event-stream", "data: ", "\n\n"
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := bytes.NewBuffer(make([]byte, 0, max(r.ContentLength, 512)+bytes.MinRead))
		if _, err := body.ReadFrom(r.Body); err != nil {
			return // the client went away
		}
		_, message, _ := bytes.Cut(body.Bytes(), []byte(before))
		message, _, _ = bytes.Cut(message, []byte(after))
		const head, tail = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"`, `"}]}}`
		w.Header().Set("Content-Type", media)
		w.Header().Set("Content-Length", strconv.Itoa(len(prefix)+len(head)+len(message)+len(tail)+len(suffix)))
		io.WriteString(w, prefix+head)
		w.Write(message)
		io.WriteString(w, tail+suffix)
	})
}

// legacyBackend is the SDK's server with sessions; each call through Weir costs it a handshake.
func legacyBackend(stream bool) http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1"}, &mcp.ServerOptions{SupportedProtocolVersions: []string{"2025-11-25"}})
	type input struct {
		Message string `json:"message"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Message}}}, nil, nil
	})
	stateful := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{JSONResponse: !stream})
	// The bare proxy can't shake hands: what it forwards has no session, and goes to a stateless twin.
	stateless := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{JSONResponse: !stream, Stateless: true})
	mux := http.NewServeMux()
	mux.Handle("/mcp", stateful)
	mux.Handle("/stateless", stateless)
	return mux
}
