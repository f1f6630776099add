package e2e

import (
	crand "crypto/rand"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What one principal's unknown ids may cost each backend: as docs/tasks.md says, so many at once, then so many a second.
const (
	probeBurst   = 10
	probesSecond = 1
)

// 10,000 ids that nobody knows, from one principal: each is a miss, and the backends are asked no more than the budget allows.
func TestJunkCostsTheBackendsTheBudget(t *testing.T) {
	t.Parallel()
	junk := 10_000
	if testing.Short() {
		junk = 1000
	}
	p := newTaskPair(t, "")
	began := time.Now()
	var wg sync.WaitGroup
	var next, failed atomic.Int64
	for worker := range 8 {
		c := p.as(t, "mallory", worker%2, modernVersion)
		wg.Go(func() {
			for n := next.Add(1); n <= int64(junk) && failed.Load() == 0; n = next.Add(1) {
				method := followUps(modernVersion)[n%3]
				if err := c.refused(method, taskParams(fmt.Sprintf("junk-%d", n), `,"inputResponses":{}`), -32602, ""); err != nil {
					t.Error(err)
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	budget := probeBurst + int(math.Ceil(took.Seconds()))*probesSecond
	for _, b := range []*taskBackend{p.alpha, p.beta} {
		asked := len(b.asked("tasks/get", ""))
		t.Logf("%d ids in %v: %s was asked %d times, the budget is %d", junk, took.Round(time.Millisecond), b.name, asked, budget)
		if asked > budget {
			t.Errorf("%s was asked %d times, the budget is %d", b.name, asked, budget)
		}
		if asked == 0 {
			t.Errorf("%s was never asked: nothing was looked for", b.name)
		}
	}
	for _, b := range p.backends() {
		for _, method := range []string{"tasks/update", "tasks/cancel"} {
			if n := len(b.asked(method, "")); n != 0 {
				t.Errorf("%s saw %d %s", b.name, n, method)
			}
		}
	}
	// Others have a budget of their own, and the backends' circuits are closed.
	p.beta.set(func(b *taskBackend) { b.tasks["found"] = &madeTask{id: "found", status: "working", ttl: "null"} })
	if err := p.as(t, "alice", 0, modernVersion).get("found", "working"); err != nil {
		t.Error(err)
	}
}

// How long it takes to hear that a task is another's, and that there is none: over many samples of both, one after the other, nobody
// can tell which is which. The measure is how often a foreign id took longer than an unknown one (the statistic of Mann and Whitney):
// one half if they are alike. Half of 200 samples has a standard deviation of 0.029; the bounds are five of them, and what the
// measure says of an own id shows that it would see a difference.
//
// Other tests would disturb it: it is not parallel.
func TestADenialTakesAsLongAsAMiss(t *testing.T) {
	const (
		samples      = 200
		perPrincipal = probeBurst / 2 // of each kind: the budget lets no more through
		low, high    = 0.355, 0.645
	)
	p := newTaskPair(t, "")
	// Unknown ids take the backends a time of their own, as they do in life.
	for n, b := range p.backends() {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		var mu sync.Mutex
		b.set(func(b *taskBackend) {
			b.slow = func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return 2*time.Millisecond + time.Duration(rng.ExpFloat64()*float64(4*time.Millisecond))
			}
		})
	}
	for _, version := range []string{modernVersion, legacyVersion} {
		t.Run(version, func(t *testing.T) {
			owner := p.as(t, "alice", 0, version)
			foreign := make([]string, samples)
			for i := range foreign {
				foreign[i] = owner.start(t, taskTools[version], `{}`)
			}
			took := map[string][]float64{}
			for i := range samples {
				c := p.as(t, fmt.Sprintf("stranger-%s-%d", version, i/perPrincipal), i%2, version)
				method := followUps(version)[i%3]
				kinds := []string{"foreign", "unknown"}
				if i%2 == 0 {
					slices.Reverse(kinds)
				}
				pair := map[string]float64{}
				for _, kind := range kinds {
					id := map[string]string{"foreign": foreign[i], "unknown": crand.Text()}[kind] // of the same form
					if took, ok := timed(t, c, method, id); ok {
						pair[kind] = took
					}
				}
				if len(pair) < len(kinds) {
					continue
				}
				// A look at an own task, to see what a difference looks like: it takes one request to one backend, but no way round.
				began := time.Now()
				if err := owner.get(foreign[i], "working"); err != nil {
					t.Fatal(err)
				}
				pair["own"] = ms(time.Since(began))
				for kind, d := range pair {
					took[kind] = append(took[kind], d)
				}
			}
			if n := len(took["own"]); n < samples/2 {
				t.Fatalf("only %d samples could be taken", n)
			}
			auc, control := longer(took["foreign"], took["unknown"]), longer(took["own"], took["unknown"])
			t.Logf("%s: medians: foreign %.2f ms, unknown %.2f ms, own %.2f ms; foreign took longer in %.3f of the pairs, own in %.3f",
				version, median(took["foreign"]), median(took["unknown"]), median(took["own"]), auc, control)
			if auc < low || auc > high {
				t.Errorf("a foreign id took longer than an unknown one in %.3f of the pairs, want between %.3f and %.3f", auc, low, high)
			}
			if control > 0.42 && version == modernVersion { // two backends are asked there, so that the difference is large
				t.Errorf("an own task took longer in %.3f of the pairs: the measure sees no difference where there is one", control)
			}
		})
	}
}

// timed is how long a miss takes, in ms. Where it can't be told whose task it is, which a busy machine's Redis may cause, it waits until
// it can be told again.
func timed(t *testing.T, c taskClient, method, id string) (took float64, ok bool) {
	t.Helper()
	params := taskParams(id, `,"inputResponses":{}`)
	began := time.Now()
	a, err := c.call("1", method, params)
	took = ms(time.Since(began))
	if err == nil && reasonOf(a.rpc.Error) == "unavailable" {
		a, err = c.steady(method, params)
	} else {
		ok = true
	}
	if err != nil || a.rpc.Error == nil || a.rpc.Error.Code != -32602 {
		t.Fatalf("%s: %+v, %v; want a miss", method, a, err)
	}
	return took, ok
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// longer is the share of pairs in which the first is larger; equal ones count half.
func longer(a, b []float64) float64 {
	var n float64
	for _, x := range a {
		for _, y := range b {
			switch {
			case x > y:
				n++
			case x == y:
				n += 0.5
			}
		}
	}
	return n / float64(len(a)*len(b))
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
