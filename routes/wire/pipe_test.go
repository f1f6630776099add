package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/weir-mcp/weir/routes/access"
)

// pipeServer serves an endpoint over net.Pipe, so that tests in a synctest bubble have its clock: a write blocks until the
// other side reads, and deadlines come when nobody runs.
type pipeServer struct {
	server *http.Server
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func servePipes(t *testing.T, o Options, http2 bool) *pipeServer {
	t.Helper()
	if o.Auth == nil {
		o.Anonymous = access.Anonymous("acme")
	}
	e, err := NewEndpoint(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &pipeServer{server: &http.Server{Handler: e, ConnContext: ConnContext}, conns: make(chan net.Conn), closed: make(chan struct{})}
	if http2 {
		p.server.Protocols = new(http.Protocols)
		p.server.Protocols.SetUnencryptedHTTP2(true)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.server.Serve(PatientListener(p)); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(func() {
		_ = p.server.Close()
		<-done
	})
	return p
}

func (p *pipeServer) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipeServer) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipeServer) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (p *pipeServer) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// client returns a client whose connections are closed at the end of the test.
func (p *pipeServer) client(t *testing.T, http2 bool) *http.Client {
	tr := &http.Transport{DialContext: p.dial}
	if http2 {
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// legacyCall builds a tools/call of a legacy client.
func legacyCall(ctx context.Context, url, tool string) *http.Request {
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `"}}`
	return post(ctx, url, strings.NewReader(body))
}

func post(ctx context.Context, url string, body io.Reader) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		panic(err) // a test's own URL
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Protocol-Version", LatestLegacy)
	return r
}

// do makes a call and reads its answer whole.
func do(t *testing.T, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatalf("read %q, then %v", b.String(), err)
	}
	return resp, b.String()
}
