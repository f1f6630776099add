package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// chronicle follows what is published, as Redis has it, and finds what must never be: a second writer, or a revision that goes
// backwards.
type chronicle struct {
	client *redis.Client

	mu           sync.Mutex // guards the rest
	last         string     // id of the newest entry
	entries      int
	incarnations []string // in the order in which they appeared
	epoch        uint64   // the highest of the present incarnation
	hosts        map[string]revisionSeen
	faults       []error
}

type revisionSeen struct {
	incarnation     string
	epoch, revision uint64
}

// versionOf is a version as the admin API shows it.
type versionOf struct {
	Incarnation     string
	Epoch, Revision uint64
}

func (v versionOf) seen() revisionSeen { return revisionSeen{v.Incarnation, v.Epoch, v.Revision} }

// newChronicle opens one; the test fails at its end where something was found.
func newChronicle(t *testing.T, p *pair) *chronicle {
	t.Helper()
	l := &chronicle{client: redis.NewClient(&redis.Options{Addr: p.redis.Addr(), MaxRetries: -1}), last: "0", hosts: map[string]revisionSeen{}}
	ctx, stop := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			l.read(ctx)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	t.Cleanup(func() {
		stop()
		reading.Wait()
		l.client.Close()
		for _, f := range l.faults {
			t.Error(f)
		}
		if l.entries == 0 {
			t.Error("the chronicle saw nothing")
		}
		t.Logf("%d entries under %d incarnations", l.entries, len(l.incarnations))
	})
	return l
}

// read takes the entries since the last time. Redis may be away, or empty.
func (l *chronicle) read(ctx context.Context) {
	entries, err := l.client.XRange(ctx, "weir:{routes}:changes", "("+l.lastID(), "+").Result()
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range entries {
		l.last = e.ID
		if e.Values["kind"] == "host" {
			l.take(e.Values)
		}
	}
}

func (l *chronicle) lastID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// take checks one entry. l.mu is held.
func (l *chronicle) take(v map[string]any) {
	number := func(field string) uint64 {
		n, err := strconv.ParseUint(fmt.Sprint(v[field]), 10, 64)
		if err != nil {
			l.faults = append(l.faults, fmt.Errorf("%s of %v: %w", field, v, err))
		}
		return n
	}
	host := fmt.Sprint(v["host"])
	now := revisionSeen{fmt.Sprint(v["incarnation"]), number("epoch"), number("revision")}
	l.entries++
	if n := len(l.incarnations); n == 0 || l.incarnations[n-1] != now.incarnation {
		for _, old := range l.incarnations {
			if old == now.incarnation {
				l.faults = append(l.faults, fmt.Errorf("%s: incarnation %s came back: two write at once", host, old))
			}
		}
		l.incarnations, l.epoch = append(l.incarnations, now.incarnation), 0
	}
	if now.epoch < l.epoch {
		l.faults = append(l.faults, fmt.Errorf("%s: epoch %d wrote after epoch %d: two write at once", host, now.epoch, l.epoch))
	}
	l.epoch = max(l.epoch, now.epoch)
	if was, known := l.hosts[host]; known && now.revision <= was.revision {
		l.faults = append(l.faults, fmt.Errorf("%s: revision %d after revision %d", host, now.revision, was.revision))
	}
	l.hosts[host] = now
}

// newest is the newest revision of a host.
func (l *chronicle) newest(host string) revisionSeen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hosts[host]
}

// agree waits until every control plane and every dataplane has the newest revision of a host.
func (l *chronicle) agree(t *testing.T, p *pair, host string, controls ...*process) {
	t.Helper()
	eventually(t, "everybody has the newest revision of "+host, func() error {
		want := l.newest(host)
		for _, c := range controls {
			var v versionOf
			if err := (&pair{control: c}).admin(http.MethodGet, "/api/v1/virtual-hosts/"+host, &v); err != nil {
				return err
			}
			if got := v.seen(); got != want {
				return fmt.Errorf("a control plane has %+v, want %+v", got, want)
			}
		}
		var d struct {
			Dataplanes []struct {
				ID    string
				Hosts map[string]struct{ Applied *versionOf }
			}
		}
		if err := (&pair{control: controls[0]}).admin(http.MethodGet, "/api/v1/dataplanes", &d); err != nil {
			return err
		}
		if len(d.Dataplanes) == 0 {
			return errors.New("no dataplane says anything")
		}
		for _, dp := range d.Dataplanes {
			if applied := dp.Hosts[host].Applied; applied != nil && applied.seen() != want {
				return fmt.Errorf("dataplane %s has %+v, want %+v", dp.ID, applied, want)
			}
		}
		return nil
	})
}
