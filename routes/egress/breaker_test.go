package egress

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

var (
	fConnect  = &Failure{Reason: ReasonUnreachable}
	fTimeout  = &Failure{Reason: ReasonTimeout}
	f500      = &Failure{Reason: ReasonBadResponse, Status: 500}
	f503      = &Failure{Reason: ReasonOverloaded, Status: 503}
	fBroken   = &Failure{Reason: ReasonBadResponse, Status: 200}
	fReset    = &Failure{Reason: ReasonReset}
	f401      = &Failure{Reason: ReasonAuthFailed, Status: 401}
	f429      = &Failure{Reason: ReasonRateLimited, Status: 429}
	f404      = &Failure{Reason: ReasonBadResponse, Status: 404}
	fCanceled = &Failure{Reason: ReasonCanceled}
	fTooLarge = &Failure{Reason: ReasonTooLarge, Status: 200}
)

func TestBreakerTrips(t *testing.T) {
	// A step is n calls of one principal with one outcome; then time passes.
	type step struct {
		n    int
		who  string
		err  error
		wait time.Duration
	}
	for name, tt := range map[string]struct {
		steps []step
		open  bool
	}{
		"20 failures of two principals":            {[]step{{10, "a", f500, 0}, {10, "b", fReset, 0}}, true},
		"20 failures of one":                       {[]step{{40, "a", f500, 0}}, false},
		"one principal's failures and another's":   {[]step{{40, "a", fBroken, 0}, {1, "b", f503, 0}}, true},
		"connect errors trip alone":                {[]step{{20, "a", fConnect, 0}}, true},
		"too few":                                  {[]step{{9, "a", fConnect, 0}, {10, "b", fConnect, 0}}, false},
		"60 % failed":                              {[]step{{8, "c", nil, 0}, {6, "a", f500, 0}, {6, "b", fTimeout, 0}}, true},
		"under 60 %":                               {[]step{{20, "c", nil, 0}, {10, "a", f500, 0}, {15, "b", fTimeout, 0}}, false},
		"connect errors under 60 %, one principal": {[]step{{10, "a", f500, 0}, {10, "a", fConnect, 0}}, false},
		"not within the window":                    {[]step{{10, "a", f500, 11 * time.Second}, {10, "b", f500, 0}}, false},
		"the second principal failed long ago":     {[]step{{1, "b", f500, 11 * time.Second}, {30, "a", f500, 0}}, false},
		"what never counts": {[]step{
			{20, "a", f401, 0}, {20, "b", f401, 0}, {20, "a", f429, 0}, {20, "b", f404, 0}, {20, "c", fCanceled, 0}, {20, "d", fTooLarge, 0},
			{20, "e", &RPCError{Code: -1}, 0},
		}, false},
		"cancelled calls do not dilute": {[]step{{100, "c", fCanceled, 0}, {10, "a", f500, 0}, {10, "b", f500, 0}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker("x", BreakerOptions{})
				for _, s := range tt.steps {
					for range s.n {
						p, err := b.allow(s.who)
						if err != nil {
							if !tt.open {
								t.Fatalf("refused: %v", err)
							}
							return
						}
						p.ended(s.err)
						p.ended(f500) // an outcome counts once
					}
					time.Sleep(s.wait)
				}
				_, err := b.allow("z")
				if f, ok := errors.AsType[*Failure](err); (err != nil) != tt.open || tt.open && (!ok || f.Reason != ReasonCircuitOpen || f.Sent || f.RetryAfter != 5*time.Second) {
					t.Errorf("refuses: %v, want %t", err, tt.open)
				}
			})
		})
	}
}

// A response timeout is longer than the window: such failures count when they happen.
func TestBreakerCountsSlowFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker("x", BreakerOptions{})
		var calls []*permit
		for i := range 20 {
			p, err := b.allow([]string{"a", "b"}[i%2])
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, p)
		}
		time.Sleep(time.Minute)
		for _, p := range calls {
			p.ended(fTimeout)
		}
		if _, err := b.allow("a"); err == nil {
			t.Error("20 timeouts of two principals did not open it")
		}
	})
}

func TestBreakerRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var states []string
		b := newBreaker("x", BreakerOptions{OnChange: func(id routes.BackendID, s string) { states = append(states, string(id)+" "+s) }})
		trip := func() {
			for i := range 20 {
				if p, err := b.allow([]string{"a", "b"}[i%2]); err == nil {
					p.ended(f500)
				}
			}
		}
		trip()
		time.Sleep(5*time.Second + time.Millisecond)
		// Half-open: three calls may show whether it is back; a stream does by its beginning.
		var streams []*permit
		for range 3 {
			p, err := b.allow("a")
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, p)
		}
		if _, err := b.allow("a"); err == nil {
			t.Error("a fourth call was let through")
		}
		for _, p := range streams {
			p.streaming()
		}
		if _, err := b.allow("a"); err != nil {
			t.Errorf("three streams began, but %v", err)
		}
		for _, p := range streams {
			p.ended(f500) // long after: told already
		}
		trip()
		time.Sleep(5*time.Second + time.Millisecond)
		p, _ := b.allow("a")
		p.abandoned() // says nothing
		p, err := b.allow("a")
		if err != nil {
			t.Fatal(err)
		}
		p.ended(fTimeout)
		if _, err := b.allow("a"); err == nil {
			t.Error("a failed probe did not open it again")
		}
		want := []string{"x open", "x half-open", "x closed", "x open", "x half-open", "x open"}
		if diff := cmp.Diff(want, states); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	})
}

func TestBreakerGuardsCalls(t *testing.T) {
	var mu sync.Mutex
	status, calls := http.StatusInternalServerError, 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		calls++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write([]byte(okDoc))
	}))
	defer srv.Close()
	c := newClient(t, Options{Breaker: &BreakerOptions{MinCalls: 4, Open: time.Hour}})
	for i := range 4 {
		call := simpleCall(srv.URL)
		call.Principal = []string{"a", "b"}[i%2]
		if f := failure(t, c, call); f.Status != 500 {
			t.Fatal(f)
		}
	}
	mu.Lock()
	status = http.StatusOK
	mu.Unlock()
	if f := failure(t, c, simpleCall(srv.URL)); f.Reason != ReasonCircuitOpen || f.Sent {
		t.Errorf("open circuit: %v", f)
	}
	probe := simpleCall(srv.URL)
	probe.Probe = true
	if _, _, err := collect(t, c, probe); err != nil {
		t.Errorf("a probe: %v", err)
	}
	other := simpleCall(srv.URL)
	other.ID = "other"
	if _, _, err := collect(t, c, other); err != nil {
		t.Errorf("another backend: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if calls != 6 {
		t.Errorf("%d calls arrived, want 6", calls)
	}
}
