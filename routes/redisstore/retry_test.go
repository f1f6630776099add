package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/redisstore"
	"github.com/weir-mcp/weir/routes/routestest"
)

// lossy is the way to a Redis that does what it is told and whose answer gets lost, once each time it is armed.
type lossy struct {
	addr  string
	armed atomic.Bool
	lost  atomic.Int64
}

func (l *lossy) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, l.addr)
	return &lossyConn{Conn: c, way: l}, err
}

func (l *lossy) client(t *testing.T) redis.UniversalClient {
	c := redis.NewClient(&redis.Options{Dialer: l.dial, MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1})
	t.Cleanup(func() { c.Close() })
	return c
}

type lossyConn struct {
	net.Conn
	way    *lossy
	script atomic.Bool
}

func (c *lossyConn) Write(b []byte) (int, error) {
	c.script.Store(bytes.Contains(b, []byte("evalsha")))
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.script.Load() && c.way.armed.CompareAndSwap(true, false) {
		c.way.lost.Add(1)
		c.Close()
		return 0, io.EOF
	}
	return n, err
}

func TestAnOperationWhoseAnswerIsLostHappensOnce(t *testing.T) {
	m := routestest.StartMiniredis(t)
	way := &lossy{addr: m.Addr()}
	w := newWriter(t, way.client(t))
	r := newReader(t, open(t, redisstore.Config{URL: "redis://" + m.Addr()}))
	ctx := t.Context()
	lose := func(what string, do func() error) {
		t.Helper()
		before := way.lost.Load()
		way.armed.Store(true)
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if way.lost.Load() != before+1 {
			t.Errorf("%s: its answer was not lost; the test shows nothing", what)
		}
	}
	// Redis knows the scripts from here on, so that the lost answer is the script's own.
	first, err := w.Acquire(ctx, "one", leaseTTL, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Publish(ctx, first, routes.Batch{Hosts: []routes.HostChange{routestest.Removal("z", 1)}}),
		w.Renew(ctx, first, leaseTTL), w.MarkComplete(ctx, first), w.Release(ctx, first)); err != nil {
		t.Fatal(err)
	}

	var l routes.Lease
	lose("Acquire", func() (err error) { l, err = w.Acquire(ctx, "one", leaseTTL, 0); return err })
	owner, epoch, err := r.Leader(ctx)
	if owner != "one" || epoch != l.Epoch || err != nil {
		t.Errorf("Leader = %q, %d, %v; want one, %d", owner, epoch, err, l.Epoch)
	}
	batch := routes.Batch{Hosts: []routes.HostChange{
		routestest.Host("a").Tool("x", "b", "x").Change(t, l, 1), routestest.Removal("b", 1),
	}}
	lose("Publish", func() error { return w.Publish(ctx, l, batch) })
	if meta, err := r.Meta(ctx); meta.Sequence != 3 || err != nil {
		t.Errorf("Meta = %+v, %v; want sequence 3", meta, err)
	}
	lose("Renew", func() error { return w.Renew(ctx, l, leaseTTL) })
	lose("MarkComplete", func() error { return w.MarkComplete(ctx, l) })
	lose("Release", func() error { return w.Release(ctx, l) })
}

// Leaders take turns while they write; whoever was overtaken must have left no trace.
func TestLeadersWhoRaceLeaveOrderedVersions(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (redisstore.Config, func(*testing.T)){"miniredis": openMini, "redis": openReal} {
		t.Run(name, func(t *testing.T) {
			config, _ := open(t)
			race(t, config)
		})
	}
}

func race(t *testing.T, config redisstore.Config) {
	const writers, rounds, host = 4, 30, "a"
	ctx := t.Context()
	r := newReader(t, open(t, config))
	var mu sync.Mutex
	written := map[routes.Version]bool{} // what Publish said it wrote
	fenced := 0

	followed, done := make(chan routes.Event, 10_000), make(chan error, 1)
	followCtx, stop := context.WithCancel(ctx)
	go func() {
		done <- r.Follow(followCtx, func(events []routes.Event) {
			for _, e := range events {
				followed <- e
			}
		}, nil)
	}()
	receive(t, followed)

	var wg sync.WaitGroup
	for i := range writers {
		w := newWriter(t, open(t, config))
		wg.Go(func() {
			for range rounds {
				l, err := w.Acquire(ctx, fmt.Sprint("owner", i), time.Millisecond, 0)
				if err != nil {
					continue
				}
				for revision := uint64(1); revision <= 5; revision++ {
					c := routes.HostChange{ID: host, Revision: revision, Digest: "d", Document: fmt.Appendf(nil, "%d/%d", l.Epoch, revision)}
					err := w.Publish(ctx, l, routes.Batch{Hosts: []routes.HostChange{c}})
					mu.Lock()
					switch {
					case err == nil:
						written[routes.Version{Incarnation: l.Incarnation, Epoch: l.Epoch, Revision: revision}] = true
					case errors.Is(err, routes.ErrFenced):
						fenced++
					default:
						t.Errorf("Publish: %v", err)
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	meta, err := r.Meta(ctx)
	if err != nil || meta.Sequence != uint64(len(written)) {
		t.Errorf("Meta = %+v, %v; want sequence %d: a fenced write left a trace", meta, err, len(written))
	}
	var last routes.Version
	for seen := 0; seen < len(written); {
		e := receive(t, followed)
		if e.Reset {
			continue
		}
		seen++
		if !written[e.Version] || !e.Version.Supersedes(last) {
			t.Errorf("event %+v after %+v: not written, or out of order", e, last)
		}
		last = e.Version
	}
	h, err := r.Host(ctx, host)
	if err != nil || h.Version != last || string(h.Document) != fmt.Sprintf("%d/%d", last.Epoch, last.Revision) {
		t.Errorf("Host = %+v %s, %v; want %+v", h.Version, h.Document, err, last)
	}
	t.Logf("%d written, %d fenced", len(written), fenced)
	stop()
	if err := <-done; err != nil {
		t.Errorf("Follow: %v", err)
	}
}
