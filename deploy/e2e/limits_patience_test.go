package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A body that never ends is refused after its 30 s, and costs its backend nothing.
func TestABodyThatNeverEndsIsRefused(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: a body has 30 s")
	}
	b := okBackend(t)
	g := startGateway(t, b.yaml("b", ""), "")
	c := g.client(t, "alice", modernVersion)
	params := `{"name":"b__run","arguments":{}}`
	for name, begin := range map[string]string{"nothing of the body": "", "half of the body": c.body("1", "tools/call", params)[:20]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := dial(t, c)
			if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, headOf(conn, c, params, 1000)+"\r\n"+begin); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("no answer within %v: %v", patience, err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(body), "too long") {
				t.Errorf("%d %s, %v, want 408 that says why", resp.StatusCode, body, err)
			}
			if !resp.Close {
				t.Error("the connection stays open, with a request on it that never ended")
			}
			if n := len(b.ofMethod("tools/call")); n != 0 {
				t.Errorf("%d calls reached the backend", n)
			}
		})
	}
}

// A client that never reads loses its call after the 30 s that a write may take: the backend's work is not held for ever.
func TestAClientThatNeverReadsIsCut(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: a write has 30 s")
	}
	pad := strings.Repeat("x", 64<<10)
	ended := make(chan struct{}, 1)
	b := newScripted(t, modernVersion, func(w http.ResponseWriter, r *http.Request, m message) {
		stream(w)
		for i := 0; r.Context().Err() == nil; i++ {
			if _, err := io.WriteString(w, event(fmt.Sprintf(
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":%d,"message":%q}}`, i, pad))); err != nil {
				break
			}
			flush(w)
		}
		ended <- struct{}{}
	})
	g := startGateway(t, b.yaml("b", ""), "")
	c := g.client(t, "alice", modernVersion)
	params := fmt.Sprintf(withProgress, "nobody")
	conn := dial(t, c) // and not one byte is read from it
	body := c.body("1", "tools/call", params)
	if _, err := io.WriteString(conn, headOf(conn, c, params, len(body))+"\r\n"+body); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(2*patience, sync.OnceFunc(func() { conn.Close() })) // so that a failure ends, too
	defer late.Stop()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatalf("the backend still writes after %v", patience)
	}
}
