package egress

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// Filter is what a Subscription is about.
type Filter struct {
	Tools, Prompts, Resources bool     // changes of these lists
	URIs                      []string // updates of these resources
	TaskIDs                   []string // states of these tasks; modern backends only
}

// empty reports whether nothing is asked for.
func (f Filter) empty() bool {
	return !f.Tools && !f.Prompts && !f.Resources && len(f.URIs) == 0 && len(f.TaskIDs) == 0
}

// Notification is something that a backend announced.
type Notification struct {
	Method string // notifications/tools/list_changed and its like, notifications/resources/updated, or notifications/tasks
	URI    string // of an updated resource: the one asked for, or one below it
	Task   string // of notifications/tasks: its params, the raw JSON of an object
}

// The notifications that a Subscription yields.
const (
	ToolsChanged     = "notifications/tools/list_changed"
	PromptsChanged   = "notifications/prompts/list_changed"
	ResourcesChanged = "notifications/resources/list_changed"
	ResourceUpdated  = "notifications/resources/updated"
	TaskUpdated      = "notifications/tasks"
)

// ErrNoStream is a backend that offers no notifications at all: asking again soon is of no use.
var ErrNoStream = errors.New("the backend offers no stream of notifications")

// Subscription is an open stream of notifications. Next is for one goroutine, Close for any. It must be closed.
type Subscription struct {
	// Agreed is the part of the Filter that the backend serves. Of a legacy backend, which announces changes of lists unasked,
	// it is the whole Filter.
	Agreed Filter

	next  func() (Notification, error)
	close func()
	once  sync.Once
}

// Next returns the next notification. At the end that the backend announced it is io.EOF; other errors are a *Failure or a
// *RPCError.
func (s *Subscription) Next() (Notification, error) { return s.next() }

// Close ends the subscription, at the backend too.
func (s *Subscription) Close() { s.once.Do(s.close) }

var errLateSubscription = errors.New("the backend did not agree to a subscription in time")

const (
	// subscribing bounds the way to an open stream.
	subscribing = 10 * time.Second
	// quiet is how long a stream may say nothing, and how long it may last. A peer that is gone is found out by the connection's
	// own keep-alive.
	quiet = 24 * time.Hour
)

// Listen opens a stream of notifications of the plane's own accord: subscriptions/listen at a modern backend, a session with its
// standalone stream at a legacy one. It returns once the backend has agreed. The error is ErrNoStream, a *Failure or a *RPCError.
func (c *Client) Listen(ctx context.Context, id routes.BackendID, b *routes.Backend, want Filter) (*Subscription, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(subscribing, cancel)
	listen := c.listenModern
	if wire.EraOf(b.Protocol) == wire.Legacy {
		listen, want.TaskIDs = c.listenLegacy, nil
	}
	s, err := listen(ctx, id, b, want)
	inTime := late.Stop()
	if err == nil && (!inTime || s.Agreed.empty()) {
		s.close()
		err = ErrNoStream
	}
	if !inTime {
		err = &Failure{Reason: ReasonTimeout, Sent: true, Err: errLateSubscription}
	}
	if err != nil {
		cancel()
		return nil, err
	}
	shut := s.close
	s.close = func() { shut(); cancel() }
	return s, nil
}

// TaskCapabilities are the clientCapabilities, a JSON object, with which a modern backend may be asked for tasks.
// Source: SEP-2663 (Capability Negotiation).
const TaskCapabilities = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// listenModern asks for the stream and waits for its acknowledgment.
// Source: MCP 2026-07-28, basic/patterns/subscriptions.
func (c *Client) listenModern(ctx context.Context, id routes.BackendID, b *routes.Backend, want Filter) (*Subscription, error) {
	header, err := c.Header(b)
	if err != nil {
		return nil, &Failure{Reason: ReasonAuthFailed, Err: err}
	}
	capabilities := json.RawMessage("{}")
	if len(want.TaskIDs) > 0 {
		capabilities = json.RawMessage(TaskCapabilities)
	}
	patient := *b
	patient.Timeouts.Idle, patient.Timeouts.Total = quiet, quiet
	meta := wire.Object{
		{Name: wire.MetaProtocolVersion, Value: wire.Quote(b.Protocol)},
		{Name: wire.MetaClientInfo, Value: c.clientInfo},
		{Name: wire.MetaClientCapabilities, Value: capabilities},
	}
	a, err := c.Do(ctx, Call{
		ID: id, Backend: &patient, RPCID: wire.Quote("weir-" + rand.Text()), Method: "subscriptions/listen", Header: header, Probe: true,
		Params: wire.Object{{Name: "notifications", Value: want.append(nil)}, {Name: "_meta", Value: meta.Append(nil)}},
	})
	if err != nil {
		return nil, err
	}
	for {
		m, err := a.Next()
		if err == nil && m.Final {
			if _, err = resultOf(m); err == nil {
				err = ErrNoStream // it ended before it began
			}
		}
		if err != nil {
			a.Close()
			return nil, noStream(err)
		}
		if m.Method == "notifications/subscriptions/acknowledged" {
			return &Subscription{Agreed: agreed(m.Doc), next: modernEvents(a), close: a.Close}, nil
		}
	}
}

// noStream recognizes a backend that does not know the method.
func noStream(err error) error {
	if re, ok := errors.AsType[*RPCError](err); ok && re.Code == wire.CodeMethodNotFound {
		return ErrNoStream
	}
	return err
}

func modernEvents(a *Answer) func() (Notification, error) {
	return func() (Notification, error) {
		for {
			m, err := a.Next()
			switch {
			case err != nil:
				return Notification{}, err
			case m.Final:
				if _, err := resultOf(m); err != nil {
					return Notification{}, err
				}
				return Notification{}, io.EOF
			}
			if n, ok := notificationOf(m.Method, m.Doc); ok {
				return n, nil
			}
		}
	}
}

// notificationOf reads a message that a Subscription is about; false: it is another one, or broken.
func notificationOf(method string, doc []byte) (Notification, bool) {
	switch method {
	case ToolsChanged, PromptsChanged, ResourcesChanged:
		return Notification{Method: method}, true
	case ResourceUpdated:
		var m struct {
			Params struct {
				URI string `json:"uri"`
			} `json:"params"`
		}
		if json.Unmarshal(doc, &m) != nil || m.Params.URI == "" {
			return Notification{}, false
		}
		return Notification{Method: method, URI: m.Params.URI}, true
	case TaskUpdated:
		m, err := wire.ScanMessage(doc)
		if err != nil || len(m.Params) == 0 || m.Params[0] != '{' {
			return Notification{}, false
		}
		return Notification{Method: method, Task: string(m.Params)}, true
	}
	return Notification{}, false
}

// append appends the filter as a SubscriptionFilter of the schema.
func (f Filter) append(dst []byte) []byte {
	var o wire.Object
	for _, m := range []struct {
		name string
		is   bool
	}{{"toolsListChanged", f.Tools}, {"promptsListChanged", f.Prompts}, {"resourcesListChanged", f.Resources}} {
		if m.is {
			o = append(o, wire.Member{Name: m.name, Value: json.RawMessage("true")})
		}
	}
	if len(f.URIs) > 0 {
		o = append(o, wire.Member{Name: "resourceSubscriptions", Value: quoteAll(f.URIs)})
	}
	if len(f.TaskIDs) > 0 {
		o = append(o, wire.Member{Name: "taskIds", Value: quoteAll(f.TaskIDs)})
	}
	return o.Append(dst)
}

func quoteAll(list []string) json.RawMessage {
	out := []byte{'['}
	for i, s := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, wire.Quote(s)...)
	}
	return append(out, ']')
}

// agreed reads the filter of an acknowledgment; what is malformed was not agreed to.
func agreed(doc []byte) Filter {
	var m struct {
		Params struct {
			Notifications struct {
				Tools     bool     `json:"toolsListChanged"`
				Prompts   bool     `json:"promptsListChanged"`
				Resources bool     `json:"resourcesListChanged"`
				URIs      []string `json:"resourceSubscriptions"`
				TaskIDs   []string `json:"taskIds"`
			} `json:"notifications"`
		} `json:"params"`
	}
	if json.Unmarshal(doc, &m) != nil {
		return Filter{}
	}
	n := m.Params.Notifications
	return Filter{n.Tools, n.Prompts, n.Resources, n.URIs, n.TaskIDs}
}

// Has reports whether updates of a resource are part of the filter.
func (f Filter) Has(uri string) bool { return slices.Contains(f.URIs, uri) }

// HasTask reports whether the states of a task are part of the filter.
func (f Filter) HasTask(id string) bool { return slices.Contains(f.TaskIDs, id) }
