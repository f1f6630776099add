package admin

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
)

// dataplanes shows what each dataplane says of itself (routes.DataplaneStatus), as it said it.
func (a *API) dataplanes(w http.ResponseWriter, r *http.Request) {
	statuses, err := a.o.Board.Statuses(r.Context())
	if err != nil {
		a.storeFailed(w, err)
		return
	}
	views := []json.RawMessage{}
	for _, id := range slices.Sorted(maps.Keys(statuses)) {
		doc := json.RawMessage(statuses[id])
		if !json.Valid(doc) {
			a.log.Warn("status of a dataplane is not JSON", zap.String("dataplane", id))
			continue
		}
		views = append(views, doc)
	}
	answer(w, http.StatusOK, map[string]any{"dataplanes": views})
}

// leaseView is one lease.
type leaseView struct {
	Name  string `json:"name"`
	Owner string `json:"owner,omitempty"` // absent: nobody holds it
	Epoch uint64 `json:"epoch,omitempty"`
	Self  bool   `json:"self"` // this replica holds it
	// Reason is why this replica does not, as of its latest try: held, config_outdated, store_unavailable, failed; Detail says it
	// in words. Absent: it holds it, or has not tried.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
}

func (a *API) leases(w http.ResponseWriter, r *http.Request) {
	owner, epoch, err := a.o.Board.Leader(r.Context())
	if err != nil {
		a.storeFailed(w, err)
		return
	}
	leader := leaseView{Name: "leader", Owner: owner, Epoch: epoch, Self: owner != "" && owner == a.o.Owner}
	if !leader.Self && a.o.NotLeading != nil {
		leader.Reason, leader.Detail = notLeading(a.o.NotLeading())
	}
	answer(w, http.StatusOK, map[string]any{"leases": []leaseView{leader}})
}

// notLeading says in a word, and in words, why a replica does not lead.
func notLeading(err error) (reason, detail string) {
	switch {
	case err == nil:
		return "", ""
	case errors.Is(err, routes.ErrConfigOutdated):
		return "config_outdated", err.Error()
	case errors.Is(err, routes.ErrNotLeader):
		return "held", err.Error()
	case errors.Is(err, routes.ErrUnavailable):
		return "store_unavailable", "Redis could not be reached"
	}
	return "failed", "the log says more"
}

// storeFailed tells that Redis is away; the cause goes to the log.
func (a *API) storeFailed(w http.ResponseWriter, err error) {
	a.log.Warn("admin request failed", zap.Error(err))
	if errors.Is(err, routes.ErrUnavailable) {
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, "store_unavailable", "Redis can't be reached")
		return
	}
	fail(w, http.StatusInternalServerError, "internal", "internal error; the log says more")
}
