package egress

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/weir-mcp/weir/routes/wire"
)

// errSessionLost is behind a Failure with SessionLost.
var errSessionLost = errors.New("the backend does not know the session any more")

// resume makes the connection part of a session that was kept. Ids of requests begin anywhere: several calls may be in the session at
// once, each on a connection that knows nothing of the others, and an id must not be used twice in a session.
// Source: MCP 2025-11-25, basic/index (Requests).
func (l *legacyConn) resume(session string) {
	l.wire.resume(session)
	l.lastID = rand.Int64N(1 << 52) // any JSON decoder keeps such a number
}

// lostSession, asked right after send, is the *Failure of a request that was refused because the backend no longer has the session, nil if that is not why.
// 404 says so by the specification, whatever comes with it; 400 with an error that answers no request of ours is what widespread servers
// say instead, while one that bears our id is the answer to what was asked.
// Source: MCP 2025-11-25, basic/transports (Session Management).
func (a *legacyAnswer) lostSession() *Failure {
	status := a.x.httpStatus()
	switch status {
	case http.StatusNotFound:
	case http.StatusBadRequest:
		a.x.mu.Lock()
		body := a.x.body
		a.x.mu.Unlock()
		scan, err := wire.ScanMessage(body)
		if err != nil || scan.Kind != wire.KindResponse || sameJSON(scan.ID, strconv.AppendInt(nil, a.l.lastID, 10)) {
			return nil
		}
	default:
		return nil
	}
	return &Failure{Reason: ReasonBadResponse, Sent: true, Status: status, SessionLost: true, Err: errSessionLost}
}
