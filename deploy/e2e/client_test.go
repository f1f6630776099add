package e2e

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// client is a hand-made MCP client that shows every byte.
type client struct {
	url     string
	token   string
	version string // the protocol version it speaks
}

// answer is what came back to one request.
type answer struct {
	status int
	header http.Header
	body   string
	events []json.RawMessage // of a stream, the response last
	rpc    rpcResponse       // the response; zero where the body is none
}

type rpcResponse struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
}

type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (c client) modern() bool { return c.version >= "2026-07-28" }

// call makes one request. params is a JSON object; a modern client's _meta triple is added.
func (c client) call(id, method, params string) (*answer, error) {
	return c.post(c.body(id, method, params), c.headers(method, params))
}

// body is the request's JSON text.
func (c client) body(id, method, params string) string {
	if c.modern() {
		meta := `"io.modelcontextprotocol/protocolVersion":"` + c.version + `",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"e2e","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`
		switch trimmed := strings.TrimSpace(params); {
		case strings.Contains(trimmed, `"_meta":{`):
			params = strings.Replace(trimmed, `"_meta":{`, `"_meta":{`+meta+`,`, 1)
		case trimmed == "{}":
			params = `{"_meta":{` + meta + `}}`
		default:
			params = strings.TrimSuffix(trimmed, "}") + `,"_meta":{` + meta + `}}`
		}
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`
}

func (c client) headers(method, params string) http.Header {
	h := http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {c.version},
	}
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
	if c.modern() {
		h.Set("Mcp-Method", method)
		var p struct{ Name, URI, TaskID string }
		_ = json.Unmarshal([]byte(params), &p) // params that are no object have no name
		if name := p.Name + p.URI + p.TaskID; name != "" {
			h.Set("Mcp-Name", headerText(name))
		}
	}
	return h
}

// headerText encodes what a header can't hold as it is. Source: MCP 2026-07-28, basic/transports/streamable-http.
func headerText(v string) string {
	plain := strings.TrimSpace(v) == v
	for _, c := range []byte(v) {
		plain = plain && c >= ' ' && c < 0x7f
	}
	if plain {
		return v
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(v)) + "?="
}

var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

// post sends a body as it is.
func (c client) post(body string, h http.Header) (*answer, error) {
	req, err := http.NewRequest(http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = h
	resp, err := httpClient.Do(req)
	if err != nil {
		return nil, err
	}
	return readAnswer(resp)
}

// readAnswer reads an answer to its end, and closes it.
func readAnswer(resp *http.Response) (*answer, error) {
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	a := &answer{status: resp.StatusCode, header: resp.Header, body: string(got)}
	doc := got
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		if a.events = events(got); len(a.events) == 0 {
			return nil, fmt.Errorf("an empty event stream")
		}
		doc = a.events[len(a.events)-1]
	}
	if bytes.HasPrefix(bytes.TrimSpace(doc), []byte("{")) {
		if err := json.Unmarshal(doc, &a.rpc); err != nil {
			return nil, fmt.Errorf("answer %q: %w", doc, err)
		}
	}
	return a, nil
}

// events joins the data lines of each event.
func events(stream []byte) []json.RawMessage {
	var out []json.RawMessage
	var data []string
	sc := bufio.NewScanner(bytes.NewReader(stream))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		line := sc.Text()
		if line == "" && data != nil {
			out, data = append(out, json.RawMessage(strings.Join(data, "\n"))), nil
		}
		if d, ok := strings.CutPrefix(line, "data:"); ok {
			data = append(data, strings.TrimPrefix(d, " "))
		}
	}
	return out
}

// must is call where anything but a result is a failure.
func (c client) must(t *testing.T, method, params string) json.RawMessage {
	t.Helper()
	a, err := c.call("1", method, params)
	if err != nil {
		t.Fatalf("%s %s: %v", method, params, err)
	}
	if a.rpc.Result == nil {
		t.Fatalf("%s %s: status %d: %s", method, params, a.status, a.body)
	}
	return a.rpc.Result
}

// names lists one kind of names or URIs, over all pages.
func (c client) names(method, list, field string) ([]string, error) {
	var out []string
	params := "{}"
	for range 100 {
		a, err := c.call("1", method, params)
		if err != nil {
			return nil, err
		}
		if a.rpc.Result == nil {
			return nil, fmt.Errorf("%s: status %d: %s", method, a.status, a.body)
		}
		var page map[string]json.RawMessage
		var items []map[string]any
		if err := json.Unmarshal(a.rpc.Result, &page); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(page[list], &items); err != nil {
			return nil, fmt.Errorf("%s: %w", list, err)
		}
		for _, it := range items {
			out = append(out, fmt.Sprint(it[field]))
		}
		cursor, ok := page["nextCursor"]
		if !ok {
			return out, nil
		}
		params = `{"cursor":` + string(cursor) + `}`
	}
	return nil, fmt.Errorf("%s: more than 100 pages", method)
}

func (c client) tools() ([]string, error) { return c.names("tools/list", "tools", "name") }

// text is the first text content of a tool's result.
func text(t *testing.T, result json.RawMessage) string {
	t.Helper()
	var r struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(result, &r); err != nil || len(r.Content) == 0 {
		t.Fatalf("not a tool result: %s (%v)", result, err)
	}
	return r.Content[0].Text
}
