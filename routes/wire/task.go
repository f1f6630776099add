package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// TasksExtension is the name of the tasks extension among the extensions of a modern client's or server's capabilities.
// Source: SEP-2663 (Extension Identifier).
const TasksExtension = "io.modelcontextprotocol/tasks"

// maxTaskID bounds a task's id, in bytes: it must fit into an Mcp-Name header, Base64 included.
const maxTaskID = 4096

// TaskShape says in which way a result tells of a task.
type TaskShape uint8

// The shapes.
const (
	NoTask         TaskShape = iota
	ModernTask               // resultType "task": a CreateTaskResult of the tasks extension
	LegacyTask               // result.task without content: a CreateTaskResult of 2025-11-25
	AdvertisedTask           // result._meta.task of a result that is complete without it
)

// TaskScan is what a result tells of a task.
type TaskScan struct {
	Shape  TaskShape
	ID     string
	Status string // empty: not told
	// TTL is how long the backend promises to keep the task from its creation. Zero: it does not say. Unlimited: ttl is null.
	TTL       time.Duration
	Unlimited bool
}

// ScanTask looks for a task in the result of a call. A result that is a task and has no id, or one that is empty, over 4 KiB or no
// proper text, is an error; an advertisement of that kind is none, and no task.
// Source: SEP-2663 (Task Creation); MCP 2025-11-25, basic/utilities/tasks (Creating Tasks).
func ScanTask(result json.RawMessage) (TaskScan, error) {
	s, err := ScanResult(result)
	if err != nil {
		return TaskScan{}, err
	}
	switch {
	case s.ResultType == "task":
		t, err := scanTask(result, "ttlMs")
		t.Shape = ModernTask
		return t, err
	case s.ResultType == "" && isObject(s.Task) && !s.content:
		t, err := scanTask(s.Task, "ttl")
		t.Shape = LegacyTask
		return t, err
	case !isObject(s.Meta):
		return TaskScan{}, nil
	}
	advertised, ok := objectOf(s.Meta).Get("task")
	if !ok || !isObject(advertised) {
		return TaskScan{}, nil
	}
	t, err := scanTask(advertised, "ttlMs")
	if err != nil {
		return TaskScan{}, nil
	}
	t.Shape = AdvertisedTask
	return t, nil
}

// ScanTaskState looks at a task as tasks/get of an era returns it, and as notifications/tasks carries it. Without a proper id it is an
// error.
func ScanTaskState(era Era, task json.RawMessage) (TaskScan, error) {
	if _, problem := scan(task, true); problem != "" {
		return TaskScan{}, fmt.Errorf("%w: %s", ErrNotMessage, problem)
	}
	if era == Legacy {
		return scanTask(task, "ttl")
	}
	return scanTask(task, "ttlMs")
}

// scanTask reads the members of a Task object that is known to be well-formed. A member that is there twice is an error: the client
// may take the other one.
func scanTask(task json.RawMessage, ttl string) (TaskScan, error) {
	w := trust(task)
	if w.space(); w.peek() != '{' {
		return TaskScan{}, fmt.Errorf("%w: the task is not an object", ErrNotMessage)
	}
	var t TaskScan
	var ids, statuses, ttls int
	for w.enter(); ; {
		name, ok := w.member()
		if !ok {
			break
		}
		switch unquote(name) {
		case "taskId":
			ids++
			if id := jsontext.Value(w.value()); id.IsValid() { // else no client can ask for it: requests are decoded strictly
				t.ID, _ = text(json.RawMessage(id))
			}
		case "status":
			statuses++
			t.Status, _ = text(w.value())
		case ttl:
			ttls++
			t.TTL, t.Unlimited = milliseconds(w.value())
		default:
			w.value()
		}
	}
	switch {
	case ids > 1 || statuses > 1 || ttls > 1:
		return TaskScan{}, fmt.Errorf("%w: a member of the task is there twice", ErrNotMessage)
	case t.ID == "":
		return TaskScan{}, fmt.Errorf("%w: the task has no id", ErrNotMessage)
	case len(t.ID) > maxTaskID:
		return TaskScan{}, fmt.Errorf("%w: the task's id is over %d bytes", ErrNotMessage, maxTaskID)
	}
	return t, nil
}

// milliseconds reads a ttl: a number, or null for no end. Anything else says nothing.
func milliseconds(raw json.RawMessage) (ttl time.Duration, unlimited bool) {
	if string(raw) == "null" {
		return 0, true
	}
	ms, err := strconv.ParseFloat(string(raw), 64)
	if !isNumber(raw) || err != nil && ms == 0 || ms <= 0 {
		return 0, false
	}
	if ms >= math.MaxInt64/float64(time.Millisecond) {
		return math.MaxInt64, false
	}
	return time.Duration(ms * float64(time.Millisecond)), false
}

// DeclaresTasks reports whether a modern client declared the tasks extension with this request; what it declared before does not count.
// Source: SEP-2663 (Capability Negotiation).
func (r *Request) DeclaresTasks() bool {
	capabilities := r.ClientCapabilities()
	if !isObject(capabilities) {
		return false
	}
	extensions, ok := objectOf(capabilities).Get("extensions")
	if !ok || !isObject(extensions) {
		return false
	}
	tasks, ok := objectOf(extensions).Get(TasksExtension)
	return ok && isObject(tasks)
}

// NeedsTasks refuses a modern request that did not declare the tasks extension.
func NeedsTasks() *Error {
	return MissingCapability(json.RawMessage(`{"extensions":{"` + TasksExtension + `":{}}}`))
}
