package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

func TestParseSources(t *testing.T) {
	setSecrets(t)
	cfg, warnings, err := Parse([]byte(base + `sources:
  registry:
    http: {url: "https://registry.example/b.json", headers: {Authorization: "Bearer ${env:WEIR_T_GITHUB}"}, interval: 5s}
  cluster:
    allow_private: true
    kubernetes: {kubeconfig: /k, namespace: mcp, selector: "a=b"}
  public: {kubernetes: {}}
  idle: {http: {url: "http://127.0.0.1/b.json"}}
virtual_hosts:
  acme:
    backends:
      - {source: registry, match: "team-*", prefix: "{name}__", tools: {deny: ["x*"]}}
      - {source: cluster}
      - {source: public}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Source{
		{Name: "registry", HTTP: &HTTPSource{URL: "https://registry.example/b.json", Interval: 5 * time.Second, Timeout: 10 * time.Second,
			Headers: map[string]string{"Authorization": "Bearer ${env:WEIR_T_GITHUB}"}}},
		{Name: "cluster", AllowPrivate: true, Kubernetes: &KubernetesSource{Kubeconfig: "/k", Namespace: "mcp", Selector: "a=b"}},
		{Name: "public", Kubernetes: &KubernetesSource{}},
		{Name: "idle", HTTP: &HTTPSource{URL: "http://127.0.0.1/b.json", Interval: 30 * time.Second, Timeout: 10 * time.Second}},
	}
	if diff := cmp.Diff(want, cfg.Sources); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	wantHost := []HostBackend{
		{Source: "registry", Match: mustGlobs(t, "team-*")[0], Prefix: "{name}__", Tools: Filter{Deny: mustGlobs(t, "x*")}},
		{Source: "cluster", Match: mustGlobs(t, "*")[0]},
		{Source: "public", Match: mustGlobs(t, "*")[0]},
	}
	if diff := cmp.Diff(wantHost, cfg.VirtualHosts[0].Backends, globs); diff != "" {
		t.Errorf("host (-want +got):\n%s", diff)
	}
	var paths []string
	for _, w := range warnings {
		paths = append(paths, w.Path)
	}
	if diff := cmp.Diff([]string{"sources.public", "sources.idle"}, paths); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestParseSourcesFaults(t *testing.T) {
	setSecrets(t)
	for name, tt := range map[string]struct {
		doc  string // after base
		want []string
	}{
		"sources": {
			doc: "sources:\n  A: {}\n  b: {http: {url: 'http://x'}, kubernetes: {}}\n  c: {http: {}}\n  d: {http: {url: 'http://user:hunter2@x'}}\n" +
				"  e: {http: {url: 'http://x/${env:WEIR_T_GITHUB}', interval: 1ms, timeout: 1h, tls: {cert_file: x}}}\n" +
				"  f: {http: {url: 'http://x', headers: {Host: x, 'a b': x, If-None-Match: x, X: '${env:WEIR_T_NOT_SET}', Y: \"a\\nb\"}}}\n" +
				"  g: {kubernetes: {namespace: 'A/b', selector: '${env:X}'}}\n  h: {file: x}\n",
			want: []string{
				`line 4: sources.A: "A" can't name a source: want 1 to 63 of a-z, 0-9, '.', '_' and '-', a letter or digit first and last`,
				"line 4: sources.A: http or kubernetes is required",
				"line 5: sources.b: http and kubernetes exclude each other",
				"line 6: sources.c.http.url: is required",
				"line 7: sources.d.http.url: must not contain a user name or password",
				"line 8: sources.e.http.url: references are not expanded in URLs, which are published; use headers.credentials",
				"line 8: sources.e.http.tls: cert_file and key_file go together",
				"line 8: sources.e.http.interval: 1ms is not between 100ms and 24h0m0s",
				"line 8: sources.e.http.timeout: 1h0m0s is not above 0 and up to 1m0s",
				"line 9: sources.f.http.headers.Host: is Weir's own to set",
				"line 9: sources.f.http.headers.If-None-Match: is Weir's own to set",
				"line 9: sources.f.http.headers.X: ${env:WEIR_T_NOT_SET}: environment variable is not set",
				"line 9: sources.f.http.headers.Y: the value has a character that no header may carry",
				`line 9: sources.f.http.headers.a b: "a b" is not a header name`,
				"line 10: sources.g.kubernetes.selector: references are not expanded here",
				`line 10: sources.g.kubernetes.namespace: "A/b" can't name a namespace`,
				"line 11: field file not found in h",
				"line 11: sources.h: http or kubernetes is required",
			}},
		"hosts": {
			doc: "sources: {reg: {http: {url: 'http://x'}}}\nbackends: {a: {url: 'http://127.0.0.1/'}}\nvirtual_hosts:\n  v:\n    backends:\n" +
				"      - {name: later}\n      - {name: later}\n      - {name: 'A'}\n      - {name: a, source: reg}\n      - {source: nobody}\n" +
				"      - {name: a, match: x}\n      - {name: other, prefix: '{name}'}\n" +
				"      - {source: reg, match: '', prefix: '{id}', tools: {alias: {x: y}}, resources: {prefixes: ['file:///a']}}\n",
			want: []string{
				`line 9: virtual_hosts.v.backends[1].name: "later" stands in this host already`,
				`line 10: virtual_hosts.v.backends[2].name: "A" can't name a backend: want 1 to 63 of a-z, 0-9, '.', '_' and '-', a letter or digit first and last`,
				"line 11: virtual_hosts.v.backends[3]: name and source exclude each other",
				`line 12: virtual_hosts.v.backends[4].source: no source "nobody" is defined`,
				"line 13: virtual_hosts.v.backends[5].match: is for an entry with source",
				`line 14: virtual_hosts.v.backends[6].prefix: "{name}" has a character other than letters, digits and _ - . /`,
				`line 15: virtual_hosts.v.backends[7].prefix: "{id}" has a character other than letters, digits and _ - . /`,
				"line 15: virtual_hosts.v.backends[7].tools.alias: is for an entry with name: backends of a source can't share it",
				"line 15: virtual_hosts.v.backends[7].resources.prefixes: is for an entry with name: backends of a source can't share it",
			}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Parse([]byte(base + tt.doc))
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.Split(err.Error(), "\n")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpandPrefix(t *testing.T) {
	for template, want := range map[string]string{"": "", "x__": "x__", "{name}__": "team-a__", "{name}/{name}.": "team-a/team-a.", "{prefix}": "team-a__"} {
		if got, err := ExpandPrefix(template, &Backend{ID: "team-a"}); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", template, got, err, want)
		}
	}
	suggested := &Backend{ID: "a", Route: routes.Backend{SourcePrefix: "own."}}
	if got, err := ExpandPrefix("x{prefix}", suggested); got != "xown." || err != nil {
		t.Errorf("suggested: %q, %v", got, err)
	}
	if _, err := ExpandPrefix("{name}__", &Backend{ID: routes.BackendID(strings.Repeat("a", 39))}); err == nil {
		t.Error("no error for a prefix of 41 bytes")
	}
}
