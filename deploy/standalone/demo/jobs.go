package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weir-mcp/weir/deploy/taskserver"
)

// jobs speaks 2026-07-28; its tools answer with tasks.
func jobs() *taskserver.Server {
	return taskserver.New(taskserver.Options{
		Name: "weir-demo-jobs", Instructions: "A demo server whose tools are jobs: they answer with tasks, where the client declares " + taskserver.Extension + ".",
		Tools: []taskserver.Tool{
			{
				Name: "work", Task: taskserver.TaskOptional, Run: work,
				Description: "Works for some seconds (1 to 600, 10 unless told otherwise) and says how far it is.",
				Schema:      `{"type":"object","properties":{"seconds":{"type":"integer","minimum":1,"maximum":600,"description":"how long"}}}`,
			},
			{
				Name: "introduce", Task: taskserver.TaskRequired, Run: introduce,
				Description: "Asks for your name (input_required) and greets you.",
			},
		},
	})
}

func work(ctx context.Context, j *taskserver.Job) (taskserver.Result, error) {
	in := struct{ Seconds int }{10}
	if len(j.Arguments) > 0 {
		if err := json.Unmarshal(j.Arguments, &in); err != nil || in.Seconds < 1 || in.Seconds > 600 {
			return taskserver.Result{}, errors.New("seconds: a whole number from 1 to 600 is needed")
		}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := range in.Seconds {
		j.Say(fmt.Sprintf("%d of %d s", n, in.Seconds))
		select {
		case <-ctx.Done():
			return taskserver.Result{}, ctx.Err()
		case <-tick.C:
		}
	}
	return taskserver.Result{Text: fmt.Sprintf("worked for %d s", in.Seconds)}, nil
}

func introduce(ctx context.Context, j *taskserver.Job) (taskserver.Result, error) {
	answers, err := j.Ask(ctx, map[string]taskserver.Request{"name": {Method: "elicitation/create", Params: map[string]any{
		"mode": "form", "message": "What is your name?",
		"requestedSchema": map[string]any{
			"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}, "required": []string{"name"},
		},
	}}})
	if err != nil {
		return taskserver.Result{}, err
	}
	var given struct {
		Action  string
		Content struct{ Name string }
	}
	if err := json.Unmarshal(answers["name"], &given); err != nil || given.Action != "accept" || given.Content.Name == "" {
		return taskserver.Result{Text: "Nobody introduced themselves."}, nil
	}
	return taskserver.Result{Text: "Hello, " + given.Content.Name + "!"}, nil
}
