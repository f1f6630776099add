package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
)

// stopping is one dataplane that is about to get SIGTERM, and a call on it that runs.
type stopping struct {
	*process
	client client
	http   *http.Client
	work   *workBackend
	stream *http.Response // of the running call
}

// newStopping starts a dataplane of its own before the given pair's Redis, and a call that runs until it is released.
func newStopping(t *testing.T, p *pair, work *workBackend, drain string) *stopping {
	t.Helper()
	d := start(t, "weir-dataplane", "--config", p.dataplaneConfig(t, "127.0.0.1:0", "127.0.0.1:0", drain, "reject"))
	s := &stopping{process: d, client: client{url: d.url(), token: p.token(t, "acme"), version: "2026-07-28"}, http: keepAliveClient(t), work: work}
	eventually(t, "the host is served", func() error { return s.echo(s.http, nil) })
	var err error
	if s.stream, err = s.client.begin(context.Background(), keepAliveClient(t), "tools/call",
		`{"name":"hold","arguments":{"n":"held"},"_meta":{"progressToken":"p"}}`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stream.Body.Close() })
	<-work.held
	return s
}

// echo makes a short call. closes, where it is not nil, is set to whether the answer said Connection: close.
func (s *stopping) echo(h *http.Client, closes *bool) error {
	resp, err := s.client.begin(context.Background(), h, "tools/call", `{"name":"echo","arguments":{"n":"short"}}`)
	if err != nil {
		return err
	}
	if closes != nil {
		*closes = resp.Close
	}
	a, err := readAnswer(resp)
	if err == nil && !strings.Contains(a.body, `"text":"short"`) {
		err = fmt.Errorf("status %d: %s", a.status, a.body)
	}
	return err
}

func (s *stopping) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// untilDraining waits until /readyz is 503.
func (s *stopping) untilDraining(t *testing.T) {
	t.Helper()
	eventually(t, "/readyz says draining", func() error {
		status, body, err := get("http://" + s.ready["ops"] + "/readyz")
		if err == nil && (status != http.StatusServiceUnavailable || !strings.Contains(body, `"draining"`)) {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
}

// untilRefused waits until new connections are refused.
func (s *stopping) untilRefused(t *testing.T) {
	t.Helper()
	eventually(t, "new connections are refused", func() error {
		conn, err := net.Dial("tcp", s.ready["listen"])
		if err != nil {
			return nil
		}
		conn.Close()
		return errNotYet
	})
}

// rest is what the running call's stream still brings.
func (s *stopping) rest(t *testing.T) string {
	t.Helper()
	b, err := io.ReadAll(s.stream.Body)
	if err != nil {
		t.Errorf("the stream was torn: %v, after %q", err, b)
	}
	return string(b)
}

func TestDrain(t *testing.T) {
	t.Parallel()
	install := func(t *testing.T, drain string) *stopping {
		t.Helper()
		b := newWorkBackend(t, new(ledger))
		p := newPair(t, fmt.Sprintf("  work: {url: %q}\n", b.url), "  acme: {backends: [{name: work}]}\n")
		return newStopping(t, p, b, drain)
	}

	t.Run("what runs finishes, and nobody is turned away before the delay is over", func(t *testing.T) {
		s := install(t, "{delay: 4s, deadline: 60s}")
		kept := keepAliveClient(t)
		var closes bool
		if err := s.echo(kept, &closes); err != nil || closes {
			t.Fatalf("before SIGTERM: %v, Connection: close is %v", err, closes)
		}
		s.signal(t, syscall.SIGTERM)
		s.untilDraining(t)
		for name, h := range map[string]*http.Client{"a kept connection": kept, "a new connection": keepAliveClient(t)} {
			if err := s.echo(h, &closes); err != nil || !closes {
				t.Errorf("%s while it drains: %v, Connection: close is %v", name, err, closes)
			}
		}
		s.untilRefused(t)
		s.untilDraining(t) // the ops listener is there to the last
		close(s.work.release)
		if got := s.rest(t); !strings.Contains(got, `"text":"held"`) {
			t.Errorf("the call that ran got %q", got)
		}
		if code := s.wait(t); code != 0 {
			t.Errorf("exit status %d, want 0", code)
		}
	})

	t.Run("what runs past the deadline gets an error", func(t *testing.T) {
		s := install(t, "{delay: 0s, deadline: 500ms}")
		silent := make(chan error, 1)
		go func() {
			a, err := s.client.over(s.http, "tools/call", `{"name":"silent","arguments":{"n":"silent"}}`)
			if err == nil && (a.status != http.StatusOK || a.rpc.Error == nil || a.rpc.Error.Code != -32603) {
				err = fmt.Errorf("status %d: %s", a.status, a.body)
			}
			silent <- err
		}()
		<-s.work.held
		s.signal(t, syscall.SIGINT)
		if err := <-silent; err != nil {
			t.Errorf("a call that had no answer yet: %v, want -32603", err)
		}
		got := s.rest(t)
		if !strings.Contains(got, `"code":-32603`) || !strings.HasSuffix(got, "\n\n") {
			t.Errorf("the stream ended with %q, want a whole event with an error", got)
		}
		<-s.work.left // the backend was told, of both calls
		<-s.work.left
		if code := s.wait(t); code != 0 {
			t.Errorf("exit status %d, want 0", code)
		}
	})

	for name, sig := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run("a second signal ends it at once: "+name, func(t *testing.T) {
			s := install(t, "{delay: 1h, deadline: 1h}")
			s.signal(t, syscall.SIGTERM)
			s.untilDraining(t)
			s.signal(t, sig)
			if code := s.wait(t); code != 1 {
				t.Errorf("exit status %d, want 1", code)
			}
			if b, err := io.ReadAll(s.stream.Body); err == nil {
				t.Errorf("the stream ended as if it was whole: %q", b)
			}
		})
	}
}
