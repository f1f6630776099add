package standalone

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/weir-mcp/weir/routes/access"
)

// signer is the key of this run: its public half is what the planes check tokens with.
type signer struct {
	pair       access.KeyPair
	publicFile string
}

func newSigner(publicFile string) (*signer, error) {
	pair, err := access.GenerateKeyPair(ownAlgorithm)
	if err != nil {
		return nil, err
	}
	doc, err := pair.PublicPEM()
	if err != nil {
		return nil, err
	}
	return &signer{pair: pair, publicFile: publicFile}, os.WriteFile(publicFile, doc, 0o600)
}

// tokenTTL is how long the printed token is good for; the key is gone with the process anyhow.
const tokenTTL = 24 * time.Hour

func (s *signer) token(host string) (string, error) {
	return access.Mint(access.MintOptions{
		Algorithm: ownAlgorithm, Key: s.pair.Private, Issuer: ownIssuer, Subject: "developer", Audience: []string{ownAudience},
		Hosts: []string{host}, TTL: tokenTTL,
	})
}

// banner is what a newcomer reads.
type banner struct {
	url    string
	cfg    *configs
	keys   *signer
	noAuth bool
	demos  bool // the demo backends run: a call of theirs is shown
}

func printBanner(w io.Writer, b banner) error {
	var out strings.Builder
	fmt.Fprintf(&out, "Weir is ready.\n\n  url    %s\n", b.url)
	token := ""
	switch {
	case b.noAuth:
		fmt.Fprintf(&out, "  token  none needed (--no-auth)\n")
	case !b.cfg.ownAuth:
		fmt.Fprintf(&out, "  token  from an issuer that the config names; put it into $TOKEN\n")
		token = "$TOKEN"
	default:
		var err error
		if token, err = b.keys.token(b.cfg.host); err != nil {
			return fmt.Errorf("mint a token: %w", err)
		}
		fmt.Fprintf(&out, "  token  %s\n", token)
	}
	method, name, params := "tools/list", "", ""
	if b.demos {
		method, name = "tools/call", "modern__echo"
		params = `"name":"modern__echo","arguments":{"message":"Hello through Weir"},`
	}
	fmt.Fprintf(&out, "\nTry it:\n\n%s\n\nCtrl-C ends it.\n", curl(b.url, token, method, name, params))
	_, err := io.WriteString(w, out.String())
	return err
}

// curl is a modern request as a command line. params is the members before _meta, each with its comma.
func curl(url, token, method, name, params string) string {
	lines := []string{"curl -sS " + url}
	header := func(h string) { lines = append(lines, "  -H '"+h+"'") }
	switch {
	case strings.HasPrefix(token, "$"):
		lines = append(lines, `  -H "Authorization: Bearer `+token+`"`)
	case token != "":
		header("Authorization: Bearer " + token)
	}
	header("Content-Type: application/json")
	header("Accept: application/json, text/event-stream")
	header("MCP-Protocol-Version: 2026-07-28")
	header("Mcp-Method: " + method)
	if name != "" {
		header("Mcp-Name: " + name)
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"curl","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`
	return strings.Join(append(lines, "  -d '"+body+"'"), " \\\n")
}
