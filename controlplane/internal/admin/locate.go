package admin

import (
	"context"
	"errors"
	"io"
	"net/http"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/tasks"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
	"github.com/weir-mcp/weir/routes/wire"
)

// Locator finds the backend of a task; *tasks.Locator does.
type Locator interface {
	Ask(ctx context.Context, q tasks.Query) tasks.Outcome
}

// Callers knows the clients on whose behalf a dataplane asks.
type Callers interface {
	// Verify checks a client's token by the config in force, as access.Verifier does. Without auth everybody is anonymous, whatever the
	// token.
	Verify(ctx context.Context, token, resource string) (*access.Identity, error)
	// Resolve finds a host's table: routes.ErrUnknownHost, ErrNotPublished or ErrUnavailable.
	Resolve(ctx context.Context, host routes.HostID) (*routes.Index, error)
}

// locate answers a dataplane. Who asks is taken from the client's own token alone, so that the internal token by itself opens no
// principal's tasks.
func (a *API) locate(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, routes.MaxLocateBody))
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", "the body can't be read, or is over 64 KiB")
		return
	}
	in, err := routes.DecodeLocateRequest(body)
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	id, err := a.o.Callers.Verify(r.Context(), in.Token, in.Resource)
	if err != nil {
		a.callerRefused(w, err)
		return
	}
	if !id.MayUse(in.Host) {
		unknownHost(w)
		return
	}
	if !id.Scopes.AllowsTasks() {
		fail(w, http.StatusForbidden, "insufficient_scope", "the client's token lacks mcp:tasks")
		return
	}
	ix, err := a.o.Callers.Resolve(r.Context(), in.Host)
	switch {
	case errors.Is(err, routes.ErrUnknownHost):
		unknownHost(w)
		return
	case err != nil:
		a.located(w, tasks.Outcome{Kind: routes.LocateUnavailable, Cause: routes.CauseStore})
		return
	}
	q := tasks.Query{Identity: id, Host: ix.Host(), TaskID: in.TaskID, Era: wire.Modern, Method: in.Method, RequestID: in.RequestID}
	if in.Era == routes.LocateLegacy {
		q.Era = wire.Legacy
	}
	a.located(w, a.o.Locator.Ask(r.Context(), q))
}

// unknownHost is one answer for a host that is not there and for one that is not the client's.
func unknownHost(w http.ResponseWriter) {
	fail(w, http.StatusNotFound, "unknown_host", "no virtual host of this name is published, or not to this client")
}

// callerRefused tells of a client's token. Why it was refused is for the log.
func (a *API) callerRefused(w http.ResponseWriter, err error) {
	a.log.Info("task not looked for: the client's token is refused", zap.Error(err))
	switch {
	case errors.Is(err, access.ErrNoKeys):
		w.Header().Set("Retry-After", "2")
		fail(w, http.StatusServiceUnavailable, "no_keys", "there are no keys yet to verify the client's token with")
	case errors.Is(err, access.ErrUnconfirmed):
		w.Header().Set("Retry-After", "2")
		fail(w, http.StatusServiceUnavailable, "revocations", "whether the client's token was revoked is not known now")
	default:
		fail(w, http.StatusUnauthorized, "token_refused", "the client's token is refused")
	}
}

// located answers with what was found.
func (a *API) located(w http.ResponseWriter, out tasks.Outcome) {
	msg := routes.LocateAnswer{Outcome: out.Kind, Cause: out.Cause}
	if out.Owner != nil {
		msg.Owner = routes.OwnerOf(out.Owner)
	}
	doc, err := routes.EncodeLocateAnswer(&msg)
	if err != nil {
		a.log.Error("owner of a task can't be told", zap.Error(err))
		fail(w, http.StatusInternalServerError, "internal", "the answer can't be encoded")
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(doc) // the dataplane left: nobody to tell
}
