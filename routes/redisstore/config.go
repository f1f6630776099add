package redisstore

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
)

// Config is the redis block of both planes' config files, or a bare string: the URL. Either URL or Addrs is set.
type Config struct {
	// URL is redis://, rediss:// (TLS) or unix://, with user, password and database as usual; with Cluster the others are added
	// as addr=HOST:PORT in its query.
	URL string `yaml:"url"`
	// Addrs are HOST:PORT of the sentinels (with MasterName), of some nodes of the cluster (with Cluster), or of one server.
	Addrs      []string `yaml:"addrs"`
	MasterName string   `yaml:"master_name"`
	Cluster    bool     `yaml:"cluster"`
	// Username and Password, where not empty, go before what the URL says. The config loader has expanded Password.
	Username string `yaml:"username"`
	Password string `yaml:"password"`
	// SentinelUsername and SentinelPassword are for the sentinels themselves.
	SentinelUsername string `yaml:"sentinel_username"`
	SentinelPassword string `yaml:"sentinel_password"`
	// TLS is used when one of its fields is set or the URL says rediss. Its files are read at each connect.
	TLS routes.TLS `yaml:"tls"`
	// KeyPrefix begins every key; empty: "weir:".
	KeyPrefix string `yaml:"key_prefix"`
}

// UnmarshalYAML takes the block or the bare string.
func (c *Config) UnmarshalYAML(unmarshal func(any) error) error {
	if err := unmarshal(&c.URL); err == nil {
		return nil
	}
	type block Config // without this method
	return unmarshal((*block)(c))
}

// Validate reports every fault, joined, each starting with prefix ("redis") and the field. It shows no secret.
func (c *Config) Validate(prefix string) error {
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s: %w", prefix, field, fmt.Errorf(format, args...)))
	}
	switch {
	case c.URL == "" && len(c.Addrs) == 0:
		fault("url", "is required, or addrs")
	case c.URL != "" && len(c.Addrs) > 0:
		fault("addrs", "not together with url")
	case c.URL != "":
		if err := checkURL(c.URL, c.Cluster); err != nil {
			fault("url", "%w", err)
		}
		if c.MasterName != "" {
			fault("master_name", "needs addrs, the sentinels'")
		}
	case len(c.Addrs) > 1 && c.MasterName == "" && !c.Cluster:
		fault("addrs", "several need master_name or cluster")
	}
	for i, addr := range c.Addrs {
		if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
			fault(fmt.Sprintf("addrs[%d]", i), "%q is not HOST:PORT", addr)
		}
	}
	if c.MasterName != "" && c.Cluster {
		fault("cluster", "not together with master_name")
	}
	if (c.SentinelUsername != "" || c.SentinelPassword != "") && c.MasterName == "" {
		fault("sentinel_password", "needs master_name")
	}
	if c.Username != "" && c.Password == "" {
		fault("username", "needs password")
	}
	if c.TLS != (routes.TLS{}) {
		if strings.HasPrefix(c.URL, "unix:") {
			fault("tls", "not over a unix socket")
		}
		if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
			fault("tls", "cert_file and key_file go together")
		}
	}
	if err := checkPrefix(c.KeyPrefix); err != nil {
		fault("key_prefix", "%w", err)
	}
	return errors.Join(errs...)
}

// checkURL never shows the URL, which may contain a password.
func checkURL(raw string, cluster bool) error {
	u, err := url.Parse(raw)
	if err != nil {
		return errors.New("is not a URL")
	}
	switch u.Scheme {
	case "redis", "rediss":
	case "unix":
		if cluster {
			return errors.New("a cluster is not reached over a unix socket")
		}
	default:
		return fmt.Errorf("scheme %q is none of redis, rediss, unix", u.Scheme)
	}
	if u.Scheme != "unix" && u.Host == "" {
		return errors.New("has no host")
	}
	if cluster {
		_, err = redis.ParseClusterURL(raw)
	} else {
		_, err = redis.ParseURL(raw)
	}
	if err != nil {
		return errors.New(redact(err.Error(), raw, u))
	}
	return nil
}

// redact takes the URL, and the password alone, out of somebody else's message.
func redact(text, raw string, u *url.URL) string {
	text = strings.ReplaceAll(text, raw, u.Redacted())
	if password, ok := u.User.Password(); ok && password != "" {
		text = strings.ReplaceAll(text, password, "xxxxx")
	}
	return text
}
