package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
)

// eventsPerRead is how many changes one read takes from the stream at most.
const eventsPerRead = 1000

// followTimes are the periods of a follower; tests shorten them.
type followTimes struct {
	block         time.Duration // one read of the stream waits so long
	check         time.Duration // between two comparisons with the store's sequence
	retry, retry2 time.Duration // wait before reconnecting: at first, and at most
}

func defaultFollowTimes() followTimes {
	return followTimes{block: 2 * time.Second, check: 30 * time.Second, retry: 50 * time.Millisecond, retry2: 2 * time.Second}
}

// Follow calls apply with batches of events, in order, from the change stream until ctx ends; then it returns nil. It has a
// connection of its own and reconnects with backoff. A Reset event comes first, and again whenever something may have been
// missed: after a reconnect, a gap in the sequence (the stream was trimmed), or data loss. Events after a Reset may repeat what
// the re-reading already saw.
//
// state is told when the store becomes reachable (before the Reset) and when it ceases to be, with the reason; it may be nil.
// Neither function is called concurrently, and both hold up the stream.
func (r *Reader) Follow(ctx context.Context, apply func([]routes.Event), state func(reachable bool, err error)) error {
	if state == nil {
		state = func(bool, error) {}
	}
	const unknown, up, down = 0, 1, 2
	told, wait := unknown, r.follow.retry
	for ctx.Err() == nil {
		client, err := r.ownConnection()
		if err != nil {
			return err
		}
		began := time.Now()
		stop := context.AfterFunc(ctx, func() { client.Close() }) // a blocked read heeds nothing else
		err = r.followOn(ctx, client, apply, func() {
			r.gate.reached()
			if told != up {
				told = up
				state(true, nil)
			}
		})
		stop()
		client.Close()
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, errMissed) {
			continue
		}
		if told != down {
			told = down
			r.gate.outages.begin()
			state(false, err)
		}
		if time.Since(began) > r.follow.retry2 { // one that breaks at once does not count as success
			wait = r.follow.retry
		}
		sleep(ctx, wait/2+rand.N(wait/2+1))
		wait = min(2*wait, r.follow.retry2)
	}
	return nil
}

// cursor is how far a follower is.
type cursor struct {
	id          string // of the last entry seen
	incarnation string
	sequence    uint64
}

// followOn follows on one connection until it breaks.
func (r *Reader) followOn(ctx context.Context, c redis.UniversalClient, apply func([]routes.Event), reached func()) error {
	at, err := r.head(ctx, c)
	if err != nil {
		return err
	}
	reached()
	apply([]routes.Event{{Reset: true}})
	for checked := time.Now(); ; {
		entries, err := r.next(ctx, c, at.id, r.follow.block)
		if err != nil {
			return err
		}
		if events := at.take(entries); len(events) > 0 {
			apply(events)
		}
		if len(entries) > 0 && time.Since(checked) < r.follow.check {
			continue
		}
		checked = time.Now()
		events, err := r.compare(ctx, c, &at)
		if err != nil {
			return err
		}
		if len(events) > 0 {
			apply(events)
		}
	}
}

// head finds the newest entry of the stream and the sequence, of one moment.
func (r *Reader) head(ctx context.Context, c redis.UniversalClient) (cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*r.gate.timeout) // it dials, too
	defer cancel()
	var meta *redis.SliceCmd
	var last *redis.XMessageSliceCmd
	_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		meta = r.queueMeta(ctx, p)
		last = p.XRevRangeN(ctx, r.keys.changes(), "+", "-", 1)
		return nil
	})
	if err != nil {
		return cursor{}, fmt.Errorf("%w: follow: %w", routes.ErrUnavailable, err)
	}
	m, err := metaOf(meta)
	if err != nil {
		return cursor{}, err
	}
	at := cursor{id: "0-0", incarnation: m.Incarnation, sequence: m.Sequence}
	if entries := last.Val(); len(entries) > 0 {
		at.id = entries[0].ID
	}
	return at, nil
}

// next returns the entries after id; it waits for the first one up to block, or not at all if that is negative.
func (r *Reader) next(ctx context.Context, c redis.UniversalClient, id string, block time.Duration) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, max(block, 0)+2*r.gate.timeout)
	defer cancel()
	streams, err := c.XRead(ctx, &redis.XReadArgs{
		Streams: []string{r.keys.changes(), id}, Count: eventsPerRead, Block: block,
	}).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w: follow: %w", routes.ErrUnavailable, err)
	case len(streams) == 0:
		return nil, nil
	}
	return streams[0].Messages, nil
}

// take moves the cursor over entries and returns them as events.
func (at *cursor) take(entries []redis.XMessage) []routes.Event {
	events := make([]routes.Event, 0, len(entries))
	for _, entry := range entries {
		at.id = entry.ID
		incarnation, _ := entry.Values["incarnation"].(string)
		sequence, err := number(entry.Values["sequence"])
		if err != nil || incarnation == "" { // not one of ours; what it meant can only be found by looking
			events = append(events, routes.Event{Reset: true})
			continue
		}
		if incarnation != at.incarnation || sequence != at.sequence+1 {
			events = append(events, routes.Event{Reset: true})
		}
		at.incarnation, at.sequence = incarnation, sequence
		switch entry.Values["kind"] { // those of a later version count in the sequence only
		case "host":
			events = append(events, hostEvent(entry.Values, incarnation))
		case "decision":
			events = append(events, routes.Event{Decision: true})
		case "revocation":
			events = append(events, revocationEvent(entry.Values))
		}
	}
	return events
}

// hostEvent reads an entry about a host; one that can't be read is a Reset.
func hostEvent(values map[string]any, incarnation string) routes.Event {
	host, _ := values["host"].(string)
	epoch, err1 := number(values["epoch"])
	revision, err2 := number(values["revision"])
	if host == "" || cmp.Or(err1, err2) != nil {
		return routes.Event{Reset: true}
	}
	return routes.Event{
		Host:    routes.HostID(host),
		Version: routes.Version{Incarnation: incarnation, Epoch: epoch, Revision: revision},
		Removed: values["removed"] == "1",
	}
}

// errMissed says that the store moved and the stream of this connection does not tell how.
var errMissed = errors.New("changes missed")

// compare finds what the stream can't tell: after data loss the entries of a new stream may have ids that are not above the last
// one seen, if the clock went back or hardly moved; and after a failover by Sentinel this connection may still be to the old
// master, while the shared client has been told of the new one. It returns what came meanwhile, or errMissed if that does not
// explain where the store stands: the follower then begins anew.
func (r *Reader) compare(ctx context.Context, c redis.UniversalClient, at *cursor) ([]routes.Event, error) {
	head, err := r.head(ctx, r.client)
	if err != nil || head.incarnation == at.incarnation && head.sequence == at.sequence {
		return nil, nil // if the shared client has trouble, that is not this connection's
	}
	entries, err := r.next(ctx, c, at.id, -1)
	if err != nil {
		return nil, err
	}
	events := at.take(entries)
	if at.incarnation != head.incarnation || at.sequence < head.sequence {
		return nil, errMissed
	}
	return events, nil
}

// ownConnection returns a client with the same way to Redis and one connection, which can be closed to end a blocked read.
func (r *Reader) ownConnection() (redis.UniversalClient, error) {
	switch c := r.client.(type) {
	case *redis.Client:
		o := *c.Options()
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxConcurrentDials = 1, 0, 0, 0, 0
		o.MaxRetries, o.ContextTimeoutEnabled, o.PushNotificationProcessor = -1, true, nil
		return redis.NewClient(&o), nil
	case *redis.ClusterClient:
		o := *c.Options()
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxConcurrentDials = 1, 0, 0, 0, 0
		o.MaxRetries, o.ContextTimeoutEnabled, o.PushNotificationProcessor = -1, true, nil
		return redis.NewClusterClient(&o), nil
	}
	return nil, fmt.Errorf("redisstore: can't follow through a %T", r.client)
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
