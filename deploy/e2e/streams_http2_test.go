package e2e

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A backend over HTTP/2 that sends its connections away (GOAWAY) while many calls share them: each call runs once, or its caller
// hears that it may have run; streams and cancellation work as over HTTP/1.
func TestABackendOverHTTP2(t *testing.T) {
	t.Parallel()
	var away, overOne atomic.Int64
	step, left := make(chan struct{}), make(chan struct{}, 1)
	b := &scripted{version: modernVersion, handle: func(w http.ResponseWriter, r *http.Request, m message) {
		if r.ProtoMajor != 2 {
			overOne.Add(1)
		}
		switch m.argument("n") {
		case "stream":
			stream(w)
			write(w, event(progress(`"p"`, 1)))
			<-step
			write(w, event(resultOf(m, done("end"))))
		case "stay":
			stream(w)
			write(w, event(progress(`"p"`, 1)))
			<-r.Context().Done()
			left <- struct{}{}
		default:
			if away.Add(1)%5 == 0 {
				w.Header().Set("Connection", "close") // net/http's way to ask for a GOAWAY
			}
			writeResult(w, m, done(m.argument("n")))
		}
	}}
	hs := httptest.NewUnstartedServer(b)
	hs.EnableHTTP2 = true
	hs.StartTLS()
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	ca := file(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hs.Certificate().Raw})))
	g := startGateway(t, fmt.Sprintf("  b: {url: %q, tls: {ca_file: %q}}\n", hs.URL+"/mcp", ca), "")
	c := g.client(t, "alice", modernVersion)

	const callers, each = 8, 40
	var answered, failed atomic.Int64
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := range each {
				n := fmt.Sprintf("call-%d-%d", caller, i)
				a, err := c.call("1", "tools/call", fmt.Sprintf(onceParams, n))
				switch {
				case err != nil:
					t.Errorf("%s: %v", n, err)
				case a.rpc.Result != nil && strings.Contains(a.body, `"`+n+`"`):
					answered.Add(1)
				case a.rpc.Error != nil && (string(a.rpc.Error.Data) == unsure || string(a.rpc.Error.Data) == unsent):
					failed.Add(1)
				default:
					t.Errorf("%s: %s", n, a.body)
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]int{}
	for _, m := range b.ofMethod("tools/call") {
		if n := m.argument("n"); seen[n] > 0 {
			t.Errorf("%s arrived twice", n)
		} else {
			seen[n]++
		}
	}
	if int64(len(seen)) < answered.Load() || answered.Load() == 0 || overOne.Load() != 0 {
		t.Errorf("%d answers of %d calls that arrived, %d over HTTP/1", answered.Load(), len(seen), overOne.Load())
	}
	t.Logf("%d answered, %d told that they failed", answered.Load(), failed.Load())

	o := c.open(t, "1", "tools/call", `{"name":"b__run","arguments":{"n":"stream"},"_meta":{"progressToken":"p"}}`)
	if got := o.mustNext(t); got != progress(`"p"`, 1) {
		t.Errorf("the first event is %s", got)
	}
	step <- struct{}{}
	if got := o.mustNext(t); !strings.Contains(got, `"end"`) {
		t.Errorf("the response is %s", got)
	}
	o = c.open(t, "1", "tools/call", `{"name":"b__run","arguments":{"n":"stay"},"_meta":{"progressToken":"p"}}`)
	o.mustNext(t)
	o.close()
	soon(t, "the backend hears that the client left", left)
}
