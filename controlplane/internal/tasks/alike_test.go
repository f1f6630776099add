package tasks

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// distance is the two-sample Kolmogorov-Smirnov statistic: how far two distributions are apart at most, from 0 to 1.
func distance(a, b []time.Duration) float64 {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	most := 0.0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		at := min(a[i], b[j])
		for i < len(a) && a[i] == at {
			i++
		}
		for j < len(b) && b[j] == at {
			j++
		}
		most = max(most, math.Abs(float64(i)/float64(len(a))-float64(j)/float64(len(b))))
	}
	return most
}

// critical is the distance that samples of one distribution exceed once in 10⁷ times.
func critical(n, m int) float64 {
	return math.Sqrt(-math.Log(1e-7/2)/2) * math.Sqrt(float64(n+m)/float64(n*m))
}

// slow answers after some milliseconds, now and then after half a second.
func slow(r *rand.Rand) time.Duration {
	took := 3*time.Millisecond + time.Duration(r.ExpFloat64()*float64(20*time.Millisecond))
	if r.IntN(50) == 0 {
		took += time.Duration(r.IntN(500)) * time.Millisecond
	}
	return took
}

const uuidLength = 36

func newUUID(r *rand.Rand) string {
	x, y := r.Uint64(), r.Uint64()
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", uint32(x>>32), uint16(x>>16), uint16(x), uint16(y>>48), y&(1<<48-1))
}

// measured is what a client sees of one kind of id.
type measured struct {
	took     []time.Duration
	outcomes map[routes.LocateOutcome]int
}

// An attacker asks for ids that are somebody else's and for ids that nobody has, in turn, and measures.
func TestForeignAndUnknownIDsTakeAlike(t *testing.T) {
	const each = 1000
	for sentence, tt := range map[string]struct {
		pause time.Duration // at most, between questions
		says  func(r *rand.Rand) func(context.Context, string) reply
		extra func(b *bench, i int) // before each question
	}{
		"one after the other": {
			pause: 100 * time.Millisecond,
			says: func(r *rand.Rand) func(context.Context, string) reply {
				return func(context.Context, string) reply { time.Sleep(slow(r)); return reply{} }
			},
		},
		"seldom": {
			pause: 10 * time.Second,
			says: func(r *rand.Rand) func(context.Context, string) reply {
				return func(context.Context, string) reply { time.Sleep(slow(r)); return reply{} }
			},
		},
		"among ids of a form that the backend refuses at once": {
			pause: 100 * time.Millisecond,
			says: func(r *rand.Rand) func(context.Context, string) reply {
				return func(_ context.Context, id string) reply {
					if len(id) == uuidLength {
						time.Sleep(slow(r))
					}
					return reply{}
				}
			},
			extra: func(b *bench, i int) {
				for n := range 3 {
					b.find(fmt.Sprint("junk", i, n), fmt.Sprint("x", i, n))
				}
			},
		},
		"before a backend that fails every third time": {
			pause: 300 * time.Millisecond,
			says: func(r *rand.Rand) func(context.Context, string) reply {
				return func(context.Context, string) reply {
					if r.IntN(3) == 0 {
						time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
						return reply{verdict: failed}
					}
					time.Sleep(slow(r))
					return reply{}
				}
			},
		},
		"after a pause, when connections have to be made anew": {
			pause: time.Second,
			says: func(r *rand.Rand) func(context.Context, string) reply {
				var last time.Time
				return func(context.Context, string) reply {
					if time.Since(last) > 4*time.Second {
						time.Sleep(30 * time.Millisecond)
					}
					time.Sleep(slow(r))
					last = time.Now()
					return reply{}
				}
			},
			extra: func(b *bench, i int) {
				r := rand.New(rand.NewPCG(7, uint64(i)))
				for n := range 5 {
					b.find(fmt.Sprint("junk", i, n), newUUID(r))
				}
				time.Sleep(6 * time.Second)
			},
		},
		"before a backend that is slow by the minute": {
			pause: 500 * time.Millisecond,
			says: func(r *rand.Rand) func(context.Context, string) reply {
				began := time.Now()
				return func(context.Context, string) reply {
					if int(time.Since(began).Minutes())%2 == 1 {
						time.Sleep(200 * time.Millisecond)
					}
					time.Sleep(slow(r))
					return reply{}
				}
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				r := rand.New(rand.NewPCG(1, 2))
				delete(b.host.Backends, "b") // so that nothing blurs what is measured
				b.says["a"] = tt.says(rand.New(rand.NewPCG(3, 4)))
				got := map[bool]*measured{}
				for _, foreign := range []bool{false, true} {
					got[foreign] = &measured{outcomes: map[routes.LocateOutcome]int{}}
				}
				for i := range 2 * each {
					id, foreign := newUUID(r), r.IntN(2) == 0
					if foreign {
						b.record("other", id, "a")
					}
					if tt.extra != nil {
						tt.extra(b, i)
					}
					began := time.Now()
					out := b.l.Ask(t.Context(), Query{Identity: caller(fmt.Sprint("p", i)), Host: b.host, TaskID: id, Era: wire.Modern})
					m := got[foreign]
					m.took = append(m.took, time.Since(began))
					m.outcomes[out.Kind]++
					time.Sleep(time.Duration(r.Int64N(int64(tt.pause))))
				}
				unknown, foreign := got[false], got[true]
				d, most := distance(unknown.took, foreign.took), critical(len(unknown.took), len(foreign.took))
				t.Logf("distance %.3f of %d unknown and %d foreign ids; %.3f would be a difference", d, len(unknown.took), len(foreign.took), most)
				if d > most {
					t.Errorf("the delays differ: distance %.3f, want under %.3f", d, most)
				}
				if len(unknown.outcomes) != len(foreign.outcomes) {
					t.Errorf("outcomes %v of unknown ids, %v of foreign ones", unknown.outcomes, foreign.outcomes)
				}
				p, q := share(unknown), share(foreign)
				if sigma := math.Sqrt(3 * (p*(1-p) + q*(1-q)) / each); math.Abs(p-q) > 5.5*sigma {
					t.Errorf("%.1f %% of unknown ids are a miss and %.1f %% of foreign ones", 100*p, 100*q)
				}
			})
		})
	}
}

func share(m *measured) float64 { return float64(m.outcomes[missed]) / float64(len(m.took)) }

// What the test above would see if foreign ids were answered at once, or by a delay of another distribution.
func TestTheMeasureSeesADifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 6))
		var as, longer, same, none []time.Duration
		for range 1000 {
			as, same = append(as, slow(r)), append(same, slow(r))
			longer = append(longer, slow(r)+6*time.Millisecond)
			none = append(none, 0)
		}
		most := critical(1000, 1000)
		if d := distance(as, same); d > most {
			t.Errorf("the same distribution: distance %.3f, over %.3f", d, most)
		}
		for what, other := range map[string][]time.Duration{"six milliseconds more": longer, "no delay": none} {
			if d := distance(as, other); d <= most {
				t.Errorf("%s: distance %.3f is not over %.3f", what, d, most)
			}
		}
	})
}
