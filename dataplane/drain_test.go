package dataplane

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// gated is a backend whose calls stream one event, and end when they are released.
func gated(t *testing.T) (url string, running chan struct{}, release chan struct{}) {
	t.Helper()
	running, release = make(chan struct{}, 10), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`+"\n\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		running <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
			return
		}
		fmt.Fprint(w, `data: {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`+"\n\n")
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL, running, release
}

func TestDrainFinishesWhatRuns(t *testing.T) {
	p := start(t, "drain: {delay: 300ms, deadline: 30s}\n")
	slow, running, release := gated(t)
	p.publish(1, "slow", slow)
	eventually(t, "the host is there", func() bool { status, _, _ := p.outcome("acme", "nope"); return status == 400 })
	resp, err := p.call(t.Context(), "acme", "slow")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-running
	p.sigterm()
	eventually(t, "readyz says so", func() bool { status, _ := p.ready(); return status == 503 })
	// A load balancer that has not noticed yet loses nothing, and learns that the connection ends.
	keepAlive := &http.Client{Transport: &http.Transport{}}
	late, err := keepAlive.Post("http://"+p.listen+"/mcp", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	late.Body.Close()
	if late.StatusCode != 401 || !late.Close {
		t.Errorf("a request during the delay: %d, Connection: close is %v", late.StatusCode, late.Close)
	}
	eventually(t, "new connections are refused", func() bool {
		resp, err := client.Get("http://" + p.listen + "/mcp")
		if err == nil {
			resp.Body.Close()
		}
		return err != nil
	})
	if status, _ := p.ready(); status != 503 { // the ops listener stays up to the end
		t.Errorf("readyz %d", status)
	}
	close(release)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(rest), `"result"`) {
		t.Errorf("the call that ran: %q, %v", rest, err)
	}
	if err := <-p.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	p.ended <- nil
}

func TestStreamsThatOutliveTheDeadlineGetAnError(t *testing.T) {
	p := start(t, "drain: {delay: 0s, deadline: 200ms}\n")
	slow, running, _ := gated(t)
	p.publish(1, "slow", slow)
	eventually(t, "the host is there", func() bool { status, _, _ := p.outcome("acme", "nope"); return status == 400 })
	resp, err := p.call(t.Context(), "acme", "slow")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-running
	p.sigterm()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(rest), `"code":-32603`) || !strings.Contains(string(rest), "stopping") {
		t.Errorf("the stream ended with %q, %v", rest, err)
	}
	if err := <-p.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	p.ended <- nil
}
