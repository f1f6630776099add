package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
)

func TestLeasesSayWhyAReplicaDoesNotLead(t *testing.T) {
	for name, tt := range map[string]struct {
		err   error
		owner string
		want  string
	}{
		"it leads":              {nil, "me", ""},
		"another one does":      {fmt.Errorf("acquire: %w: x holds the lease", routes.ErrNotLeader), "other", "held"},
		"its config is old":     {fmt.Errorf("acquire: %w: %w", routes.ErrNotLeader, routes.ErrConfigOutdated), "other", "config_outdated"},
		"Redis was away":        {fmt.Errorf("acquire: %w", routes.ErrUnavailable), "other", "store_unavailable"},
		"something else failed": {errors.New("boom"), "other", "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, newWorld(), &config.Config{Admin: config.Token{Value: adminToken}})
			a.o.Owner, a.o.NotLeading = tt.owner, func() error { return tt.err }
			r := httptest.NewRequest(http.MethodGet, "/api/v1/leases", nil)
			r.Header.Set("Authorization", "Bearer "+adminToken)
			rec := httptest.NewRecorder()
			a.ServeHTTP(rec, r)
			var got struct{ Leases []leaseView }
			if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || len(got.Leases) != 1 {
				t.Fatalf("%s: %v", rec.Body, err)
			}
			if l := got.Leases[0]; l.Reason != tt.want || (l.Detail != "") != (tt.want != "") || l.Self != (tt.owner == "me") {
				t.Errorf("%+v, want the reason %q", l, tt.want)
			}
		})
	}
}
