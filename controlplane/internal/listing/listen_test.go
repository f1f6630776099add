package listing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/routestest"
	"github.com/weir-mcp/weir/routes/wire"
)

// ears is a bench whose server takes listeners.
type ears struct {
	*bench
	server   *Server
	endpoint http.Handler
	watch    *fakeWatch
	follow   *fakeFollow
	mu       sync.Mutex
	revoked  string // the subject that is
}

func withEars(t *testing.T, o ListenOptions, f func(t *testing.T, e *ears)) {
	t.Helper()
	inBubble(t, func(t *testing.T, b *bench) {
		e := &ears{bench: b, watch: &fakeWatch{refused: map[string]bool{}, open: map[string][]func(string){}}, follow: newFakeFollow()}
		o.Watch = e.watch
		o.Revoked = func(id *access.Identity) bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return id.Subject == e.revoked
		}
		var err error
		if e.server, err = NewServer(ServerOptions{
			Store: b.store, Listen: o, Tasks: TaskOptions{Owners: b, Locate: e.locate, Follow: e.follow},
		}); err != nil {
			t.Fatal(err)
		}
		e.endpoint, err = wire.NewEndpoint(wire.Options{
			Auth: callers{}, Resolve: e.server.Resolve, Dispatch: e.server.Dispatch,
			KeepAlive: 24 * time.Hour, // a comment that waits for a blocked client would stop the bubble's clock
		})
		if err != nil {
			t.Fatal(err)
		}
		f(t, e)
	})
}

// callers takes "SUBJECT LIFE SCOPES" for a token of host acme; LIFE is a duration, or forever.
type callers struct{}

func (callers) Verify(_ context.Context, token, _ string) (*access.Identity, error) {
	subject, rest, _ := strings.Cut(token, "+")
	life, scope, _ := strings.Cut(rest, "+")
	scopes, err := access.ParseScopes(strings.ReplaceAll(scope, "+", " "), false)
	if err != nil {
		return nil, errors.Join(access.ErrUnauthorized, err)
	}
	id := &access.Identity{Issuer: "i", Subject: subject, Principal: access.Principal(subject), Hosts: []routes.HostID{"acme"}, HostClaim: true, Scopes: scopes}
	if d, err := time.ParseDuration(life); err == nil {
		id.Expires = time.Now().Add(d)
	}
	return id, nil
}

// fakeWatch agrees to all resources but those that are refused.
type fakeWatch struct {
	mu      sync.Mutex
	refused map[string]bool
	open    map[string][]func(string) // by backend and URI
}

func (w *fakeWatch) Subscribe(_ context.Context, t routes.Target, updated func(string)) (func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused[t.Upstream] {
		return nil, errors.New("refused")
	}
	k := string(t.ID) + " " + t.Upstream
	w.open[k] = append(w.open[k], updated)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open[k] = w.open[k][1:]; len(w.open[k]) == 0 {
			delete(w.open, k)
		}
	}, nil
}

// updates is how many listeners an update reached.
func (w *fakeWatch) update(k, uri string) int {
	w.mu.Lock()
	all := slices.Clone(w.open[k])
	w.mu.Unlock()
	for _, f := range all {
		f(uri)
	}
	return len(all)
}

func (w *fakeWatch) keys() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range w.open {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// stream is a client's side of a stream.
type stream struct {
	cancel func()
	done   chan struct{}
	mu     sync.Mutex
	head   http.Header
	status int
	body   strings.Builder
	block  chan struct{} // a client that does not read: writes wait for it to close
}

func (s *stream) Header() http.Header  { return s.head }
func (s *stream) WriteHeader(code int) { s.status = code }
func (s *stream) Flush()               {}
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	block := s.block
	s.mu.Unlock()
	if block != nil {
		<-block
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.body.Write(p)
}

// got returns what arrived so far, without what every message has, and forgets it.
func (s *stream) got() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for line := range strings.Lines(s.body.String()) {
		if doc, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok {
			doc = strings.TrimPrefix(doc, `{"jsonrpc":"2.0","method":"notifications/`)
			out = append(out, strings.ReplaceAll(doc, `"_meta":{"io.modelcontextprotocol/subscriptionId":7}`, "#"))
		}
	}
	s.body.Reset()
	return out
}

func (e *ears) listen(token, notifications string) *stream {
	return e.listenAs(token, "{}", notifications)
}

func (e *ears) listenAs(token, capabilities, notifications string) *stream {
	body := `{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + capabilities + `},"notifications":` + notifications + `}}`
	ctx, cancel := context.WithCancel(context.Background())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", strings.NewReader(body))
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer " + token},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"},
	}
	s := &stream{cancel: cancel, done: make(chan struct{}), head: http.Header{}}
	go func() {
		defer close(s.done)
		e.endpoint.ServeHTTP(s, r)
	}()
	e.t.Cleanup(func() {
		cancel()
		<-s.done
	})
	synctest.Wait()
	return s
}

// heard is a host that announces changes of everything and takes subscriptions.
func heard(edit ...func(*routes.VirtualHost)) *routestest.HostBuilder {
	h := routestest.Host("acme").Tool("x", "a", "x").Resource("doc:///1", "a").Template("doc:///{id}", "a").Edit(func(vh *routes.VirtualHost) {
		vh.Capabilities = []byte(`{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true}}`)
		a := vh.Backends["a"]
		a.Capabilities.Subscribe = true
		vh.Backends["a"] = a
	})
	for _, f := range edit {
		h.Edit(f)
	}
	return h
}

func heardCatalog(tools ...string) *catalog.Catalog {
	c := toolCatalog("a")
	for _, name := range tools {
		c.Tools.Items = append(c.Tools.Items, def(name, `{"name":"`+name+`"}`))
	}
	c.Resources.Items = []catalog.Item{def("doc:///1", `{"uri":"doc:///1","name":"one"}`)}
	c.ResourceTemplates.Items = []catalog.Item{def("doc:///{id}", `{"uriTemplate":"doc:///{id}","name":"any"}`)}
	return c
}

func check(t *testing.T, s *stream, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.got()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const (
	allLists = `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`
	endOf7   = `{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete",#}}`
)

func TestListenersHearOfWhatTheyAskedFor(t *testing.T) {
	withEars(t, ListenOptions{}, func(t *testing.T, e *ears) {
		e.publish([]*catalog.Catalog{heardCatalog("x")}, heard())
		all := e.listen("alice+forever", allLists)
		prompts := e.listen("alice+forever", `{"promptsListChanged":true,"toolsListChanged":false,"later":{}}`)
		narrow := e.listen("bob+forever+mcp:tools:other*", `{"toolsListChanged":true}`)
		check(t, all, "acknowledged", `subscriptions/acknowledged","params":{#,"notifications":`+allLists+`}}`)
		check(t, prompts, "acknowledged", `subscriptions/acknowledged","params":{#,"notifications":{"promptsListChanged":true}}}`)
		check(t, narrow, "acknowledged", `subscriptions/acknowledged","params":{#,"notifications":{"toolsListChanged":true}}}`)

		e.publish([]*catalog.Catalog{heardCatalog("x", "y")}, heard().Tool("y", "a", "y"))
		check(t, all, "a tool more", `tools/list_changed","params":{#}}`)
		check(t, prompts, "a tool more, of prompts")
		check(t, narrow, "a tool that the token does not see")
		e.publish([]*catalog.Catalog{heardCatalog("x", "y", "other")}, heard().Tool("y", "a", "y").Tool("other", "a", "other"))
		check(t, narrow, "a tool that the token sees", `tools/list_changed","params":{#}}`)
		all.got()

		e.publish(nil, heard().Tool("y", "a", "y").Tool("other", "a", "other").Edit(func(vh *routes.VirtualHost) { vh.Instructions = "new" }))
		check(t, all, "nothing in the lists")
		c := heardCatalog("x", "y", "other")
		c.Prompts.Items = []catalog.Item{def("p", `{"name":"p"}`)}
		c.ResourceTemplates.Items = append(c.ResourceTemplates.Items, def("doc:///{a}/{b}", `{"uriTemplate":"doc:///{a}/{b}","name":"two"}`))
		e.publish([]*catalog.Catalog{c}, heard().Tool("y", "a", "y").Tool("other", "a", "other").Prompt("p", "a", "p").Template("doc:///{a}/{b}", "a"))
		check(t, all, "templates and prompts", `prompts/list_changed","params":{#}}`, `resources/list_changed","params":{#}}`)

		e.server.Drain()
		for _, s := range []*stream{all, narrow} {
			check(t, s, "drained", endOf7)
			<-s.done
		}
		late := e.listen("alice+forever", allLists)
		check(t, late, "while draining", `subscriptions/acknowledged","params":{#,"notifications":`+allLists+`}}`, endOf7)
	})
}

func TestOneNotificationForManyChangesToASlowClient(t *testing.T) {
	withEars(t, ListenOptions{}, func(t *testing.T, e *ears) {
		e.publish([]*catalog.Catalog{heardCatalog("x")}, heard())
		s := e.listen("alice+forever", `{"toolsListChanged":true,"resourceSubscriptions":["doc:///1"]}`)
		s.got()
		s.mu.Lock()
		s.block = make(chan struct{})
		s.mu.Unlock()
		for i := range 5 {
			name := fmt.Sprint("t", i)
			e.publish([]*catalog.Catalog{heardCatalog("x", name)}, heard().Tool(name, "a", name))
			for below := range 200 {
				e.watch.update("a doc:///1", fmt.Sprint("doc:///1/", below+1000*i))
			}
			e.watch.update("a doc:///1", "doc:///1")
		}
		close(s.block)
		s.mu.Lock()
		s.block = nil
		s.mu.Unlock()
		got := s.got()
		lists := 0
		for _, doc := range got {
			if strings.HasPrefix(doc, "tools/list_changed") {
				lists++
			}
		}
		if lists != 2 || len(got) > 2*maxUpdated+4 { // one was being written while the others came
			t.Errorf("%d list changes, %d messages", lists, len(got))
		}
	})
}

func TestResourceUpdates(t *testing.T) {
	withEars(t, ListenOptions{}, func(t *testing.T, e *ears) {
		e.publish([]*catalog.Catalog{heardCatalog("x")}, heard())
		e.watch.refused["doc:///2"] = true
		ask := `{"resourceSubscriptions":["doc:///1","doc:///2","doc:///1","other:///x"]}`
		one, two := e.listen("alice+forever", ask), e.listen("bob+forever", ask)
		for _, s := range []*stream{one, two} {
			check(t, s, "what was refused, or leads nowhere, is left out",
				`subscriptions/acknowledged","params":{#,"notifications":{"resourceSubscriptions":["doc:///1"]}}}`)
		}
		if n := e.watch.update("a doc:///1", "doc:///1"); n != 2 {
			t.Errorf("%d listeners", n)
		}
		check(t, one, "updated", `resources/updated","params":{#,"uri":"doc:///1"}}`)
		e.watch.update("a doc:///1", "doc:///below")
		e.watch.update("a doc:///1", "secret:///below")
		check(t, two, "below", `resources/updated","params":{#,"uri":"doc:///1"}}`, `resources/updated","params":{#,"uri":"doc:///below"}}`,
			`resources/updated","params":{#,"uri":"doc:///1"}}`)
		one.cancel()
		<-one.done
		if diff := cmp.Diff([]string{"a doc:///1"}, e.watch.keys()); diff != "" {
			t.Error(diff)
		}

		b := heardCatalog("x")
		b.Backend = "b"
		moved := routestest.Host("acme").Resource("doc:///1", "b").Edit(func(vh *routes.VirtualHost) {
			vh.Capabilities = []byte(`{"resources":{"subscribe":true}}`)
			owner := vh.Backends["b"]
			owner.Capabilities.Subscribe = true
			vh.Backends["b"] = owner
		})
		e.publish([]*catalog.Catalog{b}, moved)
		check(t, two, "another backend has it now", `resources/updated","params":{#,"uri":"doc:///1"}}`)
		if diff := cmp.Diff([]string{"b doc:///1"}, e.watch.keys()); diff != "" {
			t.Error(diff)
		}
		two.cancel()
		<-two.done
		if keys := e.watch.keys(); len(keys) != 0 {
			t.Errorf("left behind: %v", keys)
		}
	})
}

func TestStreamsEndWithTheirToken(t *testing.T) {
	withEars(t, ListenOptions{}, func(t *testing.T, e *ears) {
		e.publish([]*catalog.Catalog{heardCatalog("x")}, heard())
		short, revoked, long := e.listen("alice+90s", allLists), e.listen("mallory+forever", allLists), e.listen("bob+forever", allLists)
		for _, s := range []*stream{short, revoked, long} {
			s.got()
		}
		time.Sleep(89 * time.Second)
		check(t, short, "before the end")
		time.Sleep(time.Second)
		check(t, short, "expired", endOf7)
		e.mu.Lock()
		e.revoked = "mallory"
		e.mu.Unlock()
		time.Sleep(time.Second)
		check(t, revoked, "revoked", endOf7)
		check(t, long, "of another")
		if err := e.Publish(t.Context(), e.lease, routes.Batch{Hosts: []routes.HostChange{routestest.Removal("acme", 99)}}); err != nil {
			t.Fatal(err)
		}
		e.settle()
		check(t, long, "the host is gone", endOf7)
	})
}

func TestListenIsChecked(t *testing.T) {
	withEars(t, ListenOptions{PerPrincipal: 2, Total: 3}, func(t *testing.T, e *ears) {
		e.publish([]*catalog.Catalog{heardCatalog("x")}, heard())
		var uris []string
		for i := range maxURIs + 1 {
			uris = append(uris, fmt.Sprintf("%q", fmt.Sprint("doc:///", i)))
		}
		for name, tt := range map[string]struct {
			token, notifications string
			status               int
			want                 string
		}{
			"no object":             {"alice+forever", `[]`, 400, "not an object"},
			"no boolean":            {"alice+forever", `{"toolsListChanged":1}`, 400, "toolsListChanged is not a boolean"},
			"no strings":            {"alice+forever", `{"resourceSubscriptions":[1]}`, 400, "not an array of strings"},
			"too many resources":    {"alice+forever", `{"resourceSubscriptions":[` + strings.Join(uris, ",") + `]}`, 400, "over 64"},
			"nothing asked for":     {"alice+forever", `{}`, 200, `"notifications":{}`},
			"without the scope":     {"alice+forever+mcp:tools", `{"promptsListChanged":true,"resourceSubscriptions":["doc:///1"]}`, 403, "insufficient scope"},
			"with one of the scope": {"alice+1s+mcp:tools", allLists, 200, `"notifications":{"toolsListChanged":true}`},
		} {
			s := e.listen(tt.token, tt.notifications)
			time.Sleep(2 * time.Second)
			<-s.done
			if s.status != tt.status || !strings.Contains(s.body.String(), tt.want) {
				t.Errorf("%s: %d %s", name, s.status, s.body.String())
			}
			if want := `Bearer error="insufficient_scope", scope="mcp:prompts mcp:resources"`; tt.status == 403 && !strings.HasPrefix(s.head.Get("WWW-Authenticate"), want) {
				t.Errorf("%s: challenge %q", name, s.head.Get("WWW-Authenticate"))
			}
		}
		first, second := e.listen("alice+forever", allLists), e.listen("alice+forever", allLists)
		third := e.listen("alice+forever", allLists)
		if third.status != 429 || third.head.Get("Retry-After") == "" || !strings.Contains(third.body.String(), `"reason":"overloaded"`) {
			t.Errorf("one too many for a principal: %d %v %s", third.status, third.head, third.body.String())
		}
		e.listen("bob+forever", allLists)
		if s := e.listen("carol+forever", allLists); s.status != 429 {
			t.Errorf("one too many: %d", s.status)
		}
		first.cancel()
		<-first.done
		if s := e.listen("alice+forever", allLists); s.status != 200 {
			t.Errorf("after another left: %d %s", s.status, s.body.String())
		}
		second.got()
	})
}
