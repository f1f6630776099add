package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// keepAliveClient makes requests over few connections that it keeps.
func keepAliveClient(t *testing.T) *http.Client {
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// load calls tools until it is stopped, and remembers what failed.
type load struct {
	t      *testing.T
	ledger *ledger
	stop   chan struct{}
	done   sync.WaitGroup

	next          atomic.Int64 // id of the next call
	calls, events atomic.Int64
	mu            sync.Mutex // guards failures
	failures      []string
}

// workers is how many calls are under way at once.
const workers = 16

// startLoad calls echo and slow, behind a modern and a legacy backend, and lists, with modern and legacy clients.
func startLoad(t *testing.T, url, token string, led *ledger) *load {
	l := &load{t: t, ledger: led, stop: make(chan struct{})}
	httpClient := keepAliveClient(t)
	versions := []string{"2026-07-28", "2025-11-25"}
	tools := []string{"m__slow", "l__slow", "m__echo", "l__echo"}
	for w := range workers {
		c := client{url: url, token: token, version: versions[w%2]}
		tool := tools[w/2%len(tools)]
		l.done.Go(func() {
			for i := 1; ; i++ {
				select {
				case <-l.stop:
					return
				default:
				}
				if strings.HasSuffix(tool, "echo") && i%50 == 0 {
					l.note(l.list(httpClient, c))
					continue
				}
				l.note(l.call(httpClient, c, tool))
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

// end stops the load and waits for its calls. It may be called again.
func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.done.Wait()
}

func (l *load) note(err error) {
	l.calls.Add(1)
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, err.Error())
}

// call makes one call, and checks all of its answer and that it ran once.
func (l *load) call(h *http.Client, c client, tool string) error {
	n := fmt.Sprint("call-", l.next.Add(1))
	params := fmt.Sprintf(`{"name":%q,"arguments":{"n":%q},"_meta":{"progressToken":%q}}`, tool, n, n)
	a, err := c.over(h, "tools/call", params)
	if err != nil {
		return fmt.Errorf("%s %s of %s: %w (it ran %d times)", n, tool, c.version, err, l.ledger.ran(n))
	}
	want := 0
	if strings.HasSuffix(tool, "slow") {
		want = progressEvents + 1
	}
	l.events.Add(int64(want))
	if ran := l.ledger.ran(n); ran != 1 || a.status != http.StatusOK || !strings.Contains(string(a.rpc.Result), `"text":"`+n+`"`) ||
		want > 0 && len(a.events) != want {
		return fmt.Errorf("%s %s of %s ran %d times, status %d, %d events, want %d: %s", n, tool, c.version, ran, a.status, len(a.events), want, a.body)
	}
	return nil
}

// list asks for a list, which the control plane answers.
func (l *load) list(h *http.Client, c client) error {
	a, err := c.over(h, "tools/list", "{}")
	if err != nil {
		return fmt.Errorf("tools/list of %s: %w", c.version, err)
	}
	if a.status != http.StatusOK || !strings.Contains(string(a.rpc.Result), `"m__slow"`) {
		return fmt.Errorf("tools/list of %s: status %d: %s", c.version, a.status, a.body)
	}
	return nil
}

// report fails the test for what failed.
func (l *load) report() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Logf("%d calls, %d failed; %d events of streams", l.calls.Load(), len(l.failures), l.events.Load())
	for i, f := range l.failures {
		if i == 10 {
			l.t.Errorf("and %d more", len(l.failures)-i)
			return
		}
		l.t.Error(f)
	}
}

// over is call with an HTTP client of one's own, which does not send anything twice.
func (c client) over(h *http.Client, method, params string) (*answer, error) {
	resp, err := c.begin(context.Background(), h, method, params)
	if err != nil {
		return nil, err
	}
	return readAnswer(resp)
}

// begin makes a request and leaves the answer's body to the caller.
func (c client) begin(ctx context.Context, h *http.Client, method, params string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(c.body("1", method, params)))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // without it net/http can't send the body again
	req.Header = c.headers(method, params)
	return h.Do(req)
}
