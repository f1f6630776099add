package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// okBackend answers every call.
func okBackend(t *testing.T) *scripted {
	return newScripted(t, modernVersion, func(w http.ResponseWriter, _ *http.Request, m message) { writeResult(w, m, done("ok")) })
}

func TestTheBudgetOfMCPHeaders(t *testing.T) {
	t.Parallel()
	g := startGateway(t, okBackend(t).yaml("b", ""), "")
	repeat := func(n int, format string) (lines []string) {
		for i := range n {
			lines = append(lines, fmt.Sprintf(format, i))
		}
		return lines
	}
	total := func(last int) []string { // eight values of the greatest size and a last one; names count
		lines := repeat(7, "Mcp-Param-A%d: "+strings.Repeat("x", 8192))
		sum := 7 * (len("Mcp-Param-A0") + 8192)
		return append(lines, "Mcp-Param-Rest: "+strings.Repeat("x", 65536-sum-len("Mcp-Param-Rest")+last))
	}
	for name, tt := range map[string]struct {
		lines []string
		want  int
	}{
		"32 headers":              {repeat(32, "Mcp-Param-A%d: x"), http.StatusUnauthorized},
		"33 headers":              {repeat(33, "Mcp-Param-A%d: x"), http.StatusRequestHeaderFieldsTooLarge},
		"33 times the same":       {repeat(33, "Mcp-Name: %d"), http.StatusRequestHeaderFieldsTooLarge},
		"33 of other kinds":       {repeat(33, "X-Other-%d: x"), http.StatusUnauthorized},
		"a value of 8192 bytes":   {[]string{"mcp-name: " + strings.Repeat("x", 8192)}, http.StatusUnauthorized},
		"a value of 8193 bytes":   {[]string{"mcp-name: " + strings.Repeat("x", 8193)}, http.StatusRequestHeaderFieldsTooLarge},
		"65,536 bytes in all":     {total(0), http.StatusUnauthorized},
		"65,537 bytes in all":     {total(1), http.StatusRequestHeaderFieldsTooLarge},
		"300 KiB of other header": {[]string{"X-Other: " + strings.Repeat("x", 300<<10)}, http.StatusRequestHeaderFieldsTooLarge},
	} {
		nobody := client{url: g.url(), version: legacyVersion} // no token: the budget is checked before it
		conn := dial(t, nobody)
		head := fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n%s\r\n\r\n{}", conn.RemoteAddr(), strings.Join(tt.lines, "\r\n"))
		go io.WriteString(conn, head) // the server may answer before all of it is taken
		resp := readResponse(t, conn)
		if resp.StatusCode != tt.want {
			t.Errorf("%s: status %d, want %d", name, resp.StatusCode, tt.want)
		}
		conn.Close()
	}
}

func TestTheLimitOfABody(t *testing.T) {
	t.Parallel()
	b := okBackend(t)
	g := startGateway(t, b.yaml("b", ""), "  limits: {body: 8KiB}\n")
	c := g.client(t, "alice", modernVersion)
	params := func(size int) string {
		const format = `{"name":"b__run","arguments":{"x":"%s"}}`
		return fmt.Sprintf(format, strings.Repeat("x", size-len(c.body("1", "tools/call", fmt.Sprintf(format, "")))))
	}
	for _, chunked := range []bool{false, true} {
		for size, want := range map[int]int{8 << 10: http.StatusOK, 8<<10 + 1: http.StatusRequestEntityTooLarge} {
			p := params(size)
			req, err := http.NewRequest(http.MethodPost, c.url, strings.NewReader(c.body("1", "tools/call", p)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = c.headers("tools/call", p)
			if chunked {
				req.ContentLength, req.Body = -1, io.NopCloser(req.Body)
			}
			resp, err := httpClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%d bytes, chunked %v: status %d, want %d", size, chunked, resp.StatusCode, want)
			}
		}
	}
	if n := len(b.ofMethod("tools/call")); n != 2 {
		t.Errorf("%d calls reached the backend, want the two that fit", n)
	}
}

// Heads that never end, bodies that never end: others are served meanwhile, and slow heads are cut.
func TestSlowClientsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	const each = 100
	g := startGateway(t, okBackend(t).yaml("b", ""), "")
	c := g.client(t, "alice", modernVersion)
	params := `{"name":"b__run","arguments":{}}`
	var slowHeads []net.Conn
	for i := range each {
		head, body := dial(t, c), dial(t, c)
		text := headOf(head, c, params, 1000)
		if _, err := io.WriteString(head, text[:40+i]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(body, text+"\r\n{"); err != nil {
			t.Fatal(err)
		}
		slowHeads = append(slowHeads, head)
	}
	stop := make(chan struct{})
	var drip sync.WaitGroup
	defer drip.Wait()
	defer close(stop)
	for _, conn := range slowHeads[:10] { // these go on, byte by byte
		drip.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
					if _, err := io.WriteString(conn, "x"); err != nil {
						return
					}
				}
			}
		})
	}
	for range 20 {
		if got := text(t, c.must(t, "tools/call", params)); got != "ok" {
			t.Fatalf("another client got %q", got)
		}
	}
	if testing.Short() {
		t.Skip("-short: a head has 10 s")
	}
	for _, conn := range slowHeads {
		_, err := io.Copy(io.Discard, conn)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Fatalf("a head that never ended was not cut within %v", patience)
		}
	}
}

// A client that sends headers without an end is answered, or cut, before it has sent much, and costs no memory.
func TestAFloodOfHeadersIsCut(t *testing.T) {
	t.Parallel()
	g := startGateway(t, okBackend(t).yaml("b", ""), "")
	c := g.client(t, "alice", modernVersion)
	c.must(t, "tools/call", `{"name":"b__run","arguments":{}}`)
	before := residentKiB(t, g.cmd.Process.Pid)
	line := "X-Flood: " + strings.Repeat("x", 1000) + "\r\n"
	for range 20 {
		conn := dial(t, c)
		answered := make(chan int, 1)
		go func() {
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				answered <- 0
				return
			}
			answered <- resp.StatusCode
			conn.Close()
		}()
		sent := 0
		_, err := io.WriteString(conn, strings.TrimSuffix(headOf(conn, c, `{}`, 2), "\r\n")+"\r\n")
		for err == nil && sent < 1<<30 {
			var n int
			n, err = io.WriteString(conn, line)
			sent += n
		}
		if status := soon(t, "the answer", answered); status != 0 && status != http.StatusRequestHeaderFieldsTooLarge || sent > 32<<20 {
			t.Errorf("status %d after %d bytes of headers", status, sent)
		}
	}
	if grown := residentKiB(t, g.cmd.Process.Pid) - before; grown > 64<<10 && !raceEnabled {
		t.Errorf("the process grew by %d KiB", grown)
	}
	c.must(t, "tools/call", `{"name":"b__run","arguments":{}}`)
}

// Thousands of clients that keep a connection and say nothing.
func TestIdleConnectionsLeaveRoom(t *testing.T) {
	t.Parallel()
	want := 10_000
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < limit.Max {
		limit.Cur = limit.Max
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Logf("the limit on open files stays: %v", err)
		}
	}
	if limit.Cur < 12_000 || raceEnabled || testing.Short() {
		want = 2_000
	}
	g := startGateway(t, okBackend(t).yaml("b", ""), "")
	c := g.client(t, "alice", modernVersion)
	before := residentKiB(t, g.cmd.Process.Pid)
	conns := make([]net.Conn, want)
	var wg sync.WaitGroup
	for worker := range 20 {
		wg.Go(func() {
			for i := worker; i < want; i += 20 {
				conn, err := net.Dial("tcp", g.ready["listen"])
				if err != nil {
					t.Error(err)
					return
				}
				conns[i] = conn
				fmt.Fprintf(conn, "GET /nothing HTTP/1.1\r\nHost: %s\r\n\r\n", g.ready["listen"])
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil) // a connection that has served is idle, not new
				if err != nil || resp.StatusCode != http.StatusNotFound {
					t.Errorf("connection %d: %v, %v", i, resp, err)
					return
				}
			}
		})
	}
	wg.Wait()
	defer func() {
		for _, conn := range conns {
			if conn != nil {
				conn.Close()
			}
		}
	}()
	after := residentKiB(t, g.cmd.Process.Pid)
	t.Logf("%d idle connections: %d KiB resident, %d before, %d bytes each", want, after, before, (after-before)<<10/want)
	if grown := after - before; grown > 400<<10 && !raceEnabled {
		t.Errorf("they cost %d KiB", grown)
	}
	for range 20 {
		if got := text(t, c.must(t, "tools/call", `{"name":"b__run","arguments":{}}`)); got != "ok" {
			t.Errorf("a call among them answered %q", got)
		}
	}
	one := make([]byte, 1)
	for _, i := range []int{0, want / 2, want - 1} { // they are still open: nothing comes
		conns[i].SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := conns[i].Read(one); err == nil || !err.(net.Error).Timeout() {
			t.Errorf("connection %d was closed: %v", i, err)
		}
	}
}
