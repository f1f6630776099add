package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
)

// Revoker writes revocations, leading or not; *redisstore.Writer has it.
type Revoker interface {
	Revoke(ctx context.Context, revocations []routes.Revocation) error
}

// Revoked is what this replica knows to be revoked; *access.Revocations has it.
type Revoked interface {
	All() []routes.Revocation
}

const (
	// maxRevocationBody is enough for three texts of routes.MaxRevocationText, however they are escaped.
	maxRevocationBody = 32 << 10
	// maxShown bounds the list of revocations.
	maxShown = 1000
)

// revocationRequest is the body of POST /api/v1/revocations; absent and empty are the same.
type revocationRequest struct {
	Issuer       string `json:"issuer"`
	JTI          string `json:"jti"`
	Subject      string `json:"subject"`
	IssuedBefore string `json:"issued_before"`
	Until        string `json:"until"`
}

func (a *API) revoke(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRevocationBody))
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", "the body can't be read, or is over 32 KiB")
		return
	}
	revocation, err := parseRevocation(body, time.Now())
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	err = a.o.Revoker.Revoke(r.Context(), []routes.Revocation{revocation})
	switch {
	case errors.Is(err, routes.ErrTooManyRevocations):
		a.log.Error("token not revoked", zap.Error(err))
		fail(w, http.StatusInsufficientStorage, "too_many_revocations", fmt.Sprintf(
			"%d revocations are in force, and no more can be kept; they go as they end", routes.MaxRevocations))
		return
	case err != nil:
		a.storeFailed(w, err)
		return
	}
	a.log.Info("revoked", zap.String("issuer", revocation.Issuer), zap.String("jti", revocation.TokenID),
		zap.String("subject", revocation.Subject), zap.Time("until", revocation.Until))
	answer(w, http.StatusCreated, struct {
		Revocation routes.Revocation `json:"revocation"`
		Warnings   []string          `json:"warnings,omitempty"`
	}{revocation, a.doubts(&revocation)})
}

// parseRevocation reads a request. Its errors name fields.
func parseRevocation(body []byte, now time.Time) (routes.Revocation, error) {
	var in revocationRequest
	if err := json.Unmarshal(body, &in, json.RejectUnknownMembers(true)); err != nil {
		return routes.Revocation{}, describe(err)
	}
	r := routes.Revocation{Issuer: in.Issuer, TokenID: in.JTI, Subject: in.Subject}
	var errs []error
	moment := func(field, text string) time.Time {
		if text == "" {
			return time.Time{}
		}
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: is not a time as RFC 3339 writes it, such as 2026-07-28T12:00:00Z", field))
			return now // so that nothing else is said of it
		}
		return t.UTC()
	}
	r.IssuedBefore, r.Until = moment("issued_before", in.IssuedBefore), moment("until", in.Until)
	if r.Subject != "" && r.TokenID == "" && in.IssuedBefore == "" {
		r.IssuedBefore = now.UTC()
	}
	errs = append(errs, r.Validate())
	if len(errs) == 1 && in.Until != "" && !now.Before(r.Until) {
		errs = append(errs, errors.New("until: has passed"))
	}
	return r, errors.Join(errs...)
}

// describe says what is wrong with a body, in words for whoever wrote it.
func describe(err error) error {
	if wrong, ok := errors.AsType[*json.SemanticError](err); ok {
		field := strings.TrimPrefix(string(wrong.JSONPointer), "/")
		switch {
		case errors.Is(err, json.ErrUnknownName):
			return fmt.Errorf("%s: no such field; issuer, jti, subject, issued_before and until are known", field)
		case field == "":
			return errors.New("the body is not a JSON object")
		}
		return fmt.Errorf("%s: is not a string", field)
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return errors.New("a field stands twice")
	}
	return errors.New("the body is not JSON")
}

// doubts are what is probably not meant.
func (a *API) doubts(r *routes.Revocation) (doubts []string) {
	issuers := a.o.Config().Auth.Issuers
	if !slices.ContainsFunc(issuers, func(is access.Issuer) bool { return is.Issuer == r.Issuer }) {
		doubts = append(doubts, "issuer: auth.issuers has no such issuer, so that none of its tokens is accepted anyhow")
	}
	return doubts
}

// revocations shows what is in force, that which ends first at the top.
func (a *API) revocations(w http.ResponseWriter, _ *http.Request) {
	all := a.o.Revoked.All()
	slices.SortFunc(all, func(a, b routes.Revocation) int {
		return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.Key(), b.Key()))
	})
	answer(w, http.StatusOK, map[string]any{"count": len(all), "revocations": all[:min(len(all), maxShown)]})
}
