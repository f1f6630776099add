package standalone

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/weir-mcp/weir/controlplane"
	"github.com/weir-mcp/weir/dataplane"
	"github.com/weir-mcp/weir/deploy/process"
)

// hostName is the virtual host that --backend and the demo backends stand behind.
const hostName = "default"

// configs is what each plane runs on.
type configs struct {
	control *controlplane.Config
	data    *dataplane.Config
	// ownAuth is true when the file names no issuer, so that standalone's own key signs the token that it prints.
	ownAuth bool
	// host is the virtual host that a printed token is for.
	host string
}

// setting is what standalone decides whatever the file says.
type setting struct {
	redisURL string
	listen   string // the front's real address
	baseURL  string
	keyFile  string // PEM, the public half of the key that signs the printed token
	backends []Backend
	noAuth   bool
}

const (
	ownIssuer    = "weir-standalone"
	ownAudience  = "weir"
	ownAlgorithm = "ES256"
)

// loadConfigs reads the file at path, if any, and fills in what standalone sets itself. Errors are mistakes in the file.
func loadConfigs(ctx context.Context, path string, s setting, warn func(string)) (*configs, error) {
	var file []byte
	if path != "" {
		var err error
		if file, err = process.ReadFile(ctx, path, process.MaxConfig); err != nil {
			return nil, err
		}
	}
	d, err := splitDocument(file)
	if err != nil {
		return nil, process.InFile(path, err)
	}
	out := &configs{ownAuth: !d.hasControl("auth")}
	if err := fill(d, s); err != nil {
		return nil, err
	}
	control, warnings, controlErr := controlplane.ParseConfig(d.controlDoc())
	for _, w := range warnings {
		where := ""
		if path != "" {
			where = path + ": "
		}
		if w.Line > 0 {
			where += fmt.Sprintf("line %d: ", w.Line)
		}
		warn(where + "warning: " + w.Path + ": " + w.Text)
	}
	data, dataErr := dataplane.ParseConfig(d.dataDoc())
	if err := errors.Join(controlErr, process.InFile("dataplane", dataErr)); err != nil {
		if path != "" {
			err = process.InFile(path, err)
		}
		return nil, err
	}
	out.control, out.data = control, data
	if err := out.addBackends(s); err != nil {
		return nil, err
	}
	token := rand.Text() + rand.Text() // of the internal API, which has no listener: nobody else needs to know it
	out.control.Internal.Value, out.data.ControlPlane.Token = token, token
	out.control.NoAuth, out.data.NoAuth = s.noAuth, s.noAuth
	out.data.NoAuthHost = controlplane.AnonymousHost(control) // or a caller would list one host and call another
	if len(control.VirtualHosts) == 0 {
		return nil, process.InFile(path, errors.New("virtual_hosts: there is none, and no --backend that would make one"))
	}
	out.host = string(control.VirtualHosts[0].ID)
	return out, nil
}

// fill adds what the user's file leaves open.
func fill(d *document, s setting) error {
	if !d.hasControl("auth") {
		auth := map[string]any{"issuers": []any{map[string]any{
			"issuer": ownIssuer, "audiences": []string{ownAudience}, "algorithms": []string{ownAlgorithm}, "public_key_file": s.keyFile,
		}}}
		if err := d.addControl("auth", auth); err != nil {
			return err
		}
	}
	if !d.hasControl("public_url") {
		if err := d.addControl("public_url", s.baseURL); err != nil {
			return err
		}
	}
	errs := []error{
		d.addControl("redis", map[string]string{"url": s.redisURL}),
		d.addControl("listen", s.listen),
		d.addData("redis", map[string]string{"url": s.redisURL}),
		d.addData("listen", s.listen),
		d.addData("drain", map[string]string{"delay": "0s", "deadline": grace.String()}),
	}
	for _, key := range []string{"auth", "public_url", "allowed_origins", "allowed_hosts"} {
		if node, ok := d.controlKeys[key]; ok {
			errs = append(errs, d.addData(key, node))
		}
	}
	return errors.Join(errs...)
}

// addBackends puts the backends of the command line behind the host "default", after those that the file puts there.
func (c *configs) addBackends(s setting) error {
	if len(s.backends) == 0 {
		return nil
	}
	extra, err := parseBackends(s)
	if err != nil {
		return fmt.Errorf("--backend: %w", err)
	}
	for _, b := range extra.Backends {
		for _, have := range c.control.Backends {
			if have.ID == b.ID {
				return fmt.Errorf("--backend: the file has a backend %q already", b.ID)
			}
		}
	}
	c.control.Backends = append(c.control.Backends, extra.Backends...)
	for i := range c.control.VirtualHosts {
		if h := &c.control.VirtualHosts[i]; h.ID == hostName {
			h.Backends = append(h.Backends, extra.VirtualHosts[0].Backends...)
			return nil
		}
	}
	c.control.VirtualHosts = append(c.control.VirtualHosts, extra.VirtualHosts...)
	return nil
}

// parseBackends gives the flags the same checks as a file gets.
func parseBackends(s setting) (*controlplane.Config, error) {
	backends, members := map[string]any{}, []any{}
	for i, b := range s.backends {
		name, prefix := b.Name, b.Name+"__"
		if name == "" {
			name, prefix = fmt.Sprintf("backend-%d", i+1), ""
		}
		backends[name] = map[string]any{"url": b.Target}
		members = append(members, map[string]any{"name": name, "prefix": prefix})
	}
	d, err := splitDocument(nil)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		d.addControl("backends", backends),
		d.addControl("virtual_hosts", map[string]any{hostName: map[string]any{"backends": members}}),
		fill(d, s),
	)
	if err != nil {
		return nil, err
	}
	cfg, _, err := controlplane.ParseConfig(d.controlDoc())
	return cfg, err
}

// grace is how long running calls may take after the end was asked for.
const grace = 2 * time.Second
