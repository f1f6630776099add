// Package demo is three small MCP servers that weir-standalone puts behind itself when it is given no other backend, and that the
// program weir-demo serves alone: one of each generation of the protocol, built on the official SDK, and one whose tools are jobs. They
// listen on one address.
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

	"github.com/weir-mcp/weir/deploy/taskserver"
)

// Backend is one of the servers.
type Backend struct {
	Name string // as standalone names it, and so the prefix of its tools
	URL  string // its MCP endpoint
}

// Servers are all of them, running.
type Servers struct {
	Backends []Backend
	jobs     *taskserver.Server
	http     *http.Server
	done     chan error // what Serve returned
}

// Start serves on addr; port 0 takes a free one. Close ends it.
func Start(addr string) (*Servers, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("demo backends: %w", err)
	}
	s := &Servers{jobs: jobs(), done: make(chan error, 1)}
	mux := http.NewServeMux()
	for _, d := range []struct {
		name    string
		handler http.Handler
	}{
		{"modern", sdkHandler(modern(), &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})},
		{"legacy", sdkHandler(legacy(), &mcp.StreamableHTTPOptions{SessionTimeout: time.Minute})},
		{"jobs", s.jobs},
	} {
		mux.Handle("/"+d.name+"/mcp", d.handler)
		s.Backends = append(s.Backends, Backend{Name: d.name, URL: "http://" + ln.Addr().String() + "/" + d.name + "/mcp"})
	}
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { s.done <- s.http.Serve(ln) }()
	return s, nil
}

func sdkHandler(server *mcp.Server, o *mcp.StreamableHTTPOptions) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, o)
}

// Close ends the servers at once, calls in flight and jobs too, and waits until they have ended.
func (s *Servers) Close() error {
	s.jobs.Close()
	err := s.http.Close()
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// Wait returns when the servers have ended of their own accord, which is a failure, or when ctx ends; Close must follow.
func (s *Servers) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.done:
		s.done <- err
		return err
	}
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
