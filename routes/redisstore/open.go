package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weir-mcp/weir/routes"
)

// socketTimeout bounds what comes without a deadline: the client's own look at the cluster or the sentinels. Operations of this
// package have one, which the client heeds.
const socketTimeout = 5 * time.Second

// Open makes a client with the bounds that Reader and Writer count on (they repeat an operation themselves, so the client does
// not); it does not connect.
func Open(c Config) (redis.UniversalClient, error) {
	if err := c.Validate("redis"); err != nil {
		return nil, err
	}
	switch {
	case c.MasterName != "":
		return redis.NewFailoverClient(c.failover()), nil
	case c.Cluster:
		return c.openCluster()
	}
	return c.openSingle()
}

func (c *Config) openSingle() (redis.UniversalClient, error) {
	o := new(redis.Options)
	if c.URL != "" {
		parsed, err := redis.ParseURL(c.URL)
		if err != nil {
			return nil, fmt.Errorf("redis.url: %w", err) // checked above
		}
		o = parsed
	} else {
		o.Addr = c.Addrs[0]
	}
	o.Username, o.Password = cmp.Or(c.Username, o.Username), cmp.Or(c.Password, o.Password)
	if o.TLSConfig != nil || c.TLS != (routes.TLS{}) {
		o.TLSConfig, o.Dialer = nil, dialTLS(c.TLS)
	}
	o.DialTimeout, o.PoolTimeout, o.ReadTimeout, o.WriteTimeout = DefaultTimeout, DefaultTimeout, socketTimeout, socketTimeout
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, -1, 1
	o.MaintNotificationsConfig, o.DisableIdentity = noMaintenanceNotices(), true
	return redis.NewClient(o), nil
}

func (c *Config) openCluster() (redis.UniversalClient, error) {
	o := new(redis.ClusterOptions)
	if c.URL != "" {
		parsed, err := redis.ParseClusterURL(c.URL)
		if err != nil {
			return nil, fmt.Errorf("redis.url: %w", err) // checked above
		}
		o = parsed
	} else {
		o.Addrs = c.Addrs
	}
	o.Username, o.Password = cmp.Or(c.Username, o.Username), cmp.Or(c.Password, o.Password)
	if o.TLSConfig != nil || c.TLS != (routes.TLS{}) {
		o.TLSConfig, o.Dialer = nil, dialTLS(c.TLS)
	}
	o.DialTimeout, o.PoolTimeout, o.ReadTimeout, o.WriteTimeout = DefaultTimeout, DefaultTimeout, socketTimeout, socketTimeout
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, -1, 1
	o.MaintNotificationsConfig, o.DisableIdentity = noMaintenanceNotices(), true
	return redis.NewClusterClient(o), nil
}

func (c *Config) failover() *redis.FailoverOptions {
	o := &redis.FailoverOptions{
		MasterName: c.MasterName, SentinelAddrs: c.Addrs,
		SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,
		Username: c.Username, Password: c.Password,
		DialTimeout: DefaultTimeout, PoolTimeout: DefaultTimeout, ReadTimeout: socketTimeout, WriteTimeout: socketTimeout,
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
	}
	if c.TLS != (routes.TLS{}) {
		o.Dialer = dialTLS(c.TLS)
	}
	return o
}

// SilenceClients turns off the log that go-redis keeps for the whole process on stderr, with a line for every connection that
// fails: what matters comes back as errors. A program calls it once, before it opens its first client.
func SilenceClients() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// noMaintenanceNotices spares a round trip at each connect for a feature of one vendor.
func noMaintenanceNotices() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// dialTLS reads the files anew at each connect, so that certificates can be changed without a restart.
func dialTLS(files routes.TLS) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		config, err := tlsConfig(files)
		if err != nil {
			return nil, err
		}
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: DefaultTimeout, KeepAlive: 5 * time.Minute}, Config: config}
		return d.DialContext(ctx, network, addr) // verifies the name of addr unless config has one
	}
}

func tlsConfig(files routes.TLS) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: files.ServerName}
	if files.CAFile != "" {
		pem, err := os.ReadFile(files.CAFile)
		if err != nil {
			return nil, fmt.Errorf("redis.tls.ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("redis.tls.ca_file: %s holds no certificate", files.CAFile)
		}
	}
	if files.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("redis.tls.cert_file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
