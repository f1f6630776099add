package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/weir-mcp/weir/deploy/process"
)

const (
	explainTimeout = 10 * time.Second
	explainAnswer  = 1 << 20 // bytes of an answer that are read
	tokenVariable  = "WEIR_ADMIN_TOKEN"
)

// question is what explain asks the admin API.
type question struct {
	admin, token, caFile string
	query                url.Values
	raw                  bool // print the answer as it came
}

func explain(ctx context.Context, env Env, c command, args []string) error {
	var q question
	var host string
	names := map[string]*string{}
	flags := flag.NewFlagSet("explain", flag.ContinueOnError)
	flags.StringVar(&q.admin, "admin", "", "`URL` of the admin API (admin_listen)")
	flags.StringVar(&q.token, "admin-token", "", "admin `TOKEN`; better in "+tokenVariable+", where other users of the machine don't see it")
	flags.StringVar(&q.caFile, "ca-file", "", "PEM `FILE` of the authorities that may have signed the API's certificate")
	flags.StringVar(&host, "host", "", "virtual `HOST`")
	flags.BoolVar(&q.raw, "json", false, "print the API's JSON")
	for _, kind := range []string{"tool", "prompt", "resource", "template"} {
		names[kind] = flags.String(kind, "", "`NAME` of a "+kind+", as a client sees it")
	}
	if err := c.parse(flags, args, env); err != nil {
		return helped(err)
	}
	if err := needed(map[string]bool{"admin": q.admin != "", "host": host != ""}, "admin", "host"); err != nil {
		return err
	}
	q.query = url.Values{"host": {host}}
	for kind, name := range names {
		if *name != "" {
			q.query.Set(kind, *name)
		}
	}
	if len(q.query) != 2 {
		return badUsage("give exactly one of --tool, --prompt, --resource and --template")
	}
	q.token = cmp.Or(q.token, env.Getenv(tokenVariable))
	if q.token == "" {
		return badUsage("missing: --admin-token or %s", tokenVariable)
	}
	doc, err := q.ask(ctx)
	if err != nil {
		return err
	}
	var a answer
	if err := json.Unmarshal(doc, &a); err != nil {
		return fmt.Errorf("the admin API's answer is not what this version of Weir expects: %w", err)
	}
	if !q.raw {
		doc = []byte(a.String())
	}
	if _, err = env.Stdout.Write(doc); err != nil {
		return err
	}
	if !a.Found { // for scripts: the exit status says it too
		return fmt.Errorf("%s %q goes nowhere", a.Kind, a.Name)
	}
	return nil
}

// ask calls the admin API.
func (q *question) ask(ctx context.Context) ([]byte, error) {
	u, err := url.Parse(q.admin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, badUsage("--admin: want the http or https URL of the admin API")
	}
	client, err := q.client()
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	u = u.JoinPath("api/v1/explain")
	u.RawQuery = q.query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+q.token)
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the admin API: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	doc, err := io.ReadAll(io.LimitReader(resp.Body, explainAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the admin API's answer: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return doc, nil
	}
	var f struct {
		Error struct{ Message string }
	}
	if json.Unmarshal(doc, &f) != nil || f.Error.Message == "" {
		f.Error.Message = "is this admin_listen?"
	}
	return nil, fmt.Errorf("the admin API answered %s: %s", resp.Status, f.Error.Message)
}

// client trusts --ca-file, follows no redirect (the token would go along) and uses no proxy.
func (q *question) client() (*http.Client, error) {
	tr := &http.Transport{
		DialContext:     (&net.Dialer{Timeout: explainTimeout}).DialContext,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if q.caFile != "" {
		pem, err := os.ReadFile(q.caFile)
		if err != nil {
			return nil, &process.ConfigError{Err: fmt.Errorf("--ca-file: %w", err)}
		}
		tr.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !tr.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &process.ConfigError{Err: errors.New("--ca-file: no certificate in it")}
		}
	}
	return &http.Client{Transport: tr, Timeout: explainTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// answer is the admin API's: see its documentation.
type answer struct {
	Host    string `json:"host"`
	Version struct {
		Epoch    uint64 `json:"epoch"`
		Revision uint64 `json:"revision"`
	} `json:"version"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Found    bool   `json:"found"`
	Backend  string `json:"backend"`
	Upstream string `json:"upstream"`
	URL      string `json:"url"`
	Protocol string `json:"protocol"`
	Step     string `json:"step"`
	Rule     string `json:"rule"`
	Reason   string `json:"reason"`
	Tried    []struct {
		Rule    string `json:"rule"`
		Backend string `json:"backend"`
		Outcome string `json:"outcome"`
	} `json:"tried"`
	Held *struct {
		Version struct {
			Revision uint64 `json:"revision"`
		} `json:"version"`
	} `json:"held"`
	Steps []struct {
		Step     string `json:"step"`
		Backend  string `json:"backend"`
		Upstream string `json:"upstream"`
		Outcome  string `json:"outcome"`
		Text     string `json:"text"`
	} `json:"steps"`
	Problems []struct {
		Code    string `json:"code"`
		Backend string `json:"backend"`
		Text    string `json:"text"`
	} `json:"problems"`
}

// String puts the answer into words.
func (a *answer) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q of virtual host %s (epoch %d, revision %d)\n", a.Kind, a.Name, a.Host, a.Version.Epoch, a.Version.Revision)
	if a.Found {
		fmt.Fprintf(&b, "  goes to backend %s as %q\n", a.Backend, a.Upstream)
		fmt.Fprintf(&b, "  at %s, protocol %s\n", a.URL, a.Protocol)
		if a.Step != "" {
			fmt.Fprintf(&b, "  found by %s match", a.Step)
			if a.Rule != "" && a.Rule != a.Name {
				fmt.Fprintf(&b, " of %q", a.Rule)
			}
			b.WriteString("\n")
		}
	} else {
		fmt.Fprintf(&b, "  goes nowhere: %s\n", cmp.Or(a.Reason, "no route of this name"))
	}
	for _, t := range a.Tried {
		fmt.Fprintf(&b, "  tried %q of %s: %s\n", t.Rule, t.Backend, t.Outcome)
	}
	if a.Held != nil {
		fmt.Fprintf(&b, "  the host is held at revision %d; without that, the steps below would decide\n", a.Held.Version.Revision)
	}
	for _, s := range a.Steps {
		fmt.Fprintf(&b, "  %s %s", s.Step, s.Outcome)
		if s.Backend != "" {
			fmt.Fprintf(&b, " (backend %s", s.Backend)
			if s.Upstream != "" {
				fmt.Fprintf(&b, ", %q", s.Upstream)
			}
			b.WriteString(")")
		}
		fmt.Fprintf(&b, ": %s\n", s.Text)
	}
	for _, p := range a.Problems {
		fmt.Fprintf(&b, "  problem %s", p.Code)
		if p.Backend != "" {
			fmt.Fprintf(&b, " (backend %s)", p.Backend)
		}
		fmt.Fprintf(&b, ": %s\n", p.Text)
	}
	return b.String()
}
