package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// How keys are kept fresh; docs/security-tokens.md promises it to operators.
const (
	urlInterval  = 5 * time.Minute  // between background refreshes of a JWK set
	urlRetry     = 15 * time.Second // after one that went wrong
	urlGap       = 10 * time.Second // between two refreshes that requests asked for
	fetchTimeout = 10 * time.Second // one refresh, whoever asked for it
	maxWait      = 2 * time.Second  // how long a request waits for one
	fileInterval = 5 * time.Second  // between looks at a file: it is read whole, which finds every kind of change
)

// keyStore holds one issuer's keys, the last good ones, and fetches new ones: one fetch at a time.
//
// JWK sets are decoded by jwkset but not refreshed by it or by keyfunc, which is built on it: theirs reads bodies without bound, lets
// an empty set replace a good one, makes a request wait for its rate limiter, and fetches once per waiting request.
type keyStore struct {
	field string // of the config: public_key_file, jwks_url …
	load  func(context.Context) ([]byte, error)
	parse func(doc []byte, algorithms []string) (*keySet, error)
	// algorithms are the issuer's: they decide which keys are of use.
	algorithms []string
	// interval and retry are between fetches in the background, after a good and after a bad one. Zero: there is nothing to fetch
	// anew.
	interval, retry time.Duration
	// onDemand: an unknown key is worth a fetch, urlGap after the last one at the earliest; the first set is loaded that way too.
	onDemand bool
	report   func(error)

	cur atomic.Pointer[keySet] // nil until a set was loaded

	mu      sync.Mutex
	flight  *flight   // the fetch that runs, or nil
	started time.Time // when the last fetch was started
	fault   string    // what went wrong in the last fetch; empty: nothing
	closed  bool      // Run is over: no more fetches
}

type flight struct {
	done   chan struct{} // closed at its end
	cancel context.CancelFunc
}

// refresh starts a fetch, or joins the one that runs. It returns a channel that is closed at its end, or nil when none may be
// started now.
func (s *keyStore) refresh() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil
	case s.flight != nil:
		return s.flight.done
	case s.onDemand && !s.started.IsZero() && time.Since(s.started) < urlGap:
		return nil
	}
	s.started = time.Now()
	// Not the context of whoever asked: others wait for the same fetch, and its result outlives the request.
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	f := &flight{done: make(chan struct{}), cancel: cancel}
	s.flight = f
	go func() {
		defer close(f.done)
		defer cancel()
		s.settle(s.fetch(ctx))
	}()
	return f.done
}

// settle ends a flight. A fault that lasts is reported once for a file, which is looked at every few seconds, and each time
// for a URL.
func (s *keyStore) settle(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	s.flight = nil
	news := err != nil && !s.closed && (s.onDemand || text != s.fault)
	s.fault = text
	s.mu.Unlock()
	if news {
		s.report(err)
	}
}

// fetch loads the keys. The last good set stays when that fails, and the very same set when nothing changed, so that tokens
// proven by it stay remembered.
func (s *keyStore) fetch(ctx context.Context) error {
	doc, err := s.load(ctx)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(doc)
	if old := s.cur.Load(); old != nil && old.digest == digest {
		return nil
	}
	set, err := s.parse(doc, s.algorithms)
	if err != nil {
		return err
	}
	set.digest = digest
	s.cur.Store(set)
	return nil
}

// await has the keys refreshed on behalf of a request and waits for that, at most maxWait.
func (s *keyStore) await(ctx context.Context) {
	if !s.onDemand {
		return
	}
	done := s.refresh()
	if done == nil {
		return
	}
	timeout := time.NewTimer(maxWait)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
	case <-ctx.Done():
	}
}

// run fetches at once and then again and again, until ctx ends; then no fetch runs any more, and none will.
func (s *keyStore) run(ctx context.Context) {
	defer s.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if done := s.refresh(); done != nil {
			select {
			case <-ctx.Done():
				return
			case <-done:
			}
		}
		timer.Reset(s.pause())
	}
}

func (s *keyStore) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != "" {
		return s.retry
	}
	return s.interval
}

func (s *keyStore) close() {
	s.mu.Lock()
	s.closed = true
	f := s.flight
	s.mu.Unlock()
	if f != nil {
		f.cancel()
		<-f.done
	}
}

// readFile reads a key file, at most maxKeyDocument bytes.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	doc, err := readBounded(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return doc, nil
}

var errTooLarge = errors.New("is over 1 MiB")

func readBounded(r io.Reader) ([]byte, error) {
	doc, err := io.ReadAll(io.LimitReader(r, maxKeyDocument+1))
	if err == nil && len(doc) > maxKeyDocument {
		return nil, errTooLarge
	}
	return doc, err
}
