package e2e

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// standalone is a running weir-standalone and the token that it printed.
type standalone struct {
	*process
	token string
}

func startStandalone(t *testing.T, args ...string) *standalone {
	t.Helper()
	s := &standalone{process: start(t, "weir-standalone", append([]string{"--listen", "127.0.0.1:0"}, args...)...)}
	eventually(t, "the banner", func() error {
		if m := regexp.MustCompile(`token\s+(\S+)`).FindStringSubmatch(s.out()); m != nil && strings.Contains(s.out(), "Ctrl-C") {
			s.token = m[1]
			return nil
		}
		return errNotYet
	})
	return s
}

func (s *standalone) client(version string) client {
	return client{url: s.url(), token: s.token, version: version}
}

// What a newcomer does first: start it, paste the printed command, press Ctrl-C.
func TestStandalonePrintsACommandThatWorks(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl on this machine: the printed command can't be pasted")
	}
	s := startStandalone(t)
	_, command, _ := strings.Cut(s.out(), "Try it:")
	command, _, _ = strings.Cut(command, "Ctrl-C")
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"text":"Hello through Weir"`) {
		t.Errorf("the pasted command answered %q, %v", out, err)
	}
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := s.wait(t); code != 0 {
		t.Errorf("Ctrl-C: exit status %d, want 0", code)
	}
}

func TestStandaloneServesBothErasOnOnePort(t *testing.T) {
	t.Parallel()
	s := startStandalone(t)
	want := []string{"modern__add", "modern__countdown", "modern__echo", "legacy__echo", "legacy__shout", "jobs__work", "jobs__introduce"}
	slices.Sort(want)
	for _, version := range []string{"2026-07-28", "2025-11-25", "2025-03-26"} {
		c := s.client(version)
		got, err := c.tools()
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: tools = %v, want %v", version, got, want)
		}
		for _, tool := range []string{"modern__echo", "legacy__echo"} {
			if got := text(t, c.must(t, "tools/call", `{"name":"`+tool+`","arguments":{"message":"über"}}`)); got != "über" {
				t.Errorf("%s: %s answered %q", version, tool, got)
			}
		}
	}
}

func TestStandaloneWithoutAuth(t *testing.T) {
	t.Parallel()
	s := startStandalone(t, "--no-auth")
	c := client{url: s.url(), version: "2026-07-28"}
	if got := text(t, c.must(t, "tools/call", `{"name":"legacy__shout","arguments":{"message":"hey"}}`)); got != "HEY" {
		t.Errorf("shout answered %q", got)
	}
	for name, header := range map[string][2]string{
		"a page of another site":   {"Origin", "https://evil.example"},
		"a rebound DNS name":       {"Host", "evil.example"},
		"a page without an origin": {"Origin", "null"},
	} {
		req, err := http.NewRequest(http.MethodPost, s.url(), strings.NewReader(c.body("1", "tools/list", "{}")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = c.headers("tools/list", "{}")
		if header[0] == "Host" {
			req.Host = header[1]
		} else {
			req.Header.Set(header[0], header[1])
		}
		resp, err := httpClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d, want 403", name, resp.StatusCode)
		}
	}
}

func TestStandaloneRefusesBadFlags(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"an unknown flag":               {[]string{"--frob"}, "frob"},
		"a backend that is no URL":      {[]string{"--backend", "x=ftp://h/"}, "--backend"},
		"a name twice":                  {[]string{"--backend", "x=http://127.0.0.1:1/", "--backend", "x=http://127.0.0.1:2/"}, `"x"`},
		"no auth for the whole network": {[]string{"--no-auth", "--listen", "0.0.0.0:0"}, "loopback"},
		"a file that is not there":      {[]string{"--config", "no-such-file.yaml"}, "no-such-file.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			p := launch(t, "weir-standalone", tt.args...)
			if code := p.wait(t); code != 2 || !strings.Contains(p.log(), tt.want) {
				t.Errorf("exit status %d, stderr %q; want 2 and a message about %s", code, p.log(), tt.want)
			}
		})
	}
}

// The official Go SDK's client, in both eras, before a real backend of each.
func TestStandaloneWithTheGoSDK(t *testing.T) {
	t.Parallel()
	modern, legacy := newModernBackend(t, "newer"), newLegacyBackend(t, "older")
	s := startStandalone(t, "--backend", "newer="+modern.url, "--backend", "older="+legacy.url)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	session := connectSDK(t, s)
	tools, prompts, resources := listSDK(t, session)
	got := strings.Join(slices.Concat(tools, prompts, resources), " ")
	if want := "newer__whoami older__whoami newer__hello older__hello newer://about older://about"; got != want {
		t.Errorf("lists: %s, want %s", got, want)
	}
	for tool, want := range map[string]string{"newer__whoami": "newer", "older__whoami": "older"} {
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool})
		if err != nil || res.Content[0].(*mcp.TextContent).Text != want {
			t.Errorf("%s: %v, %v", tool, res, err)
		}
	}
	for uri, want := range map[string]string{"newer://items/7": "newer newer://items/7", "older://about": "older older://about"} {
		res, err := session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		if err != nil || res.Contents[0].Text != want {
			t.Errorf("%s: %v, %v", uri, res, err)
		}
	}
	if p, err := session.GetPrompt(ctx, &mcp.GetPromptParams{Name: "older__hello"}); err != nil || len(p.Messages) != 1 {
		t.Errorf("older__hello: %v, %v", p, err)
	}
}

// connectSDK connects the official Go SDK's client, as docs/clients.md shows it.
func connectSDK(t *testing.T, s *standalone) *mcp.ClientSession {
	t.Helper()
	transport := &http.Transport{}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: s.url(), DisableStandaloneSSE: true,
		HTTPClient: &http.Client{Transport: bearer{transport, s.token}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close() // there is no session to lose
		transport.CloseIdleConnections()
	})
	return session
}

// listSDK lists everything, over all pages.
func listSDK(t *testing.T, session *mcp.ClientSession) (tools, prompts, resources []string) {
	t.Helper()
	for tool, err := range session.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, tool.Name)
	}
	for p, err := range session.Prompts(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		prompts = append(prompts, p.Name)
	}
	for r, err := range session.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		resources = append(resources, r.URI)
	}
	return tools, prompts, resources
}

// bearer adds a token to every request.
type bearer struct {
	next  http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// A call in flight when Ctrl-C comes is cut after the grace, and nothing is left.
func TestStandaloneEndsWithACallInFlight(t *testing.T) {
	t.Parallel()
	s := startStandalone(t)
	running, err := s.client("2026-07-28").begin(t.Context(), keepAliveClient(t), "tools/call",
		`{"name":"modern__countdown","arguments":{"from":100},"_meta":{"progressToken":"p"}}`)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Body.Close()
	if line, err := bufio.NewReader(running.Body).ReadString('\n'); err != nil || !strings.Contains(line, "notifications/progress") {
		t.Fatalf("the call's first event: %q, %v", line, err)
	}
	if code := s.terminate(t); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}
