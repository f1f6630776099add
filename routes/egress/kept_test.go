package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
)

// sessions is a legacy backend that refuses calls in any session but its own, by refuse, and answers the others.
type sessions struct {
	refuse func(w http.ResponseWriter, id string)

	mu  sync.Mutex // guards ids
	ids map[string]int
}

func (s *sessions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.Unmarshal(body, &m) // a DELETE has none
	switch {
	case m.Method == "initialize":
		w.Header().Set(headerSession, "new")
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`, m.ID)
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case r.Header.Get(headerSession) == "lost":
		s.refuse(w, string(m.ID))
	default:
		s.mu.Lock()
		s.ids[string(m.ID)]++
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"taskId":"t"}}`, m.ID)
	}
}

func refusal(status int, doc string) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if doc != "" {
			fmt.Fprintf(w, doc, id)
		}
	}
}

// Only an answer that is surely about the session says that it is lost: such a call is made once more.
func TestALostSessionIsTold(t *testing.T) {
	for name, tt := range map[string]struct {
		refuse func(http.ResponseWriter, string)
		lost   bool
		answer bool // it is the answer to the call, an error of the backend's own
	}{
		"404 without a body":                {refusal(404, ""), true, false},
		"404 as text":                       {func(w http.ResponseWriter, _ string) { http.Error(w, "session not found", 404) }, true, false},
		"404, an error about no request":    {refusal(404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found (%s)"}}`), true, false},
		"404, an error without an id":       {refusal(404, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found (%s)"}}`), true, false},
		"404, an error about this request":  {refusal(404, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such task"}}`), true, false},
		"400, an error about no request":    {refusal(400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request (%s)"}}`), true, false},
		"400, an error about a made-up one": {refusal(400, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request (%s)"}}`), true, false},
		"400, an error about this request":  {refusal(400, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such task"}}`), false, true},
		"400 as text":                       {func(w http.ResponseWriter, _ string) { http.Error(w, "no session", 400) }, false, false},
		"401":                               {refusal(401, ""), false, false},
		"500, an error about no request":    {refusal(500, `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"oh (%s)"}}`), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, Options{})
			call := legacyCall(newBackend(t, &sessions{refuse: tt.refuse, ids: map[string]int{}}).URL)
			call.Method, call.Session = "tasks/get", "lost"
			msgs, _, err := collect(t, c, call)
			f, _ := errors.AsType[*Failure](err)
			if lost := f != nil && f.SessionLost; lost != tt.lost {
				t.Errorf("lost: %v, want %v (%v)", lost, tt.lost, err)
			}
			if answer := err == nil && len(msgs) == 1 && msgs[0].Error != nil; answer != tt.answer {
				t.Errorf("an answer: %v, want %v (%+v, %v)", answer, tt.answer, msgs, err)
			}
			call.Session = "" // as if it was never kept
			if _, _, err := collect(t, c, call); err != nil {
				t.Errorf("in a session of its own: %v", err)
			}
		})
	}
}

// A session of the call's own is not one that was kept: what the backend says is said of the call.
func TestAFreshSessionIsNeverLost(t *testing.T) {
	s := &legacyServer{refuse: map[string]int{"tasks/get": 404}}
	call := legacyCall(newBackend(t, s).URL)
	call.Method = "tasks/get"
	_, _, err := collect(t, newClient(t, Options{}), call)
	if f, ok := errors.AsType[*Failure](err); !ok || f.SessionLost || f.Status != 404 {
		t.Errorf("%v, want a failure of status 404 that says nothing of a session", err)
	}
}

// Calls in one session are on connections that do not know each other, and still no id is used twice.
func TestIdsInAKeptSessionAreUnique(t *testing.T) {
	s := &sessions{ids: map[string]int{}}
	c := newClient(t, Options{})
	call := legacyCall(newBackend(t, s).URL)
	call.Method, call.Session = "tasks/get", "kept"
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, _, err := collect(t, c, call); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(s.ids) != 20 {
		t.Errorf("%d ids for 20 calls", len(s.ids))
	}
}
