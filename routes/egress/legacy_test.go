package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

// legacyServer is a hand-written legacy backend: it hands out a session and lets a test answer the call.
type legacyServer struct {
	call     func(w http.ResponseWriter, r *http.Request, id string)
	refuse   map[string]int // status by method or HTTP method
	level    string         // result or error member of the answer to logging/setLevel
	version  string         // negotiated; empty: what was asked for
	mu       sync.Mutex
	answers  []string // responses that the client POSTed
	answered chan struct{}
	cancels  []string // params of notifications/cancelled
	sessions []string // session ids of requests after initialize
	initial  string   // params of initialize
}

func (s *legacyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m struct {
		ID      json.RawMessage
		Method  string
		Params  json.RawMessage
		Jsonrpc string
	}
	_ = json.Unmarshal(body, &m)
	name := m.Method
	if r.Method != http.MethodPost {
		name = r.Method
	}
	if name == "tools/call" || name == "tasks/get" {
		s.serveCall(w, r, name, string(m.ID))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "initialize" {
		s.sessions = append(s.sessions, r.Header.Get(headerSession))
	}
	if status := s.refuse[name]; status != 0 {
		w.WriteHeader(status)
		return
	}
	switch name {
	case "initialize":
		s.initial = string(m.Params)
		var p struct{ ProtocolVersion string }
		_ = json.Unmarshal(m.Params, &p)
		version := p.ProtocolVersion
		if s.version != "" {
			version = s.version
		}
		w.Header().Set(headerSession, "session-secret")
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{},"serverInfo":{"name":"x","version":"1"},"odd":1.0}}`, m.ID, version)
	case "logging/setLevel":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, s.level)
	case "notifications/initialized":
		w.WriteHeader(http.StatusAccepted)
	case "notifications/cancelled":
		s.cancels = append(s.cancels, string(m.Params))
		w.WriteHeader(http.StatusAccepted)
	case "":
		s.answers = append(s.answers, string(body))
		s.answered <- struct{}{}
		w.WriteHeader(http.StatusAccepted)
	case "DELETE":
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *legacyServer) serveCall(w http.ResponseWriter, r *http.Request, name, id string) {
	s.mu.Lock()
	s.sessions = append(s.sessions, r.Header.Get(headerSession))
	status := s.refuse[name]
	s.mu.Unlock()
	if status != 0 {
		w.WriteHeader(status)
		return
	}
	s.call(w, r, id)
}

func legacyCall(url string) Call {
	call := callTool(url, "2025-11-25", "echo", `{"text":"x"}`, "")
	call.RPCID = json.RawMessage(`"client"`)
	return call
}

func event(w http.ResponseWriter, doc string) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: %s\n\n", doc)
	w.(http.Flusher).Flush()
}

func TestABackendThatAsksMidCall(t *testing.T) {
	answered := make(chan struct{})
	s := &legacyServer{answered: make(chan struct{}, 2)}
	s.call = func(w http.ResponseWriter, r *http.Request, id string) {
		event(w, `{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		event(w, `{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{}}`)
		event(w, `{"jsonrpc":"2.0","id":77,"result":{"foreign":true}}`)
		event(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info", "data":1.0}}`)
		<-answered
		event(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[], "n":1.0}}`)
		event(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"late":true}}`)
		<-r.Context().Done() // a stream that its server never ends
	}
	b := newBackend(t, s)
	c := newClient(t, Options{Name: "weir", Version: "3"})
	a, err := c.Do(t.Context(), legacyCall(b.URL))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	m, err := a.Next()
	if err != nil || docOf(m) != `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info", "data":1.0}}` {
		t.Fatalf("%s, %v", docOf(m), err)
	}
	<-s.answered
	<-s.answered
	close(answered)
	m, err = a.Next()
	if err != nil || docOf(m) != `{"jsonrpc":"2.0","id":"client","result":{"content":[], "n":1.0}}` || !m.Final {
		t.Fatalf("%s, %v", docOf(m), err)
	}
	if _, err := a.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("after the response: %v", err)
	}
	a.Close()
	c.Close()
	slices.Sort(s.answers)
	want := []string{
		`{"jsonrpc":"2.0","id":"p","result":{}}`,
		`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"not supported by this client"}}`,
	}
	if diff := cmp.Diff(want, s.answers); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	if len(s.cancels) != 0 {
		t.Errorf("cancelled after the response: %v", s.cancels)
	}
	if diff := cmp.Diff(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"weir","version":"3"}}`, s.initial); diff != "" {
		t.Error(diff)
	}
	for _, id := range s.sessions {
		if id != "session-secret" {
			t.Errorf("a request carried the session %q", id)
		}
	}
}

func TestLegacyCancellation(t *testing.T) {
	for name, tt := range map[string]struct {
		begin bool // the answer has begun
		task  bool
		want  []string
	}{
		"before the answer":                     {want: []string{`{"requestId":2,"reason":"the caller no longer waits"}`}},
		"within the stream":                     {begin: true, want: []string{`{"requestId":2,"reason":"the caller no longer waits"}`}},
		"a task is not cancelled by its caller": {begin: true, task: true},
	} {
		t.Run(name, func(t *testing.T) {
			arrived, left := make(chan struct{}), make(chan struct{})
			s := &legacyServer{call: func(w http.ResponseWriter, r *http.Request, _ string) {
				if tt.begin {
					event(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
				}
				close(arrived)
				<-r.Context().Done()
				close(left)
			}}
			b := newBackend(t, s)
			c := newClient(t, Options{})
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-arrived; cancel() }()
			call := legacyCall(b.URL)
			if tt.task {
				call.Params = call.Params.With("task", json.RawMessage("{}"))
			}
			a, err := c.Do(ctx, call)
			if err == nil {
				for err == nil {
					_, err = a.Next()
				}
				a.Close()
			}
			if f, ok := errors.AsType[*Failure](err); !ok || f.Reason != ReasonCanceled || !f.Sent {
				t.Errorf("got %v", err)
			}
			<-left
			c.Close()
			if diff := cmp.Diff(tt.want, s.cancels); diff != "" {
				t.Errorf("notifications/cancelled (-want +got):\n%s", diff)
			}
			if m := b.methods(); m[len(m)-1] != http.MethodDelete {
				t.Errorf("the session was not ended: %v", m)
			}
		})
	}
}

func TestHandshakeFailures(t *testing.T) {
	type want struct {
		Reason string
		Status int
	}
	for name, tt := range map[string]struct {
		server *legacyServer
		want   want
	}{
		"initialize refused":               {&legacyServer{refuse: map[string]int{"initialize": 401}}, want{ReasonAuthFailed, 401}},
		"initialize overloaded":            {&legacyServer{refuse: map[string]int{"initialize": 503}}, want{ReasonOverloaded, 503}},
		"initialized refused":              {&legacyServer{refuse: map[string]int{"notifications/initialized": 403}}, want{ReasonAuthFailed, 403}},
		"a version without handshakes":     {&legacyServer{version: "2026-07-28"}, want{ReasonBadResponse, 0}},
		"no version":                       {&legacyServer{version: "x"}, want{ReasonBadResponse, 0}},
		"the call refused":                 {&legacyServer{refuse: map[string]int{"tools/call": 429}}, want{ReasonRateLimited, 429}},
		"the session lost before the call": {&legacyServer{refuse: map[string]int{"tools/call": 404}}, want{ReasonBadResponse, 404}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tt.server
			s.call = func(w http.ResponseWriter, _ *http.Request, id string) {
				event(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{}}`)
			}
			f := failure(t, newClient(t, Options{}), legacyCall(newBackend(t, s).URL))
			if diff := cmp.Diff(tt.want, want{f.Reason, f.Status}); diff != "" {
				t.Errorf("%v: %s", f, diff)
			}
			if _, called := s.refuse["tools/call"]; f.Sent != called {
				t.Errorf("sent %t, but it is the call that counts", f.Sent)
			}
			if strings.Contains(f.Error(), "secret") {
				t.Errorf("the error shows the session id: %v", f)
			}
		})
	}
}

func TestAnErrorStatusWithAnErrorIsPassedOn(t *testing.T) {
	s := &legacyServer{call: func(w http.ResponseWriter, _ *http.Request, id string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such tool","data":{"n":1.0}}}`, id)
	}}
	msgs, _, err := collect(t, newClient(t, Options{}), legacyCall(newBackend(t, s).URL))
	if err != nil || len(msgs) != 1 || msgs[0].Status != 400 ||
		docOf(msgs[0]) != `{"jsonrpc":"2.0","id":"client","error":{"code":-32602,"message":"no such tool","data":{"n":1.0}}}` {
		t.Errorf("%+v, %v", msgs, err)
	}
}

func TestErrorsKeepTheirData(t *testing.T) {
	s := &legacyServer{call: func(w http.ResponseWriter, _ *http.Request, id string) {
		event(w, `{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32042,"message":"<&\"ü","data":{"elicitations":[ 1.0 ]}}}`)
	}}
	msgs, _, err := collect(t, newClient(t, Options{}), legacyCall(newBackend(t, s).URL))
	if err != nil || len(msgs) != 1 || string(msgs[0].Error) != `{"code":-32042,"message":"<&\"ü","data":{"elicitations":[ 1.0 ]}}` {
		t.Errorf("%s, %v", msgs[0].Error, err)
	}
}

// A stream that breaks is resumed by GET, and the call is not sent again.
func TestABrokenStreamIsResumed(t *testing.T) {
	var id string
	s := &legacyServer{}
	s.call = func(w http.ResponseWriter, r *http.Request, rpcID string) {
		id = rpcID
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: e1\nretry: 1\ndata:\n\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	b := newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			s.ServeHTTP(w, r)
			return
		}
		if r.Header.Get(headerLastEvent) != "e1" || r.Header.Get(headerSession) != "session-secret" || r.Header.Get("X-Team") != "t" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		event(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"resumed":true}}`)
	}))
	c := newClient(t, Options{})
	call := legacyCall(b.URL)
	call.Header = http.Header{"X-Team": {"t"}}
	msgs, _, err := collect(t, c, call)
	if err != nil || len(msgs) != 1 || string(msgs[0].Result) != `{"resumed":true}` {
		t.Fatalf("%+v, %v", msgs, err)
	}
	c.Close()
	if diff := cmp.Diff([]string{"initialize", "notifications/initialized", "tools/call", "GET", "DELETE"}, b.methods()); diff != "" {
		t.Error(diff)
	}
}

func TestAKeptSessionIsUsedAgainAndLeftAlone(t *testing.T) {
	s := &legacyServer{call: func(w http.ResponseWriter, _ *http.Request, id string) {
		event(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{}}`)
	}}
	b := newBackend(t, s)
	c := newClient(t, Options{})
	a, err := c.Do(t.Context(), legacyCall(b.URL))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Next(); err != nil {
		t.Fatal(err)
	}
	a.KeepSession()
	session := a.Session()
	a.Close()
	call := legacyCall(b.URL)
	call.Method, call.Session = "tasks/get", session
	if _, _, err := collect(t, c, call); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if diff := cmp.Diff([]string{"initialize", "notifications/initialized", "tools/call", "tasks/get"}, b.methods()); diff != "" {
		t.Error(diff)
	}
	last := b.requests()[3]
	if session != "session-secret" || last.Header.Get(headerSession) != session || last.Header.Get(headerVersion) != "2025-11-25" {
		t.Errorf("session %q, headers %v", session, last.Header)
	}
}

func TestTheHandshakeIsTheClients(t *testing.T) {
	s := &legacyServer{version: "2025-03-26", call: func(w http.ResponseWriter, r *http.Request, id string) {
		event(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"version":"`+r.Header.Get(headerVersion)+`"}}`)
	}}
	call := legacyCall(newBackend(t, s).URL)
	call.Backend.Protocol = "2025-06-18"
	call.Backend.Timeouts = routes.Timeouts{}
	call.Handshake.ClientInfo = json.RawMessage(`{"name":"theirs","version":"9"}`)
	call.Handshake.Capabilities = json.RawMessage(`{"x":{}}`)
	msgs, _, err := collect(t, newClient(t, Options{}), call)
	if err != nil || string(msgs[0].Result) != `{"version":"2025-03-26"}` {
		t.Errorf("%+v, %v", msgs, err)
	}
	if diff := cmp.Diff(`{"protocolVersion":"2025-06-18","capabilities":{"x":{}},"clientInfo":{"name":"theirs","version":"9"}}`, s.initial); diff != "" {
		t.Error(diff)
	}
}
