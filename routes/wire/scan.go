package wire

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// MessageKind is what a JSON-RPC message is.
type MessageKind uint8

// The kinds of messages.
const (
	KindRequest MessageKind = iota + 1
	KindNotification
	KindResponse
)

// Scan is what [ScanMessage] finds in a message; every raw value is a sub-slice of it, nil when absent.
type Scan struct {
	Kind   MessageKind
	Method string          // of a request or notification
	ID     json.RawMessage // exact text
	Params json.RawMessage // of a request or notification
	// ProgressToken is params.progressToken of notifications/progress.
	ProgressToken json.RawMessage
	Result, Error json.RawMessage // of a response, exactly one is set
	ResultScan                    // of Result
}

// ResultScan is what routing needs of a result's top level.
type ResultScan struct {
	ResultType string          // empty: absent, or not a string
	Task       json.RawMessage // result.task: a legacy CreateTaskResult
	Meta       json.RawMessage // result._meta
	content    bool            // result.content is there: a CallToolResult
}

// ErrNotMessage is in every error of [ScanMessage]: the document is no JSON-RPC message.
var ErrNotMessage = errors.New("not a JSON-RPC message")

// ScanMessage looks at a backend's message without decoding values. Broken JSON, a message that is neither request,
// notification nor response, and members that are there twice where it looks are errors. Values may have anything else
// that JSON's grammar allows: duplicate names and lone surrogates further down are the backend's and the client's affair.
func ScanMessage(doc []byte) (Scan, error) {
	s, problem := scan(doc, false)
	if problem == "" {
		problem = s.classify()
	}
	if problem != "" {
		return Scan{}, fmt.Errorf("%w: %s", ErrNotMessage, problem)
	}
	return s, nil
}

// ScanResult looks at the top level of a result. A result that is no object, or has a member twice where it looks, is an
// error.
func ScanResult(result json.RawMessage) (ResultScan, error) {
	s, problem := scan(result, true)
	if problem != "" {
		return ResultScan{}, fmt.Errorf("%w: %s", ErrNotMessage, problem)
	}
	return s.ResultScan, nil
}

// scan looks at the object that doc must be: a message, or a result alone. A problem, if any, is for the log.
func scan(doc []byte, result bool) (s Scan, problem string) {
	sc := scanner{walker: check(doc, false)}
	if sc.space(); sc.peek() == '{' {
		if sc.look(result); sc.sure() {
			return sc.s, sc.problem
		}
	}
	if !wellFormed(doc) {
		return Scan{}, "broken JSON"
	}
	sc = scanner{walker: trust(doc)}
	if sc.space(); sc.peek() != '{' {
		return Scan{}, "not an object"
	}
	sc.look(result)
	return sc.s, sc.problem
}

func (sc *scanner) look(result bool) {
	if result {
		sc.result()
	} else {
		sc.envelope()
	}
}

// wellFormed reports whether doc is one JSON value by the grammar alone.
func wellFormed(doc []byte) bool {
	return jsontext.Value(doc).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

type scanner struct {
	walker
	s       Scan
	problem string
}

// once notes that a member which matters is there a second time.
func (sc *scanner) once(seen *bool) {
	if *seen {
		sc.problem = "a member is there twice"
	}
	*seen = true
}

func (sc *scanner) envelope() {
	var version, id, method, params, result, failure bool
	sc.enter()
	for {
		name, ok := sc.member()
		if !ok {
			break
		}
		switch unquote(name) {
		case "jsonrpc":
			sc.once(&version)
			if v, _ := text(sc.value()); v != "2.0" {
				sc.problem = `jsonrpc is not "2.0"`
			}
		case "id":
			sc.once(&id)
			if sc.s.ID = sc.value(); string(sc.s.ID) == "null" {
				sc.s.ID = nil // an error about a message whose id could not be read
			}
		case "method":
			sc.once(&method)
			if sc.s.Method, ok = text(sc.value()); !ok {
				sc.problem = "method is not a string"
			}
		case "params":
			sc.once(&params)
			start := sc.i
			if sc.peek() == '{' {
				sc.params()
				sc.s.Params = sc.b[start:sc.i:sc.i]
			} else {
				sc.s.Params = sc.value()
			}
		case "result":
			sc.once(&result)
			start := sc.i
			if sc.peek() == '{' {
				sc.result()
				sc.s.Result = sc.b[start:sc.i:sc.i]
			} else {
				sc.value()
				sc.problem = "the result is not an object"
			}
		case "error":
			sc.once(&failure)
			if sc.s.Error = sc.value(); !isObject(sc.s.Error) {
				sc.problem = "the error is not an object"
			}
		default:
			sc.value()
		}
	}
	if !version {
		sc.problem = `jsonrpc is not "2.0"`
	}
}

func (sc *scanner) params() {
	var token bool
	sc.enter()
	for {
		name, ok := sc.member()
		if !ok {
			return
		}
		if string(name) == MetaProgressToken || unquote(name) == MetaProgressToken {
			sc.once(&token)
			sc.s.ProgressToken = sc.value()
			continue
		}
		sc.value()
	}
}

func (sc *scanner) result() {
	var resultType, task, meta, content bool
	sc.enter()
	for {
		name, ok := sc.member()
		if !ok {
			return
		}
		switch unquote(name) {
		case "resultType":
			sc.once(&resultType)
			sc.s.ResultType, _ = text(sc.value())
		case "task":
			sc.once(&task)
			sc.s.Task = sc.value()
		case "_meta":
			sc.once(&meta)
			sc.s.Meta = sc.value()
		case "content":
			sc.once(&content)
			sc.s.content = true
			sc.value()
		default:
			sc.value()
		}
	}
}

// classify sets the kind; a text says why there is none.
func (s *Scan) classify() string {
	switch {
	case s.Method != "" && (s.Result != nil || s.Error != nil):
		return "both a method and an answer"
	case s.Result != nil && s.Error != nil:
		return "both a result and an error"
	case s.Method != "" && s.ID != nil:
		s.Kind = KindRequest
	case s.Method != "":
		s.Kind = KindNotification
	case s.Result != nil && s.ID != nil, s.Error != nil:
		s.Kind = KindResponse
	default:
		return "neither a method nor an answer"
	}
	return ""
}
