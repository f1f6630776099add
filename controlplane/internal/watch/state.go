package watch

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weir-mcp/weir/routes/wire"
)

// State is what a backend says of a task at one moment. It is shared by all who follow the task: read-only.
type State struct {
	// Task is the DetailedTask: a JSON object in the backend's own words, without what belongs to the message that brought it
	// (resultType, _meta). Nil: the backend does not know the task any more.
	Task json.RawMessage
	// Meta is the message's _meta without the id of a subscription, nil when there is none.
	Meta wire.Object
	// Over: the task has ended, and this is the last that is heard of it.
	Over bool

	poll   time.Duration     // as the backend wishes to be polled; zero: it does not say
	digest [sha256.Size]byte // of Task, however it is written
}

var errOtherTask = errors.New("the backend's answer is about another task")

// stateOf reads the result of a tasks/get, or the params of a notifications/tasks, about a task.
// Source: SEP-2663 (Task Polling, Task Status Notifications).
func stateOf(doc []byte, id string) (State, error) {
	scan, err := wire.ScanTaskState(wire.Modern, doc)
	switch {
	case err != nil:
		return State{}, err
	case scan.ID != id:
		return State{}, errOtherTask
	}
	var s State
	switch scan.Status {
	case "completed", "failed", "cancelled":
		s.Over = true
	}
	var kept wire.Object
	for _, m := range members(doc) {
		switch m.Name {
		case "resultType":
		case "_meta":
			s.Meta = slices.DeleteFunc(members(m.Value), func(m wire.Member) bool { return m.Name == wire.MetaSubscriptionID })
		case "pollIntervalMs":
			s.poll = interval(m.Value)
			kept = append(kept, m)
		default:
			kept = append(kept, m)
		}
	}
	s.Task = kept.Append(nil)
	s.digest = digestOf(s.Task)
	return s, nil
}

// members splits an object whose values may be anything that JSON's grammar allows: they are the backend's affair. Nil: it is none.
func members(object []byte) (out wire.Object) {
	d := jsontext.NewDecoder(bytes.NewBuffer(object), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return nil
	}
	for d.PeekKind() == '"' {
		t, err := d.ReadToken()
		if err != nil {
			return nil
		}
		name := t.String()
		v, err := d.ReadValue()
		if err != nil {
			return nil
		}
		end := int(d.InputOffset())
		out = append(out, wire.Member{Name: name, Value: object[end-len(v) : end : end]})
	}
	return out
}

// interval reads pollIntervalMs; zero: it says nothing.
func interval(raw json.RawMessage) time.Duration {
	ms, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || !(ms > 0) {
		return 0
	}
	return time.Duration(min(ms, float64(slowest.Milliseconds())) * float64(time.Millisecond))
}

// digestOf is the same for documents that say the same in another order or with other blanks: a backend may write a task anew each time.
func digestOf(doc json.RawMessage) [sha256.Size]byte {
	v := jsontext.Value(bytes.Clone(doc))
	if v.Canonicalize() != nil { // by this grammar it is broken; byte by byte it can still be compared
		v = jsontext.Value(doc)
	}
	return sha256.Sum256(v)
}
