package access

import (
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"
	"time"
)

const (
	cacheWays = 8
	cacheSets = 1250 // times cacheWays: 10,000 tokens

	cacheTTL = time.Minute
)

type tokenHash [sha256.Size]byte

// verified is what is remembered of one token; immutable.
type verified struct {
	hash   tokenHash
	id     *Identity
	issuer *issuer
	keys   *keySet // those that proved it: it is worth nothing once they are not the issuer's any more
	// resources is nil when the token names an audience that the issuer's config does; else its aud, one of which must be the
	// URI of the endpoint called, which differs from call to call.
	resources []string
	until     time.Time // with a monotonic reading, so that a clock set back does not prolong it
}

// fresh reports whether the token still counts as verified at now.
func (e *verified) fresh(now time.Time) bool {
	return now.Before(e.until) && now.Before(e.id.Expires) && e.issuer.keys.cur.Load() == e.keys
}

// cache remembers verified tokens: a table of fixed size in sets of cacheWays, picked by the hash. Readers and writers take no
// lock and a reader writes nothing, so that a token which every core uses costs no contention. Two writers at once may waste a
// place, never confuse two tokens.
type cache struct {
	slots [cacheSets][cacheWays]atomic.Pointer[verified]
}

func (c *cache) set(hash *tokenHash) *[cacheWays]atomic.Pointer[verified] {
	return &c.slots[binary.LittleEndian.Uint64(hash[:])%cacheSets]
}

func (c *cache) get(hash *tokenHash) *verified {
	set := c.set(hash)
	for i := range set {
		if e := set[i].Load(); e != nil && e.hash == *hash {
			return e
		}
	}
	return nil
}

// put takes the place of the same token, else of none or of a token no longer fresh, else of the one that ends soonest.
func (c *cache) put(e *verified, now time.Time) {
	set := c.set(&e.hash)
	place, rank := 0, placeNone
	var ends time.Time
	for i := range set {
		old := set[i].Load()
		switch {
		case old != nil && old.hash == e.hash:
			set[i].Store(e)
			return
		case old == nil || !old.fresh(now):
			place, rank = i, placeFree
		case rank != placeFree && (rank == placeNone || old.until.Before(ends)):
			place, rank, ends = i, placeTaken, old.until
		}
	}
	set[place].Store(e)
}

const (
	placeNone = iota
	placeTaken
	placeFree
)
