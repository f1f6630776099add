package listing

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

// Watcher shares upstream subscriptions to resources; *watch.Hub does.
type Watcher interface {
	Subscribe(ctx context.Context, t routes.Target, updated func(uri string)) (release func(), err error)
}

// ListenOptions of subscriptions/listen. The zero value serves list changes only.
type ListenOptions struct {
	// Watch subscribes to resources at their backends; nil: subscriptions to resources are not agreed to.
	Watch Watcher
	// Revoked is asked of an open stream's caller at least each second; true ends the stream. Nil: nobody is revoked.
	Revoked func(*access.Identity) bool
	// Total bounds the streams that are open, PerPrincipal those of one principal, where there is auth, and TasksPerPrincipal the tasks
	// that these follow. Zero means 10,000, 64 and 256.
	Total, PerPrincipal, TasksPerPrincipal int
}

const (
	// maxURIs and maxTaskIDs bound the resources and the tasks of one stream.
	maxURIs, maxTaskIDs = 64, 64
	// subscribing bounds the wait for backends before a stream is acknowledged: what has not agreed by then is left out.
	subscribing = 5 * time.Second
	// recheck is how often an open stream's caller is checked again.
	recheck = 500 * time.Millisecond
	// retryListen is what a client over a bound is told to wait.
	retryListen = 5 * time.Second
)

// filter is what a client wants to hear of (SubscriptionFilter of the schema, 2026-07-28; SEP-2663).
type filter struct {
	lists [3]bool // by listKind
	uris  []string
	tasks []string
}

// listKind is one of the three lists that have a notification: templates count as resources.
type listKind uint8

const (
	toolsList listKind = iota
	promptsList
	resourcesList
)

// listKinds says what belongs to each.
var listKinds = [...]struct {
	field        string // of the filter
	capability   string
	notification string
	kind         routes.Kind
	scope        string
}{
	toolsList:     {"toolsListChanged", "tools", "notifications/tools/list_changed", routes.KindTool, "mcp:tools"},
	promptsList:   {"promptsListChanged", "prompts", "notifications/prompts/list_changed", routes.KindPrompt, "mcp:prompts"},
	resourcesList: {"resourcesListChanged", "resources", "notifications/resources/list_changed", routes.KindResource, "mcp:resources"},
}

func (f *filter) empty() bool { return f.lists == [3]bool{} && len(f.uris) == 0 && len(f.tasks) == 0 }

// filterOf reads params.notifications. Members that it does not know are a later version's, and not agreed to.
func filterOf(params wire.Object) (f filter, _ *wire.Error) {
	raw, ok := params.Get("notifications")
	if !ok {
		return f, wire.InvalidParams("params lacks notifications")
	}
	o, err := wire.ParseObject(raw)
	if err != nil {
		return f, wire.InvalidParams("notifications is not an object")
	}
	for i, k := range listKinds {
		if raw, ok := o.Get(k.field); ok && json.Unmarshal(raw, &f.lists[i]) != nil {
			return f, wire.InvalidParams(k.field + " is not a boolean")
		}
	}
	var werr *wire.Error
	if f.uris, werr = stringsOf(o, "resourceSubscriptions", "resources", maxURIs); werr == nil {
		f.tasks, werr = stringsOf(o, "taskIds", "tasks", maxTaskIDs)
	}
	return f, werr
}

// stringsOf reads an array of strings, each of which counts once.
func stringsOf(o wire.Object, field, what string, most int) (list []string, _ *wire.Error) {
	if raw, ok := o.Get(field); ok && json.Unmarshal(raw, &list) != nil {
		return nil, wire.InvalidParams(field + " is not an array of strings")
	}
	slices.Sort(list)
	if list = slices.Compact(list); len(list) > most {
		return nil, wire.InvalidParams(fmt.Sprintf("%s has over %d %s; open several streams", field, most, what))
	}
	return list, nil
}

// served keeps of a filter what the host serves and the token covers. Where the token alone leaves nothing, the error says which
// scopes it lacks; a client that asked for more than it may have, gets the rest.
func (f filter) served(v *view, scopes access.Scopes) (filter, *wire.Error) {
	var caps struct {
		Tools, Prompts, Resources struct {
			ListChanged bool `json:"listChanged"`
			Subscribe   bool `json:"subscribe"`
		}
	}
	if json.Unmarshal(v.doc.Capabilities, &caps) != nil {
		return filter{}, nil
	}
	var lacking []string
	for i, has := range [...]bool{caps.Tools.ListChanged, caps.Prompts.ListChanged, caps.Resources.ListChanged} {
		if f.lists[i] && !scopes.AllowsKind(listKinds[i].kind) {
			lacking = append(lacking, listKinds[i].scope)
			has = false
		}
		f.lists[i] = f.lists[i] && has
	}
	if len(f.uris) > 0 && !scopes.AllowsKind(routes.KindResource) {
		if !slices.Contains(lacking, "mcp:resources") {
			lacking = append(lacking, "mcp:resources")
		}
		f.uris = nil
	}
	if !caps.Resources.Subscribe {
		f.uris = nil
	}
	if len(f.tasks) > 0 && !scopes.AllowsTasks() {
		lacking = append(lacking, "mcp:tasks")
		f.tasks = nil
	}
	if f.empty() && len(lacking) > 0 {
		return f, wire.InsufficientScope(lacking...)
	}
	return f, nil
}

// listen answers subscriptions/listen: an acknowledgment, and then what was agreed to, until the client leaves.
// Source: MCP 2026-07-28, basic/patterns/subscriptions.
func (s *Server) listen(w *wire.Response, r *wire.Request) {
	v, err := s.store.view(r.Index.Host().ID)
	if err != nil { // removed since Resolve
		w.Fail(wire.Internal("", ""))
		return
	}
	f, werr := filterOf(r.Params)
	needsTasks := len(f.tasks) > 0
	if werr == nil {
		f, werr = f.served(v, r.Identity.Scopes)
	}
	if werr == nil && needsTasks && !r.DeclaresTasks() {
		werr = wire.NeedsTasks()
	}
	if werr != nil {
		w.Fail(werr)
		return
	}
	l := &listener{
		server: s, id: r.ID, host: v.doc.ID, identity: r.Identity, lists: f.lists,
		wake: make(chan struct{}, 1), over: make(chan struct{}),
	}
	// From here on changes are noted, so that none falls between the acknowledgment and the first of them.
	if werr := s.listeners.add(l); werr != nil {
		w.Fail(werr)
		return
	}
	defer s.listeners.remove(l)
	defer l.unsubscribe()
	l.agree(r.HTTP.Context(), f)
	l.serve(r.HTTP.Context(), w)
}

// Drain ends every open stream with its completion result, and those that are opened from now on. It may be called more than once.
func (s *Server) Drain() { s.listeners.drain() }

// listeners are the open streams. Safe for concurrent use.
type listeners struct {
	o ListenOptions
	m listenMetrics

	mu         sync.Mutex // guards what follows
	byHost     map[routes.HostID]map[*listener]struct{}
	principals map[access.Principal]int
	tasks      map[access.Principal]int
	total      int
	draining   bool
}

func newListeners(o ListenOptions) *listeners {
	o.Total, o.PerPrincipal, o.TasksPerPrincipal = cmp.Or(o.Total, 10_000), cmp.Or(o.PerPrincipal, 64), cmp.Or(o.TasksPerPrincipal, 256)
	return &listeners{
		o: o, m: newListenMetrics(), byHost: make(map[routes.HostID]map[*listener]struct{}),
		principals: make(map[access.Principal]int), tasks: make(map[access.Principal]int),
	}
}

// alone reports whether an identity is one caller's. Where there is no auth, all callers are one principal, and bounds for one don't hold.
func alone(id *access.Identity) bool { return id.Issuer != "" }

// add takes a stream in, or refuses it over a bound.
func (ls *listeners) add(l *listener) *wire.Error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case alone(l.identity) && ls.principals[l.identity.Principal] >= ls.o.PerPrincipal:
		return tooMany("you have too many subscription streams open")
	case ls.total >= ls.o.Total:
		return tooMany("too many subscription streams are open")
	}
	if ls.draining {
		l.end("drain")
	}
	of := ls.byHost[l.host]
	if of == nil {
		of = make(map[*listener]struct{})
		ls.byHost[l.host] = of
	}
	of[l] = struct{}{}
	ls.total++
	ls.principals[l.identity.Principal]++
	ls.m.open.Set(float64(ls.total))
	return nil
}

func tooMany(message string) *wire.Error {
	err := wire.InternalRetry(wire.ReasonOverloaded, message, retryListen)
	err.Status, err.RetryAfter = http.StatusTooManyRequests, retryListen
	return err
}

func (ls *listeners) remove(l *listener) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if delete(ls.byHost[l.host], l); len(ls.byHost[l.host]) == 0 {
		delete(ls.byHost, l.host)
	}
	if ls.principals[l.identity.Principal]--; ls.principals[l.identity.Principal] <= 0 {
		delete(ls.principals, l.identity.Principal)
	}
	ls.total--
	ls.m.open.Set(float64(ls.total))
}

func (ls *listeners) drain() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.draining = true
	for _, of := range ls.byHost {
		for l := range of {
			l.end("drain")
		}
	}
}

// of returns a host's listeners.
func (ls *listeners) of(host routes.HostID) []*listener {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	out := make([]*listener, 0, len(ls.byHost[host]))
	for l := range ls.byHost[host] {
		out = append(out, l)
	}
	return out
}

// swapped tells a host's listeners that another view took the place of before; nil: the host is gone.
func (ls *listeners) swapped(host routes.HostID, before, next *view) {
	all := ls.of(host)
	if len(all) == 0 {
		return
	}
	if next == nil {
		for _, l := range all {
			l.end("host_removed")
		}
		return
	}
	changes := changesOf(before, next)
	moved := before == nil || before.version != next.version
	for _, l := range all {
		l.note(changes, moved)
	}
}
