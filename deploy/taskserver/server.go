// Package taskserver is a small MCP server of 2026-07-28 whose tools answer with tasks (the extension io.modelcontextprotocol/tasks):
// weir-standalone's demo of tasks and the fixture of the conformance run are made of it. The official SDK has no tasks yet.
// Source: SEP-2663; MCP 2026-07-28, basic.
package taskserver

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The version that the server speaks, and the extension that it offers.
const (
	Version   = "2026-07-28"
	Extension = "io.modelcontextprotocol/tasks"
)

// The codes of the errors that the server answers with.
const (
	codeParse              = -32700
	codeInvalidRequest     = -32600
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeInternal           = -32603
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

// TaskUse says whether a tool answers with a task.
type TaskUse int

// The uses. A caller that does not declare the extension gets the result of a TaskOptional tool when it is there, and an error from a
// TaskRequired one.
const (
	TaskNever TaskUse = iota
	TaskOptional
	TaskRequired
)

// Tool is one tool.
type Tool struct {
	Name, Description string
	Schema            string // of the arguments, JSON; empty: any object
	Task              TaskUse
	// Ask returns what the caller must answer before the work begins, by key, given what it has answered; nil or empty: nothing.
	Ask func(answers map[string]json.RawMessage) map[string]Request
	// Run does the work. A task is cancelled by its context; its error is then of no matter. An *Error is the call's error, so that
	// the task fails; any other error is a result that says isError.
	Run func(ctx context.Context, j *Job) (Result, error)
}

// Request is one thing that a server asks its client.
type Request struct {
	Method string `json:"method"`
	Params any    `json:"params"`
}

// Result is what a tool says.
type Result struct {
	Text    string
	IsError bool
}

// Error is a JSON-RPC error.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
	status  int    // of HTTP; 0: 200
}

func (e *Error) Error() string { return e.Message }

// Options of a Server.
type Options struct {
	Name, Instructions string
	Tools              []Tool
	TTL                time.Duration // how long a task is kept; zero: an hour
	Poll               time.Duration // how often clients should ask; zero: a second
}

// maxTasks bounds what a server remembers: beyond it the oldest task that has ended goes, and if none has, no task is made.
const maxTasks = 1000

// maxBody bounds a request.
const maxBody = 1 << 20

// Server is the http.Handler of one MCP endpoint. Close ends its work.
type Server struct {
	o     Options
	tools map[string]*Tool

	work     context.Context
	stopWork context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex // guards what follows, and the fields of tasks
	tasks   map[string]*task
	order   []*task       // by age
	changed chan struct{} // closed at the next change of any task
}

// New starts nothing.
func New(o Options) *Server {
	o.TTL, o.Poll = cmp.Or(o.TTL, time.Hour), cmp.Or(o.Poll, time.Second)
	s := &Server{o: o, tools: map[string]*Tool{}, tasks: map[string]*task{}, changed: make(chan struct{})}
	s.work, s.stopWork = context.WithCancel(context.Background())
	for i := range o.Tools {
		s.tools[o.Tools[i].Name] = &o.Tools[i]
	}
	return s
}

// Close cancels all tasks, ends open streams, and waits for the work of the tasks.
func (s *Server) Close() {
	s.stopWork()
	s.running.Wait()
}

// request is one JSON-RPC request, and what of its parameters concerns every method.
type request struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	meta   meta
}

type meta struct {
	Version      string `json:"io.modelcontextprotocol/protocolVersion"`
	Capabilities *struct {
		Extensions map[string]json.RawMessage
	} `json:"io.modelcontextprotocol/clientCapabilities"`
}

// tasks reports whether the caller declares the extension.
func (r *request) tasks() bool {
	_, ok := r.meta.Capabilities.Extensions[Extension]
	return ok
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return // the client left, or gets the 413 of the reader
	}
	var req request
	if err := json.Unmarshal(body, &req); err != nil {
		answer(w, nil, nil, &Error{Code: codeParse, Message: "the body is no JSON-RPC request", status: http.StatusBadRequest})
		return
	}
	if req.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if err := check(r.Header, &req); err != nil {
		answer(w, req.ID, nil, err)
		return
	}
	if req.Method == "subscriptions/listen" {
		s.listen(w, r, &req)
		return
	}
	result, failure := s.dispatch(r.Context(), &req)
	answer(w, req.ID, result, failure)
}

// check compares the headers with the body, and both with what is served.
func check(h http.Header, req *request) *Error {
	var p struct {
		Meta   meta `json:"_meta"`
		Name   string
		TaskID string `json:"taskId"`
	}
	if err := json.Unmarshal(req.Params, &p); err != nil {
		return &Error{Code: codeInvalidParams, Message: "params must be an object with _meta", status: http.StatusBadRequest}
	}
	req.meta = p.Meta
	mismatch := func(name string) *Error {
		return &Error{Code: codeHeaderMismatch, Message: name + " is missing or unlike the body", status: http.StatusBadRequest}
	}
	switch {
	case h.Get("Mcp-Protocol-Version") != p.Meta.Version:
		return mismatch("MCP-Protocol-Version")
	case p.Meta.Version != Version:
		return &Error{Code: codeUnsupportedVersion, Message: "unsupported protocol version", status: http.StatusBadRequest,
			Data: map[string]any{"supported": []string{Version}, "requested": p.Meta.Version}}
	case p.Meta.Capabilities == nil:
		return &Error{Code: codeInvalidParams, Message: "_meta must say clientCapabilities", status: http.StatusBadRequest}
	case h.Get("Mcp-Method") != req.Method:
		return mismatch("Mcp-Method")
	}
	name, has := p.Name, req.Method == "tools/call"
	if req.Method == "tasks/get" || req.Method == "tasks/update" || req.Method == "tasks/cancel" {
		name, has = p.TaskID, true
	}
	if has && headerText(h.Get("Mcp-Name")) != name {
		return mismatch("Mcp-Name")
	}
	return nil
}

// headerText undoes the encoding of values that a header can't hold. Source: MCP 2026-07-28, basic/transports/streamable-http.
func headerText(v string) string {
	if inner, ok := strings.CutPrefix(v, "=?base64?"); ok {
		if inner, ok = strings.CutSuffix(inner, "?="); ok {
			if text, err := base64.StdEncoding.DecodeString(inner); err == nil {
				return string(text)
			}
		}
	}
	return v
}

// dispatch answers everything but streams.
func (s *Server) dispatch(ctx context.Context, req *request) (any, *Error) {
	switch req.Method {
	case "server/discover":
		return map[string]any{
			"resultType": "complete", "supportedVersions": []string{Version}, "instructions": s.o.Instructions,
			"capabilities": map[string]any{"tools": map[string]any{}, "extensions": map[string]any{Extension: map[string]any{}}},
			"_meta":        map[string]any{"io.modelcontextprotocol/serverInfo": map[string]any{"name": s.o.Name, "version": "1.0.0"}},
			"ttlMs":        60_000, "cacheScope": "public",
		}, nil
	case "tools/list":
		return s.list(), nil
	case "tools/call":
		return s.call(ctx, req)
	case "tasks/get", "tasks/update", "tasks/cancel":
		return s.follow(req)
	}
	return nil, &Error{Code: codeMethodNotFound, Message: "no such method", status: http.StatusNotFound}
}

func (s *Server) list() any {
	type item struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	tools := []item{}
	for _, t := range s.o.Tools {
		tools = append(tools, item{t.Name, t.Description, json.RawMessage(cmp.Or(t.Schema, `{"type":"object"}`))})
	}
	return map[string]any{"resultType": "complete", "tools": tools, "ttlMs": 60_000, "cacheScope": "public"}
}

func (s *Server) call(ctx context.Context, req *request) (any, *Error) {
	var p struct {
		Name      string
		Arguments json.RawMessage
		Answers   map[string]json.RawMessage `json:"inputResponses"`
	}
	if err := json.Unmarshal(req.Params, &p); err != nil {
		return nil, &Error{Code: codeInvalidParams, Message: "bad params", status: http.StatusBadRequest}
	}
	tool, ok := s.tools[p.Name]
	if !ok {
		return nil, &Error{Code: codeInvalidParams, Message: "unknown tool", status: http.StatusBadRequest}
	}
	if tool.Task == TaskRequired && !req.tasks() {
		return nil, missingExtension()
	}
	if tool.Ask != nil {
		if asked := tool.Ask(p.Answers); len(asked) > 0 {
			return map[string]any{"resultType": "input_required", "inputRequests": asked}, nil
		}
	}
	job := &Job{Arguments: p.Arguments, Answers: p.Answers, server: s}
	if tool.Task == TaskNever || !req.tasks() {
		result, err := tool.Run(ctx, job)
		failure := (*Error)(nil)
		switch {
		case errors.As(err, &failure):
			return nil, failure
		case err != nil:
			result = Result{Text: err.Error(), IsError: true}
		}
		return result.body(), nil
	}
	return s.create(tool, job)
}

func missingExtension() *Error {
	return &Error{Code: codeMissingCapability, Message: "the client must declare the extension " + Extension, status: http.StatusBadRequest,
		Data: map[string]any{"requiredCapabilities": map[string]any{"extensions": map[string]any{Extension: map[string]any{}}}}}
}

// body is the result of a call; that of a task is exactly what the call would have returned.
func (r Result) body() map[string]any {
	return map[string]any{"resultType": "complete", "content": []any{map[string]string{"type": "text", "text": r.Text}}, "isError": r.IsError}
}

func answer(w http.ResponseWriter, id json.RawMessage, result any, failure *Error) {
	body := map[string]any{"jsonrpc": "2.0"}
	if id != nil {
		body["id"] = id
	}
	status := http.StatusOK
	if failure != nil {
		body["error"], status = failure, cmp.Or(failure.status, status)
	} else {
		body["result"] = result
	}
	doc, err := json.Marshal(body)
	if err != nil {
		http.Error(w, "the answer can't be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(doc) // the client left: nobody to tell
}
