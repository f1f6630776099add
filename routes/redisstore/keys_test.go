package redisstore

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

const doc = "../../docs/redis.md"

func TestTheDocumentedKeysAreTheKeys(t *testing.T) {
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `{") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	var want []string
	for _, k := range Keys() {
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s | %s |", k.Name, k.Type, k.TTL, k.Writer, k.Holds))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is not in step with Keys (-want +got):\n%s", doc, diff)
	}
}

func TestTheDocumentedRulesAreTheRules(t *testing.T) {
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	for heading, role := range map[string]Role{"Control plane:": RoleControlPlane, "Dataplane:": RoleDataplane} {
		_, after, found := strings.Cut(string(text), heading+"\n\n```text\n")
		rules, _, closed := strings.Cut(after, "```")
		if !found || !closed {
			t.Errorf("%s has no block of rules under %q", doc, heading)
			continue
		}
		if want := ACLRules(role, DefaultPrefix); strings.Join(strings.Fields(rules), " ") != want {
			t.Errorf("%s: rules under %q are not these:\n%s", doc, heading, want)
		}
	}
}

// Everything that is written has a line in the table, with its type and lifetime, and each line is of something written.
func TestEveryKeyInRedisIsInTheTable(t *testing.T) {
	m := routestest.StartMiniredis(t)
	client, err := Open(Config{URL: "redis://" + m.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	fill(t, client)

	unseen := map[string]bool{}
	for _, k := range Keys() {
		unseen[k.Name] = true
	}
	ctx := t.Context()
	for _, name := range m.Keys() {
		k, ok := find(strings.TrimPrefix(name, DefaultPrefix))
		if !ok {
			t.Errorf("%q is in Redis and not in the table", name)
			continue
		}
		delete(unseen, k.Name)
		if kind := client.Type(ctx, name).Val(); kind != k.Type {
			t.Errorf("%q is a %s, the table says %s", name, kind, k.Type)
		}
		if lives := client.PTTL(ctx, name).Val() < 0; lives != strings.HasPrefix(k.TTL, "none") {
			t.Errorf("%q: without a TTL: %v; the table says %q", name, lives, k.TTL)
		}
	}
	for name := range unseen {
		t.Errorf("%q is in the table; nothing wrote it", name)
	}
}

// fill uses everything that writes.
func fill(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	w, err := NewWriter(Options{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(Options{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := w.Acquire(ctx, "one", time.Minute, 1)
	must(err)
	must(w.Publish(ctx, l, routes.Batch{
		Catalogs: []routes.CatalogChange{{Backend: "b", Digest: "d", Document: []byte("{}")}},
		Hosts:    []routes.HostChange{archived(routestest.Host("a").Tool("x", "b", "x").Change(t, l, 1)), routestest.Removal("c", 1)},
	}))
	must(w.Decide(ctx, "pins/b", "", []byte("{}")))
	must(w.MarkComplete(ctx, l))
	must(w.Revoke(ctx, []routes.Revocation{{Issuer: "i", TokenID: "t", Until: time.Now().Add(time.Hour)}}))
	must(r.PutStatus(ctx, "d", []byte("{}"), time.Minute))
	o, err := NewOwners(Options{Client: client})
	must(err)
	must(o.RecordTask(ctx, "a", "id", routes.TaskOwner{Principal: "p", Backend: "b", Source: routes.TaskMinted, Life: time.Hour}))
}

func archived(h routes.HostChange) routes.HostChange {
	h.Archive = []byte("archive")
	return h
}

func find(name string) (Key, bool) {
	for _, k := range Keys() {
		if stem, _, family := strings.Cut(k.Name, "<"); k.Name == name || family && strings.HasPrefix(name, stem) {
			return k, true
		}
	}
	return Key{}, false
}

func TestAllKeysOfATagShareASlot(t *testing.T) {
	k := keyspace{DefaultPrefix}
	for _, key := range []string{k.fence(), k.lease(), k.index(), k.catalogs(), k.changes(), k.revocations(), k.host("{x}"), k.list("}{"), k.catalog("{}"),
		k.history("}"), k.decisions(), k.decision("{x}")} {
		if tag := key[strings.IndexByte(key, '{')+1 : strings.IndexByte(key, '}')]; tag != "routes" {
			t.Errorf("%q has the tag %q, want routes", key, tag)
		}
	}
	for _, key := range []string{k.statuses(), k.status("{x}")} {
		if tag := key[strings.IndexByte(key, '{')+1 : strings.IndexByte(key, '}')]; tag != "status" {
			t.Errorf("%q has the tag %q, want status", key, tag)
		}
	}
}
