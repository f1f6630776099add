package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/controlplane/internal/tasks"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

func (w *world) Ask(_ context.Context, q tasks.Query) tasks.Outcome {
	w.located = append(w.located, q)
	return w.found
}

// Verify takes "SUBJECT HOST SCOPES" for a token.
func (w *world) Verify(_ context.Context, token, resource string) (*access.Identity, error) {
	parts := strings.SplitN(token, " ", 3)
	if w.callerErr != nil || len(parts) != 3 || resource != "https://mcp.example/mcp" {
		return nil, errors.Join(access.ErrUnauthorized, w.callerErr)
	}
	scopes, err := access.ParseScopes(parts[2], true)
	return &access.Identity{Principal: access.Principal(parts[0]), Hosts: []routes.HostID{routes.HostID(parts[1])}, Scopes: scopes}, err
}

func (w *world) Resolve(_ context.Context, id routes.HostID) (*routes.Index, error) {
	if id != "acme" {
		return nil, routes.ErrUnknownHost
	}
	return w.Index(id), w.hostErr
}

func locate(t *testing.T, w *world, body string) (status int, answer string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/internal/v1/tasks/locate", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+internalToken)
	rec := httptest.NewRecorder()
	newAPI(t, w, configured()).ServeHTTP(rec, r)
	described(t).wantDescribed(t, "POST "+body[:min(len(body), 40)], "/internal/v1/tasks/locate", rec.Body.Bytes(), fmt.Sprint(rec.Code))
	return rec.Code, rec.Body.String()
}

// question is a body that is in order, with members changed.
func question(t *testing.T, change map[string]any) string {
	t.Helper()
	in := map[string]any{"token": "alice acme mcp:tasks", "resource": "https://mcp.example/mcp", "host": "acme", "taskId": "t1",
		"era": "modern", "method": "tasks/get", "requestId": "r1"}
	for name, v := range change {
		in[name] = v
	}
	doc, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

func TestLocate(t *testing.T) {
	for sentence, tt := range map[string]struct {
		found  tasks.Outcome
		change map[string]any
		asked  tasks.Query
		answer string
	}{
		"an owner": {
			found: tasks.Outcome{Kind: routes.LocateOwner, Owner: &routes.TaskOwner{Principal: "alice", Backend: "up", Source: routes.TaskMinted,
				Tool: "job", Session: "s1", Life: time.Hour}},
			asked:  tasks.Query{TaskID: "t1", Era: wire.Modern, Method: "tasks/get", RequestID: "r1"},
			answer: `{"outcome":"owner","owner":{"backend":"up","source":"mint","tool":"job","session":"s1","lifeMs":3600000}}`,
		},
		"a miss of a legacy client": {
			found: tasks.Outcome{Kind: routes.LocateMiss, Cause: routes.CauseForeign}, change: map[string]any{"era": "legacy", "method": "tasks/cancel"},
			asked:  tasks.Query{TaskID: "t1", Era: wire.Legacy, Method: "tasks/cancel", RequestID: "r1"},
			answer: `{"outcome":"miss","cause":"foreign"}`,
		},
		"can't be told": {
			found:  tasks.Outcome{Kind: routes.LocateUnavailable, Cause: routes.CauseBackend},
			asked:  tasks.Query{TaskID: "t1", Era: wire.Modern, Method: "tasks/get", RequestID: "r1"},
			answer: `{"outcome":"unavailable","cause":"backend"}`,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld()
			w.found = tt.found
			status, answer := locate(t, w, question(t, tt.change))
			if status != 200 || answer != tt.answer {
				t.Errorf("%d %s, want 200 %s", status, answer, tt.answer)
			}
			if _, err := routes.DecodeLocateAnswer([]byte(answer)); err != nil {
				t.Error(err)
			}
			if len(w.located) != 1 {
				t.Fatalf("asked %d times", len(w.located))
			}
			q := w.located[0]
			if q.Identity.Principal != "alice" || q.Host.ID != "acme" {
				t.Errorf("asked for %q in %q", q.Identity.Principal, q.Host.ID)
			}
			q.Identity, q.Host = nil, nil
			if diff := cmp.Diff(tt.asked, q); diff != "" {
				t.Errorf("question (-want +got):\n%s", diff)
			}
		})
	}
}

// Who asks, and for which host, is the client's token's to say.
func TestLocateRefuses(t *testing.T) {
	for sentence, tt := range map[string]struct {
		change map[string]any
		given  func(w *world)
		status int
		code   string
	}{
		"a client's token that is not good": {change: map[string]any{"token": "x"}, status: 401, code: "token_refused"},
		"no client's token":                 {change: map[string]any{"token": ""}, status: 401, code: "token_refused"},
		"a token for another endpoint":      {change: map[string]any{"resource": "https://other.example/mcp"}, status: 401, code: "token_refused"},
		"a revoked one":                     {given: func(w *world) { w.callerErr = errors.New("revoked") }, status: 401, code: "token_refused"},
		"no keys":                           {given: func(w *world) { w.callerErr = access.ErrNoKeys }, status: 503, code: "no_keys"},
		"revocations not known":             {given: func(w *world) { w.callerErr = access.ErrUnconfirmed }, status: 503, code: "revocations"},
		"another host than the token's":     {change: map[string]any{"token": "alice globex mcp:tasks"}, status: 404, code: "unknown_host"},
		"a host that nobody has":            {change: map[string]any{"token": "alice nobody mcp:tasks", "host": "nobody"}, status: 404, code: "unknown_host"},
		"no scope for tasks":                {change: map[string]any{"token": "alice acme mcp:tools"}, status: 403, code: "insufficient_scope"},
		"a member that is not known":        {change: map[string]any{"principal": "mallory"}, status: 400, code: "bad_request"},
		"no host":                           {change: map[string]any{"host": ""}, status: 400, code: "bad_request"},
		"no task":                           {change: map[string]any{"taskId": ""}, status: 400, code: "bad_request"},
		"no era":                            {change: map[string]any{"era": ""}, status: 400, code: "bad_request"},
		"a long id":                         {change: map[string]any{"taskId": strings.Repeat("x", routes.MaxLocateID+1)}, status: 400, code: "bad_request"},
		"a large body":                      {change: map[string]any{"token": strings.Repeat("x", routes.MaxLocateBody)}, status: 400, code: "bad_request"},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld()
			if tt.given != nil {
				tt.given(w)
			}
			status, answer := locate(t, w, question(t, tt.change))
			var f failure
			if err := json.Unmarshal([]byte(answer), &f); err != nil || status != tt.status || f.Error.Code != tt.code {
				t.Errorf("%d %s, want %d %s", status, answer, tt.status, tt.code)
			}
			if len(w.located) != 0 {
				t.Error("it was looked for")
			}
			if strings.Contains(answer, "mallory") || strings.Contains(answer, "t1") {
				t.Errorf("the answer tells of the question: %s", answer)
			}
		})
	}
	for _, body := range []string{"", "{", "[]", `null`, `{"host":"acme","host":"acme","taskId":"t","era":"modern"}`, question(t, nil) + "{}"} {
		if status, answer := locate(t, newWorld(), body); status != 400 {
			t.Errorf("%q: %d %s, want 400", body, status, answer)
		}
	}
}

// What is not read yet is not unknown.
func TestLocateBeforeTheHostIsRead(t *testing.T) {
	for _, err := range []error{routes.ErrNotPublished, routes.ErrUnavailable} {
		w := newWorld()
		w.hostErr = err
		if status, answer := locate(t, w, question(t, nil)); status != 200 || !strings.Contains(answer, `"unavailable"`) {
			t.Errorf("%v: %d %s, want unavailable", err, status, answer)
		}
	}
}

func TestTasksOfAHost(t *testing.T) {
	w := newWorld()
	alice, bob := strings.Repeat("a", 64), strings.Repeat("b", 64)
	put := func(id, principal string, backend routes.BackendID, source routes.TaskSource, life time.Duration) {
		o := routes.TaskOwner{Principal: principal, Backend: backend, Source: source, Tool: "job", Session: "secret-session", Created: checked, Life: life}
		err := error(nil)
		if source == routes.TaskMinted {
			err = w.store.RecordTask(t.Context(), "acme", id, o)
		} else {
			_, err = w.store.ClaimTask(t.Context(), "acme", id, o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put("secret-id-1", alice, "up", routes.TaskMinted, 3*time.Hour)
	put("secret-id-2", alice, "down", routes.TaskClaimed, 2*time.Hour)
	put("secret-id-3", bob, "up", routes.TaskMinted, time.Hour)
	put("secret-id-4", routes.AnyPrincipal, "up", routes.TaskShared, time.Minute)
	api := newAPI(t, w, configured())

	for request, want := range map[string]map[string]int{ // principal → tasks shown
		"GET /api/v1/tasks?host=acme":         {alice: 2, bob: 1, "*": 1},
		"GET /api/v1/tasks?host=acme&limit=2": {alice: 2, bob: 0, "*": 0},
	} {
		got := ask(api, request, "Bearer "+adminToken)
		if got.Code != 200 || bytes.Contains(got.Body.Bytes(), []byte("secret-")) {
			t.Fatalf("%s: %d %s", request, got.Code, got.Body)
		}
		described(t).wantDescribed(t, request, "/api/v1/tasks", got.Body.Bytes(), "200")
		var view tasksView
		if err := json.Unmarshal(got.Body.Bytes(), &view); err != nil {
			t.Fatal(err)
		}
		shown := map[string]int{}
		for _, p := range view.Principals {
			shown[p.Principal] = len(p.Tasks)
		}
		if diff := cmp.Diff(want, shown); diff != "" {
			t.Errorf("%s: tasks (-want +got):\n%s", request, diff)
		}
		if view.Count != 4 || view.More != strings.Contains(request, "limit") || view.Principals[0].Principal != alice {
			t.Errorf("%s: count %d, more %v, first %s", request, view.Count, view.More, view.Principals[0].Principal)
		}
		first := view.Principals[0]
		first.Tasks[0].Expires = time.Time{}
		if diff := cmp.Diff(taskView{Task: routes.TaskDigest("secret-id-1"), Backend: "up", Source: "mint", Tool: "job", Created: checked}, first.Tasks[0]); diff != "" {
			t.Errorf("%s: first task (-want +got):\n%s", request, diff)
		}
		if diff := cmp.Diff(map[routes.BackendID]int{"up": 1, "down": 1}, first.Backends); diff != "" {
			t.Errorf("backends (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[routes.TaskSource]int{"mint": 1, "claim": 1}, first.Sources); diff != "" {
			t.Errorf("sources (-want +got):\n%s", diff)
		}
	}
	if got := ask(api, "GET /api/v1/tasks?host=initech", "Bearer "+adminToken); got.Code != 404 {
		t.Errorf("a host that nobody has: %d", got.Code)
	}
	w.store.SetDown(true)
	if got := ask(api, "GET /api/v1/tasks?host=acme", "Bearer "+adminToken); got.Code != 503 {
		t.Errorf("without Redis: %d", got.Code)
	}
}
