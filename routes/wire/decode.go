package wire

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Message is one decoded JSON-RPC message of a client. Its slices are sub-slices of Raw.
type Message struct {
	ID     json.RawMessage // exact text of a string or number; nil for a notification
	Method string
	Params Object // nil when absent
	Meta   Object // params._meta, nil when absent
	Raw    []byte // the body as it came
}

// Arguments returns params.arguments, nil when absent.
func (m *Message) Arguments() json.RawMessage {
	raw, _ := m.Params.Get("arguments")
	return raw
}

// ProgressToken returns params._meta.progressToken, nil when absent.
func (m *Message) ProgressToken() json.RawMessage {
	raw, _ := m.Meta.Get(MetaProgressToken)
	return raw
}

// Names of members that must not turn up in another case: Go's and .NET's decoders would take them for the known one.
const (
	inEnvelope = iota
	inParams
	inMeta
)

// knownNames returns the names that the protocol reads in an envelope, in params and in _meta.
func knownNames(where int) []string {
	switch where {
	case inEnvelope:
		return envelopeNames[:]
	case inParams:
		return paramsNames[:]
	}
	return metaNames[:]
}

var ( // read-only
	envelopeNames = [...]string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramsNames   = [...]string{
		"_meta", "name", "arguments", "uri", "taskId", "cursor", "inputResponses", "requestState", "task",
		"ref", "argument", "context", "level", "notifications", "taskIds",
		"protocolVersion", "capabilities", "clientInfo", "requestId", "reason",
	}
	metaNames = [...]string{
		MetaProgressToken, MetaProtocolVersion, MetaClientInfo, MetaClientCapabilities, MetaLogLevel,
		MetaSubscriptionID, "traceparent", "tracestate", "baggage",
	}
)

// folded returns the known name that name equals under case folding without being it; "" when there is none.
func folded(name string, known []string) string {
	for _, k := range known {
		if k == name {
			return ""
		}
	}
	ascii := isASCII(name)
	for _, k := range known {
		if (!ascii || len(k) == len(name)) && strings.EqualFold(k, name) {
			return k
		}
	}
	return ""
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// DecodeMessage decodes and checks a body: the JSON-RPC envelope, with the strictness of DESIGN § 4. An error has code
// -32700, -32600, or -32602 (a _meta that is no object). When the id could be read, the message comes with the error and
// has the id alone, for the answer. The message refers to body, which must not change afterwards.
func DecodeMessage(body []byte) (*Message, *Error) {
	if i := bytes.IndexFunc(body, notSpace); i >= 0 && body[i] == '[' {
		return nil, invalidRequest("batches are not supported: send one message per POST")
	}
	d := decoder{walker: check(body, true), m: &Message{Raw: body}}
	if d.space(); d.peek() == '{' {
		if d.envelope(); d.sure() {
			return d.result()
		}
	}
	if err := checkStrict(body); err != nil {
		return nil, err
	}
	d = decoder{walker: trust(body), m: &Message{Raw: body}}
	if d.space(); d.peek() != '{' {
		return nil, invalidRequest("not a JSON object")
	}
	if d.envelope(); d.deep {
		d.fail(errTooDeep())
	}
	return d.result()
}

// result returns what was decoded; with a fault, the id alone.
func (d *decoder) result() (*Message, *Error) {
	if d.err != nil {
		return &Message{ID: d.m.ID, Raw: d.m.Raw}, d.err
	}
	return d.m, nil
}

func notSpace(r rune) bool { return r != ' ' && r != '\t' && r != '\n' && r != '\r' }

// decoder walks one message. It goes on after a fault, so that an id further on is found for the answer.
type decoder struct {
	walker
	m   *Message
	err *Error // the first fault
}

func (d *decoder) fail(err *Error) {
	if d.err == nil {
		d.err = err
	}
}

// name decodes a member's name and refuses it when it is a known one in another case.
func (d *decoder) name(raw []byte, where int) string {
	name := unquote(raw)
	if known := folded(name, knownNames(where)); known != "" {
		d.fail(invalidRequest("a member is named like " + known + " in another case"))
	}
	return name
}

func (d *decoder) envelope() {
	var version, method, response bool
	d.enter()
	for {
		raw, ok := d.member()
		if !ok {
			break
		}
		switch d.name(raw, inEnvelope) {
		case "jsonrpc":
			v, _ := text(d.value())
			version = v == "2.0"
		case "id":
			d.id(d.value())
		case "method":
			d.m.Method, method = text(d.value())
			if !method || d.m.Method == "" {
				method = true
				d.fail(invalidRequest("method must be a string that is not empty"))
			}
		case "params":
			if d.peek() == '{' {
				d.params()
				break
			}
			d.value()
			d.fail(invalidRequest("params must be an object"))
		case "result", "error":
			d.value()
			response = true
		default:
			d.value()
		}
	}
	switch {
	case response:
		d.fail(invalidRequest("a JSON-RPC response is not accepted here"))
	case !method:
		d.fail(invalidRequest("neither a request nor a notification: method is missing"))
	case !version:
		d.fail(invalidRequest(`jsonrpc must be "2.0"`))
	}
}

// id takes a string or a number, with its exact text.
func (d *decoder) id(raw json.RawMessage) {
	switch {
	case len(raw) > 0 && raw[0] == '"', isNumber(raw):
		d.m.ID = raw
	default:
		d.fail(invalidRequest("id must be a string or a number"))
	}
}

func (d *decoder) params() {
	d.m.Params = make(Object, 0, 4)
	d.enter()
	for {
		raw, ok := d.member()
		if !ok {
			return
		}
		name := d.name(raw, inParams)
		start := d.i
		if name == "_meta" {
			if d.peek() == '{' {
				d.meta()
				d.m.Params = append(d.m.Params, Member{name, d.b[start:d.i:d.i]})
				continue
			}
			d.fail(invalidParams("_meta must be an object"))
		}
		d.m.Params = append(d.m.Params, Member{name, d.value()})
	}
}

func (d *decoder) meta() {
	d.m.Meta = make(Object, 0, 4)
	d.enter()
	for {
		raw, ok := d.member()
		if !ok {
			return
		}
		name := d.name(raw, inMeta)
		d.m.Meta = append(d.m.Meta, Member{name, d.value()})
	}
}

// Encode writes the message again, from its fields and not from Raw: as a request, or without ID as a notification. Meta
// is not looked at; it is a view of Params.
func (m *Message) Encode() []byte {
	return AppendRequest(make([]byte, 0, 48+len(m.ID)+len(m.Method)+m.Params.size()), m.ID, m.Method, m.Params)
}

// largeValue is from how many bytes on a value is not copied; below, one write is cheaper than two.
const largeValue = 16 << 10

// EncodeParts is Encode for a message that may be large: its bytes are those of the parts together, and large values of Params
// are parts of their own, where they were.
func (m *Message) EncodeParts() [][]byte {
	size := m.Params.size()
	if size < largeValue {
		return [][]byte{m.Encode()}
	}
	small := 64 + len(m.ID) + len(m.Method)
	for _, p := range m.Params {
		if small += len(p.Name) + 8; len(p.Value) < largeValue {
			small += len(p.Value)
		}
	}
	var parts [][]byte
	open := AppendRequest(make([]byte, 0, small), m.ID, m.Method, nil) // what follows the last large value
	open = append(open[:len(open)-1], `,"params":{`...)
	for i, p := range m.Params {
		if i > 0 {
			open = append(open, ',')
		}
		open = append(appendQuoted(open, p.Name), ':')
		switch {
		case len(p.Value) >= largeValue:
			parts = append(parts, open, p.Value)
			open = open[len(open):]
		case len(p.Value) == 0:
			open = append(open, "null"...)
		default:
			open = append(open, p.Value...)
		}
	}
	return append(parts, append(open, "}}"...))
}

// AppendRequest appends a JSON-RPC request to dst, or a notification when id is nil. Nil params are left out.
func AppendRequest(dst []byte, id json.RawMessage, method string, params Object) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if id != nil {
		dst = append(append(dst, `,"id":`...), id...)
	}
	dst = appendQuoted(append(dst, `,"method":`...), method)
	if params != nil {
		dst = params.Append(append(dst, `,"params":`...))
	}
	return append(dst, '}')
}
