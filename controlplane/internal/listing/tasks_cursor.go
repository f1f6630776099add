package listing

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

// The cursor of tasks/list names the last task of the page before, whether it still exists or not. It grants nothing, since every page
// shows the caller's own tasks only, so that a digest suffices to tell a torn or foreign one.
//
//	base64url( created, ms, 8 bytes | digest of the task, 32 bytes | first 8 bytes of SHA-256 | backend )
//
// The checksum is over the host, the principal and the rest.
const (
	taskCursorHead = 8 + sha256.Size
	maxTaskCursor  = 256 // an own one is at most 48 + 63 bytes, 148 in base64
)

// taskPlace is a place in the order of tasks/list; the zero value is its beginning.
type taskPlace struct {
	created time.Time
	task    string
	backend routes.BackendID
}

// before reports whether an entry comes behind the place.
func (p *taskPlace) before(e *routes.TaskEntry) bool {
	if p.task == "" {
		return true
	}
	at := routes.TaskEntry{Task: p.task, TaskOwner: routes.TaskOwner{Created: p.created, Backend: p.backend}}
	return latestFirst(at, *e) < 0
}

func taskCursorFor(host routes.HostID, principal access.Principal, e *routes.TaskEntry) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(e.Created.UnixMilli()))
	task, _ := hex.DecodeString(e.Task) // a digest is hexadecimal
	b = append(b, task...)
	sum := taskCursorSum(host, principal, b, string(e.Backend))
	return base64.RawURLEncoding.EncodeToString(append(append(b, sum...), e.Backend...))
}

// taskCursorOf reads the cursor of a request, if it has one.
func taskCursorOf(r *wire.Request, host routes.HostID) (p taskPlace, _ *wire.Error) {
	raw, asked := r.Params.Get("cursor")
	if !asked {
		return p, nil
	}
	var cursor string
	if json.Unmarshal(raw, &cursor) != nil {
		return p, wire.InvalidParams("cursor is not a string")
	}
	unknown := wire.InvalidParams("cursor is unknown; begin again without one")
	if len(cursor) > maxTaskCursor {
		return p, unknown
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) <= taskCursorHead+cursorDigest {
		return p, unknown
	}
	head, sum, backend := b[:taskCursorHead], b[taskCursorHead:taskCursorHead+cursorDigest], string(b[taskCursorHead+cursorDigest:])
	if subtle.ConstantTimeCompare(sum, taskCursorSum(host, r.Identity.Principal, head, backend)) != 1 {
		return p, unknown
	}
	return taskPlace{
		created: time.UnixMilli(int64(binary.BigEndian.Uint64(head))), task: hex.EncodeToString(head[8:]), backend: routes.BackendID(backend),
	}, nil
}

func taskCursorSum(host routes.HostID, principal access.Principal, head []byte, backend string) []byte {
	sum := sha256.New()
	for _, part := range []string{"weir task cursor", string(host), string(principal), string(head), backend} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		sum.Write(size[:])
		sum.Write([]byte(part))
	}
	return sum.Sum(nil)[:cursorDigest]
}
