package call

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

func progress(token string, n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, n)
}

// bothBackends runs f for a backend of each era.
func bothBackends(t *testing.T, f func(t *testing.T, version string)) {
	for _, version := range []string{modern, legacy} {
		t.Run("backend "+version, func(t *testing.T) { f(t, version) })
	}
}

// The backend says the next thing only after the client has got the last one: nothing waits in a buffer.
func TestEventsArriveAsTheyAreSent(t *testing.T) {
	bothBackends(t, func(t *testing.T, backendVersion string) {
		got := make(chan struct{})
		b := newBackend(t, func(w http.ResponseWriter, r seen) {
			stream(w, func(send func(string)) {
				for i := range 3 {
					send(progress(`"tok"`, i))
					select {
					case <-got:
					case <-r.ctx.Done():
						return
					}
				}
				send(`{"jsonrpc":"2.0","id":` + r.id + `,"result":{"content":[]}}`)
			})
		})
		g := newGateway(t, host(b, backendVersion), nil)
		resp, err := g.open(t.Context(), request{method: "tools/call", params: `{"name":"b__echo","_meta":{"progressToken":"tok"}}`})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if accel := resp.Header.Get("X-Accel-Buffering"); accel != "no" {
			t.Errorf("X-Accel-Buffering %q", accel)
		}
		next := newEvents(resp.Body)
		for i := range 3 {
			event, err := next()
			if err != nil {
				t.Fatal(err)
			}
			if want := progress(`"tok"`, i); event != want {
				t.Errorf("event %s, want %s", event, want)
			}
			got <- struct{}{}
		}
		if event, err := next(); err != nil || !strings.Contains(event, `"result"`) {
			t.Errorf("last event %s, %v", event, err)
		}
		if event, err := next(); err != io.EOF {
			t.Errorf("after the response: %s, %v", event, err)
		}
	})
}

func TestWhatDoesNotBelongToTheCallIsDropped(t *testing.T) {
	foreign := []string{
		progress(`"other"`, 1),
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
	}
	const message = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"n":9007199254740993}}}`
	const future = `{"jsonrpc":"2.0","method":"notifications/future","params":{}}`
	bothBackends(t, func(t *testing.T, backendVersion string) {
		b := newBackend(t, func(w http.ResponseWriter, r seen) {
			stream(w, func(send func(string)) {
				for _, doc := range append(foreign, message, future) {
					send(doc)
				}
				send(`{"jsonrpc":"2.0","id":` + r.id + `,"result":{"resultType":"complete","content":[]}}`)
				send(progress(`"tok"`, 9)) // after the response nothing counts
			})
		})
		g := newGateway(t, host(b, backendVersion), nil)
		a := g.ask(t, request{version: legacy, method: "tools/call", params: `{"name":"b__echo","_meta":{"progressToken":"tok"}}`})
		if len(a.events) != 3 || a.events[0] != message || a.events[1] != future || !strings.Contains(a.events[2], `"result"`) {
			t.Errorf("events %q", a.events)
		}
	})
}

// Two callers with one token never see each other's progress: each call has its own way.
func TestTwoCallersWithOneTokenDoNotCross(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r seen) {
		who := "first"
		if strings.Contains(r.body, "second") {
			who = "second"
		}
		stream(w, func(send func(string)) {
			for i := range 20 {
				send(strings.Replace(progress(`1`, i), `"progress":`, `"message":"`+who+`","progress":`, 1))
			}
			send(`{"jsonrpc":"2.0","id":` + r.id + `,"result":{"resultType":"complete","content":[]}}`)
		})
	})
	g := newGateway(t, host(b, modern), nil)
	for _, who := range []string{"first", "second"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			a := g.ask(t, request{token: who, method: "tools/call", params: `{"name":"b__echo","arguments":{"who":"` + who + `"},"_meta":{"progressToken":1}}`})
			if len(a.events) != 21 {
				t.Fatalf("%d events", len(a.events))
			}
			for _, e := range a.events[:20] {
				if !strings.Contains(e, `"message":"`+who+`"`) {
					t.Errorf("%s got %s", who, e)
				}
			}
		})
	}
}

// A client that leaves takes its call with it: the backend's request is cancelled, and a legacy backend is told.
func TestAClientThatLeavesCancelsItsCall(t *testing.T) {
	for name, streaming := range map[string]bool{"before the answer": false, "in the middle of a stream": true} {
		t.Run(name, func(t *testing.T) {
			bothBackends(t, func(t *testing.T, backendVersion string) {
				running, cancelled := make(chan struct{}), make(chan struct{})
				b := newBackend(t, func(w http.ResponseWriter, r seen) {
					if streaming {
						stream(w, func(send func(string)) { send(progress(`1`, 1)) })
					}
					close(running)
					<-r.ctx.Done()
					close(cancelled)
				})
				g := newGateway(t, host(b, backendVersion), nil)
				ctx, leave := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					resp, err := g.open(ctx, request{method: "tools/call", params: `{"name":"b__echo","_meta":{"progressToken":1}}`})
					if err == nil {
						_, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					ended <- err
				}()
				<-running
				leave()
				if err := <-ended; err == nil {
					t.Error("the client's request succeeded")
				}
				<-cancelled
				eventually(t, "the call is logged as cancelled", func() bool {
					return g.log.FilterField(zapOutcome(outcomeCanceled)).Len() == 1
				})
				if backendVersion == legacy {
					eventually(t, "the backend is told", func() bool { return len(b.calls("notifications/cancelled")) == 1 })
				}
			})
		})
	}
}

// eventually waits for what a client can't see.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: never", what)
		}
	}
}

// A quiet stream gets its head within a second or so, so that proxies before the gateway see an answer.
func TestAQuietStreamBegins(t *testing.T) {
	release := make(chan struct{})
	b := newBackend(t, func(w http.ResponseWriter, r seen) {
		stream(w, func(send func(string)) {
			_ = http.NewResponseController(w).Flush()
			<-release
			send(`{"jsonrpc":"2.0","id":` + r.id + `,"result":{"resultType":"complete","content":[]}}`)
		})
	})
	g := newGateway(t, host(b, modern), nil)
	resp, err := g.open(t.Context(), request{method: "tools/call", params: `{"name":"b__echo"}`})
	if err != nil { // the head arrived although the backend has said nothing
		t.Fatal(err)
	}
	defer resp.Body.Close()
	close(release)
	if event, err := newEvents(resp.Body)(); err != nil || !strings.Contains(event, `"result"`) {
		t.Errorf("event %s, %v", event, err)
	}
}

func TestFailuresHaveTheirReason(t *testing.T) {
	hijack := func(w http.ResponseWriter) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	}
	for name, tt := range map[string]struct {
		answer func(w http.ResponseWriter, r seen)
		reason string
		extra  string // part of data
	}{
		"closed without an answer": {func(w http.ResponseWriter, _ seen) { hijack(w) }, "reset", `"sent":true`},
		"a stream that ends early": {func(w http.ResponseWriter, _ seen) {
			stream(w, func(send func(string)) { send(progress(`1`, 1)) })
		}, "bad_response", ""},
		"a request on the stream": {func(w http.ResponseWriter, _ seen) {
			stream(w, func(send func(string)) {
				send(`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}`)
			})
		}, "bad_response", ""},
		"a foreign response id": {func(w http.ResponseWriter, _ seen) { answerJSON(w, 200, `"foreign"`, `"result":{}`) }, "bad_response", ""},
		"no JSON": {func(w http.ResponseWriter, _ seen) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, "nope")
		}, "bad_response", ""},
		"a page": {func(w http.ResponseWriter, _ seen) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<p>")
		}, "bad_response", ""},
		"a redirect": {func(w http.ResponseWriter, _ seen) {
			w.Header().Set("Location", "http://elsewhere.invalid/")
			w.WriteHeader(307)
		}, "bad_response", ""},
		"401": {func(w http.ResponseWriter, _ seen) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(401)
		}, "auth_failed", ""},
		"429":     {func(w http.ResponseWriter, _ seen) { w.Header().Set("Retry-After", "2"); w.WriteHeader(429) }, "rate_limited", `"retryAfterMs":2000`},
		"503":     {func(w http.ResponseWriter, _ seen) { w.WriteHeader(503) }, "overloaded", ""},
		"500":     {func(w http.ResponseWriter, _ seen) { w.WriteHeader(500) }, "bad_response", ""},
		"silence": {func(_ http.ResponseWriter, r seen) { <-r.ctx.Done() }, "timeout", `"sent":true`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, tt.answer)
			route := b.route(modern)
			route.Timeouts.Response = 200 * time.Millisecond
			g := newGateway(t, routestest.Host("acme").Backend("b", route).Tool("b__echo", "b", "echo"), nil)
			bothVersions(t, func(t *testing.T, version string) {
				a := g.ask(t, request{version: version, method: "tools/call", params: `{"name":"b__echo","_meta":{"progressToken":1}}`})
				if a.status != 200 || a.code() != -32603 || a.reason() != tt.reason || !strings.Contains(string(a.rpc.Error.Data), tt.extra) {
					t.Errorf("status %d: %s, want -32603 and %s", a.status, a.body, tt.reason)
				}
				for _, leak := range []string{"127.0.0.1", "http://", "elsewhere", `"b"`} {
					if strings.Contains(a.body, leak) {
						t.Errorf("the answer says %q: %s", leak, a.body)
					}
				}
				for _, name := range []string{"Location", "Set-Cookie"} {
					if v := a.header.Get(name); v != "" {
						t.Errorf("%s %q", name, v)
					}
				}
				if v := a.header.Get("WWW-Authenticate"); v != "" {
					t.Errorf("WWW-Authenticate %q", v)
				}
			})
			if n := len(b.calls("tools/call")); n != 2 {
				t.Errorf("the backend saw %d calls for two", n)
			}
		})
	}
}

func TestABackendThatIsNotThere(t *testing.T) {
	g := newGateway(t, routestest.Host("acme").Backend("b", routes.Backend{URL: "http://127.0.0.1:1/mcp", Protocol: modern}).Tool("b__echo", "b", "echo"), nil)
	a := g.ask(t, request{method: "tools/call", params: `{"name":"b__echo"}`})
	if a.code() != -32603 || a.reason() != "unreachable" || !strings.Contains(string(a.rpc.Error.Data), `"sent":false`) {
		t.Errorf("%s", a.body)
	}
}
