package routestest

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// startPatience bounds how long a server may take to answer; CI machines are slow.
const startPatience = 20 * time.Second

// miniredisTick is how often miniredis' TTLs move on.
const miniredisTick = 20 * time.Millisecond

// StartMiniredis starts a miniredis whose TTLs run with the clock, and closes it when the test ends. (Its own ClockTTL looks at
// every key at every command: a thousand hosts take seconds then.)
func StartMiniredis(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.RunT(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(miniredisTick)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-stop:
				return
			case now := <-tick.C:
				m.FastForward(now.Sub(last))
				last = now
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return m
}

// RedisOptions of a real server. The zero value keeps nothing on disk.
type RedisOptions struct {
	// Dir is where it keeps its data; empty: a directory that goes with the test.
	Dir string
	// AppendOnly makes it keep its data over Kill and Restart: all that it acknowledged, since it writes through. (With Redis'
	// default, everysec, a slow disk postpones writes, and a kill loses them.)
	AppendOnly bool
	// Config is the text of its config file; empty: it has none. A sentinel needs one, to write to.
	Config string
	// Args follow the others on its command line: "--maxmemory", "1mb".
	Args []string
}

// RedisServer is a redis-server process on a free loopback port, which stays the same over restarts. Its methods fail the test
// where they can't do what they say. Not safe for concurrent use.
type RedisServer struct {
	t    testing.TB
	o    RedisOptions
	port int
	run  *redisProcess // nil: not running
}

// StartRedis starts a redis-server that ends with the test, by SIGKILL. Where there is none on PATH the test is skipped, or
// fails if WEIR_REQUIRE_REDIS is 1.
func StartRedis(t testing.TB, o RedisOptions) *RedisServer {
	t.Helper()
	needRedis(t)
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	r := &RedisServer{t: t, o: o}
	t.Cleanup(func() {
		if r.run != nil {
			r.Kill()
		}
	})
	for range 5 { // somebody else may take the port before the server does
		r.port = freePort(t)
		if r.start() {
			return r
		}
	}
	t.Fatal("redis-server found no free port")
	return nil
}

func needRedis(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err == nil {
		return
	}
	if os.Getenv("WEIR_REQUIRE_REDIS") == "1" {
		t.Fatal("WEIR_REQUIRE_REDIS=1, and no redis-server on PATH")
	}
	t.Skip("no redis-server on PATH: not tested on a real Redis")
}

// Addr returns host:port.
func (r *RedisServer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// URL returns redis://host:port/0.
func (r *RedisServer) URL() string { return "redis://" + r.Addr() + "/0" }

// PID returns the process's id; 0 while it does not run.
func (r *RedisServer) PID() int {
	if r.run == nil {
		return 0
	}
	return r.run.pid
}

// Kill ends the process by SIGKILL and waits for its end.
func (r *RedisServer) Kill() { r.t.Helper(); r.end(syscall.SIGKILL) }

// Stop ends the process by SIGTERM, as an operator would, and waits for its end.
func (r *RedisServer) Stop() { r.t.Helper(); r.end(syscall.SIGTERM) }

// Pause stops the process (SIGSTOP): its connections stay open and nothing answers. Resume lets it go on.
func (r *RedisServer) Pause() { r.t.Helper(); r.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (r *RedisServer) Resume() { r.t.Helper(); r.signal(syscall.SIGCONT) }

// Restart starts the process again, on the same port, with what its directory holds; it is ended first if it runs.
func (r *RedisServer) Restart() {
	r.t.Helper()
	if r.run != nil {
		r.Kill()
	}
	if !r.start() {
		r.t.Fatalf("redis-server did not come back on %s", r.Addr())
	}
}

// Wipe removes the data of a server that does not run.
func (r *RedisServer) Wipe() {
	r.t.Helper()
	if r.run != nil {
		r.t.Fatal("Wipe: redis-server runs")
	}
	entries, err := os.ReadDir(r.o.Dir)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(r.o.Dir, e.Name())); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *RedisServer) signal(s syscall.Signal) {
	r.t.Helper()
	if r.run == nil {
		r.t.Fatalf("redis-server does not run: can't send %v", s)
	}
	if err := syscall.Kill(r.run.pid, s); err != nil {
		r.t.Fatalf("send %v to redis-server: %v", s, err)
	}
}

func (r *RedisServer) end(s syscall.Signal) {
	r.t.Helper()
	r.signal(s)
	<-r.run.ended
	r.run = nil
}

// start returns false if the port was taken.
func (r *RedisServer) start() bool {
	r.t.Helper()
	appendOnly := "no"
	if r.o.AppendOnly {
		appendOnly = "yes"
	}
	args := append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(r.port), "--dir", r.o.Dir, "--daemonize", "no",
		"--loglevel", "warning", "--save", "", "--appendonly", appendOnly, "--appendfsync", "always"}, r.o.Args...)
	if r.o.Config != "" {
		file := filepath.Join(r.o.Dir, "redis.conf")
		if err := os.WriteFile(file, []byte(r.o.Config), 0o600); err != nil {
			r.t.Fatal(err)
		}
		args = append([]string{file}, args...)
	}
	run, err := startProcess("redis-server", args)
	if err != nil {
		r.t.Fatalf("start redis-server: %v", err)
	}
	if r.answers(run) {
		r.run = run
		return true
	}
	syscall.Kill(run.pid, syscall.SIGKILL) // in vain if it has ended
	<-run.ended
	if log := run.log(); !strings.Contains(log, "Address already in use") {
		r.t.Fatalf("redis-server did not start:\n%s", log)
	}
	return false
}

// answers waits until the server does.
func (r *RedisServer) answers(run *redisProcess) bool {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	for {
		if ping(r.Addr()) == nil {
			select {
			case <-run.ended: // it was somebody else who answered
				return false
			default:
				return true
			}
		}
		select {
		case <-run.ended:
			return false
		case <-patience.C:
			return false
		case <-poll.C:
		}
	}
}

// ping asks without any library's retries. A server that wants a password answers, too.
func ping(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(line, "+PONG"), strings.HasPrefix(line, "-NOAUTH"):
		return nil
	}
	return fmt.Errorf("answered %q", line)
}

// freePort returns one that was free a moment ago.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// redisProcess is one run of a server.
type redisProcess struct {
	pid   int
	ended chan struct{} // closed when it was waited for

	mu  sync.Mutex // guards out
	out bytes.Buffer
}

// startProcess starts a program that dies with us. The kernel ties that to the thread that started it, so one goroutine keeps
// the thread until the program has ended.
func startProcess(name string, args []string) (*redisProcess, error) {
	p := &redisProcess{ended: make(chan struct{})}
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = p, p, dieWithParent()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		_ = cmd.Wait() // killed, as a rule
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Write keeps what the program prints.
func (p *redisProcess) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *redisProcess) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}
