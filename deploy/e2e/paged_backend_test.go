package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// pagedBackend is a modern backend with a path for each of its many servers, whose lists of tools have pages. It announces no
// changes, offers no stream and has nothing but tools.
type pagedBackend struct {
	url string // of server N: url + "/N"

	mu     sync.Mutex // guards the rest
	page   int        // tools on a page
	lists  map[string][]string
	breaks map[string]int // servers whose pages from this one on are 500; 0: none
	walks  map[string]int // last pages served
}

func newPagedBackend(t *testing.T, page int) *pagedBackend {
	t.Helper()
	b := &pagedBackend{page: page, lists: map[string][]string{}, breaks: map[string]int{}, walks: map[string]int{}}
	hs := httptest.NewServer(b)
	t.Cleanup(func() {
		hs.CloseClientConnections()
		hs.Close()
	})
	b.url = hs.URL
	return b
}

// toolOf is a definition of some size.
func toolOf(name, description string) string {
	return fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}}}}`,
		name, description)
}

// offer replaces what a server lists.
func (b *pagedBackend) offer(server string, tools []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lists[server] = tools
}

// breakAt makes a server's pages fail, from the given one on; 0 mends it.
func (b *pagedBackend) breakAt(server string, page int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.breaks[server] = page
}

// walked is how often a server's list was read to its end.
func (b *pagedBackend) walked(server string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.walks[server]
}

func (b *pagedBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var req struct {
		ID     json.RawMessage
		Method string
		Params struct{ Cursor string }
	}
	if r.Method != http.MethodPost || json.Unmarshal(body, &req) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	result := ""
	server := strings.TrimPrefix(r.URL.Path, "/")
	switch req.Method {
	case "server/discover":
		result = discoverResult(server, "tools")
	case "tools/call":
		result = `{"resultType":"complete","content":[{"type":"text","text":"` + server + `"}]}`
	case "tools/list":
		var broken bool
		if result, broken = b.list(server, req.Params.Cursor); broken {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if result == "" {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(req.ID)+`,"error":{"code":-32601,"message":"no such method"}}`)
		return
	}
	io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(req.ID)+`,"result":`+result+`}`)
}

// list is one page; its cursor is the number of the next one.
func (b *pagedBackend) list(server, cursor string) (result string, broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, _ := strconv.Atoi(cursor) // none: the first
	if at := b.breaks[server]; at > 0 && n+1 >= at {
		return "", true
	}
	tools := b.lists[server]
	from, to := min(n*b.page, len(tools)), min((n+1)*b.page, len(tools))
	next := ""
	if to < len(tools) {
		next = fmt.Sprintf(`"nextCursor":"%d",`, n+1)
	} else {
		b.walks[server]++
	}
	return `{"resultType":"complete","ttlMs":60000,"cacheScope":"private",` + next + `"tools":[` + strings.Join(tools[from:to], ",") + `]}`, false
}
