package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
)

func TestACursorTellsChangesAndResets(t *testing.T) {
	// entry writes one as "incarnation sequence host revision".
	entry := func(text string) redis.XMessage {
		f := strings.Fields(text)
		return redis.XMessage{ID: f[1] + "-0", Values: map[string]any{"kind": "host", "incarnation": f[0], "sequence": f[1],
			"host": f[2], "epoch": "1", "revision": f[3], "removed": "0"}}
	}
	revocation := func(text, documents string) redis.XMessage {
		f := strings.Fields(text)
		return redis.XMessage{ID: f[1] + "-0", Values: map[string]any{"kind": "revocation", "incarnation": f[0], "sequence": f[1],
			"revocations": documents}}
	}
	change := func(incarnation, host string, revision uint64) routes.Event {
		return routes.Event{Host: routes.HostID(host), Version: routes.Version{Incarnation: incarnation, Epoch: 1, Revision: revision}}
	}
	reset := routes.Event{Reset: true}
	with := func(m redis.XMessage, key, value string) redis.XMessage { m.Values[key] = value; return m }
	for name, tt := range map[string]struct {
		entries []redis.XMessage
		want    []routes.Event
		at      cursor
	}{
		"nothing": {nil, []routes.Event{}, cursor{"5-0", "i", 5}},
		"the next ones": {
			[]redis.XMessage{entry("i 6 a 1"), entry("i 7 b 2")},
			[]routes.Event{change("i", "a", 1), change("i", "b", 2)}, cursor{"7-0", "i", 7},
		},
		"a gap": {
			[]redis.XMessage{entry("i 8 a 1"), entry("i 9 b 1")},
			[]routes.Event{reset, change("i", "a", 1), change("i", "b", 1)}, cursor{"9-0", "i", 9},
		},
		"a sequence that went back": {
			[]redis.XMessage{entry("i 3 a 1")}, []routes.Event{reset, change("i", "a", 1)}, cursor{"3-0", "i", 3},
		},
		"another incarnation, even if its sequence fits": {
			[]redis.XMessage{entry("j 6 a 1"), entry("j 7 a 2")},
			[]routes.Event{reset, change("j", "a", 1), change("j", "a", 2)}, cursor{"7-0", "j", 7},
		},
		"a removal": {
			[]redis.XMessage{with(entry("i 6 a 1"), "removed", "1")},
			[]routes.Event{{Host: "a", Version: routes.Version{Incarnation: "i", Epoch: 1, Revision: 1}, Removed: true}}, cursor{"6-0", "i", 6},
		},
		"a kind from the future counts": {
			[]redis.XMessage{with(entry("i 6 a 1"), "kind", "weather"), entry("i 7 b 1")},
			[]routes.Event{change("i", "b", 1)}, cursor{"7-0", "i", 7},
		},
		"revocations": {
			[]redis.XMessage{revocation("i 6", `[{"issuer":"i","jti":"t","until":"2090-01-01T00:00:00Z"}]`)},
			[]routes.Event{{Revocations: []routes.Revocation{
				{Issuer: "i", TokenID: "t", Until: time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)},
			}}}, cursor{"6-0", "i", 6},
		},
		"revocations that can't be read": {
			[]redis.XMessage{revocation("i 6", `[{"issuer":"i"}]`), revocation("i 7", `nonsense`)}, []routes.Event{reset, reset}, cursor{"7-0", "i", 7},
		},
		"an entry that nobody of ours wrote": {
			[]redis.XMessage{{ID: "6-0", Values: map[string]any{"x": "y"}}, entry("i 6 a 1")},
			[]routes.Event{reset, change("i", "a", 1)}, cursor{"6-0", "i", 6},
		},
		"an entry whose host can't be read": {
			[]redis.XMessage{with(entry("i 6 a 1"), "revision", "x")}, []routes.Event{reset}, cursor{"6-0", "i", 6},
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := cursor{"5-0", "i", 5}
			if diff := cmp.Diff(tt.want, at.take(tt.entries)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if at != tt.at {
				t.Errorf("cursor %+v, want %+v", at, tt.at)
			}
		})
	}
}

func FuzzParseEntry(f *testing.F) {
	for _, seed := range []string{"i 1 2 3 0 d", "i 1 2 3 1 d with spaces", "", "i 1 2 3 2 d", "i -1 2 3 0 d", " 1 2 3 0 d", "i 1 2 3 0 "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		e, ok := parseEntry(line)
		if !ok {
			if e != (routes.HostEntry{}) {
				t.Errorf("%q: %+v, and not ok", line, e)
			}
			return
		}
		if !strings.HasPrefix(line, e.Version.Incarnation+" ") || !strings.HasSuffix(line, " "+e.Digest) {
			t.Errorf("%q: %+v", line, e)
		}
	})
}
