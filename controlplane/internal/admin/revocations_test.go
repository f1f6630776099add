package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
)

func (w *world) Revoke(_ context.Context, list []routes.Revocation) error {
	w.revoked = append(w.revoked, list...)
	return w.revokeErr
}

func (w *world) All() []routes.Revocation { return w.revoked }

// postRevocation returns status, error code, error message and body.
func postRevocation(t *testing.T, w *world, body string) (int, failure, string) {
	t.Helper()
	a := newAPI(t, w, &config.Config{
		Admin: config.Token{Value: adminToken}, Auth: access.Config{Issuers: []access.Issuer{{Issuer: "https://idp.test"}}},
	})
	r := httptest.NewRequest(http.MethodPost, "/api/v1/revocations", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+adminToken)
	rec := httptest.NewRecorder()
	a.ServeHTTP(rec, r)
	var f failure
	if err := json.Unmarshal(rec.Body.Bytes(), &f); err != nil {
		t.Fatalf("body %q: %v", rec.Body, err)
	}
	return rec.Code, f, rec.Body.String()
}

func TestRevoke(t *testing.T) {
	until := time.Date(2090, 1, 1, 11, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		body string
		want routes.Revocation
	}{
		"a token": {`{"issuer":"https://idp.test","jti":"t","until":"2090-01-01T12:00:00+01:00"}`,
			routes.Revocation{Issuer: "https://idp.test", TokenID: "t", Until: until}},
		"a subject": {`{"issuer":"https://idp.test","subject":"s","issued_before":"2089-01-01T11:00:00.25Z","until":"2090-01-01T11:00:00Z"}`,
			routes.Revocation{Issuer: "https://idp.test", Subject: "s", IssuedBefore: until.AddDate(-1, 0, 0).Add(250 * time.Millisecond), Until: until}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			status, _, body := postRevocation(t, w, tt.body)
			if status != http.StatusCreated || strings.Contains(body, "warnings") {
				t.Errorf("%d %s", status, body)
			}
			if diff := cmp.Diff([]routes.Revocation{tt.want}, w.revoked); diff != "" {
				t.Errorf("written (-want +got):\n%s", diff)
			}
		})
	}
}

func TestASubjectIsRevokedAsOfNow(t *testing.T) {
	w, before := newWorld(), time.Now()
	status, _, body := postRevocation(t, w, `{"issuer":"https://idp.test","subject":"s","until":"2090-01-01T11:00:00Z"}`)
	if status != http.StatusCreated || len(w.revoked) != 1 {
		t.Fatalf("%d %s", status, body)
	}
	if at := w.revoked[0].IssuedBefore; at.Before(before) || at.After(time.Now()) {
		t.Errorf("issued_before is %v, want now", at)
	}
}

func TestRevokeWarnsOfAnUnknownIssuer(t *testing.T) {
	w := newWorld()
	status, _, body := postRevocation(t, w, `{"issuer":"https://typo.test","jti":"t","until":"2090-01-01T11:00:00Z"}`)
	if status != http.StatusCreated || len(w.revoked) != 1 || !strings.Contains(body, `"issuer: auth.issuers has no such issuer`) {
		t.Errorf("%d %s", status, body)
	}
}

func TestFaultsOfARevocationNameTheField(t *testing.T) {
	for name, tt := range map[string]struct{ body, want string }{
		"nothing":            {``, "the body is not JSON"},
		"a list":             {`[]`, "the body is not a JSON object"},
		"torn":               {`{"issuer":"i"`, "the body is not JSON"},
		"an empty object":    {`{}`, "issuer: is required; jti: this or subject is required; until: is required"},
		"an unknown field":   {`{"issuer":"i","token":"x"}`, "token: no such field; issuer, jti, subject, issued_before and until are known"},
		"a number":           {`{"issuer":1}`, "issuer: is not a string"},
		"a field twice":      {`{"issuer":"i","issuer":"j"}`, "a field stands twice"},
		"both":               {`{"issuer":"i","jti":"t","subject":"s","until":"2090-01-01T00:00:00Z"}`, "subject: can't stand beside jti"},
		"a moment for a jti": {`{"issuer":"i","jti":"t","issued_before":"2026-01-01T00:00:00Z","until":"2090-01-01T00:00:00Z"}`, "issued_before: goes with subject only"},
		"no RFC 3339":        {`{"issuer":"i","jti":"t","until":"tomorrow"}`, "until: is not a time as RFC 3339 writes it, such as 2026-07-28T12:00:00Z"},
		"a Unix time": {`{"issuer":"i","subject":"s","issued_before":"1767225600","until":"2090-01-01T00:00:00Z"}`,
			"issued_before: is not a time as RFC 3339 writes it, such as 2026-07-28T12:00:00Z"},
		"the past":           {`{"issuer":"i","jti":"t","until":"2020-01-01T00:00:00Z"}`, "until: has passed"},
		"something too long": {`{"issuer":"i","jti":"` + strings.Repeat("x", 1025) + `","until":"2090-01-01T00:00:00Z"}`, "jti: has 1025 bytes; at most 1024 are possible"},
		"far too long":       {strings.Repeat(" ", 40<<10), "the body can't be read, or is over 32 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			status, f, _ := postRevocation(t, w, tt.body)
			if status != http.StatusBadRequest || f.Error.Code != "bad_request" || f.Error.Message != tt.want {
				t.Errorf("%d %s %q, want 400 bad_request %q", status, f.Error.Code, f.Error.Message, tt.want)
			}
			if len(w.revoked) != 0 {
				t.Errorf("written: %v", w.revoked)
			}
		})
	}
}

func TestARevocationThatIsNotWritten(t *testing.T) {
	for name, tt := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"Redis is away": {fmt.Errorf("revoke: %w", routes.ErrUnavailable), 503, "store_unavailable"},
		"too many":      {fmt.Errorf("revoke: %w", routes.ErrTooManyRevocations), 507, "too_many_revocations"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.revokeErr = tt.err
			status, f, _ := postRevocation(t, w, `{"issuer":"https://idp.test","jti":"t","until":"2090-01-01T11:00:00Z"}`)
			if status != tt.status || f.Error.Code != tt.code {
				t.Errorf("%d %s, want %d %s", status, f.Error.Code, tt.status, tt.code)
			}
		})
	}
}

func TestRevocationsAreShown(t *testing.T) {
	w := newWorld()
	at := time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range maxShown + 5 {
		w.revoked = append(w.revoked, routes.Revocation{Issuer: "i", TokenID: fmt.Sprint(i), Until: at.Add(-time.Duration(i) * time.Second)})
	}
	a := newAPI(t, w, &config.Config{Admin: config.Token{Value: adminToken}})
	r := httptest.NewRequest(http.MethodGet, "/api/v1/revocations", nil)
	r.Header.Set("Authorization", "Bearer "+adminToken)
	rec := httptest.NewRecorder()
	a.ServeHTTP(rec, r)
	var got struct {
		Count       int
		Revocations []routes.Revocation
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Count != maxShown+5 || len(got.Revocations) != maxShown || got.Revocations[0].TokenID != fmt.Sprint(maxShown+4) {
		t.Errorf("count %d, %d shown, first %+v", got.Count, len(got.Revocations), got.Revocations[0])
	}
}
