package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// settleTick is how often a server that stops looks at its connections.
	settleTick = 20 * time.Millisecond
	// firstRequest is how long a new connection has to send its first request to a server that stops.
	firstRequest = time.Second
)

// Serve is ServeLingering that closes idle connections at once.
func Serve(ctx context.Context, srv *http.Server, ln net.Listener, drain context.Context) error {
	return ServeLingering(ctx, srv, ln, drain, 0)
}

// ServeLingering serves until ctx ends, then shuts down gracefully: new connections are refused, running requests finish until
// drain is done, then they are cut. It closes ln, takes over srv.ConnState, and returns nil on an orderly end, cut requests
// included. A nil drain never cuts.
//
// A connection that the peer keeps alive is closed once it was idle for linger: whoever reuses connections for a shorter time
// than that never has one closed under a request that it is sending. Until then requests are answered as usual; the handler should
// say Connection: close. A connection that brought no request yet has a second, or linger if that is longer.
func ServeLingering(ctx context.Context, srv *http.Server, ln net.Listener, drain context.Context, linger time.Duration) error {
	if drain == nil {
		drain = context.Background()
	}
	var conns connections
	srv.ConnState = conns.note
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %v: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	err := stopListening(ln)
	if serr := <-served; !errors.Is(serr, net.ErrClosed) {
		err = errors.Join(err, serr)
	}
	conns.settle(drain, linger) // before Shutdown, which drops the requests that it finds being read
	serr := srv.Shutdown(drain)
	if serr != nil && drain.Err() != nil {
		serr = srv.Close()
	}
	if err = errors.Join(err, serr); err != nil {
		return fmt.Errorf("stop serving %v: %w", ln.Addr(), err)
	}
	return nil
}

// stopListening closes ln after letting in the connections that are being opened. Closing alone resets those that the kernel has
// established and nobody has accepted yet, and their peers have sent a request by then, as a rule.
func stopListening(ln net.Listener) error {
	under := ln
	if t, ok := ln.(listener); ok {
		under = t.under
	}
	if tcp, ok := under.(*net.TCPListener); ok {
		letIn(tcp)
	}
	return ln.Close()
}

// connections knows since when each connection of a server is idle. The zero value is ready; it is safe for concurrent use.
type connections struct {
	all sync.Map // net.Conn → *connection
}

type connection struct {
	idle atomic.Int64 // since when, in Unix nanoseconds; 0: a request runs
	used atomic.Bool  // there was a request
}

// note is an http.Server's ConnState.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		fresh := new(connection)
		fresh.idle.Store(time.Now().UnixNano())
		c.all.Store(conn, fresh)
	case http.StateActive:
		if known, ok := c.all.Load(conn); ok {
			known.(*connection).idle.Store(0)
			known.(*connection).used.Store(true)
		}
	case http.StateIdle:
		if known, ok := c.all.Load(conn); ok {
			known.(*connection).idle.Store(time.Now().UnixNano())
		}
	case http.StateClosed, http.StateHijacked:
		c.all.Delete(conn)
	}
}

// settle waits until every connection is gone or was idle for linger, or ctx ends.
func (c *connections) settle(ctx context.Context, linger time.Duration) {
	tick := time.NewTicker(settleTick)
	defer tick.Stop()
	for !c.settled(time.Now(), linger) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// settled reports whether no request runs on any connection, and none is to be expected.
func (c *connections) settled(now time.Time, linger time.Duration) bool {
	all := true
	c.all.Range(func(_, v any) bool {
		limit := linger
		if !v.(*connection).used.Load() {
			limit = max(limit, firstRequest)
		}
		idle := v.(*connection).idle.Load()
		all = idle != 0 && now.UnixNano()-idle >= int64(limit)
		return all
	})
	return all
}
