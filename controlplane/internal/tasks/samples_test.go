package tasks

import (
	"testing"
	"time"
)

// On a busy machine a timer is late, and a sample must not be longer by that than what it stands for.
func TestLatenessIsThatOfTheLastTimers(t *testing.T) {
	p := newPeers()
	if p.lateness() != 0 {
		t.Errorf("before any timer: %v", p.lateness())
	}
	for range 200 {
		p.woken(8 * time.Millisecond)
	}
	if got := p.lateness(); got < 7*time.Millisecond || got > 8*time.Millisecond {
		t.Errorf("after many that were 8 ms late: %v", got)
	}
	for range 200 {
		p.woken(0)
	}
	if got := p.lateness(); got > time.Millisecond {
		t.Errorf("after many that were not late: %v", got)
	}
}
