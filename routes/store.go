package routes

import (
	"errors"
	"time"
)

// Errors that every store of published documents returns; callers branch with errors.Is.
var (
	// ErrFenced: the writer's lease was taken over (its epoch is not the fence's any more); nothing was written.
	ErrFenced = errors.New("fenced: another control plane leads")
	// ErrStale: the host stands at a higher revision, or at the same one with another digest; nothing of that write was done.
	ErrStale = errors.New("a newer revision stands in the store")
	// ErrNotLeader: the lease is held by somebody else, or ErrConfigOutdated, which is then wrapped beside it.
	ErrNotLeader = errors.New("not the leader")
	// ErrConfigOutdated: a higher config_version has led, so that this replica does not, though nobody may hold the lease.
	ErrConfigOutdated = errors.New("a newer config has led")
	// ErrUnknownHost: the leader has published everything and this host is not among it, or it was removed.
	ErrUnknownHost = errors.New("unknown virtual host")
	// ErrNotPublished: the host is absent, but the leader has not yet said that it published everything.
	ErrNotPublished = errors.New("nothing published yet")
	// ErrConflict: something else was decided since the decision was read; nothing was written.
	ErrConflict = errors.New("decided otherwise meanwhile")
	// ErrUnavailable: the store could not be reached in time.
	ErrUnavailable = errors.New("store unavailable")
	// ErrNoRoute: Lookup found nothing by that name.
	ErrNoRoute = errors.New("no route")
)

// Version orders the documents of one host: by (Epoch, Revision) inside an incarnation; a new incarnation is always newer.
type Version struct {
	Incarnation string `json:"incarnation"`
	Epoch       uint64 `json:"epoch"`
	Revision    uint64 `json:"revision"`
}

// Supersedes reports whether a reader that holds old should take v.
func (v Version) Supersedes(old Version) bool {
	if v.Incarnation != old.Incarnation {
		return true
	}
	if v.Epoch != old.Epoch {
		return v.Epoch > old.Epoch
	}
	return v.Revision > old.Revision
}

// Lease is the right to write, from Acquire until it is lost. Epoch grows with each new leader within an incarnation.
type Lease struct {
	Owner       string
	Incarnation string
	Epoch       uint64
}

// Meta is the state of the store as a whole.
type Meta struct {
	Incarnation string // empty: the store holds nothing yet
	Sequence    uint64 // of the last change
	Complete    bool   // the leader has published every host
}

// Batch is what a leader writes at once. Catalogs are written before the hosts that refer to them.
type Batch struct {
	Catalogs []CatalogChange
	Hosts    []HostChange
}

// CatalogChange stores or removes the catalog of one backend. Document is the encoded catalog, opaque to the store; nil
// removes it.
type CatalogChange struct {
	Backend  BackendID
	Digest   string
	Document []byte
}

// HostChange publishes or removes one host. A nil Document is a tombstone. Document and List are encoded by EncodeHost and
// EncodeList; Digest is over both, so that a repeated write is recognised.
type HostChange struct {
	ID       HostID
	Revision uint64
	Digest   string
	Document []byte
	List     []byte
	// Archive is what the history keeps of this revision, opaque to the store; nil: the history does not tell of it.
	Archive []byte
}

// HistoryLength is how many revisions of a host a store keeps, the present one included.
const HistoryLength = 20

// Revision is one entry of a host's history.
type Revision struct {
	Version Version
	Time    time.Time // when it was published, by the store's clock; to the millisecond
	Digest  string
	Archive []byte
}

// HostRecord is one host as a reader finds it.
type HostRecord struct {
	ID       HostID
	Version  Version
	Sequence uint64
	Digest   string
	Removed  bool // a tombstone: Document is nil
	Document []byte
}

// HostEntry is one line of the index of all hosts.
type HostEntry struct {
	Version  Version
	Sequence uint64
	Digest   string
	Removed  bool
}

// Event is one change as a follower sees it. A Reset event says that hosts may have changed unseen (a gap, a new
// incarnation, a reconnect): the receiver re-reads what it holds.
type Event struct {
	Reset bool
	// Host is set for a published or removed host.
	Host    HostID
	Version Version
	Removed bool
	// Decision is set when operators decided something, or took a decision back.
	Decision bool
	// Revocations are those that were added or prolonged.
	Revocations []Revocation
}

// DataplaneStatus is what a dataplane reports of itself, as JSON, through the store.
type DataplaneStatus struct {
	ID      string                `json:"id"`
	Version string                `json:"version"` // of the binary
	Started time.Time             `json:"started"`
	Time    time.Time             `json:"time"` // of this report
	Hosts   map[HostID]HostStatus `json:"hosts"`
}

// HostStatus is what a dataplane serves for one host, and what it refused to serve.
type HostStatus struct {
	Applied *Version     `json:"applied,omitempty"` // nil: the host is cold
	Refused *HostRefusal `json:"refused,omitempty"` // nil: the newest document that was read is the applied one
}

// HostRefusal says why a published document is not served. The last good one, if any, still is.
type HostRefusal struct {
	Version Version   `json:"version"`
	Reason  string    `json:"reason"`
	Time    time.Time `json:"time"`
}
