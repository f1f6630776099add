package call

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// controlPlane is a server that stands for the control plane; paths are kept.
func controlPlane(t *testing.T, f func(w http.ResponseWriter, r *http.Request, body string)) *Delegate {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		f(w, r, string(body))
	}))
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		srv.CloseClientConnections()
		srv.Close()
	})
	base, err := url.Parse(srv.URL + "/base/")
	if err != nil {
		t.Fatal(err)
	}
	return &Delegate{Transport: transport, Base: base}
}

func TestDelegatedMethodsAreRelayedByteForByte(t *testing.T) {
	const list = "{\"jsonrpc\":\"2.0\",\n \"id\":9007199254740993,\"result\":{\"resultType\":\"complete\",\"tools\":[{\"name\":\"a\",\"n\":1e400}]}}"
	var got struct {
		path, body string
		header     http.Header
	}
	d := controlPlane(t, func(w http.ResponseWriter, r *http.Request, body string) {
		got.path, got.body, got.header = r.URL.Path, body, r.Header.Clone()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Set-Cookie", "a=b")
		io.WriteString(w, list)
	})
	g := newGateway(t, host(result(t, `{}`), modern), func(o *Options) { o.Delegate = d })
	bothVersions(t, func(t *testing.T, version string) {
		r := request{version: version, id: "9007199254740993", method: "tools/list", params: `{"cursor":"\u0041","f":1.0}`,
			header: http.Header{"X-Private": {"1"}, "Origin": nil}}
		a := g.ask(t, r)
		if a.status != 200 || a.body != list || a.header.Get("Set-Cookie") != "" {
			t.Errorf("status %d, %v: %q", a.status, a.header, a.body)
		}
		if diff := cmp.Diff(r.withDefaults().body(), got.body); diff != "" {
			t.Errorf("what the control plane got (-want +got):\n%s", diff)
		}
		if got.path != "/base/mcp" {
			t.Errorf("path %q", got.path)
		}
		for name, want := range map[string]string{
			"Authorization": "Bearer alice", "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Protocol-Version": version, "Cookie": "", "X-Private": "", "Idempotency-Key": "",
		} {
			if v := got.header.Get(name); v != want {
				t.Errorf("%s: %q, want %q", name, v, want)
			}
		}
		if version == modern && got.header.Get("Mcp-Method") != "tools/list" {
			t.Errorf("Mcp-Method %q", got.header.Get("Mcp-Method"))
		}
	})
}

func TestDelegatedErrorsKeepStatusAndChallenge(t *testing.T) {
	const refusal = `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"insufficient scope"}}`
	d := controlPlane(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope"`)
		w.WriteHeader(403)
		io.WriteString(w, refusal)
	})
	g := newGateway(t, host(result(t, `{}`), modern), func(o *Options) { o.Delegate = d })
	a := g.ask(t, request{method: "tools/list"})
	if a.status != 403 || a.body != refusal || a.header.Get("WWW-Authenticate") == "" {
		t.Errorf("status %d, %v: %s", a.status, a.header, a.body)
	}
}

// A subscription's events come one by one, and its end is the response.
func TestDelegatedStreams(t *testing.T) {
	const ack = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`
	const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`
	next, left := make(chan struct{}), make(chan struct{}, 1)
	d := controlPlane(t, func(w http.ResponseWriter, r *http.Request, body string) {
		stream(w, func(send func(string)) {
			send(ack)
			select {
			case <-next:
			case <-r.Context().Done():
				left <- struct{}{}
				return
			}
			send(changed)
			if !strings.Contains(body, "cut") {
				send(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}`)
			}
		})
	})
	g := newGateway(t, host(result(t, `{}`), modern), func(o *Options) { o.Delegate = d })
	for name, tt := range map[string]struct{ params, last string }{
		"a whole one":           {`{}`, `"result"`},
		"one that is cut short": {`{"cut":1}`, `"reason":"reset"`},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := g.open(t.Context(), request{method: "subscriptions/listen", params: tt.params})
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			event := newEvents(resp.Body)
			if got, err := event(); got != ack {
				t.Errorf("%s, %v", got, err)
			}
			next <- struct{}{}
			if got, err := event(); got != changed {
				t.Errorf("%s, %v", got, err)
			}
			if got, err := event(); !strings.Contains(got, tt.last) {
				t.Errorf("%s, %v; want %s", got, err, tt.last)
			}
			if got, err := event(); err != io.EOF {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	t.Run("one whose client leaves", func(t *testing.T) {
		resp, err := g.open(t.Context(), request{method: "subscriptions/listen"})
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		<-left
	})
}

func TestTheControlPlaneFails(t *testing.T) {
	hang := make(chan struct{})
	for name, tt := range map[string]struct {
		delegate func(t *testing.T) *Delegate
		reason   string
	}{
		"away": {func(*testing.T) *Delegate {
			return &Delegate{Transport: &http.Transport{}, Base: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}}
		}, "unreachable"},
		"hanging": {func(t *testing.T) *Delegate {
			d := controlPlane(t, func(_ http.ResponseWriter, r *http.Request, _ string) {
				select {
				case <-r.Context().Done():
				case <-hang:
				}
			})
			d.Patience = 50 * time.Millisecond
			return d
		}, "timeout"},
		"failing": {func(t *testing.T) *Delegate {
			return controlPlane(t, func(w http.ResponseWriter, _ *http.Request, _ string) { w.WriteHeader(500) })
		}, "bad_response"},
		"redirecting": {func(t *testing.T) *Delegate {
			return controlPlane(t, func(w http.ResponseWriter, r *http.Request, _ string) {
				http.Redirect(w, r, "http://evil.invalid/", http.StatusTemporaryRedirect)
			})
		}, "bad_response"},
		"endless": {func(t *testing.T) *Delegate {
			d := controlPlane(t, func(w http.ResponseWriter, _ *http.Request, _ string) { io.WriteString(w, strings.Repeat("x", 1<<10)) })
			d.ResponseLimit = 1 << 9
			return d
		}, "too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, host(result(t, `{}`), modern), func(o *Options) { o.Delegate = tt.delegate(t) })
			a := g.ask(t, request{method: "tools/list"})
			if a.code() != -32603 || a.reason() != tt.reason || strings.Contains(a.body, "127.0.0.1") {
				t.Errorf("status %d: %s, want -32603 and %s", a.status, a.body, tt.reason)
			}
		})
	}
	close(hang)
}

// A method of another era is the control plane's to refuse, where it can be asked: it answers as a whole server does.
func TestAModernInitializeIsTheControlPlanesToRefuse(t *testing.T) {
	const refusal = `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found"}}`
	d := controlPlane(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, refusal)
	})
	g := newGateway(t, host(result(t, `{}`), modern), func(o *Options) { o.Delegate = d })
	a := g.ask(t, request{version: modern, method: "initialize", params: `{}`})
	if a.status != http.StatusNotFound || a.body != refusal {
		t.Errorf("status %d: %s, want 404 and the control plane's refusal", a.status, a.body)
	}
}
