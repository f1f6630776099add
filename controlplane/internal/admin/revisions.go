package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/controlplane/internal/history"
	"github.com/weir-mcp/weir/routes"
)

// revisionView is one revision of a host in brief.
type revisionView struct {
	routes.Version
	Time    time.Time      `json:"time"`
	Digest  string         `json:"digest"`
	Present bool           `json:"present,omitempty"` // it is what stands published
	Counts  history.Counts `json:"counts"`
}

// holdView says that a host is held.
type holdView struct {
	Version routes.Version `json:"version"`
	Since   time.Time      `json:"since"`
}

// revisionsOf reads a host's history; false: the refusal was sent.
func (a *API) revisionsOf(w http.ResponseWriter, r *http.Request) (routes.HostID, []routes.Revision, bool) {
	host := routes.HostID(chi.URLParam(r, "host"))
	revisions, err := a.o.Record.History(r.Context(), host)
	if err != nil {
		a.storeFailed(w, err)
		return "", nil, false
	}
	if len(revisions) == 0 {
		fail(w, http.StatusNotFound, "unknown_host", "no virtual host of this name is published")
		return "", nil, false
	}
	return host, revisions, true
}

func (a *API) holdOf(ctx context.Context, host routes.HostID) (*history.Hold, string, error) {
	doc, digest, err := a.o.Record.Decision(ctx, history.HoldSubject(host))
	if errors.Is(err, routes.ErrNotPublished) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	hold := new(history.Hold)
	if err := json.Unmarshal(doc, hold); err != nil {
		return nil, digest, fmt.Errorf("decode hold: %w", err)
	}
	return hold, digest, nil
}

func (a *API) revisions(w http.ResponseWriter, r *http.Request) {
	host, revisions, ok := a.revisionsOf(w, r)
	if !ok {
		return
	}
	hold, _, err := a.holdOf(r.Context(), host)
	if err != nil {
		a.storeFailed(w, err)
		return
	}
	out := struct {
		Host      routes.HostID  `json:"host"`
		Held      *holdView      `json:"held,omitempty"`
		Revisions []revisionView `json:"revisions"`
	}{Host: host, Revisions: make([]revisionView, len(revisions))}
	if hold != nil {
		out.Held = &holdView{hold.Version, hold.Since}
	}
	for i, rev := range revisions {
		counts, err := history.CountsOf(rev.Archive)
		if err != nil {
			a.log.Warn("revision not readable", zap.String("host", string(host)), zap.Uint64("revision", rev.Version.Revision), zap.Error(err))
		}
		out.Revisions[i] = revisionView{Version: rev.Version, Time: rev.Time, Digest: rev.Digest, Present: i == 0, Counts: counts}
	}
	answer(w, http.StatusOK, out)
}

// pick finds a revision by its number, the newest where a number was used twice; false: the refusal was sent.
func pick(w http.ResponseWriter, revisions []routes.Revision, number uint64) (routes.Revision, bool) {
	i := slices.IndexFunc(revisions, func(r routes.Revision) bool { return r.Version.Revision == number })
	if i < 0 {
		fail(w, http.StatusNotFound, "unknown_revision", fmt.Sprintf("revision %d is not among the latest %d of this host", number, routes.HistoryLength))
		return routes.Revision{}, false
	}
	return revisions[i], true
}

// numbered finds the revision that a text names.
func numbered(w http.ResponseWriter, revisions []routes.Revision, text string) (routes.Revision, bool) {
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", "a revision is a number")
		return routes.Revision{}, false
	}
	return pick(w, revisions, number)
}

// unpack opens a revision; false: the refusal was sent.
func (a *API) unpack(w http.ResponseWriter, rev routes.Revision) (*routes.VirtualHost, *routes.HostList, bool) {
	doc, list, err := history.Unpack(rev.Archive)
	if err != nil {
		a.log.Error("revision not readable", zap.Uint64("revision", rev.Version.Revision), zap.Error(err))
		fail(w, http.StatusInternalServerError, "internal", "the revision can't be read; the log says more")
		return nil, nil, false
	}
	doc.Incarnation, doc.Epoch, doc.Revision = rev.Version.Incarnation, rev.Version.Epoch, rev.Version.Revision
	return doc, list, true
}

func (a *API) revision(w http.ResponseWriter, r *http.Request) {
	_, revisions, ok := a.revisionsOf(w, r)
	if !ok {
		return
	}
	rev, ok := numbered(w, revisions, chi.URLParam(r, "revision"))
	if !ok {
		return
	}
	doc, _, ok := a.unpack(w, rev)
	if !ok {
		return
	}
	raw, err := routes.EncodeHost(doc)
	if err != nil {
		fail(w, http.StatusInternalServerError, "internal", "the document can't be encoded")
		return
	}
	answer(w, http.StatusOK, json.RawMessage(raw))
}

func (a *API) difference(w http.ResponseWriter, r *http.Request) {
	host, revisions, ok := a.revisionsOf(w, r)
	if !ok {
		return
	}
	from, ok := numbered(w, revisions, chi.URLParam(r, "revision"))
	if !ok {
		return
	}
	to := revisions[0]
	if text := r.URL.Query().Get("to"); text != "" {
		if to, ok = numbered(w, revisions, text); !ok {
			return
		}
	}
	fromDoc, fromList, ok := a.unpack(w, from)
	if !ok {
		return
	}
	toDoc, toList, ok := a.unpack(w, to)
	if !ok {
		return
	}
	answer(w, http.StatusOK, struct {
		Host       routes.HostID      `json:"host"`
		From       routes.Version     `json:"from"`
		To         routes.Version     `json:"to"`
		Difference history.Difference `json:"difference"`
	}{host, from.Version, to.Version, history.Compare(fromDoc, toDoc, fromList, toList)})
}

func (a *API) rollback(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Revision *uint64 `json:"revision"`
	}
	if !decode(w, r, &in) {
		return
	}
	if in.Revision == nil {
		fail(w, http.StatusBadRequest, "bad_request", `revision is missing: {"revision": N} holds the host at what it was then, {"revision": 0} resumes`)
		return
	}
	host := routes.HostID(chi.URLParam(r, "host"))
	if !slices.ContainsFunc(a.o.Config().VirtualHosts, func(vh config.VirtualHost) bool { return vh.ID == host }) {
		fail(w, http.StatusNotFound, "unknown_host", "no virtual host of this name is configured")
		return
	}
	var doc []byte
	view := struct {
		Host routes.HostID `json:"host"`
		Held *holdView     `json:"held"` // null: the host is not held
	}{Host: host}
	if *in.Revision != 0 {
		_, revisions, ok := a.revisionsOf(w, r)
		if !ok {
			return
		}
		rev, ok := pick(w, revisions, *in.Revision)
		if !ok {
			return
		}
		if _, _, ok := a.unpack(w, rev); !ok {
			return
		}
		hold := history.Hold{Version: rev.Version, Since: time.Now().UTC(), Archive: rev.Archive}
		view.Held = &holdView{hold.Version, hold.Since}
		var err error
		if doc, err = json.Marshal(hold); err != nil {
			fail(w, http.StatusInternalServerError, "internal", "the hold can't be encoded")
			return
		}
	}
	for range tries {
		_, digest, err := a.holdOf(r.Context(), host)
		if err == nil || digest != "" { // one that can't be read must not stay for that
			err = a.o.Decider.Decide(r.Context(), history.HoldSubject(host), digest, doc)
		}
		if errors.Is(err, routes.ErrConflict) {
			continue
		}
		if err != nil {
			a.storeFailed(w, err)
			return
		}
		a.log.Info("roll-back decided", zap.String("host", string(host)), zap.Uint64("revision", *in.Revision))
		answer(w, http.StatusAccepted, view)
		return
	}
	conflict(w)
}
