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
}

func (a *API) leases(w http.ResponseWriter, r *http.Request) {
	owner, epoch, err := a.o.Board.Leader(r.Context())
	if err != nil {
		a.storeFailed(w, err)
		return
	}
	leader := leaseView{Name: "leader", Owner: owner, Epoch: epoch, Self: owner != "" && owner == a.o.Owner}
	answer(w, http.StatusOK, map[string]any{"leases": []leaseView{leader}})
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
