package publish

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

func TestAKeyThatVanishedIsWrittenAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		start(t, m, "one", parse(t, 0, "a b", "acme: a", "beta: b"), newSource().learn("a", "x").learn("b", "y").settled())
		after(time.Second)
		before, beta := document(t, m, "acme").Version(), document(t, m, "beta").Version()
		m.Lose("acme")
		after(9 * time.Second)
		if diff := cmp.Diff(map[string]string{"x": "a/x"}, tools(t, m, "acme")); diff != "" {
			t.Fatalf("what stands (-want +got):\n%s", diff)
		}
		got := document(t, m, "acme").Version()
		if !got.Supersedes(before) {
			t.Errorf("version %+v after %+v", got, before)
		}
		after(5 * time.Minute)
		if again := document(t, m, "acme").Version(); again != got || document(t, m, "beta").Version() != beta {
			t.Errorf("written again without need: %+v after %+v, beta %+v after %+v", again, got, document(t, m, "beta").Version(), beta)
		}
	})
}

func TestAKeyThatWasChangedIsWrittenAgain(t *testing.T) {
	replace := func(old, new string) func([]byte) []byte {
		return func(doc []byte) []byte {
			out := bytes.ReplaceAll(doc, []byte(old), []byte(new))
			if bytes.Equal(doc, out) {
				t.Errorf("%q is not in %s", old, doc)
			}
			return out
		}
	}
	for name, change := range map[string]func(m *routestest.Memory){
		"a route": func(m *routestest.Memory) { m.Scribble("acme", replace(`"x"`, `"z"`), nil, "", nil) },
		"a table that is no JSON": func(m *routestest.Memory) {
			m.Scribble("acme", func([]byte) []byte { return []byte("{") }, nil, "", nil)
		},
		"a member that nobody has": func(m *routestest.Memory) {
			m.Scribble("acme", replace(`"tasks":{`, `"more":1,"tasks":{`), nil, "", nil)
		},
		"a revision":        func(m *routestest.Memory) { m.Scribble("acme", replace(`"revision":1`, `"revision":7`), nil, "", nil) },
		"a list":            func(m *routestest.Memory) { m.Scribble("acme", nil, replace(`"x"`, `"z"`), "", nil) },
		"a definition":      func(m *routestest.Memory) { m.Scribble("", nil, nil, "a", replace(`"object"`, `"array"`)) },
		"a catalog's facts": func(m *routestest.Memory) { m.Scribble("", nil, nil, "a", replace("2026-07-28", "2025-11-25")) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *routestest.Memory) {
				start(t, m, "one", parse(t, 0, "a b", "acme: a", "beta: b"), newSource().learn("a", "x").learn("b", "y").settled())
				after(time.Second)
				read := func() string {
					recs, err := m.Hosts(t.Context(), []routes.HostID{"acme"})
					list, errList := m.List(t.Context(), "acme")
					cat, digest, errCat := m.Catalog(t.Context(), "a")
					if err := errors.Join(err, errList, errCat); err != nil {
						t.Fatal(err)
					}
					doc := regexp.MustCompile(`"revision":\d+`).ReplaceAllString(string(recs["acme"].Document), `"revision":N`)
					return doc + "\n" + string(list) + "\n" + digest + string(cat)
				}
				before, beta := read(), document(t, m, "beta").Version()
				change(m)
				after(9 * time.Second)
				if diff := cmp.Diff(before, read()); diff != "" {
					t.Errorf("what stands (-want +got):\n%s", diff)
				}
				meta, _ := m.Meta(t.Context())
				after(time.Minute)
				if again, _ := m.Meta(t.Context()); again != meta || document(t, m, "beta").Version() != beta {
					t.Errorf("written again without need: %+v after %+v", again, meta)
				}
			})
		})
	}
}

func TestTurnsComeRound(t *testing.T) {
	last := ""
	var got []string
	for range 4 {
		got = append(got, strings.Join(turn([]string{"a", "b", "c", "d", "e"}, &last, 2), ""))
	}
	got = append(got, strings.Join(turn([]string{"b", "x"}, &last, 9), ""), strings.Join(turn(nil, &last, 2), ""))
	if diff := cmp.Diff([]string{"ab", "cd", "ea", "bc", "xb", ""}, got); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
}

func TestWhyAReplicaDoesNotLead(t *testing.T) {
	inBubble(t, func(t *testing.T, m *routestest.Memory) {
		newer := start(t, m, "newer", parse(t, 2, "a", "acme: a"), newSource().learn("a", "x").settled())
		after(time.Second)
		older := start(t, m, "older", parse(t, 1, "a", "acme: a"), newSource().learn("a", "x").settled())
		after(2 * time.Second)
		if err := older.NotLeading(); !errors.Is(err, routes.ErrNotLeader) || errors.Is(err, routes.ErrConfigOutdated) {
			t.Errorf("while another one leads: %v", err)
		}
		if err := newer.NotLeading(); err != nil {
			t.Errorf("the leader: %v", err)
		}
		newer.stop()
		after(2 * time.Second)
		if err := older.NotLeading(); !errors.Is(err, routes.ErrConfigOutdated) {
			t.Errorf("with an older config_version: %v", err)
		}
	})
}
