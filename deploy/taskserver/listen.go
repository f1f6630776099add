package taskserver

import (
	"encoding/json"
	"net/http"
	"time"
)

// keepAlive is how often an idle stream gets a comment.
const keepAlive = 15 * time.Second

// subscription is the id of the stream that a message belongs to.
const subscription = "io.modelcontextprotocol/subscriptionId"

// maxListened bounds the tasks of one stream.
const maxListened = 64

// listen answers subscriptions/listen: the state of each task at once, then each change.
func (s *Server) listen(w http.ResponseWriter, r *http.Request, req *request) {
	var p struct {
		Notifications struct {
			TaskIDs []string `json:"taskIds"`
		}
	}
	if err := json.Unmarshal(req.Params, &p); err != nil || len(p.Notifications.TaskIDs) > maxListened {
		answer(w, req.ID, nil, &Error{Code: codeInvalidParams, Message: "bad params", status: http.StatusBadRequest})
		return
	}
	if len(p.Notifications.TaskIDs) > 0 && !req.tasks() {
		answer(w, req.ID, nil, missingExtension())
		return
	}
	s.mu.Lock()
	var known []*task
	ids := []string{}
	for _, id := range p.Notifications.TaskIDs {
		if t, ok := s.tasks[id]; ok {
			known, ids = append(known, t), append(ids, id)
		}
	}
	s.mu.Unlock()
	out := &events{w: w, ctl: http.NewResponseController(w), id: req.ID}
	w.Header().Set("Content-Type", "text/event-stream")
	agreed := map[string]any{}
	if len(ids) > 0 {
		agreed["taskIds"] = ids
	}
	out.notify("notifications/subscriptions/acknowledged", map[string]any{"notifications": agreed})
	told := make([]int, len(known))
	for i := range told {
		told[i] = -1
	}
	idle := time.NewTicker(keepAlive)
	defer idle.Stop()
	for out.err == nil {
		changed := s.tell(out, known, told)
		select {
		case <-r.Context().Done():
			return
		case <-s.work.Done():
			out.end()
			return
		case <-idle.C:
			out.write(": \n\n")
		case <-changed:
		}
	}
}

// tell sends the tasks that changed since they were told last, and returns a channel that is closed at the next change.
func (s *Server) tell(out *events, known []*task, told []int) <-chan struct{} {
	s.mu.Lock()
	changed := s.changed
	var states []map[string]any
	for i, t := range known {
		if t.changes != told[i] {
			told[i] = t.changes
			states = append(states, s.describe(t))
		}
	}
	s.mu.Unlock()
	for _, state := range states {
		out.notify("notifications/tasks", state)
	}
	return changed
}

// events writes the messages of one stream; after the first error nothing more.
type events struct {
	w   http.ResponseWriter
	ctl *http.ResponseController
	id  json.RawMessage
	err error
}

func (e *events) notify(method string, params map[string]any) {
	params["_meta"] = map[string]any{subscription: e.id}
	e.message(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
}

// end is the response to the request that opened the stream.
func (e *events) end() {
	e.message(map[string]any{"jsonrpc": "2.0", "id": e.id, "result": map[string]any{"resultType": "complete", "_meta": map[string]any{subscription: e.id}}})
}

func (e *events) message(m any) {
	doc, err := json.Marshal(m)
	if err != nil {
		e.err = err
		return
	}
	e.write("data: " + string(doc) + "\n\n")
}

func (e *events) write(s string) {
	if e.err != nil {
		return
	}
	if _, e.err = e.w.Write([]byte(s)); e.err == nil {
		e.err = e.ctl.Flush()
	}
}
