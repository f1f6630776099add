// Package demo is two small MCP servers, one of each generation of the protocol, that weir-standalone puts behind itself
// when it is given no other backend. They are built on the official SDK and listen on loopback.
package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Backend is one running demo server.
type Backend struct {
	Name string // as standalone names it, and so the prefix of its tools
	URL  string // its MCP endpoint
	srv  *http.Server
	done chan error
}

// Start starts the modern and the legacy demo server on free loopback ports. Close ends them.
func Start() ([]*Backend, error) {
	var started []*Backend
	for _, d := range []struct {
		name    string
		server  *mcp.Server
		options *mcp.StreamableHTTPOptions
	}{
		{"modern", modern(), &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}},
		{"legacy", legacy(), &mcp.StreamableHTTPOptions{SessionTimeout: time.Minute}},
	} {
		b, err := start(d.name, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return d.server }, d.options))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("demo backend %q: %w", d.name, err), Close(started))
		}
		started = append(started, b)
	}
	return started, nil
}

func start(name string, h http.Handler) (*Backend, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	b := &Backend{
		Name: name,
		URL:  "http://" + ln.Addr().String() + "/mcp",
		srv:  &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second},
		done: make(chan error, 1),
	}
	go func() { b.done <- b.srv.Serve(ln) }()
	return b, nil
}

// Close ends the backends at once, calls in flight too, and waits until they have ended.
func Close(backends []*Backend) error {
	var errs []error
	for _, b := range backends {
		errs = append(errs, b.srv.Close())
		if err := <-b.done; !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// modern speaks 2026-07-28 only: no handshake, no session.
func modern() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "weir-demo-modern", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions:              "A demo server that speaks MCP 2026-07-28.",
		SupportedProtocolVersions: []string{"2026-07-28"},
	})
	addEcho(s)
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Adds two numbers and answers with structured content."},
		func(_ context.Context, _ *mcp.CallToolRequest, in addInput) (*mcp.CallToolResult, addOutput, error) {
			return nil, addOutput{Sum: in.A + in.B}, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "countdown", Description: "Counts down from `from` (at most 100), one step in 200 ms, reporting progress."}, countdown)
	addGreeting(s)
	s.AddResource(&mcp.Resource{Name: "readme", URI: "demo://modern/readme", MIMEType: "text/markdown", Description: "What this server is."},
		text("# Weir demo\n\nThis text came from a modern MCP server, through Weir.\n"))
	s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "square", URITemplate: "demo://modern/square/{n}", MIMEType: "text/plain", Description: "The square of a number."}, square)
	return s
}

// legacy speaks 2025-11-25 and older: initialize, a session, and answers by event stream.
func legacy() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "weir-demo-legacy", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions:              "A demo server that speaks MCP 2025-11-25 and older.",
		SupportedProtocolVersions: []string{"2025-11-25", "2025-06-18", "2025-03-26"},
	})
	addEcho(s)
	mcp.AddTool(s, &mcp.Tool{Name: "shout", Description: "Answers in capital letters."},
		func(_ context.Context, _ *mcp.CallToolRequest, in echoInput) (*mcp.CallToolResult, any, error) {
			return textResult(strings.ToUpper(in.Message)), nil, nil
		})
	addGreeting(s)
	s.AddResource(&mcp.Resource{Name: "readme", URI: "demo://legacy/readme", MIMEType: "text/markdown", Description: "What this server is."},
		text("# Weir demo\n\nThis text came from a legacy MCP server, through Weir.\n"))
	return s
}

type echoInput struct {
	Message string `json:"message" jsonschema:"the text to answer with"`
}

type addInput struct {
	A float64 `json:"a" jsonschema:"first summand"`
	B float64 `json:"b" jsonschema:"second summand"`
}

type addOutput struct {
	Sum float64 `json:"sum" jsonschema:"a plus b"`
}

type countdownInput struct {
	From int `json:"from" jsonschema:"where to begin, 0 to 100"`
}

func addEcho(s *mcp.Server) {
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "Answers with the message that it was given."},
		func(_ context.Context, _ *mcp.CallToolRequest, in echoInput) (*mcp.CallToolResult, any, error) {
			return textResult(in.Message), nil, nil
		})
}

func addGreeting(s *mcp.Server) {
	s.AddPrompt(&mcp.Prompt{Name: "greet", Description: "Greets somebody.", Arguments: []*mcp.PromptArgument{
		{Name: "name", Description: "whom to greet", Required: true},
	}}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
			{Role: "user", Content: &mcp.TextContent{Text: "Say hello to " + r.Params.Arguments["name"] + "."}},
		}}, nil
	})
}

func countdown(ctx context.Context, r *mcp.CallToolRequest, in countdownInput) (*mcp.CallToolResult, any, error) {
	if in.From < 0 || in.From > 100 {
		return nil, nil, fmt.Errorf("from: %d is not between 0 and 100", in.From)
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	token := r.Params.GetProgressToken()
	for left := in.From; left > 0; left-- {
		if token != nil {
			err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: float64(in.From - left), Total: float64(in.From), Message: fmt.Sprint(left),
			})
			if err != nil {
				return nil, nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-tick.C:
		}
	}
	return textResult("lift-off"), nil, nil
}

func square(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	var n int64
	if _, err := fmt.Sscanf(r.Params.URI, "demo://modern/square/%d", &n); err != nil {
		return nil, mcp.ResourceNotFoundError(r.Params.URI)
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
		{URI: r.Params.URI, MIMEType: "text/plain", Text: fmt.Sprint(n * n)},
	}}, nil
}

func text(body string) mcp.ResourceHandler {
	return func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
			{URI: r.Params.URI, MIMEType: "text/markdown", Text: body},
		}}, nil
	}
}

func textResult(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}
