package standalone

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// embeddedRedis is a Redis inside the process, over TCP: the planes use the same client and scripts as with a real one.
// Nothing of it outlives the process.
type embeddedRedis struct {
	srv *miniredis.Miniredis
	url string
}

// startRedis listens on a free loopback port. A password that nobody else knows keeps other users of the machine out.
func startRedis() (*embeddedRedis, error) {
	srv := miniredis.NewMiniRedis()
	password := rand.Text()
	srv.RequireAuth(password)
	if err := srv.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	return &embeddedRedis{srv: srv, url: "redis://:" + password + "@" + srv.Addr() + "/0"}, nil
}

// tick is how often the clock of embedded TTLs moves; leases last seconds.
const tick = 100 * time.Millisecond

// run lets keys expire, which miniredis does not do of its own accord, and closes it when ctx ends.
func (r *embeddedRedis) run(ctx context.Context) error {
	defer r.srv.Close()
	t := time.NewTicker(tick)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-t.C:
			r.srv.FastForward(now.Sub(last)) // a late tick moves it further
			last = now
		}
	}
}
