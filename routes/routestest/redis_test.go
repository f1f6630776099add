package routestest_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/routes/routestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestARedisKeepsItsDataIfItWasAskedTo(t *testing.T) {
	for name, tt := range map[string]struct {
		options routestest.RedisOptions
		wipe    bool
		want    string
	}{
		"append only":            {routestest.RedisOptions{AppendOnly: true}, false, "v"},
		"append only, and wiped": {routestest.RedisOptions{AppendOnly: true}, true, ""},
		"in memory":              {routestest.RedisOptions{}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := routestest.StartRedis(t, tt.options)
			r.Do("SET", "k", "v")
			pid, addr := r.PID(), r.Addr()
			r.Kill()
			if err := syscall.Kill(pid, 0); err == nil || r.PID() != 0 {
				t.Errorf("process %d runs after Kill", pid)
			}
			if tt.wipe {
				r.Wipe()
			}
			r.Restart()
			if got := r.Do("GET", "k"); got != tt.want {
				t.Errorf("k is %q, want %q", got, tt.want)
			}
			if r.Addr() != addr || r.PID() == pid {
				t.Errorf("restarted at %s as %d, was at %s as %d", r.Addr(), r.PID(), addr, pid)
			}
			r.Stop()
			r.Restart()
		})
	}
}

func TestMiniredisForgetsWithTheClock(t *testing.T) {
	m := routestest.StartMiniredis(t)
	if err := m.Set("k", "v"); err != nil {
		t.Fatal(err)
	}
	m.SetTTL("k", 50*time.Millisecond)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for late := time.After(20 * time.Second); m.Exists("k"); {
		select {
		case <-late:
			t.Fatal("the key did not expire")
		case <-poll.C:
		}
	}
}

// TestNeedsRedis is what the next test runs in a process of its own.
func TestNeedsRedis(t *testing.T) { routestest.StartRedis(t, routestest.RedisOptions{}) }

func TestWithoutRedisATestIsSkippedOrFailsAsAsked(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		require string
		says    string
		fails   bool
	}{
		"skipped": {"", "--- SKIP: TestNeedsRedis", false},
		"failed":  {"1", "--- FAIL: TestNeedsRedis", true},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(self, "-test.run=^TestNeedsRedis$", "-test.v")
			cmd.Env = append(os.Environ(), "PATH=/nonexistent", "WEIR_REQUIRE_REDIS="+tt.require)
			out, err := cmd.CombinedOutput()
			if !strings.Contains(string(out), tt.says) || !strings.Contains(string(out), "no redis-server on PATH") || (err != nil) != tt.fails {
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
}
