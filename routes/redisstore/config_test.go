package redisstore_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
)

func TestConfigIsABlockOrABareURL(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want redisstore.Config
		err  string
	}{
		"a bare string": {`redis: "redis://h:1/2"`, redisstore.Config{URL: "redis://h:1/2"}, ""},
		"a block": {
			"redis:\n  addrs: [a:1, b:2]\n  cluster: true\n  tls: {ca_file: f}\n  key_prefix: \"x:\"",
			redisstore.Config{Addrs: []string{"a:1", "b:2"}, Cluster: true, TLS: routes.TLS{CAFile: "f"}, KeyPrefix: "x:"}, "",
		},
		"an unknown field names its line": {"redis:\n  url: redis://h\n  pasword: x", redisstore.Config{}, "line 3: field pasword not found"},
		"a list":                          {"redis: [a, b]", redisstore.Config{}, "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			var got struct{ Redis redisstore.Config }
			dec := yaml.NewDecoder(strings.NewReader(tt.text))
			dec.KnownFields(true)
			err := dec.Decode(&got)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got.Redis); diff != "" || err != nil {
				t.Errorf("%v, config (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestValidateReportsEveryFault(t *testing.T) {
	for name, tt := range map[string]struct {
		config redisstore.Config
		want   []string // lines of the error
	}{
		"a URL":            {redisstore.Config{URL: "redis://user:secret@localhost:6379/3"}, nil},
		"a URL with TLS":   {redisstore.Config{URL: "rediss://localhost", KeyPrefix: "prod-weir:"}, nil},
		"a unix socket":    {redisstore.Config{URL: "unix:///run/redis.sock"}, nil},
		"one server":       {redisstore.Config{Addrs: []string{"[::1]:6379"}}, nil},
		"sentinels":        {redisstore.Config{Addrs: []string{"a:1", "b:1"}, MasterName: "m", SentinelPassword: "x"}, nil},
		"a cluster":        {redisstore.Config{Addrs: []string{"a:1", "b:1"}, Cluster: true, Username: "u", Password: "p"}, nil},
		"a cluster's URL":  {redisstore.Config{URL: "redis://a:1?addr=b:1", Cluster: true}, nil},
		"nothing":          {redisstore.Config{}, []string{"redis.url: is required, or addrs"}},
		"both":             {redisstore.Config{URL: "redis://h", Addrs: []string{"a:1"}}, []string{"redis.addrs: not together with url"}},
		"a foreign scheme": {redisstore.Config{URL: "http://h"}, []string{`redis.url: scheme "http" is none of redis, rediss, unix`}},
		"a URL of no host": {redisstore.Config{URL: "redis:///1"}, []string{"redis.url: has no host"}},
		"a torn URL":       {redisstore.Config{URL: "redis://user:secret@h:port/0"}, []string{"redis.url: is not a URL"}},
		"a database of no number": {redisstore.Config{URL: "redis://user:secret@h/secret"},
			[]string{`redis.url: redis: invalid database number: "xxxxx"`}},
		"several at once": {
			redisstore.Config{Addrs: []string{"a", "b:1"}, Username: "u", TLS: routes.TLS{CertFile: "c"}, KeyPrefix: "a{b}"},
			[]string{
				"redis.addrs: several need master_name or cluster", `redis.addrs[0]: "a" is not HOST:PORT`, "redis.username: needs password",
				"redis.tls: cert_file and key_file go together", `redis.key_prefix: must not contain spaces, quotes or any of {}*?[]\~%`,
			},
		},
		"Sentinel and Cluster": {
			redisstore.Config{Addrs: []string{"a:1"}, MasterName: "m", Cluster: true}, []string{"redis.cluster: not together with master_name"},
		},
		"Sentinel by URL":         {redisstore.Config{URL: "redis://h", MasterName: "m"}, []string{"redis.master_name: needs addrs, the sentinels'"}},
		"a sentinel's password":   {redisstore.Config{URL: "redis://h", SentinelPassword: "x"}, []string{"redis.sentinel_password: needs master_name"}},
		"TLS over a socket":       {redisstore.Config{URL: "unix:///s", TLS: routes.TLS{CAFile: "f"}}, []string{"redis.tls: not over a unix socket"}},
		"a cluster over a socket": {redisstore.Config{URL: "unix:///s", Cluster: true}, []string{"redis.url: a cluster is not reached over a unix socket"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.config.Validate("redis")
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			client, openErr := redisstore.Open(tt.config)
			if (openErr == nil) != (err == nil) {
				t.Errorf("Open: %v, Validate: %v", openErr, err)
			}
			if client != nil {
				client.Close()
			}
		})
	}
}

func FuzzConfigShowsNoPassword(f *testing.F) {
	for _, seed := range []string{"redis://u:%s@h/0", "redis://h:%s", "redis://u:%s@h/0?db=x", "redis://%s@h?read_timeout=%s", "://%s", "%s"} {
		f.Add(strings.ReplaceAll(seed, "%s", "geheim"))
	}
	f.Fuzz(func(t *testing.T, url string) {
		for _, cluster := range []bool{false, true} {
			c := redisstore.Config{URL: url, Cluster: cluster, Password: "geheim"}
			if err := c.Validate("redis"); err != nil && bytes.Contains([]byte(err.Error()), []byte("geheim")) {
				if !strings.Contains(url, ":geheim@") {
					continue // where it is no password, it may be shown
				}
				t.Errorf("%q: %v", url, err)
			}
		}
	})
}
