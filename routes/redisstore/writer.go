package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/weir-mcp/weir/routes"
)

// Writer is the leader's side, apart from revocations, which any control plane writes. Every method but Acquire, Revoke and
// DropRevocations takes the lease and fails with routes.ErrFenced when it was lost: to
// another leader, by Release, or because Redis lost its data or its latest writes. Then the leader acquires again, reads what
// stands, and publishes what differs. Safe for concurrent use.
type Writer struct {
	store

	mu      sync.Mutex // guards what follows
	told    told
	pending attempt
}

// attempt is an Acquire of which it is not known whether it has been done, or will be: Redis may yet find it among what it was sent.
// The next one of the same owner repeats it, so that its lease is not taken for somebody else's until it runs out.
type attempt struct{ owner, token string }

// told is the highest state that Redis ever told this writer of; less than that later on means lost writes.
type told struct {
	incarnation     string
	epoch, sequence uint64
}

// NewWriter checks the options; it does not connect.
func NewWriter(o Options) (*Writer, error) {
	s, err := newStore(o)
	if err != nil {
		return nil, err
	}
	return &Writer{store: s}, nil
}

// Acquire takes the lease for owner until ttl has passed, and fences every earlier leader. It fails with routes.ErrNotLeader
// while anybody holds the lease, the same owner too (another process may bear its name), and with routes.ErrConfigOutdated
// beside it when a higher configVersion has led. configVersion must not be negative; zero means that versions are not used, and ranks lowest.
//
// A lease of another incarnation than the last one means that nothing of ours stands. A lease of the same one means nothing:
// read Index to see what stands.
func (w *Writer) Acquire(ctx context.Context, owner string, ttl time.Duration, configVersion int64) (routes.Lease, error) {
	ms, err := milliseconds(ttl)
	switch {
	case err != nil:
		return routes.Lease{}, fmt.Errorf("acquire: %w", err)
	case owner == "":
		return routes.Lease{}, errors.New("acquire: owner is empty")
	case configVersion < 0:
		return routes.Lease{}, fmt.Errorf("acquire: config version %d is negative", configVersion)
	}
	told := w.last()
	again := w.repeat(owner)
	token := cmp.Or(again.token, randomID())
	reply, err := w.run(ctx, "acquire", acquireScript, w.guardKeys(), owner, token, ms, configVersion, randomID(),
		told.incarnation, told.epoch, told.sequence)
	if err != nil {
		w.keep(attempt{owner, token})
		return routes.Lease{}, err
	}
	if reply[0] != replyOK {
		w.keep(again) // it may still come
	}
	switch {
	case reply[0] == replyHeld && len(reply) == 2:
		return routes.Lease{}, fmt.Errorf("acquire: %w: %q holds the lease", routes.ErrNotLeader, reply[1])
	case reply[0] == replyConfig && len(reply) == 2:
		return routes.Lease{}, fmt.Errorf("acquire: %w: %w: its config_version is %s, ours %d",
			routes.ErrNotLeader, routes.ErrConfigOutdated, reply[1], configVersion)
	case reply[0] == replyOK && len(reply) == 4:
		epoch, err1 := strconv.ParseUint(reply[2], 10, 64)
		sequence, err2 := strconv.ParseUint(reply[3], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return routes.Lease{}, fmt.Errorf("acquire: unexpected reply: %w", err)
		}
		l := routes.Lease{Owner: owner, Incarnation: reply[1], Epoch: epoch}
		w.learn(l, sequence)
		return l, nil
	}
	return routes.Lease{}, fmt.Errorf("acquire: unexpected reply %q", reply)
}

// Renew prolongs the lease to ttl from now. A lease that ran out without a successor is taken up again.
func (w *Writer) Renew(ctx context.Context, l routes.Lease, ttl time.Duration) error {
	ms, err := milliseconds(ttl)
	if err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	reply, err := w.run(ctx, "renew", renewScript, w.guardKeys(), append(w.guardArgs(l), l.Owner, ms)...)
	return w.written("renew", l, reply, err)
}

// Release gives the lease back, so that a successor need not wait until it runs out. l can't write any more.
func (w *Writer) Release(ctx context.Context, l routes.Lease) error {
	reply, err := w.run(ctx, "release", releaseScript, w.guardKeys(), w.guardArgs(l)...)
	return w.written("release", l, reply, err)
}

// MarkComplete says that the leader has published every host: from now on, and until data is lost, a host that is absent does
// not exist.
func (w *Writer) MarkComplete(ctx context.Context, l routes.Lease) error {
	reply, err := w.run(ctx, "complete", completeScript, w.guardKeys(), w.guardArgs(l)...)
	return w.written("complete", l, reply, err)
}

// guardKeys and guardArgs begin the keys and arguments of every script that writes; see luaGuard.
func (w *Writer) guardKeys() []string { return []string{w.keys.fence(), w.keys.lease()} }

func (w *Writer) guardArgs(l routes.Lease) []any {
	var sequence uint64
	if t := w.last(); t.incarnation == l.Incarnation && t.epoch == l.Epoch {
		sequence = t.sequence
	}
	return []any{l.Incarnation, l.Epoch, sequence, randomID()}
}

// written turns the reply of a script that writes into an error, and remembers the sequence.
func (w *Writer) written(op string, l routes.Lease, reply []string, err error) error {
	switch {
	case err != nil:
		return err
	case reply[0] == replyFenced:
		return fmt.Errorf("%s: %w", op, routes.ErrFenced)
	case reply[0] != replyOK || len(reply) != 2:
		return fmt.Errorf("%s: unexpected reply %q", op, reply)
	}
	sequence, err := strconv.ParseUint(reply[1], 10, 64)
	if err != nil {
		return fmt.Errorf("%s: unexpected reply %q", op, reply)
	}
	w.learn(l, sequence)
	return nil
}

// repeat takes the attempt of an owner that is pending; its token is empty where there is none.
func (w *Writer) repeat(owner string) attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending.owner != owner {
		return attempt{}
	}
	a := w.pending
	w.pending = attempt{}
	return a
}

func (w *Writer) keep(a attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.token != "" {
		w.pending = a
	}
}

func (w *Writer) last() told {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.told
}

func (w *Writer) learn(l routes.Lease, sequence uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case l.Incarnation != w.told.incarnation, l.Epoch > w.told.epoch:
		w.told = told{l.Incarnation, l.Epoch, sequence}
	case l.Epoch == w.told.epoch:
		w.told.sequence = max(w.told.sequence, sequence)
	}
}

// milliseconds is what Redis takes as a TTL.
func milliseconds(ttl time.Duration) (int64, error) {
	if ttl < time.Millisecond {
		return 0, fmt.Errorf("TTL %v is under 1ms", ttl)
	}
	return ttl.Milliseconds(), nil
}

// randomID is 128 bits as text.
func randomID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
