package taskserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"
)

// The states of a task.
const (
	working       = "working"
	inputRequired = "input_required"
	completed     = "completed"
	failed        = "failed"
	cancelled     = "cancelled"
)

// task is one task; the server's mutex guards it.
type task struct {
	id      string
	status  string
	message string
	created time.Time
	updated time.Time
	asked   map[string]Request // what is not answered yet
	answers map[string]json.RawMessage
	result  *Result
	failure *Error
	cancel  context.CancelFunc
	changes int // how often it changed
}

func (t *task) ended() bool {
	return t.status == completed || t.status == failed || t.status == cancelled
}

// touch tells everybody who waits for a change; s.mu is held.
func (s *Server) touch(t *task) {
	t.updated = time.Now()
	t.changes++
	close(s.changed)
	s.changed = make(chan struct{})
}

// Job is what a running tool knows of its call, and how it speaks to its caller.
type Job struct {
	Arguments json.RawMessage            // may be nil
	Answers   map[string]json.RawMessage // to Tool.Ask

	server *Server
	task   *task // nil: the caller waits for the result, and nobody reads what is said meanwhile
}

// Say sets the message that a task's state shows.
func (j *Job) Say(message string) {
	if j.task == nil {
		return
	}
	j.server.mu.Lock()
	defer j.server.mu.Unlock()
	if !j.task.ended() {
		j.task.message = message
		j.server.touch(j.task)
	}
}

// Ask asks the caller, by keys that are new to the task, and waits for all answers. Only a task can.
func (j *Job) Ask(ctx context.Context, requests map[string]Request) (map[string]json.RawMessage, error) {
	if j.task == nil {
		return nil, errors.New("only a task can ask its caller")
	}
	s, t := j.server, j.task
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.ended() {
		return nil, context.Canceled
	}
	t.asked, t.answers, t.status = maps.Clone(requests), map[string]json.RawMessage{}, inputRequired
	s.touch(t)
	for len(t.asked) > 0 {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-changed:
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return t.answers, nil
}

// create starts a task and says what it is.
func (s *Server) create(tool *Tool, j *Job) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.work.Err() != nil || !s.makeRoom() {
		return nil, &Error{Code: codeInternal, Message: "no more tasks can be started now"}
	}
	now := time.Now()
	t := &task{id: rand.Text(), status: working, created: now, updated: now}
	ctx, cancel := context.WithCancel(s.work)
	t.cancel, j.task = cancel, t
	s.tasks[t.id] = t
	s.order = append(s.order, t)
	s.running.Go(func() {
		defer cancel()
		result, err := tool.Run(ctx, j)
		s.end(t, result, err, ctx.Err() != nil)
	})
	state := s.describe(t)
	state["resultType"] = "task"
	return state, nil
}

// makeRoom forgets what is too old, and the oldest of too many. It reports whether there is room for another task.
func (s *Server) makeRoom() bool {
	s.order = slices.DeleteFunc(s.order, func(t *task) bool {
		old := time.Since(t.created) > s.o.TTL || len(s.tasks) >= maxTasks && t.ended()
		if old {
			t.cancel()
			delete(s.tasks, t.id)
		}
		return old
	})
	return len(s.tasks) < maxTasks
}

// end keeps what the work came to. A task that was cancelled stays cancelled, whatever its work said.
func (s *Server) end(t *task, result Result, err error, stopped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.ended() {
		return
	}
	t.asked = nil
	switch failure := (*Error)(nil); {
	case stopped:
		t.status = cancelled
	case errors.As(err, &failure):
		t.status, t.failure, t.message = failed, failure, failure.Message
	case err != nil:
		t.status, t.result = completed, &Result{Text: err.Error(), IsError: true}
	default:
		t.status, t.result = completed, &result
	}
	s.touch(t)
}

// describe is a task as tasks/get and notifications show it.
func (s *Server) describe(t *task) map[string]any {
	state := map[string]any{
		"taskId": t.id, "status": t.status, "createdAt": t.created.UTC().Format(time.RFC3339Nano), "lastUpdatedAt": t.updated.UTC().Format(time.RFC3339Nano),
		"ttlMs": s.o.TTL.Milliseconds(), "pollIntervalMs": s.o.Poll.Milliseconds(),
	}
	if t.message != "" {
		state["statusMessage"] = t.message
	}
	switch t.status {
	case inputRequired:
		state["inputRequests"] = maps.Clone(t.asked) // it is encoded without the lock
	case completed:
		state["result"] = t.result.body()
	case failed:
		state["error"] = t.failure
	}
	return state
}

// follow answers tasks/get, tasks/update and tasks/cancel.
func (s *Server) follow(req *request) (any, *Error) {
	if !req.tasks() {
		return nil, missingExtension()
	}
	var p struct {
		TaskID  string                     `json:"taskId"`
		Answers map[string]json.RawMessage `json:"inputResponses"`
	}
	if err := json.Unmarshal(req.Params, &p); err != nil {
		return nil, &Error{Code: codeInvalidParams, Message: "bad params", status: http.StatusBadRequest}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tasks[p.TaskID]
	if !ok || time.Since(t.created) > s.o.TTL {
		return nil, &Error{Code: codeInvalidParams, Message: "task not found", status: http.StatusBadRequest}
	}
	switch req.Method {
	case "tasks/get":
		state := s.describe(t)
		state["resultType"] = "complete"
		return state, nil
	case "tasks/update":
		s.take(t, p.Answers)
	default:
		if !t.ended() {
			t.status, t.asked = cancelled, nil
			t.cancel()
			s.touch(t)
		}
	}
	return map[string]string{"resultType": "complete"}, nil
}

// take keeps the answers to what is asked, and leaves out the others.
func (s *Server) take(t *task, answers map[string]json.RawMessage) {
	took := false
	for key, answer := range answers {
		if _, ok := t.asked[key]; ok {
			delete(t.asked, key)
			t.answers[key], took = answer, true
		}
	}
	if !took {
		return
	}
	if len(t.asked) == 0 {
		t.status = working
	}
	s.touch(t)
}
