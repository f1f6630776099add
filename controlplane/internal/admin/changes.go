package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	strict "github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/controlplane/internal/history"
	"github.com/weir-mcp/weir/routes"
)

// Record is what stands of earlier revisions and of decisions; *redisstore.Reader has it.
type Record interface {
	History(ctx context.Context, id routes.HostID) ([]routes.Revision, error)
	Decision(ctx context.Context, subject string) (doc []byte, digest string, err error)
}

// Decider writes decisions, leading or not; *redisstore.Writer does.
type Decider interface {
	Decide(ctx context.Context, subject, expected string, doc []byte) error
}

const (
	maxBody = 1 << 20
	// tries is how often a decision is taken anew because something else was decided meanwhile.
	tries = 5
)

// decode reads a request's body; an empty one leaves into as it is. false: the refusal was sent.
func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", "the body can't be read, or is over 1 MiB")
		return false
	}
	if len(strings.TrimSpace(string(body))) == 0 {
		return true
	}
	if err := strict.Unmarshal(body, into, strict.RejectUnknownMembers(true)); err != nil {
		fail(w, http.StatusBadRequest, "bad_request", "the body is not the JSON object that docs/admin-api.md describes: "+err.Error())
		return false
	}
	return true
}

// changesView is what changed of a pinned backend since it was approved.
type changesView struct {
	Backend routes.BackendID `json:"backend"`
	Pin     string           `json:"pin"` // off: nothing is watched
	// Digest names this state: approve takes it, to approve what was seen and nothing else.
	Digest   string           `json:"digest"`
	Identity identityView     `json:"identity"`
	Tools    []catalog.Change `json:"tools"`
}

type identityView struct {
	Changed  bool              `json:"changed"`
	Approved *catalog.Identity `json:"approved,omitempty"` // absent: nothing was approved yet
	Present  catalog.Identity  `json:"present"`
}

// backend is a backend of the config with what is known of it. false: the refusal was sent.
func (a *API) backend(w http.ResponseWriter, r *http.Request) (*config.Backend, *catalog.Catalog, bool) {
	b, ok := configuredBackend(a.o.Config(), w, r)
	if !ok {
		return nil, nil, false
	}
	catalogs, _ := a.o.Source.Snapshot()
	if catalogs[b.ID] == nil {
		fail(w, http.StatusConflict, "backend_unheard", "the backend has never answered, so that there is nothing to compare")
		return nil, nil, false
	}
	return b, catalogs[b.ID], true
}

// pins reads what was approved of a backend; nil without an error: nothing was.
func (a *API) pins(ctx context.Context, id routes.BackendID) (*catalog.Pins, string, error) {
	doc, digest, err := a.o.Record.Decision(ctx, history.PinsSubject(id))
	if errors.Is(err, routes.ErrNotPublished) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	pins, err := catalog.DecodePins(doc)
	return pins, digest, err
}

func viewChanges(b *config.Backend, cat *catalog.Catalog, pins *catalog.Pins) changesView {
	v := changesView{Backend: b.ID, Pin: b.Pin, Tools: []catalog.Change{}, Identity: identityView{Present: catalog.IdentityOf(cat)}}
	if pins != nil {
		v.Identity.Approved = &pins.Identity
		v.Identity.Changed = !pins.Identity.Equal(v.Identity.Present)
		v.Tools = append(v.Tools, pins.Changes(cat)...)
	}
	doc, err := json.Marshal(v)
	if err == nil { // it is made of strings and of JSON that was decoded before
		v.Digest = routes.Digest(doc)
	}
	return v
}

func (a *API) changes(w http.ResponseWriter, r *http.Request) {
	b, cat, ok := a.backend(w, r)
	if !ok {
		return
	}
	pins, _, err := a.pins(r.Context(), b.ID)
	if err != nil {
		a.storeFailed(w, err)
		return
	}
	answer(w, http.StatusOK, viewChanges(b, cat, pins))
}

func (a *API) approve(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Tools  []string `json:"tools"`
		Digest string   `json:"digest"`
	}
	if !decode(w, r, &in) {
		return
	}
	b, cat, ok := a.backend(w, r)
	if !ok {
		return
	}
	if b.Pin == config.PinOff || b.Pin == "" {
		fail(w, http.StatusConflict, "not_pinned", "pin is off for this backend: whatever it defines is published")
		return
	}
	for range tries {
		pins, digest, err := a.pins(r.Context(), b.ID)
		if err != nil {
			a.storeFailed(w, err)
			return
		}
		if in.Digest != "" && in.Digest != viewChanges(b, cat, pins).Digest {
			fail(w, http.StatusConflict, "changed_meanwhile", "the changes are not those that the digest names any more; look at them again")
			return
		}
		next, unknown := pins.Approve(cat, in.Tools, len(in.Tools) == 0)
		if len(unknown) > 0 {
			fail(w, http.StatusNotFound, "unknown_tool", fmt.Sprintf("the backend offers no tools named %q (names are those that the backend uses)", unknown))
			return
		}
		doc, err := catalog.EncodePins(next)
		if err == nil {
			err = a.o.Decider.Decide(r.Context(), history.PinsSubject(b.ID), digest, doc)
		}
		if errors.Is(err, routes.ErrConflict) {
			continue
		}
		if err != nil {
			a.storeFailed(w, err)
			return
		}
		a.log.Info("definitions approved", zap.String("backend", string(b.ID)), zap.Strings("tools", in.Tools), zap.Bool("all", len(in.Tools) == 0))
		answer(w, http.StatusOK, viewChanges(b, cat, next))
		return
	}
	conflict(w)
}

func conflict(w http.ResponseWriter) {
	fail(w, http.StatusConflict, "changed_meanwhile", "others decide on this at the same time; try again")
}
