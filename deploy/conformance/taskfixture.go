package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/weir-mcp/weir/deploy/taskserver"
)

// taskFixture serves the tools that the suite's task scenarios ask for; each scenario's description names them.
type taskFixture struct {
	url   string
	tasks *taskserver.Server
	srv   *http.Server
	done  chan error
}

func startTaskFixture() (*taskFixture, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &taskFixture{url: "http://" + ln.Addr().String() + "/mcp", done: make(chan error, 1)}
	f.tasks = taskserver.New(taskserver.Options{
		Name: "weir-conformance-tasks", Instructions: "The fixture of the task scenarios.", Poll: 100 * time.Millisecond,
		Tools: []taskserver.Tool{
			{Name: "greet", Description: "Answers at once.", Run: greet},
			{Name: "slow_compute", Description: "Sleeps.", Task: taskserver.TaskOptional, Run: slowCompute},
			{Name: "failing_job", Description: "Fails as a tool.", Task: taskserver.TaskRequired, Run: failingJob},
			{Name: "protocol_error_job", Description: "Fails as a call.", Task: taskserver.TaskOptional, Run: protocolErrorJob},
			{Name: "confirm_delete", Description: "Asks one thing.", Task: taskserver.TaskOptional, Run: asking("confirm")},
			{Name: "multi_input", Description: "Asks two things.", Task: taskserver.TaskOptional, Run: asking("first", "second")},
			{Name: "test_tool_with_task", Description: "Asks first, then works.", Task: taskserver.TaskRequired, Ask: askName, Run: greetByAnswer},
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/mcp", f.tasks)
	f.srv = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { f.done <- f.srv.Serve(ln) }()
	return f, nil
}

func (f *taskFixture) stop() error {
	f.tasks.Close()
	err := f.srv.Close()
	if served := <-f.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func greet(_ context.Context, j *taskserver.Job) (taskserver.Result, error) {
	var in struct{ Name string }
	if err := json.Unmarshal(j.Arguments, &in); err != nil {
		return taskserver.Result{}, err
	}
	return taskserver.Result{Text: "Hello, " + in.Name + "!"}, nil
}

func slowCompute(ctx context.Context, j *taskserver.Job) (taskserver.Result, error) {
	var in struct {
		Seconds float64
		Label   string
	}
	if err := json.Unmarshal(j.Arguments, &in); err != nil {
		return taskserver.Result{}, err
	}
	if err := sleep(ctx, time.Duration(in.Seconds*float64(time.Second))); err != nil {
		return taskserver.Result{}, err
	}
	return taskserver.Result{Text: fmt.Sprintf("%s: slept for %g s", in.Label, in.Seconds)}, nil
}

func failingJob(ctx context.Context, _ *taskserver.Job) (taskserver.Result, error) {
	if err := sleep(ctx, time.Second); err != nil {
		return taskserver.Result{}, err
	}
	return taskserver.Result{Text: "it failed, as it always does", IsError: true}, nil
}

func protocolErrorJob(context.Context, *taskserver.Job) (taskserver.Result, error) {
	return taskserver.Result{}, &taskserver.Error{Code: -32603, Message: "the job broke down"}
}

// asking is a tool that asks for a confirmation by each key.
func asking(keys ...string) func(context.Context, *taskserver.Job) (taskserver.Result, error) {
	return func(ctx context.Context, j *taskserver.Job) (taskserver.Result, error) {
		requests := map[string]taskserver.Request{}
		for _, k := range keys {
			requests[k] = form("Go on ("+k+")?", "confirm", "boolean")
		}
		answers, err := j.Ask(ctx, requests)
		if err != nil {
			return taskserver.Result{}, err
		}
		return taskserver.Result{Text: fmt.Sprintf("%d answers", len(answers))}, nil
	}
}

func form(message, field, kind string) taskserver.Request {
	return taskserver.Request{Method: "elicitation/create", Params: map[string]any{
		"mode": "form", "message": message,
		"requestedSchema": map[string]any{"type": "object", "properties": map[string]any{field: map[string]any{"type": kind}}, "required": []string{field}},
	}}
}

func askName(answers map[string]json.RawMessage) map[string]taskserver.Request {
	if _, ok := answers["user_name"]; ok {
		return nil
	}
	return map[string]taskserver.Request{"user_name": form("What is your name?", "name", "string")}
}

func greetByAnswer(_ context.Context, j *taskserver.Job) (taskserver.Result, error) {
	var in struct{ Content struct{ Name string } }
	if err := json.Unmarshal(j.Answers["user_name"], &in); err != nil {
		return taskserver.Result{}, err
	}
	return taskserver.Result{Text: "Hello, " + in.Content.Name + "!"}, nil
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
