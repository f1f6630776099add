package main

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHammerCountsAnswersOnly(t *testing.T) {
	srv := httptest.NewServer(modernBackend(false))
	defer srv.Close()
	addr := srv.Listener.Addr().String()
	req := request(addr, "/mcp", "", "2026-07-28", "echo", "xxxx")
	s, err := hammer(t.Context(), addr, req, `"text":"xxxx"`, 2, 50*time.Millisecond)
	if err != nil || s.calls == 0 || len(s.latencies) != s.calls {
		t.Errorf("%d calls, %d latencies, %v", s.calls, len(s.latencies), err)
	}
	if _, err := hammer(t.Context(), addr, req, "something else", 1, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "status 200") {
		t.Errorf("a wrong answer was counted: %v", err)
	}
}

func TestQuantiles(t *testing.T) {
	s := sample{latencies: []time.Duration{4, 1, 3, 2}}
	if got := s.quantile(.5); got != 3 {
		t.Errorf("median = %v, want 3", got)
	}
	if got := s.quantile(1); got != 4 {
		t.Errorf("maximum = %v, want 4", got)
	}
	if got := (&sample{}).quantile(.99); got != 0 {
		t.Errorf("of nothing = %v, want 0", got)
	}
}
