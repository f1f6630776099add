package access

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// revoked is the set of what is revoked.
type revoked struct {
	count atomic.Int64 // of revocations; zero, as a rule: then nobody takes the lock

	mu       sync.RWMutex // guards what follows; a slice in subjects is never changed, only replaced
	tokens   map[named]time.Time
	subjects map[named][]cutoff
}

// named is a token or a subject of an issuer.
type named struct{ issuer, name string }

// cutoff refuses what was issued before a moment, until another one. Those of one subject go up by before and down by until: an
// earlier one that also ends earlier says nothing that the later one does not.
type cutoff struct{ before, until time.Time }

func (s *revoked) init() {
	s.tokens, s.subjects = map[named]time.Time{}, map[named][]cutoff{}
}

func (s *revoked) size() int { return int(s.count.Load()) }

// has reports whether a token is revoked now.
func (s *revoked) has(id *Identity, now func() time.Time) bool {
	if s.count.Load() == 0 {
		return false
	}
	s.mu.RLock()
	until := s.tokens[named{id.Issuer, id.TokenID}] // none is kept under an empty id
	cutoffs := s.subjects[named{id.Issuer, id.Subject}]
	s.mu.RUnlock()
	if until.IsZero() && len(cutoffs) == 0 {
		return false
	}
	t := now()
	if t.Before(until) {
		return true
	}
	// The first cutoff after iat ends last of all those after it. A token without iat, whose time is zero, is before any.
	low, high := 0, len(cutoffs)
	for low < high {
		if middle := (low + high) / 2; id.IssuedAt.Before(cutoffs[middle].before) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low < len(cutoffs) && t.Before(cutoffs[low].until)
}

// mergeAtOnce is how many are merged under one lock, so that a long list holds up no call.
const mergeAtOnce = 256

// merge adds what has not ended.
func (s *revoked) merge(list []routes.Revocation, now time.Time) {
	for some := range slices.Chunk(list, mergeAtOnce) {
		s.mergeSome(some, now)
	}
}

func (s *revoked) mergeSome(list []routes.Revocation, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		r := &list[i]
		if !now.Before(r.Until) {
			continue
		}
		if r.TokenID != "" {
			key := named{r.Issuer, r.TokenID}
			old, known := s.tokens[key]
			if !known {
				s.count.Add(1)
			}
			if old.Before(r.Until) {
				s.tokens[key] = r.Until
			}
			continue
		}
		key := named{r.Issuer, r.Subject}
		old := s.subjects[key]
		merged := insert(old, cutoff{r.IssuedBefore, r.Until})
		s.subjects[key] = merged
		s.count.Add(int64(len(merged) - len(old)))
	}
}

// insert returns the list with one more, without those that it makes needless; it is the same list where the new one is.
func insert(list []cutoff, c cutoff) []cutoff {
	covers := func(a, b cutoff) bool { return !a.before.Before(b.before) && !a.until.Before(b.until) }
	for _, old := range list {
		if covers(old, c) {
			return list
		}
	}
	merged := make([]cutoff, 0, len(list)+1)
	for _, old := range list {
		if !covers(c, old) {
			merged = append(merged, old)
		}
	}
	at, _ := slices.BinarySearchFunc(merged, c, func(a, b cutoff) int { return a.before.Compare(b.before) })
	return slices.Insert(merged, at, c)
}

// anyEnded looks without keeping others from looking.
func (s *revoked) anyEnded(now time.Time) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, until := range s.tokens {
		if !now.Before(until) {
			return true
		}
	}
	for _, list := range s.subjects {
		if slices.ContainsFunc(list, func(c cutoff) bool { return !now.Before(c.until) }) {
			return true
		}
	}
	return false
}

// sweep forgets what has ended.
func (s *revoked) sweep(now time.Time) {
	if !s.anyEnded(now) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, until := range s.tokens {
		if !now.Before(until) {
			delete(s.tokens, key)
			s.count.Add(-1)
		}
	}
	for key, list := range s.subjects {
		runs := make([]cutoff, 0, len(list))
		for _, c := range list {
			if now.Before(c.until) {
				runs = append(runs, c)
			}
		}
		s.count.Add(int64(len(runs) - len(list)))
		if len(runs) == 0 {
			delete(s.subjects, key)
		} else if len(runs) < len(list) {
			s.subjects[key] = runs
		}
	}
}

// all returns what has not ended.
func (s *revoked) all(now time.Time) []routes.Revocation {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]routes.Revocation, 0, s.size())
	for key, until := range s.tokens {
		if now.Before(until) {
			list = append(list, routes.Revocation{Issuer: key.issuer, TokenID: key.name, Until: until})
		}
	}
	for key, cutoffs := range s.subjects {
		for _, c := range cutoffs {
			if now.Before(c.until) {
				list = append(list, routes.Revocation{Issuer: key.issuer, Subject: key.name, IssuedBefore: c.before, Until: c.until})
			}
		}
	}
	return list
}
