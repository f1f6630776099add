package egress

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

func TestHeaderOfTheOperator(t *testing.T) {
	expand := func(s string) (string, error) {
		if s == "${env:GONE}" {
			return "", errors.New("GONE is not set")
		}
		return "sesame", nil
	}
	for name, tt := range map[string]struct {
		backend routes.Backend
		want    http.Header // nil: refused
	}{
		"nothing": {routes.Backend{}, http.Header{}},
		"values and references": {
			routes.Backend{AddHeaders: map[string]routes.SecretRef{"x-team": "a", "Authorization": "Bearer ${env:T}"}},
			http.Header{"X-Team": {"a"}, "Authorization": {"sesame"}},
		},
		"removed, in whatever spelling": {
			routes.Backend{AddHeaders: map[string]routes.SecretRef{"X-Team": "a", "X-Key": "k"}, RemoveHeaders: []string{"x_team"}},
			http.Header{"X-Key": {"k"}},
		},
		"a reference that leads nowhere": {routes.Backend{AddHeaders: map[string]routes.SecretRef{"X": "${env:GONE}"}}, nil},
		"a reference of a discovered backend": {
			routes.Backend{Discovered: true, AddHeaders: map[string]routes.SecretRef{"X": "${env:T}"}}, nil,
		},
		"a value of a discovered backend": {
			routes.Backend{Discovered: true, AddHeaders: map[string]routes.SecretRef{"X": "v"}}, http.Header{"X": {"v"}},
		},
	} {
		got, err := newClient(t, Options{Expand: expand}).Header(&tt.backend)
		if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.want != nil) {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}
