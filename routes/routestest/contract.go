package routestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

// Leaser is the right to write.
type Leaser interface {
	Acquire(ctx context.Context, owner string, ttl time.Duration, configVersion int64) (routes.Lease, error)
	Renew(ctx context.Context, l routes.Lease, ttl time.Duration) error
	Release(ctx context.Context, l routes.Lease) error
}

// Publisher writes.
type Publisher interface {
	Publish(ctx context.Context, l routes.Lease, b routes.Batch) error
	MarkComplete(ctx context.Context, l routes.Lease) error
}

// HostReader reads hosts.
type HostReader interface {
	Host(ctx context.Context, id routes.HostID) (routes.HostRecord, error)
	Hosts(ctx context.Context, ids []routes.HostID) (map[routes.HostID]routes.HostRecord, error)
	List(ctx context.Context, id routes.HostID) ([]byte, error)
}

// Overseer reads what is not of one host.
type Overseer interface {
	Meta(ctx context.Context) (routes.Meta, error)
	Index(ctx context.Context) (map[routes.HostID]routes.HostEntry, routes.Meta, error)
	Leader(ctx context.Context) (owner string, epoch uint64, err error)
}

// CatalogReader reads catalogs.
type CatalogReader interface {
	Catalogs(ctx context.Context) (map[routes.BackendID]string, error)
	Catalog(ctx context.Context, id routes.BackendID) (doc []byte, digest string, err error)
}

// Follower tells changes.
type Follower interface {
	Follow(ctx context.Context, apply func([]routes.Event), state func(reachable bool, err error)) error
}

// StatusBoard is where dataplanes say how they are.
type StatusBoard interface {
	PutStatus(ctx context.Context, dataplane string, doc []byte, ttl time.Duration) error
	Statuses(ctx context.Context) (map[string][]byte, error)
}

// Revoker writes revocations, without a lease.
type Revoker interface {
	Revoke(ctx context.Context, revocations []routes.Revocation) error
	DropRevocations(ctx context.Context, ended []string) error
}

// Auditor finds what was revoked, and what was lost on its own.
type Auditor interface {
	Revocations(ctx context.Context) (all []routes.Revocation, unreadable []string, err error)
	Lost(ctx context.Context, hosts []routes.HostID, backends []routes.BackendID) ([]routes.HostID, []routes.BackendID, error)
}

// Writer is what a control plane needs of a store.
type Writer interface {
	Leaser
	Publisher
	Decider
	Revoker
}

// Reader is what everybody needs of a store.
type Reader interface {
	HostReader
	Overseer
	CatalogReader
	Follower
	StatusBoard
	Rememberer
	Auditor
}

// Fixture is one empty store, as Contract sees it.
type Fixture struct {
	// NewWriter and NewReader make one as another process would have.
	NewWriter func(t *testing.T) Writer
	NewReader func(t *testing.T) Reader
	// Flush loses all data.
	Flush func(t *testing.T)
}

// patience bounds every wait of the suite; it is long because it only matters when something is broken.
const patience = 20 * time.Second

// longTTL is a lease that does not run out during a test, shortTTL one that does.
const (
	longTTL  = time.Minute
	shortTTL = 100 * time.Millisecond
)

// Contract runs the suite that every store passes; open returns an empty store each time.
func Contract(t *testing.T, open func(t *testing.T) Fixture) {
	groups := []map[string]func(*testing.T, *bench){leaseCases(), publishCases(), readCases(), followCases(), decideCases(), revokeCases()}
	for _, cases := range groups {
		for name, run := range cases {
			t.Run(name, func(t *testing.T) { run(t, newBench(t, open(t))) })
		}
	}
}

// bench is one store under test, with a writer and a reader.
type bench struct {
	Fixture
	ctx context.Context
	w   Writer
	r   Reader
}

func newBench(t *testing.T, f Fixture) *bench {
	return &bench{Fixture: f, ctx: t.Context(), w: f.NewWriter(t), r: f.NewReader(t)}
}

// lead acquires for the bench's own writer.
func (b *bench) lead(t *testing.T) routes.Lease {
	t.Helper()
	l, err := b.w.Acquire(b.ctx, "one", longTTL, 0)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return l
}

func (b *bench) publish(t *testing.T, l routes.Lease, changes ...routes.HostChange) {
	t.Helper()
	if err := b.w.Publish(b.ctx, l, routes.Batch{Hosts: changes}); err != nil {
		t.Fatalf("Publish: %v", err)
	}
}

func (b *bench) complete(t *testing.T, l routes.Lease) {
	t.Helper()
	if err := b.w.MarkComplete(b.ctx, l); err != nil {
		t.Fatalf("MarkComplete: %v", err)
	}
}

func (b *bench) meta(t *testing.T) routes.Meta {
	t.Helper()
	m, err := b.r.Meta(b.ctx)
	if err != nil {
		t.Fatalf("Meta: %v", err)
	}
	return m
}

func (b *bench) index(t *testing.T) map[routes.HostID]routes.HostEntry {
	t.Helper()
	index, _, err := b.r.Index(b.ctx)
	if err != nil {
		t.Fatalf("Index: %v", err)
	}
	return index
}

// wantHost checks that a host stands exactly as it was published.
func (b *bench) wantHost(t *testing.T, l routes.Lease, c routes.HostChange) {
	t.Helper()
	h, err := b.r.Host(b.ctx, c.ID)
	if err != nil {
		t.Fatalf("Host(%q): %v", c.ID, err)
	}
	want := routes.HostRecord{
		ID: c.ID, Version: routes.Version{Incarnation: l.Incarnation, Epoch: l.Epoch, Revision: c.Revision},
		Sequence: h.Sequence, Digest: c.Digest,
	}
	if !bytes.Equal(h.Document, c.Document) { // cmp takes seconds for a large one
		t.Errorf("Host(%q) has a document of %d bytes, other than the %d published", c.ID, len(h.Document), len(c.Document))
	}
	h.Document = nil
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("Host(%q) (-want +got):\n%s", c.ID, diff)
	}
	list, err := b.r.List(b.ctx, c.ID)
	if err != nil {
		t.Fatalf("List(%q): %v", c.ID, err)
	}
	if !bytes.Equal(list, c.List) {
		t.Errorf("List(%q) = %q, want %q", c.ID, list, c.List)
	}
}

// wantAbsent checks how a host is missing.
func (b *bench) wantAbsent(t *testing.T, id routes.HostID, want error) {
	t.Helper()
	if h, err := b.r.Host(b.ctx, id); !errors.Is(err, want) {
		t.Errorf("Host(%q) = %+v, %v; want %v", id, h, err, want)
	}
	if l, err := b.r.List(b.ctx, id); !errors.Is(err, want) {
		t.Errorf("List(%q) = %q, %v; want %v", id, l, err, want)
	}
}

// eventually waits until done returns nil.
func eventually(t *testing.T, what string, done func() error) {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	late := time.After(patience)
	for {
		err := done()
		if err == nil {
			return
		}
		select {
		case <-late:
			t.Fatalf("%s: %v", what, err)
		case <-poll.C:
		}
	}
}

// wantErr checks an error of a method.
func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// oddIDs are ids that no config would have; a store keeps them all the same, each apart from the others.
func oddIDs() []routes.HostID {
	return []routes.HostID{"{other}:slot", "a b", "a\x00b", "line\nbreak", `quote"'`, "ünï", "*", "1 2 3 0 x", "\xff\xfe", "}{",
		routes.HostID(strings.Repeat("long", 100)), "%s", "--", "KEYS[1]", "]]", "nil"}
}

// hostNames makes n ids.
func hostNames(n int) []routes.HostID {
	ids := make([]routes.HostID, n)
	for i := range ids {
		ids[i] = routes.HostID(fmt.Sprintf("host-%04d", i))
	}
	return ids
}

// watcher collects what a follower tells.
type watcher struct {
	events chan []routes.Event
	done   chan error
	cancel context.CancelFunc
	seen   []routes.Event
}

// watch starts a follower and waits for its first Reset.
func (b *bench) watch(t *testing.T) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	w := &watcher{events: make(chan []routes.Event, 10_000), done: make(chan error, 1), cancel: cancel}
	go func() {
		w.done <- b.r.Follow(ctx, func(events []routes.Event) { w.events <- slices.Clone(events) }, nil)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-w.done:
			if err != nil {
				t.Errorf("Follow: %v, want nil", err)
			}
		case <-time.After(patience):
			t.Error("Follow did not end with its context")
		}
	})
	w.until(t, "the first Reset", func(e routes.Event) bool { return e.Reset })
	if len(w.seen) != 1 {
		t.Errorf("first events %+v, want one Reset", w.seen)
	}
	w.seen = nil
	return w
}

// until collects events until one is as wanted.
func (w *watcher) until(t *testing.T, what string, want func(routes.Event) bool) {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case events := <-w.events:
			w.seen = append(w.seen, events...)
			if slices.ContainsFunc(events, want) {
				return
			}
		case err := <-w.done:
			w.done <- err
			t.Fatalf("waiting for %s: Follow ended: %v", what, err)
		case <-late:
			t.Fatalf("waited in vain for %s; seen %+v", what, w.seen)
		}
	}
}

// untilHost collects events until one is about a revision of a host.
func (w *watcher) untilHost(t *testing.T, id routes.HostID, revision uint64) {
	t.Helper()
	w.until(t, fmt.Sprintf("host %q at revision %d", id, revision), func(e routes.Event) bool {
		return e.Host == id && e.Version.Revision == revision
	})
}
