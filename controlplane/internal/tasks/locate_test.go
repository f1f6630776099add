package tasks

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

const (
	owner       = routes.LocateOwner
	missed      = routes.LocateMiss
	ambiguous   = routes.LocateAmbiguous
	unavailable = routes.LocateUnavailable
)

// Each case is one question of "me" for the task "t1".
func TestWhatBecomesOfAQuestion(t *testing.T) {
	for sentence, tt := range map[string]struct {
		given      func(b *bench)
		kind       routes.LocateOutcome
		detail     string // backend or cause
		asked      string // which backends were asked for t1
		entries    int    // of t1, afterwards
		remembered int    // misses
	}{
		"nobody knows it: a miss, which is remembered": {
			given: func(*bench) {}, kind: missed, detail: routes.CauseUnknown, asked: "ab", remembered: 1,
		},
		"one backend knows it: it is claimed": {
			given: func(b *bench) { b.knows("b", "t1") }, kind: owner, detail: "b", asked: "ab", entries: 1,
		},
		"it is recorded: nobody is asked": {
			given: func(b *bench) { b.record("me", "t1", "a") }, kind: owner, detail: "a", entries: 1,
		},
		"two backends know it: nothing is recorded": {
			given: func(b *bench) { b.knows("a", "t1"); b.knows("b", "t1") }, kind: ambiguous, detail: routes.CauseAmbiguous, asked: "ab",
		},
		"it is recorded twice: nobody is asked": {
			given: func(b *bench) { b.record("me", "t1", "a"); b.record("me", "t1", "b") },
			kind:  ambiguous, detail: routes.CauseAmbiguous, entries: 2,
		},
		"nobody knows it and one could not be asked: not a miss, and not remembered": {
			given: func(b *bench) { b.fails("a") }, kind: unavailable, detail: routes.CauseBackend, asked: "ab",
		},
		"one knows it and one could not be asked: it is claimed": {
			given: func(b *bench) { b.fails("a"); b.knows("b", "t1") }, kind: owner, detail: "b", asked: "ab", entries: 1,
		},
		"it is another's: its backend is not asked for it": {
			given: func(b *bench) { b.record("other", "t1", "a"); b.knows("a", "t1") },
			kind:  missed, detail: routes.CauseForeign, asked: "b", entries: 1, remembered: 1,
		},
		"it is another's at one backend, and another backend knows it too: each has its own": {
			given: func(b *bench) { b.record("other", "t1", "a"); b.knows("a", "t1"); b.knows("b", "t1") },
			kind:  owner, detail: "b", asked: "b", entries: 2,
		},
		"it is another's, and the other backend could not be asked": {
			given: func(b *bench) { b.record("other", "t1", "a"); b.fails("b") },
			kind:  unavailable, detail: routes.CauseBackend, asked: "b", entries: 1,
		},
		"it is the caller's own at a backend that left the host": {
			given: func(b *bench) { b.record("me", "t1", "gone") },
			kind:  missed, detail: routes.CauseRemoved, asked: "ab", entries: 1, remembered: 1,
		},
		"the host denies what is not recorded": {
			given: func(b *bench) { b.host.Tasks.Unrecorded = "deny"; b.knows("a", "t1") },
			kind:  missed, detail: routes.CauseDenied,
		},
		"the host shares what is not recorded": {
			given: func(b *bench) { b.host.Tasks.Unrecorded = "probe"; b.knows("a", "t1") },
			kind:  owner, detail: "a", asked: "ab", entries: 1,
		},
		"the host shares, but not what was minted for somebody": {
			given: func(b *bench) {
				b.host.Tasks.Unrecorded = "probe"
				b.record("other", "t1", "a")
				b.knows("a", "t1")
			},
			kind: missed, detail: routes.CauseForeign, asked: "b", entries: 1, remembered: 1,
		},
		"a backend that declares no tasks is not asked": {
			given: func(b *bench) {
				plain := b.host.Backends["a"]
				plain.Capabilities.Tasks = false
				b.host.Backends["a"] = plain
				b.knows("a", "t1")
			},
			kind: missed, detail: routes.CauseUnknown, asked: "b", remembered: 1,
		},
		"a backend of another era is not asked": {
			given: func(b *bench) { b.host.Backends["a"] = backendOf("2025-11-25"); b.knows("a", "t1") },
			kind:  missed, detail: routes.CauseUnknown, asked: "b", remembered: 1,
		},
		"the store is away": {
			given: func(b *bench) { b.SetDown(true) }, kind: unavailable, detail: routes.CauseStore,
		},
		"the store was away: what is not recorded may be on its way": {
			given: func(b *bench) { b.SetDown(true); b.SetDown(false); time.Sleep(9 * time.Second); b.knows("a", "t1") },
			kind:  unavailable, detail: routes.CauseRecovery,
		},
		"the store was away, and the task is another's: no difference": {
			given: func(b *bench) {
				b.record("other", "t1", "a")
				b.SetDown(true)
				b.SetDown(false)
			},
			kind: unavailable, detail: routes.CauseRecovery, entries: 1,
		},
		"the store was away, and the host denies what is not recorded": {
			given: func(b *bench) { b.host.Tasks.Unrecorded = "deny"; b.SetDown(true); b.SetDown(false) },
			kind:  unavailable, detail: routes.CauseRecovery,
		},
		"the store was away, and it is recorded": {
			given: func(b *bench) { b.record("me", "t1", "a"); b.SetDown(true); b.SetDown(false) },
			kind:  owner, detail: "a", entries: 1,
		},
		"the store was away ten seconds ago": {
			given: func(b *bench) { b.SetDown(true); b.SetDown(false); time.Sleep(10 * time.Second) },
			kind:  missed, detail: routes.CauseUnknown, asked: "ab", remembered: 1,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				tt.given(b)
				want(t, b.find("me", "t1"), tt.kind, tt.detail)
				asked := ""
				for _, id := range []routes.BackendID{"a", "b"} {
					if _, one := b.askedFor(id, "t1"); one == 1 {
						asked += string(id)
					} else if one > 1 {
						t.Errorf("%s was asked %d times", id, one)
					}
				}
				if asked != tt.asked {
					t.Errorf("asked %q for it, want %q", asked, tt.asked)
				}
				b.SetDown(false)
				if got := b.entries("t1"); got != tt.entries {
					t.Errorf("%d entries, want %d", got, tt.entries)
				}
				if got := b.l.misses.len(); got != tt.remembered {
					t.Errorf("%d misses are remembered, want %d", got, tt.remembered)
				}
			})
		})
	}
}

func TestAClaimIsRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.knows("a", "t1")
		first := b.find("me", "t1")
		want(t, first, owner, "a")
		if !first.Claimed || first.Owner.Source != routes.TaskClaimed || first.Owner.Life != routes.MinTaskLife {
			t.Errorf("claimed %+v", first.Owner)
		}
		second := b.find("me", "t1")
		want(t, second, owner, "a")
		if second.Claimed {
			t.Error("it was claimed twice")
		}
		if all, _ := b.askedFor("a", ""); all != 1 {
			t.Errorf("a was asked %d times, want once", all)
		}
		want(t, b.find("other", "t1"), missed, routes.CauseForeign)
		// Whoever it was made for has the better right.
		b.record("other", "t1", "a")
		want(t, b.find("other", "t1"), owner, "a")
		time.Sleep(missLife)
		want(t, b.find("me", "t1"), missed, routes.CauseForeign)
	})
}

func TestASharedTaskIsEverybodys(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.host.Tasks.Unrecorded = "probe"
		b.knows("a", "t1")
		for _, who := range []string{"me", "other"} {
			got := b.find(who, "t1")
			want(t, got, owner, "a")
			if got.Owner.Principal != routes.AnyPrincipal || got.Owner.Source != routes.TaskShared {
				t.Errorf("%s got %+v", who, got.Owner)
			}
		}
		if all, _ := b.askedFor("a", ""); all != 1 {
			t.Errorf("a was asked %d times, want once", all)
		}
		b.host.Tasks.Unrecorded = "claim" // what was shared is nobody's now
		want(t, b.find("me", "t1"), owner, "a")
	})
}

func TestTheEntryOfAMissIsReadAfterTheRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		want(t, b.find("me", "t1"), missed, routes.CauseUnknown)
		want(t, b.find("me", "t1"), missed, routes.CauseNegative)
		b.record("me", "t1", "a") // the backend used the id after all
		want(t, b.find("me", "t1"), owner, "a")
		want(t, b.find("other", "t1"), missed, routes.CauseForeign)
	})
}

func TestAMissIsRememberedForTenSeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for range 3 {
			want(t, b.find("me", "t1"), missed, routes.CauseUnknown)
			time.Sleep(missLife - time.Millisecond)
			want(t, b.find("me", "t1"), missed, routes.CauseNegative)
			time.Sleep(time.Millisecond)
		}
		if all, one := b.askedFor("a", "t1"); all != 3 || one != 3 {
			t.Errorf("a was asked %d times, %d for it, want 3", all, one)
		}
	})
}

// Where the tool that made a task is not known, a token must cover all tools.
func TestATokenForSomeToolsFindsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.knows("a", "t1")
		b.record("me", "own", "a") // by the tool "job"
		for scopes, wanted := range map[string]string{
			"mcp:tasks mcp:tools:job":       routes.CauseScope,
			"mcp:tasks":                     routes.CauseScope,
			"mcp:tasks mcp:tools:other_*":   routes.CauseScope,
			"mcp:tasks mcp:resources":       routes.CauseScope,
			"mcp:tasks mcp:tools:job_* mcp": routes.CauseScope,
		} {
			q := Query{Identity: caller("me", scopes), Host: b.host, TaskID: "t1", Era: wire.Modern}
			want(t, b.l.Ask(t.Context(), q), missed, wanted)
		}
		want(t, b.l.Ask(t.Context(), Query{Identity: caller("me", "mcp:tasks mcp:tools:job"), Host: b.host, TaskID: "own", Era: wire.Modern}),
			owner, "a")
		want(t, b.l.Ask(t.Context(), Query{Identity: caller("me", "mcp:tasks mcp:tools:x"), Host: b.host, TaskID: "own", Era: wire.Modern}),
			missed, routes.CauseScope)
		if all, _ := b.askedFor("a", ""); all != 0 {
			t.Errorf("a was asked %d times", all)
		}
		if b.entries("t1") != 0 {
			t.Error("it was claimed by somebody who can't follow it")
		}
	})
}

func TestLegacyClientsFindLegacyTasks(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.host.Backends["old"] = backendOf("2025-06-18") // has no tasks, whatever it declares
		b.host.Backends["legacy"] = backendOf("2025-11-25")
		b.knows("legacy", "t1")
		b.knows("old", "t1")
		want(t, b.find("me", "t1"), missed, routes.CauseUnknown) // as a modern client, of modern backends
		b.asked = map[routes.BackendID][]string{}
		b.knows("a", "t1")
		want(t, b.l.Locate(t.Context(), caller("me"), b.host, "t1", wire.Legacy), owner, "legacy")
		for _, id := range []routes.BackendID{"a", "b", "old"} {
			if all, _ := b.askedFor(id, ""); all != 0 {
				t.Errorf("%s was asked", id)
			}
		}
	})
}

func TestOneHungBackendCostsItsDeadlineAndNoMore(t *testing.T) {
	for sentence, tt := range map[string]struct {
		given  func(b *bench)
		kind   routes.LocateOutcome
		detail string
		took   time.Duration
	}{
		"for an unknown id": {func(*bench) {}, unavailable, routes.CauseBackend, probeTimeout},
		"for one that another backend knows": {
			func(b *bench) { b.knows("b", "t1") }, owner, "b", probeTimeout,
		},
		"for another's id at the hung one": {
			func(b *bench) { b.record("other", "t1", "a") }, unavailable, routes.CauseBackend, probeTimeout,
		},
		"for a recorded id": {func(b *bench) { b.record("me", "t1", "b") }, owner, "b", 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.says["a"] = func(ctx context.Context, _ string) reply { <-ctx.Done(); return reply{verdict: failed} }
				tt.given(b)
				for range 2 {
					began := time.Now()
					want(t, b.find("me", "t1"), tt.kind, tt.detail)
					if took := time.Since(began); took != tt.took && tt.kind != owner {
						t.Errorf("took %v, want %v", took, tt.took)
					}
				}
			})
		})
	}
}

// A backend that hangs holds so many looks and no more.
func TestLooksThatWaitForOneBackendAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var mu sync.Mutex
		running, most := 0, 0
		b.says["a"] = func(ctx context.Context, _ string) reply {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			running--
			mu.Unlock()
			return reply{verdict: failed}
		}
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() { want(t, b.find(fmt.Sprint("p", i), "t1"), unavailable, routes.CauseBackend) })
		}
		wg.Wait()
		if most != probesPerBackend {
			t.Errorf("%d looks waited at once, want %d", most, probesPerBackend)
		}
	})
}

// Questions for one task that come together are one question.
func TestOneFlight(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.says["a"] = func(context.Context, string) reply {
			time.Sleep(time.Second)
			return reply{known, routes.MinTaskLife}
		}
		claimed := make(chan bool, 50)
		for range cap(claimed) {
			go func() {
				out := b.find("me", "t1")
				want(t, out, owner, "a")
				claimed <- out.Claimed
			}()
		}
		left, leave := context.WithCancel(t.Context())
		gone := make(chan Outcome)
		synctest.Wait()
		go func() {
			gone <- b.l.Ask(left, Query{Identity: caller("me"), Host: b.host, TaskID: "t1", Era: wire.Modern})
		}()
		synctest.Wait()
		leave()
		want(t, <-gone, unavailable, routes.CauseCanceled)
		claims := 0
		for range cap(claimed) {
			if <-claimed {
				claims++
			}
		}
		if claims != 1 {
			t.Errorf("%d of them claimed it, want one", claims)
		}
		if all, _ := b.askedFor("a", ""); all != 1 {
			t.Errorf("a was asked %d times, want once", all)
		}
		if n := len(b.l.flights.running); n != 0 {
			t.Errorf("%d flights are left", n)
		}
	})
}

// Another token of the same principal may do less.
func TestAFlightIsNotSharedWithOtherScopes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.says["a"] = func(context.Context, string) reply {
			time.Sleep(time.Second)
			return reply{known, routes.MinTaskLife}
		}
		done := make(chan Outcome)
		go func() { done <- b.find("me", "t1") }()
		synctest.Wait()
		want(t, b.l.Ask(t.Context(), Query{Identity: caller("me", "mcp:tasks mcp:tools:x"), Host: b.host, TaskID: "t1", Era: wire.Modern}),
			missed, routes.CauseScope)
		want(t, <-done, owner, "a")
	})
}

// The caller leaves; what was begun is finished, and found the next time.
func TestALookOutlivesItsCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.says["a"] = func(ctx context.Context, _ string) reply {
			select {
			case <-ctx.Done():
				return reply{verdict: failed}
			case <-time.After(time.Second):
				return reply{known, routes.MinTaskLife}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		b.l.Ask(ctx, Query{Identity: caller("me"), Host: b.host, TaskID: "t1", Era: wire.Modern})
		if b.entries("t1") != 1 {
			t.Error("it was not claimed")
		}
	})
}

// Two principals ask two control planes for the same task at once: one has it, and the other learns nothing.
func TestTwoControlPlanesRaceForAClaim(t *testing.T) {
	for range 20 {
		inBubble(t, func(t *testing.T, b *bench) {
			b.knows("a", "t1")
			outs := make(chan Outcome, 2)
			for who, l := range map[string]*Locator{"me": b.l, "other": b.another()} {
				go func() {
					outs <- l.Ask(t.Context(), Query{Identity: caller(who), Host: b.host, TaskID: "t1", Era: wire.Modern})
				}()
			}
			got := map[routes.LocateOutcome]int{}
			for range 2 {
				got[(<-outs).Kind]++
			}
			if diff := cmp.Diff(map[routes.LocateOutcome]int{owner: 1, missed: 1}, got); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			if n := b.entries("t1"); n != 1 {
				t.Errorf("%d entries, want one", n)
			}
		})
	}
}

func TestAClaimThatCantBeWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.says["a"] = func(context.Context, string) reply { b.SetDown(true); return reply{known, routes.MinTaskLife} }
		want(t, b.find("me", "t1"), unavailable, routes.CauseStore)
	})
	inBubble(t, func(t *testing.T, b *bench) {
		b.claimErr = routes.ErrTooManyTasks
		b.knows("a", "t1")
		want(t, b.find("me", "t1"), unavailable, routes.CauseTooMany)
	})
}

// Every miss and every claim has its line, which never tells the id.
func TestAudit(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.knows("a", "claimed-id")
		b.record("other", "foreign-id", "a")
		for _, id := range []string{"claimed-id", "claimed-id", "foreign-id", "foreign-id", "unknown-id"} {
			b.l.Ask(t.Context(), Query{Identity: caller("me"), Host: b.host, TaskID: id, Era: wire.Modern, Method: "tasks/cancel", RequestID: "r7"})
		}
		var got []map[string]any
		for _, e := range b.audit.All() {
			if e.Message != e.ContextMap()["event"] {
				t.Errorf("message %q of event %v", e.Message, e.ContextMap()["event"])
			}
			got = append(got, e.ContextMap())
		}
		line := func(event, id string, more map[string]any) map[string]any {
			fields := map[string]any{"event": event, "host": "acme", "principal": "me", "task": routes.TaskDigest(id),
				"method": "tasks/cancel", "request_id": "r7"}
			for name, v := range more {
				fields[name] = v
			}
			return fields
		}
		wanted := []map[string]any{
			line("task_claimed", "claimed-id", map[string]any{"backend": "a", "source": "claim"}),
			line("task_miss", "foreign-id", map[string]any{"cause": routes.CauseForeign, "foreign": true}),
			line("task_miss", "foreign-id", map[string]any{"cause": routes.CauseNegative, "foreign": true}),
			line("task_miss", "unknown-id", map[string]any{"cause": routes.CauseUnknown, "foreign": false}),
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("audit (-want +got):\n%s", diff)
		}
	})
}
